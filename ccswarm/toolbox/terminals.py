"""The terminals of an attempt at a task: found by owner, then interrupted, ended, or left to a person. An attempt is a
principal of its own: ``run:EXECUTION`` in the owner of each session that its agents open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ccswarm.config.settings import AgentSettings
from ccswarm.models import CallOutcome, CallRequest, CallStatus
from ccswarm.toolbox.scope import ToolScope

CLEANER = "cleaner"
"""The agent under whose name the journal records these calls."""

OPENING = "create_session"
CLOSING = "close_session"
"""The tools that open and close terminals."""

SETTLE_SECONDS = 60.0
"""How long to wait for a terminal that was being opened when its attempt ended."""

Send = Callable[[CallRequest], Awaitable[CallOutcome]]
IsLeft = Callable[[str, str], Awaitable[bool]]
"""Reports whether an attempt is over, and nothing asks to keep the terminals that this agent opened in it."""


def scope_for_ending(shell: str, directory: str, files: Sequence[str] = ()) -> ToolScope:
    """Return the scope with the grants that ending terminals takes."""
    grants = (f"{shell}.list_sessions", f"{shell}.close_session", f"{shell}.interrupt_command")
    return ToolScope({CLEANER: AgentSettings(name=CLEANER, grants=grants)}, directory, files=files)


class Fence:
    """The barrier between an attempt and its terminals. A terminal that is being opened when the attempt ends is waited
    for, so that it can be ended, and no further one is opened."""

    def __init__(self) -> None:
        self._opening: set[asyncio.Task[CallOutcome]] = set()
        self._shut = False

    def around(self, send: Send) -> Send:
        """Return ``send``, but with calls that open a terminal completing even if the caller is cancelled."""

        async def fenced(request: CallRequest) -> CallOutcome:
            if not request.tool.endswith(f".{OPENING}"):
                return await send(request)
            if self._shut:
                return CallOutcome(CallStatus.CANCELLED, code="cancelled", message="the attempt is over")
            opening = asyncio.create_task(_complete(send, request))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            return await asyncio.shield(opening)

        return fenced

    async def settle(self) -> None:
        """Wait until no terminal is being opened, or for ``SETTLE_SECONDS``."""
        if self._opening:
            await asyncio.wait(list(self._opening), timeout=SETTLE_SECONDS)

    async def shut(self) -> bool:
        """Forbid opening terminals from now on, and ``settle``. Report whether one was being opened."""
        self._shut = True
        opening = bool(self._opening)
        await self.settle()
        return opening


async def _complete(send: Send, request: CallRequest) -> CallOutcome:
    return await send(request)


@dataclass(frozen=True, slots=True)
class Terminals:
    """The terminals of one server that are selected by these fields.

    ``principal`` selects those that the attempt opened, or, if it is a run, those of all its attempts; with ``agent``,
    only that agent's. ``directory`` selects all of agents that may write below it, ``any_owner`` all there are.
    ``run_id`` and ``task_id`` go to the journal. A server without sessions has none.
    """

    send: Send
    shell: str
    principal: str = ""
    directory: Path | str = ""
    any_owner: bool = False
    run_id: str = ""
    task_id: str = ""
    agent: str = ""

    async def end(self) -> str:
        """End them with every process in them. Return why that failed, else ``""``."""
        sessions, problem = await self._list()
        return await self._end(sessions) or problem

    async def interrupt(self) -> tuple[int, str]:
        """Interrupt what runs in them, and leave them open. Return in how many something was interrupted, and why they
        cannot be listed, else ``""``. A failed interrupt is ignored."""
        sessions, problem = await self._list()
        interrupted = [
            await self._request("interrupt", "interrupt_command", session_id=one["session_id"]) for one in sessions
        ]
        return sum(answer.ok for answer in interrupted), problem

    async def end_those_of(self, is_left: IsLeft) -> tuple[int, str]:
        """End those whose attempt and agent are left over. Return their number, and why ending failed, else ``""``."""
        sessions, problem = await self._list()
        found = [one for one in sessions if (whose := principal_of(one)) and await is_left(whose, agent_of(one))]
        return len(found), problem or await self._end(found)

    async def names(self) -> list[str]:
        """Return their names."""
        return [str(session["name"]) for session in (await self._list())[0]]

    async def _end(self, sessions: Sequence[Mapping[str, Any]]) -> str:
        for session in sessions:
            closed = await self._request("close", "close_session", session_id=session["session_id"])
            if not closed.ok and closed.code != "session_not_found":
                return f"its terminal {session['name']} cannot be ended: {closed.message or closed.text}"
        return ""

    async def _list(self) -> tuple[list[Mapping[str, Any]], str]:
        listed = await self._request("list", "list_sessions")
        if listed.code == "unknown_tool":
            return [], ""
        if not listed.ok:
            return [], f"its terminals cannot be listed: {listed.message or listed.text}"
        sessions: list[Mapping[str, Any]] = list((listed.structured or {}).get("sessions", ()))
        return [session for session in sessions if self._is_selected(session)], ""

    def _is_selected(self, session: Mapping[str, Any]) -> bool:
        return (
            self.any_owner
            or (bool(self.principal) and self._opened_by_principal(session))
            or (bool(self.directory) and _may_write_below(session, Path(self.directory)))
        )

    def _opened_by_principal(self, session: Mapping[str, Any]) -> bool:
        principal = principal_of(session)
        if principal != self.principal and not principal.startswith(f"{self.principal}."):
            return False
        return not self.agent or str(session.get("owner", "")).endswith(f"/agent:{self.agent}")

    async def _request(self, step: str, tool: str, **arguments: Any) -> CallOutcome:
        whose, name = (self.run_id, self.task_id, step, CLEANER), f"{self.shell}.{tool}"
        return await self.send(CallRequest(*whose, name, arguments, for_user=True, repeatable=True))


def principal_of(session: Mapping[str, Any]) -> str:
    """Return the attempt that a session belongs to; ``""`` if there is none."""
    parts = str(session.get("owner", "")).split("/")
    return next((unquote(part.removeprefix("run:")) for part in parts if part.startswith("run:")), "")


def agent_of(session: Mapping[str, Any]) -> str:
    """Return the agent that a session belongs to; ``""`` if there is none."""
    parts = str(session.get("owner", "")).split("/")
    return next((unquote(part.removeprefix("agent:")) for part in parts if part.startswith("agent:")), "")


def _may_write_below(session: Mapping[str, Any], directory: Path) -> bool:
    """Report whether the session belongs to an agent of a run that may write below ``directory``. Its workspace is
    where its box can write, wherever its shell has changed to; without a box, the working directory counts."""
    where = Path(session.get("workspace") or session["working_directory"])
    return "run:" in session.get("owner", "") and (where.is_relative_to(directory) or directory.is_relative_to(where))
