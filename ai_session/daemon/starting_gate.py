"""The gate as servers get it while the daemon may still be starting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError
from ai_session.models import Answer, Principal, Question, ToolCall, ToolResult

if TYPE_CHECKING:
    # Loading it takes hundreds of milliseconds, which the first answers do without.
    from pathlib import Path

    from ai_session.daemon.app import App
    from ai_session.gate.api import Asker
    from ai_session.gate.consent.consent import Watch
    from ai_session.gate.consent.person_check import Signature, Way
    from ai_session.gate.consent.person_signature import PublicKey
    from ai_session.gate.consent.store import Grant
    from ai_session.gate.feed import Reader
    from ai_session.gate.gate import Gate
    from ai_session.gate.trace import Program
    from ai_session.sessions.changes import Changes, Kind
    from ai_session.sessions.cursor import Cursor
    from ai_session.sessions.lease import Lease
    from ai_session.sessions.viewer import Viewer
    from ai_session.tools.base import Tool


class StartingGate:
    """Calls wait until the gate is there, and say in words why when it cannot be.

    ``app`` is the one that runs, ``start`` returns once there is one or raises what kept it from starting.
    """

    def __init__(self, app: Callable[[], App | None], start: Callable[[], Awaitable[None]]) -> None:
        self._app = app
        self._start = start

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """As Gate.call; a daemon that cannot start is a result with ``is_error``."""
        try:
            gate = await self._gate()
        except AiSessionError as error:
            facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
            text = f"error {error.code}: {error.message}\nnext: {error.suggestion}"
            return ToolResult(text, {"error": facts}, is_error=True, call_id=call.call_id)
        return await gate.call(call, asker)

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[Tool]:
        """As Gate.list_tools."""
        return await (await self._gate()).list_tools(principal, also)

    async def attach(self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool) -> Viewer:
        """As Gate.attach."""
        return await (await self._gate()).attach(principal, reference, rows=rows, cols=cols, read_only=read_only)

    async def look(
        self,
        principal: Principal,
        reference: str,
        offset: int | None,
        *,
        exact: bool,
        window_bytes: int,
        wake: Callable[[], None],
    ) -> Cursor:
        """As Gate.look."""
        gate = await self._gate()
        return await gate.look(principal, reference, offset, exact=exact, window_bytes=window_bytes, wake=wake)

    async def take_over(
        self, principal: Principal, reference: str, who: str, *, force: bool, lost: Callable[[str, str], None]
    ) -> Lease:
        """As Gate.take_over."""
        return await (await self._gate()).take_over(principal, reference, who, force=force, lost=lost)

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """As Gate.rename."""
        await (await self._gate()).rename(principal, reference, name)

    async def share(self, principal: Principal, reference: str, names: list[str]) -> None:
        """As Gate.share."""
        await (await self._gate()).share(principal, reference, names)

    async def recording(self, principal: Principal, reference: str) -> Path:
        """As Gate.recording."""
        return await (await self._gate()).recording(principal, reference)

    async def approvals(self, principal: Principal) -> tuple[list[tuple[Question, Way]], list[Grant]]:
        """As Gate.approvals."""
        return await (await self._gate()).approvals(principal)

    async def person(self, principal: Principal) -> dict[str, Any]:
        """As Gate.person."""
        return await (await self._gate()).person(principal)

    async def enrol(self, principal: Principal, line: str, signature: Signature | None) -> PublicKey:
        """As Gate.enrol."""
        return await (await self._gate()).enrol(principal, line, signature)

    async def unenrol(self, principal: Principal, signature: Signature | None) -> PublicKey:
        """As Gate.unenrol."""
        return await (await self._gate()).unenrol(principal, signature)

    async def answer(
        self, principal: Principal, question_id: str, answer: Answer, signature: Signature | None = None
    ) -> str:
        """As Gate.answer."""
        return await (await self._gate()).answer(principal, question_id, answer, signature)

    async def watch(self, principal: Principal) -> Watch:
        """As Gate.watch."""
        return await (await self._gate()).watch(principal)

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[Kind] | None = None
    ) -> Changes:
        """As Gate.watch_changes."""
        return await (await self._gate()).watch_changes(principal, agent, run, kinds)

    async def follow_changes(self, principal: Principal, cursor: str = "") -> Reader:
        """As Gate.follow_changes."""
        return await (await self._gate()).follow_changes(principal, cursor)

    async def policy(self, principal: Principal, mode: str = "", signature: Signature | None = None) -> dict[str, Any]:
        """As Gate.policy."""
        return await (await self._gate()).policy(principal, mode, signature)

    async def stop(self, principal: Principal, leave: Callable[[], None], *, sessions: bool) -> str:
        """As Gate.stop; a daemon that cannot start has no audit log, and can be ended all the same."""
        try:
            gate = await self._gate()
        except AiSessionError as error:
            leave()
            return error.message
        return await gate.stop(principal, leave, sessions=sessions)

    @asynccontextmanager
    async def sandboxed(
        self, principal: Principal, argv: Sequence[str], *, profile: str, workspace: str, domains: Sequence[str] | None
    ) -> AsyncGenerator[Program]:
        """As Gate.sandboxed."""
        gate = await self._gate()
        async with gate.sandboxed(principal, argv, profile=profile, workspace=workspace, domains=domains) as program:
            yield program

    async def _gate(self) -> Gate:
        app = self._app()
        if app is None:
            await self._start()
            app = self._app()
            assert app
        return app.gate
