"""The verb trust, and the question about a configuration that has changed, with its differences."""

from __future__ import annotations

import difflib
import os
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.output import leave, remark, show_json, show_rows
from agentwire.system import typed_ahead
from agentwire.visible import visible
from ccswarm.cli.output import EXIT_CHANGED, Json, report, show_line
from ccswarm.config.trust import LINK, Change, ConfigTrust, Content, Verdict, look_at_any, programs
from ccswarm.errors import ConfigChanged, SwarmError, UsageInvalid
from ccswarm.system.ancestry import in_session

if TYPE_CHECKING:
    from ccswarm.config.config import Confirm

MOST_LINES = 200
"""The limit of a difference in a question; a longer one must be approved with the verb."""

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]…", help="Configurations, plans, suites; else the configuration that is found."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve without a question or a terminal.")]


def trust(
    files: Files = None,
    yes: Yes = False,
    listed: Annotated[
        bool, typer.Option("--list", help="Show every file that was used, and whether it has changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Approve a configuration, plan or suite that has changed since you used it last, or a program that one of them
    names: shows what has changed, and asks.

    Only a person can approve: without a terminal only --yes counts, and in a session of ai-session nothing does.

    Exit codes: 0 they are approved, or had not changed, 2 there is no such file, 5 nobody agreed.
    """
    from ccswarm.config import config

    known = ConfigTrust(config.state_directory())
    if listed:
        _list(known, as_json)
        return
    if in_session(config.server_environment()):
        raise ConfigChanged(
            "inside a session of ai-session a person's agreement is not accepted: an agent may work here",
            suggestion="run the same command in a terminal of your own",
        )
    agreed: list[Content] = []
    shown = [_ask(known, *one, agreed, yes=yes, as_json=as_json) for one in _changes_of(known, files or [])]
    known.use(reversed(agreed))
    if as_json:
        show_json({"files": shown})
    else:
        for one in shown:
            if one["state"] == "trusted":
                show_line(f"{one['path']}: {'trusted' if one['was'] != Verdict.SAME.value else 'unchanged'}")
    if any(one["state"] != "trusted" for one in shown):
        path = next(one["path"] for one in shown if one["state"] != "trusted")
        error = ConfigChanged(f"{path} was not approved", suggestion="ccswarm trust in a terminal, or with --yes")
        leave(EXIT_CHANGED if as_json else report(error, as_json=False))


def _changes_of(known: ConfigTrust, files: list[Path]) -> Iterator[tuple[Content, Change | None]]:
    """Yield the files and the programs that their commands name, each with its change; without files, the
    configuration, and any former one that is missing now. Raises UsageInvalid and ConfigInvalid."""
    from ccswarm.config import files as config_files

    found, candidates = False, config_files.candidates()
    for file in files or candidates:
        content = look_at_any(file)
        change = known.change(content)
        if not change and content.path in [Path(os.path.abspath(one)) for one in candidates[:-1]]:
            change = known.displacing(content, candidates[-1])
        if content.there or change:
            found = True
            verdict = known.verdict(content)
            yield content, change
            for program in programs(content, None):
                yield program.content, known.program_change(program, verdict)
        elif files:
            raise UsageInvalid(f"no file {file}", suggestion="give the path of one")
        if content.there and not files:
            return
    if not found:
        raise UsageInvalid("no configuration was found", suggestion="ccswarm init, or name a file")


def _ask(
    known: ConfigTrust, content: Content, change: Change | None, agreed: list[Content], *, yes: bool, as_json: bool
) -> dict[str, Any]:
    facts: dict[str, Any] = {"path": str(content.path), "was": known.verdict(content).value, "diff": ""}
    if change:
        facts["diff"] = "\n".join(difference(change))
        if not as_json:
            _show(change)
        if not yes and (as_json or not _at_terminal() or not _confirmed(change)):
            return {**facts, "state": "changed"}
    agreed.append(content)
    return {**facts, "state": "trusted"}


def _list(known: ConfigTrust, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for record in known.records():
        try:
            now = known.verdict(known.again(record)).value
        except SwarmError as error:
            now = error.message
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.used_at))
        rows.append({"path": record.path, "now": now, "used": used, "digest": record.digest})
    rows.sort(key=lambda row: str(row["path"]))
    if as_json:
        show_json({"files": rows})
    else:
        show_rows(rows, ("now", "used", "path"))


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def asker() -> Confirm | None:
    """Return a function that shows a change to the person at this terminal and asks; None if there is no terminal, or
    it is that of a session, in which an agent may type."""
    from ccswarm.config import config

    if not _at_terminal() or in_session(config.server_environment()):
        return None

    def ask(change: Change) -> bool:
        return _show(change, MOST_LINES) <= MOST_LINES and _confirmed(change)

    return ask


def _show(change: Change, most_lines: int | None = None) -> int:
    """Print the changes on standard error, and return the number of lines."""
    lines = list(difference(change))
    remark(f"{visible(change.what())}:" if lines else visible(change.what()))
    for line in lines[:most_lines]:
        remark(line)
    if most_lines is not None and len(lines) > most_lines:
        remark(f"… {len(lines) - most_lines} more lines: ccswarm trust shows all")
    return len(lines)


def agree(error: ConfigChanged) -> None:
    """Ask the person at this terminal about the file of an error, and record the approval; else raise the error."""
    from ccswarm.config import config

    ask, change = asker(), error.change
    if not isinstance(change, Change):
        change = config.change_of(Path(error.path)) if error.path else None
    if not ask or not change or not ask(change):
        raise error
    ConfigTrust(config.state_directory()).record(change.now)


def _confirmed(change: Change) -> bool:
    """Read one key. Keys typed before the question do not answer it, and Ctrl-C means no."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    mode = termios.tcgetattr(terminal)
    mode[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    try:
        termios.tcsetattr(terminal, termios.TCSADRAIN, mode)
        typed_ahead.discard(terminal)
        sys.stderr.write("use it? [y/N] " if change.now.there else "continue without it? [y/N] ")
        sys.stderr.flush()
        yes = os.read(terminal, 1) in (b"y", b"Y")
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
    remark("y" if yes else "n")
    return yes


def difference(change: Change) -> Iterator[str]:
    """Yield the differing lines with their context, as patches show them, without anything that moves a terminal's
    cursor or turns the direction of text."""
    before, now = (_lines(content) for content in (change.before, change.now))
    used = "never used" if change.new else "as it was used"
    yield from map(visible, difflib.unified_diff(before, now, used, "now", lineterm="", n=2))


def _lines(content: Content) -> list[str]:
    """Return the lines of a stored text; for anything else what is known of it."""
    if content.digest == LINK:
        return [f"a link to {content.target}"]
    if content.there and (content.data is None or b"\0" in content.data):
        return [content.digest]
    return (content.data or b"").decode(errors="backslashreplace").splitlines()
