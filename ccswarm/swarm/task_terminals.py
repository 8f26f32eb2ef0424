"""The terminals that one attempt at a task opened, and how they end: before gates, after the work, or with the
attempt."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from ccswarm.brains.base import CallTool
from ccswarm.clones.clones import Clone
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, CallStatus, Json, RunStatus
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.terminals import CLOSING, OPENING, Fence, Send, Terminals, scope_for_ending

log = logging.getLogger(__name__)

NOT_SENT = (CallStatus.DENIED, CallStatus.INVALID, CallStatus.BUDGET)

Connect = Callable[[ToolScope], Awaitable[Send]]
"""Returns the function that makes calls within a scope."""


class TaskTerminals:
    """The terminals of one attempt, by the calls that opened them. With ``keep_failed``, a person wants to inspect
    those of an attempt that did not succeed. ``directory`` is where the attempt works; ``shell`` is the server of the
    terminals that its brain itself may need."""

    def __init__(
        self,
        flow: Flow,
        connect: Connect,
        run_id: str,
        directory: str,
        files: Sequence[str],
        *,
        shell: str,
        keep_failed: bool,
    ) -> None:
        self.directory = directory
        self._flow = flow
        self._id = flow.id
        """The id, also after the flow is over."""
        self._connect = connect
        self._run_id = run_id
        self._files = files
        self._shell = shell
        self._keep_failed = keep_failed
        self._fence = Fence()
        self._opened: dict[str, tuple[str, bool]] = {}
        """The server at which a terminal was opened, or may have been, and whether by the orchestrator, which closes it
        itself. By step, or by id and name of the session once they are known."""

    async def fenced(self, scope: ToolScope) -> Send:
        """Return the function that makes calls within the scope, and opens no terminal once the attempt is over."""
        return self._fence.around(await self._connect(scope))

    def begin(self, step: CallTool) -> None:
        """Note that a call is about to be made, which may open a terminal."""
        server, _, tool = step.tool.partition(".")
        if tool == OPENING:
            self._opened[step.id] = (server, step.as_host)

    def end_call(self, step: CallTool, outcome: CallOutcome) -> None:
        """Forget terminals that were not opened, or that are closed again."""
        opened, (server, _, tool) = self._opened, step.tool.partition(".")
        if outcome.status in NOT_SENT:
            opened.pop(step.id, None)
        elif tool == OPENING and outcome.ok and (name := (outcome.structured or {}).get("session_id")):
            opened[f"{name}\0{step.arguments.get('name')}"] = opened.pop(step.id)
        elif tool == CLOSING and outcome.ok:
            closed = str(step.arguments.get("session_id"))
            for key in [one for one, (where, _) in opened.items() if where == server and closed in one.split("\0")]:
                del opened[key]

    def keeps(self, status: str) -> bool:
        """Report whether they stay open after an attempt that ended with ``status``."""
        return self._keep_failed and status != RunStatus.SUCCEEDED

    async def end_in(self, clone: Clone) -> str:
        """End all that could still change the clone, also those of other attempts. Return why that failed, else
        ``""``."""
        await self._fence.settle()
        return await self._end({self._shell, *self._servers()}, clone.path)

    async def stop(self, round_number: int) -> str:
        """End them, or interrupt those that a person may want to inspect, before gates and reviewers look at the work.
        Return why that failed, else ``""``."""
        if not self._servers():
            return ""

        async def stop(_: str) -> Json:
            await self._fence.settle()
            if self._keep_failed:
                await self._interrupt(self._servers())
                return {"problem": ""}
            return {"problem": await self._end(self._servers())}

        return str((await self._flow.step(f"end terminals {round_number}", stop))["problem"])

    async def close(self, status: str) -> str:
        """End them after the work, unless they are kept. Return how a person gets to them, or why ending failed."""
        if not self._servers():
            return ""

        async def close(_: str) -> Json:
            await self._fence.settle()
            if not self.keeps(status):
                return {"said": await self._end(self._servers())}
            terminals = [await self._of(server) for server in self._servers()]
            names = [f"{one.shell}: ai-session attach {name}" for one in terminals for name in await one.names()]
            return {"said": f"its terminals are open, {', '.join(names)}" if names else ""}

        return str((await self._flow.step("close terminals", close))["said"])

    async def shut(self, status: str) -> bool:
        """Let the attempt open nothing more, and end what was being opened, unless it is kept. Report whether anything
        was ended. Nothing of this is recorded."""
        if not await self._fence.shut() or self.keeps(status):
            return False
        self._warn(await self._end(self._servers()))
        return True

    async def leave(self, status: RunStatus) -> None:
        """End them if the attempt was cancelled, and interrupt them if it was paused; in any other ``status``, another
        worker continues with them. Nothing of this is recorded."""
        await self._fence.shut()
        everyone = {server for server, _ in self._opened.values()}
        if status is RunStatus.PAUSED:
            await self._interrupt(everyone)
        elif status.over:
            self._warn(await self._end(everyone))

    def _servers(self) -> set[str]:
        """Return the servers at which agents opened terminals, or were about to."""
        return {server for server, as_host in self._opened.values() if not as_host}

    async def _end(self, servers: Iterable[str], path: Path | str = "") -> str:
        problems = [await (await self._of(server, path)).end() for server in sorted(servers)]
        return "; ".join(filter(None, problems))

    async def _interrupt(self, servers: Iterable[str]) -> None:
        for server in sorted(servers):
            await (await self._of(server)).interrupt()

    async def _of(self, server: str, path: Path | str = "") -> Terminals:
        call = await self._connect(scope_for_ending(server, self.directory, self._files))
        return Terminals(call, server, self._id, path, run_id=self._run_id, task_id=self._id)

    def _warn(self, problem: str) -> None:
        if problem:
            log.warning("%s: %s", self._id, problem)
