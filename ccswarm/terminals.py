"""Ends the terminals that agents left open in a directory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ccswarm.models import CallOutcome, CallRequest

CLEANER = "cleaner"
"""Whose calls these are in the journal."""

Send = Callable[[CallRequest], Awaitable[CallOutcome]]


def tools_for_ending(shell: str) -> tuple[str, ...]:
    """What has to be granted for it."""
    return (f"{shell}.list_sessions", f"{shell}.close_session")


async def end_terminals(
    send: Send, shell: str, directory: Path | str, *, run_id: str = "", task_id: str = "", everybodys: bool = False
) -> str:
    """End every session of an agent that may write below ``directory``, with every process in it; ``everybodys``: all
    there are, whoever opened them. Why that cannot be done, else ``""``. A server without sessions has none.

    ``run_id`` and ``task_id`` are for the journal.
    """
    listing, closing = tools_for_ending(shell)
    listed = await send(CallRequest(run_id, task_id, "list", CLEANER, listing, {}, for_user=True))
    if listed.code == "unknown_tool":
        return ""
    if not listed.ok:
        return f"its terminals cannot be listed: {listed.message or listed.text}"
    for session in (listed.structured or {}).get("sessions", ()):
        if everybodys or _is_agents(session, Path(directory)):
            given = {"session_id": session["session_id"]}
            closed = await send(CallRequest(run_id, task_id, "close", CLEANER, closing, given, for_user=True))
            if not closed.ok and closed.code != "session_not_found":
                return f"its terminal {session['name']} cannot be ended: {closed.message or closed.text}"
    return ""


def _is_agents(session: Mapping[str, Any], directory: Path) -> bool:
    """Its workspace is where its box can write, wherever its shell may have gone; an unboxed one has none."""
    where = Path(session.get("workspace") or session["working_directory"])
    return "run:" in session.get("owner", "") and (where.is_relative_to(directory) or directory.is_relative_to(where))
