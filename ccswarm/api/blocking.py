"""Plans, runs and tools for blocking programs. Each call has an event loop of its own, on a thread."""

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
    """Return what keeps a plan from being carried out, each with its position; empty if nothing does.

    ``plan`` is a file, or a task in words; without one, the tasks of the configuration are checked. Servers are asked
    for the tools that are called, and the agents' models, programs and clones are checked; with ``offline``, only the
    text is. Raises ConfigInvalid for a file that cannot be read, ConfigChanged for one that no person has used as it
    is, and ServerUnavailable.
    """
    return _block_on(partial(aio.check, plan, config=config, workspace=workspace, offline=offline))


def submit(
    plan: AnyPath | None = None, *, config: AnyPath | None = None, workspace: AnyPath | None = None, name: str = ""
) -> Run:
    """Queue a run of a plan; ``with ccswarm.working()`` here, or ``ccswarm worker`` anywhere, carries it out. ``plan``
    is that of ``check``. ``workspace`` replaces the configured directory of the work, ``name`` the configured name of
    the run. Raises PlanInvalid, naming every problem, ConfigInvalid and ConfigChanged."""
    return Run(_block_on(partial(aio.submit, plan, config=config, workspace=workspace, name=name)))


def find_run(run: str = LAST, *, config: AnyPath | None = None) -> Run:
    """Return a run by its id, the beginning of its id, or ``last``: the newest of this project. Raises RunNotFound."""
    return Run(_block_on(partial(aio.find_run, run, config=config)))


def list_runs(limit: int = FEW_RUNS, *, config: AnyPath | None = None) -> list[Run]:
    """Return the newest runs first."""
    return [Run(one) for one in _block_on(partial(aio.list_runs, limit, config=config))]


@contextmanager
def working(*, config: AnyPath | None = None) -> Generator[None]:
    """Carry out what is queued, in this process, until the block is left; what is unfinished then is handed back. A
    process can have only one such block at a time. Raises EngineUnavailable, JournalBroken and ConfigChanged."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(aio.working(config=config)):
        yield


class Run:
    """A run of a plan: queued, in progress or over. It holds nothing open."""

    def __init__(self, run: aio.Run) -> None:
        self.id = run.id
        self._run = run

    def info(self) -> RunInfo:
        """Return its current state. Raises RunNotFound if the run has been removed."""
        return _block_on(self._run.info)

    def wait(self, *, timeout: float | None = None) -> RunInfo:
        """Return its state once it is over or ``timeout`` seconds have passed. The timeout does not end the run, and a
        failed run raises nothing: see ``status``."""
        return _block_on(partial(self._run.wait, timeout=timeout))

    def events(self, *, follow: bool = True) -> Iterator[RunEvent]:
        """Yield the events of the run from its beginning, in order, until it is over, or with ``follow=False`` until
        now. Each has ``event``, ``task``, ``at`` and ``facts``."""
        received = SimpleQueue[RunEvent | None]()

        async def read() -> None:
            try:
                async with aclosing(self._run.events(follow=follow)) as events:
                    async for event in events:
                        received.put(event)
            finally:
                received.put(None)

        with start_blocking_portal() as portal:  # leaving the block ends the reading
            reading = portal.start_task_soon(read)
            while event := received.get():
                yield event
            reading.result()

    def diff(self, task: str = "") -> list[WorkDiff]:
        """Return what its tasks changed in their clones, or one task and its parts, without those that changed nothing.
        ``state`` says whether that is merged, on a branch, kept, waiting or in progress. Raises UsageInvalid for an
        unknown task."""
        return _block_on(partial(self._run.diff, task))

    def pause(self) -> None:
        """Pause the run, so that it can be resumed. Raises UsageInvalid if it is over."""
        _block_on(self._run.pause)

    def cancel(self) -> None:
        """Cancel the run. Raises UsageInvalid if it is over."""
        _block_on(self._run.cancel)

    def resume(self) -> Run:
        """Resume the run and return it; if it failed, start and return a new run of the tasks that did not succeed."""
        return Run(_block_on(self._run.resume))

    def __repr__(self) -> str:
        return repr(self._run)


class McpClient:
    """The tools of one server, given as a command line, an address (Streamable HTTP), or settings of a configuration.
    It starts in ``directory`` on first use and ends with the ``with`` block. Calls are recorded like those of agents,
    in the journal in ``state_directory``, by default the person's own."""

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
        """Return all tools of the server, in its order. Raises ServerUnavailable."""
        return self._call(self._client.discover_tools)

    def invoke_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallOutcome:
        """Call a tool. The outcome has ``ok``, ``text`` and ``structured``; for a failure ``code`` and ``message``."""
        return self._call(partial(self._client.invoke_tool, name, arguments))

    def _call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if not self._portal:
            raise UsageInvalid("the client is not open", suggestion="use it in: with McpClient(…) as client:")
        return self._portal.call(function)


def _block_on(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with start_blocking_portal() as portal:
        return portal.call(function)
