"""Plans, runs and tools for programs that wait. Each call has an event loop of its own, on a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from ccswarm import mcp
from ccswarm.api import aio
from ccswarm.api.aio import AnyPath
from ccswarm.api.values import RunInfo, WorkDiff
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import UsageInvalid
from ccswarm.models import CallOutcome, ToolInfo
from ccswarm.runs.events import RunEvent
from ccswarm.runs.status import FEW_RUNS, LAST

T = TypeVar("T")


def check(
    plan: AnyPath | None = None,
    *,
    config: AnyPath | None = None,
    workspace: AnyPath | None = None,
    offline: bool = False,
) -> list[str]:
    """What keeps a plan from being carried out, each with its place; empty where nothing does.

    ``plan`` is a file, or what is to be done in words; without one, the tasks of the configuration are meant. Servers
    are asked for the tools that it calls, and it is looked whether agents' models, programs and clones can be used;
    with ``offline`` the text alone is looked at. Raises ConfigInvalid where it cannot be read, ConfigChanged where no
    person has used the file as it is, ServerUnavailable.
    """
    return _called(partial(aio.check, plan, config=config, workspace=workspace, offline=offline))


def submit(
    plan: AnyPath | None = None, *, config: AnyPath | None = None, workspace: AnyPath | None = None, name: str = ""
) -> Run:
    """Queue a run of a plan; ``with ccswarm.working()`` here, or ``ccswarm worker`` anywhere, carries it out.

    ``plan`` as for ``check``. ``workspace`` is the directory of the work instead of the configured one, ``name`` what
    the run is called. Raises PlanInvalid, naming every problem, ConfigInvalid, ConfigChanged.
    """
    return Run(_called(partial(aio.submit, plan, config=config, workspace=workspace, name=name)))


def find_run(run: str = LAST, *, config: AnyPath | None = None) -> Run:
    """A run by its id, the beginning of it, or ``last``: the newest of this place. Raises RunNotFound."""
    return Run(_called(partial(aio.find_run, run, config=config)))


def list_runs(limit: int = FEW_RUNS, *, config: AnyPath | None = None) -> list[Run]:
    """The newest first."""
    return [Run(one) for one in _called(partial(aio.list_runs, limit, config=config))]


@contextmanager
def working(*, config: AnyPath | None = None) -> Generator[None]:
    """Carries out what is queued, in this process, until the block is left; what is unfinished is then handed back.

    A process has one such block at a time. Raises EngineUnavailable, JournalBroken, ConfigChanged.
    """
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(aio.working(config=config)):
        yield


class Run:
    """A run of a plan: queued, carried out or over. It holds nothing open."""

    def __init__(self, run: aio.Run) -> None:
        self.id = run.id
        self._run = run

    def info(self) -> RunInfo:
        """How it stands now. Raises RunNotFound once it is no longer kept."""
        return _called(self._run.info)

    def wait(self, *, timeout: float | None = None) -> RunInfo:
        """``timeout`` ends the wait, never the run, which then continues (``status`` says how it stands).

        Returns once it is over or ``timeout`` seconds have passed. That a run failed is data.
        """
        return _called(partial(self._run.wait, timeout=timeout))

    def events(self, *, follow: bool = True) -> Iterator[RunEvent]:
        """What happened in it, from its beginning on, in order; until it is over, or with ``follow=False`` until now.

        Each has ``event``, ``task``, ``at`` and ``facts``.
        """
        received = SimpleQueue[RunEvent | None]()

        async def read() -> None:
            try:
                async with aclosing(self._run.events(follow=follow)) as events:
                    async for event in events:
                        received.put(event)
            finally:
                received.put(None)

        with start_blocking_portal() as portal:  # whatever ends the block earlier ends the reading
            reading = portal.start_task_soon(read)
            while event := received.get():
                yield event
            reading.result()

    def diff(self, task: str = "") -> list[WorkDiff]:
        """What its tasks changed in their clones, or one task and its parts; without those that changed nothing.

        Merged, on a branch, kept, waiting to be accepted or under way: ``state`` says which. Raises UsageInvalid where
        there is no such task.
        """
        return _called(partial(self._run.diff, task))

    def pause(self) -> None:
        """Stop it so that it can continue later. Raises UsageInvalid where it is over."""
        _called(self._run.pause)

    def cancel(self) -> None:
        """End it. Raises UsageInvalid where it is over."""
        _called(self._run.cancel)

    def resume(self) -> Run:
        """Go on with it; of one that failed, begin a new run of what did not succeed, which is returned."""
        return Run(_called(self._run.resume))

    def __repr__(self) -> str:
        return repr(self._run)


class McpClient:
    """The tools of one server: a command line, an address (Streamable HTTP), or settings as in a configuration.

    It is started in ``directory`` when it is first needed and ends with the ``with`` block. Calls are recorded as those
    of agents are, in the journal in ``state_directory``: the person's own where it is not given.
    """

    def __init__(
        self, server: str | ServerSettings, *, directory: str | Path = ".", state_directory: Path | None = None
    ) -> None:
        self._client = mcp.McpClient(server, directory=directory, state_directory=state_directory)
        self._portal: BlockingPortal | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self._client))
            self._portal = portal
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal = None
        self._stack.close()

    @property
    def available_tools(self) -> Sequence[ToolInfo]:
        """The tools found by the last ``discover_tools``."""
        return self._client.available_tools

    def discover_tools(self) -> Sequence[ToolInfo]:
        """All tools of the server, in its order. Raises ServerUnavailable."""
        return self._call(self._client.discover_tools)

    def invoke_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallOutcome:
        """One call. The outcome has: ``ok``, ``text``, ``structured``, else ``code`` and ``message``."""
        return self._call(partial(self._client.invoke_tool, name, arguments))

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._portal:
            raise UsageInvalid("the client is not open", suggestion="with McpClient(…) as client:")
        return self._portal.call(function)


def _called(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with start_blocking_portal() as portal:
        return portal.call(function)
