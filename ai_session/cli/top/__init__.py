"""The verb top: questions, runs, all sessions and a live terminal, on one screen that stays open."""

from __future__ import annotations

import sys
from typing import Any

from agentwire.cli.options import Json
from agentwire.cli.output import leave, show_json, show_rows
from agentwire.visible import visible
from ai_session.cli.output import EXIT_UNAVAILABLE, report
from ai_session.client.connection import connect


def top(as_json: Json = False) -> None:
    """Watch what waits for your answer, runs and all sessions, in this terminal.

    The selected session is shown live; Enter attaches to it, q ends. Questions are answered with the keys that they
    name. Piped, or with --json, it prints the current state once.
    """
    from ai_session.config import config

    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()) or config.environment().get("TERM") == "dumb":
        show_once(as_json)
        return
    from ai_session.cli.console import runs
    from ai_session.cli.top.app import Top

    app = Top(runs())
    app.run()
    if app.ended is not None:
        report(app.ended, as_json=False)
        leave(EXIT_UNAVAILABLE)


def show_once(as_json: bool) -> None:
    """Print the current questions, runs and sessions."""
    import asyncio

    with connect() as client:
        questions: list[dict[str, Any]] = client.request("approvals")["questions"]
        sessions = client.call("list_sessions").structured["sessions"]
    found = asyncio.run(runs_now())
    if as_json:
        show_json({"questions": questions, "sessions": sessions, "runs": found})
        return
    rows = [
        {"name": one["question_id"], "state": "asks", "about": visible(one["message"].strip().partition("\n")[0])}
        for one in questions
    ]
    rows += [{"name": visible(one["name"]), "state": one["status"], "about": visible(one["tasks"])} for one in found]
    for one in sessions:
        running = one.get("running", {}).get("command", "").partition("\n")[0]
        rows.append({"name": one["name"], "state": one["state"], "about": running or one["working_directory"]})
    show_rows(rows, ("name", "state", "about"))


async def runs_now() -> list[dict[str, Any]]:
    """Return the runs in progress and the newest of the others; empty if no program reports runs."""
    from ai_session.cli.console import runs
    from ai_session.cli.top.runs import to_list

    program = runs()
    try:
        answer = await program.ask("list", {})
    finally:
        await program.close()
    return to_list(answer.get("result", {}).get("runs", []))
