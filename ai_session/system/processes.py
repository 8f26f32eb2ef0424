"""What the kernel says of a session's processes, one at a time: what each is, has open and prints on.

Evidence comes from ``/proc`` only. Where it is missing (macOS) every answer is "unknown" (None, or an empty list) and
nothing raises. Knows nothing of shells, marks or backends.
"""

from __future__ import annotations

import os
import resource
import signal

from ai_session.models import SandboxLevel
from ai_session.system.kernel_files import (
    CONTROLLING_TTY,
    all_pids,
    group_of,
    newest_pid,
    read_bytes,
    read_stat,
    read_text,
    session_of,
    status_number,
)

_GENERATIONS = {SandboxLevel.BWRAP: 2, SandboxLevel.BWRAP_NOPROC: 2, SandboxLevel.LANDLOCK: 1}
"""How far the shell is below the process that makes its box."""
_MOST_BORN = 2000
"""Looked at one by one: 2 ms."""


def job(shell: int, group: int) -> int:
    """The group of the shell's own job that ``group`` belongs to, which may be one of a shell that runs in it."""
    pid, found = group, group
    while (seen := read_stat(pid)) is not None and pid not in (0, shell):
        found, pid = seen.group, seen.parent
    return found if pid == shell else group


def switches(pid: int) -> int:
    """How often the process has gone to sleep by itself."""
    return status_number(pid, "voluntary_ctxt_switches:", 10)


def controls_jobs(pid: int) -> bool:
    """Whether the process ignores the key that stops jobs, as shells do that a person types to."""
    return bool(status_number(pid, "SigIgn:", 16) & 1 << signal.SIGTSTP - 1)


def command_line(pid: int) -> bytes:
    """The arguments of the process, each followed by a NUL; empty when it is gone."""
    return read_bytes(f"/proc/{pid}/cmdline")


def image(pid: int) -> bytes:
    """Stays the same until the process becomes another program, even one of the same name; empty where it is hidden."""
    # Where the kernel put what is loaded, which it draws again each time.
    return read_bytes(f"/proc/{pid}/auxv")


def program(pid: int) -> str:
    """Path of what the process runs, or its short name where that is hidden; empty when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        seen = read_stat(pid)
        return seen.name if seen else ""


def has_open(pid: int, end: str) -> bool | None:
    """Whether the process has a file open whose path ends so; None where nobody may know."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            paths = [os.readlink(entry.path) for entry in descriptors]
    except OSError:
        return None
    return any(path.removesuffix(" (deleted)").endswith(end) for path in paths)


def files_allowed(pid: int) -> int | None:
    """How many files the process may have open; None: as many as it likes, or nobody may know."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except (OSError, ValueError, AttributeError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def files_open(pid: int) -> int:
    """How many files the process has open among the numbers that it may use; 0 where nobody may know."""
    allowed = files_allowed(pid)
    try:
        return sum(allowed is None or int(number) < allowed for number in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def allow_files(pid: int, number: int, least: int = 0) -> bool:
    """Lets the process have ``number`` files open if its own limit is lower, or as many as anybody may allow it where
    these are ``least`` at least; whether that was changed."""
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        enough = number if hard == resource.RLIM_INFINITY else min(number, hard)
        if soft == resource.RLIM_INFINITY or soft >= enough or enough < least:
            return False
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (enough, hard))
    except (OSError, ValueError, AttributeError):
        return False
    return True


def boxed(pid: int, level: SandboxLevel) -> int | None:
    """The shell in the box of that level whose terminal's own process is ``pid``; None before it is there.

    It is the oldest child, or grandchild, of what made the box, whatever else ends up there later.
    """
    for _ in range(_GENERATIONS.get(level, 0)):
        children = read_text(f"/proc/{pid}/task/{pid}/children").split()
        born = {child: started for child in map(int, children) if (started := start_time(child)) is not None}
        if not born:
            return None
        pid = min(born, key=lambda child: (born[child], child))
    return pid


def go_on(pid: int) -> None:
    """Continues the stopped group of the process."""
    group = group_of(pid)
    try:
        if group > 0:
            os.killpg(group, signal.SIGCONT)
    except OSError:
        return


def stopped(pid: int) -> bool:
    """Whether the process was stopped and has not been continued."""
    seen = read_stat(pid)
    return seen is not None and seen.state == "T"


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process: with the pid it names one process for good; None: unknown."""
    seen = read_stat(pid)
    return None if seen is None else seen.started


def alive(pid: int, started: int | None) -> bool:
    """Whether the process that had ``start_time`` ``started`` still runs (a zombie does not); None: any of that pid."""
    seen = read_stat(pid)
    if seen is not None:
        return seen.state not in "ZX" and started in (None, seen.started)
    if started is not None:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def newest() -> int:
    """The pid that was given out last; 0 where nobody says."""
    return newest_pid()


def left_on_terminal(leader: int, tty: str, born_after: int) -> list[tuple[int, int]]:
    """Pid and start time of the processes that live in the kernel session of ``leader``, were born after that pid
    was given out and could print on the terminal ``tty``. Costs as much as were born since, on the whole machine."""
    if (last := newest_pid()) == born_after > 0:
        return []
    try:
        session, device = os.getsid(leader), os.stat(tty).st_rdev
    except OSError:
        return []
    few = born_after and 0 <= last - born_after <= _MOST_BORN
    found: list[tuple[int, int]] = []
    for pid in range(born_after + 1, last + 1) if few else all_pids():
        if session_of(pid) != session or pid == leader or pid <= born_after:
            continue
        seen = read_stat(pid)
        if seen and seen.state not in "ZX" and _is_process(pid) and _prints_on(pid, device):
            found.append((pid, seen.started))
    return found


def printing(pid: int, started: int, tty: str) -> str:
    """The name of that process while it lives and could print on the terminal ``tty``; else nothing."""
    seen = read_stat(pid)
    if seen is None or seen.state in "ZX" or seen.started != started:
        return ""
    try:
        return seen.name if _prints_on(pid, os.stat(tty).st_rdev) else ""
    except OSError:
        return ""


def is_copy(pid: int, shell: int) -> bool:
    """Whether the process is one that ``shell`` made of itself in its own group, as it does to expand its prompt."""
    one, other = read_stat(pid), read_stat(shell)
    return one is not None and other is not None and one.name == other.name and group_of(pid) == group_of(shell)


def alongside(shell: int) -> list[int]:
    """What a shell without job control runs: its children in its own group."""
    born = map(int, read_text(f"/proc/{shell}/task/{shell}/children").split())
    return [pid for pid in born if group_of(pid) == group_of(shell)]


def fed_by(pid: int, tty: str) -> bool:
    """Whether the standard input of the process is the terminal ``tty``; also where we may not look."""
    try:
        return os.stat(f"/proc/{pid}/fd/0").st_rdev in (os.stat(tty).st_rdev, CONTROLLING_TTY)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def fed_elsewhere(pid: int, tty: str) -> bool:
    """Whether the standard input of the process is not the terminal ``tty``, or closed; False where nobody can say."""
    try:
        terminals = (os.stat(tty).st_rdev, CONTROLLING_TTY)
        return os.stat(f"/proc/{pid}/fd/0").st_rdev not in terminals
    except FileNotFoundError:
        return os.path.exists(f"/proc/{pid}/fd") and os.path.exists(tty)
    except OSError:
        return False


def standard_input(pid: int) -> str:
    """What it is, by its path or kind."""
    try:
        return os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return "nothing"


def _is_process(pid: int) -> bool:
    """And not one of the threads of another, which have numbers of the same kind."""
    return f"\nTgid:\t{pid}\n" in read_text(f"/proc/{pid}/status")


def _prints_on(pid: int, device: int) -> bool:
    """Whether its output or its errors go to the terminal; also where we may not look."""
    for number in (1, 2):
        try:
            if os.stat(f"/proc/{pid}/fd/{number}").st_rdev in (device, CONTROLLING_TTY):
                return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False
