"""Verbs about sessions themselves: new, ls, info, rename, interrupt, kill."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any

from agentwire.cli.options import Argument, Json, Option
from agentwire.cli.output import confirm, leave, remark, say, show_facts, show_json, show_rows, when
from agentwire.counts import counted
from ai_session.cli.output import report
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, InvalidArguments
from ai_session.sandbox.workspace.words import WORDS, summary
from ai_session.sessions.names import name_from

MOST_LINES = 5
UNREADY = {
    "starting": "its start files have not ended: ai-session attach shows what they do",
    "waiting_input": "it waits for input before its prompt: ai-session screen shows it, ai-session send answers it",
}
"""What ``new`` says of a session whose state is not ready."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])")


def complete_sessions(incomplete: str) -> list[tuple[str, str]]:
    """Return names and states of the open sessions, for the shell's completion; empty if no daemon runs."""
    try:
        with connect(start=False) as client:
            found = sessions(client)
    except AiSessionError:
        return []
    return [(row["name"], row["state"]) for row in found if row["name"].startswith(incomplete)]


SessionName = Annotated[
    str, Argument(metavar="SESSION", help="Name or id.", complete=complete_sessions, show_default=False)
]


def sessions(client: ControlClient) -> list[dict[str, Any]]:
    """Return the facts of ``list_sessions`` about each session."""
    return client.call("list_sessions").structured["sessions"]


def new(
    name: Annotated[
        str | None,
        Argument(
            help="Unique; letters, digits, . _ -. Made from the directory's name when left out.", metavar="[NAME]"
        ),
    ] = None,
    directory: Annotated[str, Option("--cwd", "-C", help="Where the shell starts.")] = "",
    shell: Annotated[str, Option("--shell", help="bash, zsh, fish, dash… or a path.")] = "",
    backend: Annotated[str, Option("--backend", help="auto, tmux or pty.")] = "",
    env: Annotated[list[str] | None, Option("--env", "-e", metavar="NAME=VALUE", help="May be repeated.")] = None,
    profile: Annotated[
        str,
        Option("--profile", metavar="PROFILE", help="read-only, workspace or trusted (no box); else as configured."),
    ] = "",
    rows: Annotated[int | None, Option("--rows", least=2, help="Height.", show_default=False)] = None,
    cols: Annotated[int | None, Option("--cols", least=2, help="Width.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Open a session. One whose shell has exited starts again where it left off."""
    if name is not None and (os.sep in name or name in (os.curdir, os.pardir)) and os.path.isdir(name):
        from shlex import quote

        raise InvalidArguments(f"{name!r} is a directory, not a name", suggestion=f"ai-session new -C {quote(name)}")
    with connect() as client:
        facts = client.call(
            "create_session",
            box=profile,
            name=free_name(client, os.path.basename(os.path.realpath(directory))) if name is None else name,
            working_directory=_from_here(directory) if directory else None,
            shell=shell or None,
            backend=backend or None,
            env=dict(map(_assignment, env or [])) or None,
            rows=rows,
            cols=cols,
        ).structured
    if as_json:
        show_json(facts)
    else:
        show_rows([facts], ("name", "session_id", "shell", "backend", "sandbox", "working_directory"))
        for line in (*facts.get("unprotected", ()), facts.get("note"), UNREADY.get(facts["state"])):
            if line:
                remark(f"note: {line}")
        say(f"ai-session attach {facts['name']}")


def _from_here(directory: str) -> str:
    """Return an absolute path; only a relative one needs the current directory, which may have been removed."""
    path = os.path.expanduser(directory)
    return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def free_name(client: ControlClient, wanted: str) -> str:
    """Return ``wanted`` as a session's name, numbered if it is in use."""
    plain = name_from(wanted)
    taken = {row["name"] for row in sessions(client)}
    number, name = 1, plain
    while name in taken:
        number += 1
        name = f"{plain}-{number}"
    return name


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidArguments(f"--env {text!r} is not NAME=VALUE", suggestion="for example: --env DEBUG=1")
    return name, value


def ls(as_json: Json = False) -> None:
    """List sessions.

    Columns: name, owner unless it is you, state, shell, backend, box, directory, what appeared in its workspace that
    programs outside of the box may run, running command.
    """
    with connect() as client:
        found = sessions(client)
    if as_json:
        show_json(found)
        return
    if not found:
        remark("No sessions. Open one: ai-session new")
        return
    rows = [
        {
            **row,
            "running": row.get("running", {}).get("command", "").partition("\n")[0],
            "notices": summary(row.get("notices", ())),
        }
        for row in found
    ]
    optional = [name for name in ("owner", "notices") if any(row.get(name) for row in rows)]
    owner, notices = ([name] if name in optional else [] for name in ("owner", "notices"))
    show_rows(rows, ("name", *owner, "state", "shell", "backend", "sandbox", "working_directory", *notices, "running"))
    if notices:
        say("Appeared in a workspace; programs outside the sandbox may run its contents: ai-session info NAME")
    unprotected = dict.fromkeys(line for row in found for line in row.get("unprotected", ()))
    for line in [*unprotected][:MOST_LINES]:
        say(f"note: {line}")


def info(session: SessionName, as_json: Json = False) -> None:
    """Show everything about a session: state, process, size, running and last command."""
    with connect() as client:
        facts = client.call("get_session_info", session_id=session).structured
    if as_json:
        show_json(facts)
        return
    lists = {name: facts.pop(name, []) for name in ("unprotected", "notices")}
    show_facts({**facts, **{name: when(facts[name]) for name in ("created_at", "used_at")}})
    for line in lists["unprotected"]:
        show_facts({"unprotected": line})
    for notice in lists["notices"]:
        show_facts({"notice": f"{WORDS[notice['kind']]} {notice['path']}"})


def rename(session: SessionName, name: Annotated[str, Argument(help="The new name.")], as_json: Json = False) -> None:
    """Give a session another name."""
    with connect() as client:
        client.request("rename", session=session, name=name)
    if as_json:
        show_json({"name": name})


def share(
    session: SessionName,
    names: Annotated[
        list[str] | None, Argument(metavar="[WHO]...", help="agent:NAME, user:NAME, run:ID or everyone.")
    ] = None,
    nobody: Annotated[bool, Option("--nobody", help="Only its owner, and you.")] = False,
    as_json: Json = False,
) -> None:
    """Let others use a session. Otherwise agents of a swarm and users over HTTP see only their own."""
    if bool(names) == nobody:
        raise InvalidArguments(
            "share with whom?", suggestion="name agent:NAME, user:NAME, run:ID, everyone: --nobody ends it"
        )
    with connect() as client:
        client.request("share", session=session, names=names or [])
    if as_json:
        show_json({"shared_with": names or []})


def interrupt(session: SessionName, as_json: Json = False) -> None:
    """Stop the running command.

    Ctrl-C twice, Ctrl-\\, TERM, KILL, each only if the one before did not end it.
    """
    with connect() as client:
        facts = client.call("interrupt_command", session_id=session).structured
    if as_json:
        show_json(facts)
    else:
        show_facts({name: facts[name] for name in ("status", "exit_code", "note") if name in facts})
    if facts["status"] == "running":
        leave(1)


def kill(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[SESSION]...", help="Names or ids.", complete=complete_sessions),
    ] = None,
    everything: Annotated[bool, Option("--all", "-a", help="Every session.")] = False,
    owner: Annotated[str, Option("--owner", metavar="OWNER", help="Sessions of this owner, as ls shows it.")] = "",
    run: Annotated[str, Option("--run", metavar="RUN", help="Sessions of a run: its ID, or the beginning of it.")] = "",
    idle: Annotated[
        str,
        Option("--idle", metavar="TIME", help="Sessions not in use, and unused for this long: 90s, 30m, 12h, 2d."),
    ] = "",
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask before --all, --owner, --run and --idle.")] = False,
    as_json: Json = False,
) -> None:
    """End sessions: their shells, every process started in them, and their output."""
    selectors = [bool(names), everything, bool(owner), bool(run)].count(True)
    if selectors > 1 or not (selectors or idle) or (names and idle):
        raise InvalidArguments(
            "which sessions?", suggestion="name them, or pass one of --all, --owner and --run, or --idle"
        )
    seconds = _seconds(idle)
    ended: list[str] = []
    code = 0
    with connect() as client:

        def matching() -> list[dict[str, Any]]:
            found = [row for row in sessions(client) if _matches_owner(row, owner, run)]
            return [row for row in found if not idle or _is_idle(row, seconds)]

        found = [] if names else matching()
        listed = ", ".join(row["name"] for row in found)
        if found and not yes:
            if not confirm(f"End {counted(len(found), 'session')}: {listed}?"):
                leave(1)
            present = {row["session_id"] for row in matching()}
            found = [row for row in found if row["session_id"] in present]
        wanted = [row["session_id"] for row in found] or names or []
        for name in wanted:
            try:
                ended.append(client.call("close_session", session_id=name).structured["name"])
            except AiSessionError as error:
                if as_json:
                    raise
                code = report(error, as_json=False)
    if as_json:
        show_json({"ended": ended})
    else:
        show_rows([{"ended": name} for name in ended], ("ended",))
    leave(code)


def _matches_owner(row: Mapping[str, Any], owner: str, run: str) -> bool:
    """Report whether that owner, or an agent of that run, opened it; True if neither is given."""
    whose = str(row.get("owner", ""))
    return whose == owner if owner else not run or any(part.startswith(f"run:{run}") for part in whose.split("/"))


def _is_idle(row: Mapping[str, Any], seconds: float) -> bool:
    return not row["in_use"] and time.time() - row["used_at"] >= seconds


def _seconds(text: str) -> float:
    """Return the seconds of ``90s``, ``30m``, ``12h`` or ``2d``; 0 for an empty text."""
    found = DURATION.fullmatch(text)
    if text and not found:
        raise InvalidArguments(
            f"{text[:40]!r} is not a duration", suggestion="a number with its unit: 90s, 30m, 12h or 2d"
        )
    return float(found[1]) * UNITS[found[2]] if found else 0.0
