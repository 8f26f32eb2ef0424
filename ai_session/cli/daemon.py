"""Verbs about the daemon: start, stop, restart, status."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Annotated, Any

from agentwire.cli.options import Group, Json, Option
from agentwire.cli.output import EXIT_ERROR, confirm, leave, remark, say, show_facts, show_json
from agentwire.counts import counted
from ai_session import __version__
from ai_session.cli.sessions import sessions
from ai_session.client.connection import ControlClient, connect, connect_running, error_from, has_ended, sessions_left
from ai_session.errors import AiSessionError, DaemonUnavailable, SessionExists

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
    for attempt in range(MOST_TRIES):
        client = connect_running()
        if client is None and not keep and sessions_left():
            # Sessions that an earlier daemon left are ended, too, which only a daemon can do.
            client = connect()
        if client is None:
            break
        with client, unless_ended(client):
            if not keep:
                names, problem = ended_with(client, yes, another=attempt > 0)
            if keep or problem is not None:
                end(client)
            break
    else:
        raise DaemonUnavailable(
            "new daemons end as soon as they have started", suggestion="ai-session daemon run shows why"
        )
    if problem is not None and sessions_left():
        message = f"the daemon has ended, but not its sessions: {problem.message}"
        raise error_from({"code": problem.code, "message": message, "suggestion": problem.suggestion})
    show_stopped(names, as_json, kept=keep and sessions_left())


@app.command()
def restart(as_json: Json = False) -> None:
    """End the daemon and start this version's; sessions keep running. With a wrong configuration nothing is ended."""
    from ai_session.cli.policy import check_readable

    check_readable()
    if client := connect_running():
        with client, unless_ended(client):
            end(client)
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


def ended_with(client: ControlClient, yes: bool, *, another: bool) -> tuple[list[str], AiSessionError | None]:
    """End the daemon and its sessions, all of which a person was asked about, and return their names.

    ``another``: it has replaced one about which the person may have been asked, and is told so. If the sessions are
    unknown, as with a wrong configuration, nothing is ended and the reason returned. Raises DaemonUnavailable.
    """
    while True:
        try:
            rows = sessions(client)
        except DaemonUnavailable:
            raise
        except AiSessionError as problem:
            return [], problem
        names = [row["name"] for row in rows]
        if names and not yes and another:
            remark("another daemon runs meanwhile")
            another = False
        if names and not yes and not confirm(f"End {counted(len(names), 'session')}: {', '.join(names)}?"):
            remark("nothing was ended")
            leave(EXIT_ERROR)
        try:
            return end(client, sessions=True, asked=None if yes else [row["session_id"] for row in rows]), None
        except SessionExists as problem:
            remark(problem.message)


def show_status(client: ControlClient, as_json: bool) -> None:
    """Print the daemon's status."""
    facts: dict[str, Any] = {**client.request("status"), "sessions": len(sessions(client))}
    if as_json:
        show_json(facts)
        return
    show_facts({**facts, **({"uptime_seconds": round(facts["uptime_seconds"])} if "uptime_seconds" in facts else {})})
    if facts["version"] != __version__:
        say(f"Its version differs from this one ({__version__}): ai-session daemon restart")


def show_stopped(names: list[str], as_json: bool, *, kept: bool) -> None:
    """Print what ``stop`` ended. ``kept``: sessions keep running."""
    if as_json:
        show_json({"running": False, "ended": names})
    elif kept:
        say("The daemon has ended, its sessions keep running: a verb, or an attached terminal, starts the next one.")
    else:
        say(f"The daemon is not running{'; ended: ' + ', '.join(names) if names else ''}.")


def end(client: ControlClient, *, sessions: bool = False, asked: Collection[str] | None = None) -> list[str]:
    """End the daemon, wait until its process has ended, and return the names of the sessions that it ended.

    ``sessions``: they end, too. Raises SessionExists if others than ``asked``, session ids, would end with it, and
    DaemonUnavailable if it does not end.
    """
    answer = client.request("stop", sessions=sessions, asked=None if asked is None else list(asked))
    if "problem" in answer:
        remark(f"warning: its end may be missing from the audit log: {answer['problem']}")
    client.wait_closed()
    if not has_ended(pid := client.hello["pid"]):
        raise DaemonUnavailable(f"the daemon (pid {pid}) has not ended", suggestion="see daemon.log, or kill it")
    return answer.get("ended", [])
