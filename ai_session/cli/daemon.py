"""Verbs about the daemon: start, stop, restart, status."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

from agentwire.cli.options import Group, Json, Option
from agentwire.cli.output import EXIT_ERROR, confirm, leave, remark, say, show_facts, show_json
from agentwire.counts import counted
from ai_session import __version__
from ai_session.cli.sessions import sessions
from ai_session.client.connection import ControlClient, connect, connect_running, error_from, has_ended
from ai_session.errors import AiSessionError, DaemonUnavailable

app = Group("The process that serves every client of this user.")

MOST_TRIES = 5
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]


@app.command()
def start(as_json: Json = False) -> None:
    """Start the daemon if none runs, as every other verb does."""
    with connect() as client:
        show_status(client, as_json)


@app.command()
def run() -> None:
    """Serve in the foreground, for a service manager."""
    from ai_session.daemon import host

    host.main([])


@app.command()
def status(as_json: Json = False) -> None:
    """Show version, process, uptime, connections and sessions; exit code 4 if no daemon runs."""
    with connect(start=False) as client:
        show_status(client, as_json)


@app.command()
def stop(
    keep: Annotated[bool, Option("--keep-sessions", help="Leave shells alive for the next daemon.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End the daemon and every session with all its processes; asks first on a terminal."""
    names: list[str] = []
    problem: AiSessionError | None = None
    for _ in range(MOST_TRIES):
        # Sessions that an earlier daemon left are ended, too, which only a daemon can do.
        client = connect() if not keep and has_stored_sessions() else connect_running()
        if client is None:
            break
        with client, unless_ended(client):
            if not keep:
                names, problem = listed(client)
                if names and not yes and not confirm(f"End {counted(len(names), 'session')}: {', '.join(names)}?"):
                    leave(EXIT_ERROR)
            end(client, sessions_too=not keep and problem is None)
            break
    else:
        raise DaemonUnavailable(
            "new daemons end as soon as they have started", suggestion="ai-session daemon run shows why"
        )
    if problem is not None and has_stored_sessions():
        message = f"the daemon has ended, but not its sessions: {problem.message}"
        raise error_from({"code": problem.code, "message": message, "suggestion": problem.suggestion})
    show_stopped(names, as_json)


@app.command()
def restart(as_json: Json = False) -> None:
    """End the daemon and start this version's; sessions keep running."""
    if client := connect_running():
        with client, unless_ended(client):
            end(client, sessions_too=False)
    with connect() as client:
        show_status(client, as_json)


@contextmanager
def unless_ended(client: ControlClient) -> Generator[None]:
    """Ignore DaemonUnavailable if somebody else has ended the daemon meanwhile."""
    try:
        yield
    except DaemonUnavailable:
        if not has_ended(client.hello["pid"]):
            raise


def listed(client: ControlClient) -> tuple[list[str], AiSessionError | None]:
    """Return the names of the sessions, and why they are unknown, as with a wrong configuration. The daemon can be
    ended even so, but not the sessions. Raises DaemonUnavailable."""
    try:
        return [row["name"] for row in sessions(client)], None
    except DaemonUnavailable:
        raise
    except AiSessionError as problem:
        return [], problem


def show_status(client: ControlClient, as_json: bool) -> None:
    """Print the daemon's status."""
    facts: dict[str, Any] = {**client.request("status"), "sessions": len(sessions(client))}
    if as_json:
        show_json(facts)
        return
    show_facts({**facts, **({"uptime_seconds": round(facts["uptime_seconds"])} if "uptime_seconds" in facts else {})})
    if facts["version"] != __version__:
        say(f"Its version differs from this one ({__version__}): ai-session daemon restart")


def show_stopped(names: list[str], as_json: bool) -> None:
    """Print what ``stop`` ended."""
    if as_json:
        show_json({"running": False, "ended": names})
    else:
        say(f"The daemon is not running{'; ended: ' + ', '.join(names) if names else ''}.")


def end(client: ControlClient, *, sessions_too: bool) -> None:
    """End the daemon, and wait until its process has ended. Raises DaemonUnavailable if it does not end."""
    answer = client.request("stop", sessions=sessions_too)
    if "problem" in answer:
        remark(f"warning: its end may be missing from the audit log: {answer['problem']}")
    client.wait_closed()
    if not has_ended(pid := client.hello["pid"]):
        raise DaemonUnavailable(f"the daemon (pid {pid}) has not ended", suggestion="see daemon.log, or kill it")


def has_stored_sessions() -> bool:
    """Report whether a runtime directory contains sessions."""
    from ai_session.config import config

    return any(
        next(directory.glob("sessions/*/spec.json"), None)
        for directory in config.runtime_directories(config.home_directory(), os.getuid())
    )
