"""Commands that ruin parts of a shell's integration, generated from its text, and what must hold afterwards."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from ai_session.errors import SessionExited
from ai_session.sessions import wait
from ai_session.sessions.commands import NEVER_BEGUN
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from tests.ai_session.support.sessions import request
from tests.support.bounds import BOUND_SECONDS

SOURCES = {
    "bash": ("integration.bash", "bash.py"),
    "zsh": ("integration.zsh", "zsh.py"),
    "dash": ("integration.sh", "_posix.py"),
    "mksh": ("integration.sh", "_posix.py"),
    "busybox": ("integration.sh", "_posix.py"),
    "fish": ("integration.fish", "fish.py"),
}

POSIX = ("readonly {}", "unset {}", "unset -f {}", "alias {}=false", "alias {}=:", "{}() {{ :; }}", "{}() {{ false; }}")
OWN = {
    "bash": (*POSIX, "{}=7", "declare -i {}=0", "declare -u {}", "declare -n {}=HOME", "declare -a {}", "export {}"),
    "zsh": (*POSIX, "{}=7", "typeset -i {}=0", "typeset -u {}", "alias -g {}=false", "alias -g {}=", "typeset -T {} x"),
    "dash": (*POSIX, "{}=7"),
    "mksh": (*POSIX, "{}=7", "typeset -i {}=0", "typeset -u {}", "nameref {}=HOME"),
    "busybox": (*POSIX, "{}=7"),
    "fish": ("set -e {}", "set -g {} 7", "set -gx {}", "functions -e {}", "function {}; end"),
}
"""Ways to ruin a name of the integration."""

HIDDEN = (
    ": . [ alias bind break builtin cd command continue declare echo emulate enable eval exec exit export false "
    "functions hash history jobs kill let local printf print pwd read readonly return set setopt shift shopt source "
    "status string test times trap true type typeset ulimit umask unalias unset unsetopt wait zle zmodload"
)
WORDS = "always begin case do done end esac fi function if in not or and then until while { } ! [["
HIDING = {
    "bash": ("alias {}=false", "alias {}=:", "{}() {{ :; }}", "{}() {{ false; }}", "enable -n {}"),
    "zsh": ("alias {}=false", "alias {}=:", "alias -g {}=false", "{}() {{ :; }}", "{}() {{ false; }}", "disable {}"),
    "dash": ("alias {}=false", "alias {}=:", "{}() {{ :; }}", "{}() {{ false; }}"),
    "mksh": ("alias {}=false", "alias {}=:", "{}() {{ :; }}", "{}() {{ false; }}", "function {} {{ :; }}"),
    "busybox": ("alias {}=false", "alias {}=:", "{}() {{ :; }}", "{}() {{ false; }}"),
    "fish": ("function {}; end", "function {}; false; end", "alias {} false", "abbr -a {} false"),
}
"""Ways to ruin a builtin."""

INSTEAD = {"zsh": ("alias {}=false", "alias -g {}=:", "disable -r {}"), "fish": ("abbr -a '{}' false",)}
"""Ways to ruin a reserved word of the shell."""

AS_LINE = {"bash": "sh -c : eval; ", "zsh": "sh -c : & "}
"""What makes a command one of those that the shell runs as lines of their own."""


def ruins(shell: str) -> list[str]:
    """Return all ways to ruin each name that the integration of ``shell`` uses, and each reserved word."""
    folder = files("ai_session.shells")
    text = "".join((folder / name).read_text() for name in SOURCES[shell])
    own = sorted(set(re.findall(r"__ais_\w+", text)))
    kinds = ((own, OWN[shell]), (HIDDEN.split(), HIDING[shell]), (WORDS.split(), INSTEAD.get(shell, POSIX[3:5])))
    return [way.format(name) for names, ways in kinds for name in names for way in ways]


async def play(manager: SessionManager, shell: str, name: str, ruin: str, directory: Path) -> list[str]:
    """Return what is wrong in a session after ``ruin``.

    Wrong are an exit code other than the command's, an effect that occurred twice or is denied, and a session that
    neither continues nor says why it has ended.
    """
    session = await manager.create(request(name, shell=shell))
    wrong: list[str] = []
    try:
        for code in (5, 4, 7):
            ran = directory / f"{name}-{code}"
            before = {5: f"{ruin}; ", 4: AS_LINE.get(shell, "")}.get(code, "")
            command = f"{before}sh -c 'echo x >>{ran}; exit {code}'"
            wrong += await _check_report(session, command, code, ran)
            if session.running is not None:
                break
    except SessionExited:
        if session.ending is None or not session.ending.reason:
            wrong.append(f"ended without a reason: {session.ending}")
    finally:
        await manager.close(session)
    # Also by the trigger of a later command.
    wrong += [f"{ran.name} ran more than once" for ran in directory.glob(f"{name}-*") if ran.read_text().count("x") > 1]
    return [f"{ruin}: {text}" for text in wrong]


async def _check_report(session: Session, command: str, code: int, ran: Path) -> list[str]:
    """Return what is wrong in the report of ``command``, which adds a line to ``ran`` and ends with ``code``.

    The third command, with 7, must have an exact end if the session continues.
    """
    running = await session.begin(command, command_id="cmd")
    reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=True)
    record = running.record
    times = ran.read_text().count("x") if ran.exists() else 0
    denied = running.never_ran or record.note == NEVER_BEGUN
    report = f"{command}: {reason}, {record.status} with {record.exit_code}, {record.note!r}; it ran {times} times"
    if reason != "finished":
        return [report]
    sound = {
        "known and right": record.exit_code == code and times == 1,
        "no command of this shell": record.exit_code in (1, 2) and times == 0 and code == 5,
        "denied": record.exit_code is None and denied and times == 0,
        "unknown": record.exit_code is None and not denied and bool(record.note) and times <= 1,
    }
    usable = code != 7 or sound["known and right"] or session.ending is not None
    return [] if any(sound.values()) and usable else [report]
