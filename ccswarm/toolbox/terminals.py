"""The terminals of an attempt at a task: found by whose they are, interrupted, ended, or left to a person.

An attempt is a principal of its own, ``run:EXECUTION`` in the owner of each session that its agents open.
"""

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
"""Whose calls these are in the journal."""

OPENING = "create_session"
CLOSING = "close_session"
"""The tools by which terminals are opened and closed."""

SETTLE_SECONDS = 60.0
"""How long the opening of a terminal is waited for that was under way when its attempt ended."""

Send = Callable[[CallRequest], Awaitable[CallOutcome]]
IsLeft = Callable[[str, str], Awaitable[bool]]
"""Whether an attempt is over, and nobody asked to keep the terminals that this agent opened in it."""


def scope_for_ending(shell: str, directory: str, files: Sequence[str] = ()) -> ToolScope:
    """What has to be granted for it."""
    grants = (f"{shell}.list_sessions", f"{shell}.close_session", f"{shell}.interrupt_command")
    return ToolScope({CLEANER: AgentSettings(name=CLEANER, grants=grants)}, directory, files=files)


class Fence:
    """Between an attempt and its terminals: what is being opened when the attempt ends is waited for, so that it can be
    ended, and nothing is opened any more."""

    def __init__(self) -> None:
        self._opening: set[asyncio.Task[CallOutcome]] = set()
        self._shut = False

    def around(self, send: Send) -> Send:
        """``send``, whose calls that open a terminal go on to their answer when who asked for them is cancelled."""

        async def fenced(request: CallRequest) -> CallOutcome:
            if not request.tool.endswith(f".{OPENING}"):
                return await send(request)
            if self._shut:
                return CallOutcome(CallStatus.CANCELLED, code="cancelled", message="the attempt is over")
            opening = asyncio.create_task(_answered(send, request))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
            return await asyncio.shield(opening)

        return fenced

    async def settled(self) -> None:
        """Returns when nothing is being opened just now, or what is has had its time."""
        if self._opening:
            await asyncio.wait(list(self._opening), timeout=SETTLE_SECONDS)

    async def shut(self) -> bool:
        """As ``settled``; from now on nothing is opened. Whether something was being opened."""
        self._shut = True
        opening = bool(self._opening)
        await self.settled()
        return opening


async def _answered(send: Send, request: CallRequest) -> CallOutcome:
    return await send(request)


@dataclass(frozen=True, slots=True)
class Terminals:
    """Those of a server that an attempt, ``principal``, has opened, or, where that is a run, all its attempts, and only
    those of ``agent`` where one is named; and all of agents that may write below ``directory``; ``everybodys``: all
    there are, whoever opened them. ``run_id`` and ``task_id`` are for the journal. A server without sessions has none.
    """

    send: Send
    shell: str
    principal: str = ""
    directory: Path | str = ""
    everybodys: bool = False
    run_id: str = ""
    task_id: str = ""
    agent: str = ""

    async def end(self) -> str:
        """End them with every process in them. Why that cannot be done, else ``""``."""
        sessions, problem = await self._listed()
        return await self._end(sessions) or problem

    async def interrupt(self) -> tuple[int, str]:
        """Interrupt what runs in them, and leave them open; whatever cannot be is left as it is. In how many something
        ran, and why they cannot be found."""
        sessions, problem = await self._listed()
        asked = [await self._asked("interrupt", "interrupt_command", session_id=one["session_id"]) for one in sessions]
        return sum(answer.ok for answer in asked), problem

    async def end_those_of(self, is_left: IsLeft) -> tuple[int, str]:
        """As ``end``, of those only whose attempt and agent are left over; with how many these are."""
        sessions, problem = await self._listed()
        found = [one for one in sessions if (whose := principal_of(one)) and await is_left(whose, agent_of(one))]
        return len(found), problem or await self._end(found)

    async def names(self) -> list[str]:
        """What people call them."""
        return [str(session["name"]) for session in (await self._listed())[0]]

    async def _end(self, sessions: Sequence[Mapping[str, Any]]) -> str:
        for session in sessions:
            closed = await self._asked("close", "close_session", session_id=session["session_id"])
            if not closed.ok and closed.code != "session_not_found":
                return f"its terminal {session['name']} cannot be ended: {closed.message or closed.text}"
        return ""

    async def _listed(self) -> tuple[list[Mapping[str, Any]], str]:
        listed = await self._asked("list", "list_sessions")
        if listed.code == "unknown_tool":
            return [], ""
        if not listed.ok:
            return [], f"its terminals cannot be listed: {listed.message or listed.text}"
        sessions: list[Mapping[str, Any]] = list((listed.structured or {}).get("sessions", ()))
        return [session for session in sessions if self._is_meant(session)], ""

    def _is_meant(self, session: Mapping[str, Any]) -> bool:
        return (
            self.everybodys
            or (bool(self.principal) and self._opened(session))
            or (bool(self.directory) and _is_agents(session, Path(self.directory)))
        )

    def _opened(self, session: Mapping[str, Any]) -> bool:
        principal = principal_of(session)
        if principal != self.principal and not principal.startswith(f"{self.principal}."):
            return False
        return not self.agent or str(session.get("owner", "")).endswith(f"/agent:{self.agent}")

    async def _asked(self, step: str, tool: str, **arguments: Any) -> CallOutcome:
        whose, name = (self.run_id, self.task_id, step, CLEANER), f"{self.shell}.{tool}"
        return await self.send(CallRequest(*whose, name, arguments, for_user=True, repeatable=True))


def principal_of(session: Mapping[str, Any]) -> str:
    """The attempt that a session belongs to; ``""`` where it is none's."""
    parts = str(session.get("owner", "")).split("/")
    return next((unquote(part.removeprefix("run:")) for part in parts if part.startswith("run:")), "")


def agent_of(session: Mapping[str, Any]) -> str:
    """The agent that a session belongs to; ``""`` where it is none's."""
    parts = str(session.get("owner", "")).split("/")
    return next((unquote(part.removeprefix("agent:")) for part in parts if part.startswith("agent:")), "")


async def end_terminals(
    send: Send, shell: str, directory: Path | str, *, run_id: str = "", task_id: str = "", everybodys: bool = False
) -> str:
    """See ``Terminals.end``: of those that work in ``directory``."""
    return await Terminals(send, shell, "", directory, everybodys, run_id, task_id).end()


def _is_agents(session: Mapping[str, Any], directory: Path) -> bool:
    """Its workspace is where its box can write, wherever its shell may have gone; an unboxed one has none."""
    where = Path(session.get("workspace") or session["working_directory"])
    return "run:" in session.get("owner", "") and (where.is_relative_to(directory) or directory.is_relative_to(where))
