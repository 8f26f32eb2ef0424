"""Facts about single processes of a session: what each one is, has open and prints on.

Evidence comes from ``/proc`` only. Without it (macOS) every result is "unknown" (None, or an empty list) and nothing
raises. Knows nothing of shells, marks or backends.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable

from ai_session.models import SandboxLevel
from ai_session.system.kernel_files import (
    CONTROLLING_TTY,
    NO_TERMINAL,
    Stat,
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
"""The number of generations of the shell below the process that creates its box."""
_CONTROLS = dict.fromkeys((*range(32), 127), "?")
_MOST_BORN = 2000
"""The most processes that are examined one by one: 2 ms."""


def job(shell: int, group: int) -> int:
    """Return the group of the shell's own job that contains ``group``, possibly that of a shell within the job."""
    pid, found = group, group
    while (seen := read_stat(pid)) is not None and pid not in (0, shell):
        found, pid = seen.group, seen.parent
    return found if pid == shell else group


def switches(pid: int) -> int:
    """Return the number of times that the process voluntarily gave up the processor."""
    return status_number(pid, "voluntary_ctxt_switches:", 10)


def controls_jobs(pid: int) -> bool:
    """Report whether the process ignores the key that stops jobs, as interactive shells do."""
    return bool(status_number(pid, "SigIgn:", 16) & _bit(signal.SIGTSTP))


def command_line(pid: int) -> bytes:
    """Return the arguments of the process, each followed by a NUL; empty if it has ended."""
    return read_bytes(f"/proc/{pid}/cmdline")


def environment(pid: int) -> bytes:
    """Return the environment with which the process was executed, NUL after each variable; empty if hidden."""
    return read_bytes(f"/proc/{pid}/environ")


def image(pid: int) -> bytes:
    """Return a value that changes only when the process executes another program, even a namesake; empty if hidden."""
    # Its load addresses, which the kernel randomizes at each exec.
    return read_bytes(f"/proc/{pid}/auxv")


def program(pid: int) -> str:
    """Return the path of the program that the process runs, or its short name if hidden; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        seen = read_stat(pid)
        return seen.name if seen else ""


def directory(pid: int) -> str:
    """Path of the directory that the process is in, as its own mounts have it, without characters that are not to be
    shown; empty where nobody may know. One that is gone has the path that it had."""
    try:
        path = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
    except OSError:
        return ""
    if not path.isprintable():
        path = os.fsencode(path).decode("utf-8", "replace").translate(_CONTROLS)
    return path if path.startswith("/") else ""


def has_open(pid: int, end: str) -> bool | None:
    """Report whether the process has a file open whose path ends with ``end``; None if unknown."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            paths = [os.readlink(entry.path) for entry in descriptors]
    except OSError:
        return None
    return any(path.removesuffix(" (deleted)").endswith(end) for path in paths)


def files_allowed(pid: int) -> int | None:
    """Return how many files the process may have open; None if unlimited or unknown."""
    try:
        soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except (OSError, ValueError, AttributeError):
        return None
    return None if soft == resource.RLIM_INFINITY else soft


def files_open(pid: int) -> int:
    """Return how many files the process has open, counting only descriptors below its limit; 0 if unknown."""
    allowed = files_allowed(pid)
    try:
        return sum(allowed is None or int(number) < allowed for number in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def allow_files(pid: int, number: int, least: int = 0) -> bool:
    """Raise the process's limit of open files to ``number``, or to its hard limit if that is lower but at least
    ``least``. Report whether the limit was changed; a higher limit is left as it is."""
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
    """Return the shell in the box of that level whose terminal's own process is ``pid``; None before it exists.

    It is the oldest child, or grandchild, of the process that created the box, whatever else ends up there later.
    """
    for _ in range(_GENERATIONS.get(level, 0)):
        children = read_text(f"/proc/{pid}/task/{pid}/children").split()
        born = {child: started for child in map(int, children) if (started := start_time(child)) is not None}
        if not born:
            return None
        pid = min(born, key=lambda child: (born[child], child))
    return pid


def go_on(pid: int) -> None:
    """Continue the process's stopped group."""
    group = group_of(pid)
    try:
        if group > 0:
            os.killpg(group, signal.SIGCONT)
    except OSError:
        return


def stopped(pid: int) -> bool:
    """Report whether the process is stopped."""
    seen = read_stat(pid)
    return seen is not None and seen.state == "T"


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks after boot: with the pid a permanent id. None if unknown."""
    seen = read_stat(pid)
    return None if seen is None else seen.started


def alive(pid: int, started: int | None) -> bool:
    """Report whether the process of that start time (None: any) still runs; a zombie does not."""
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
    """Return the most recently assigned pid; 0 if unknown."""
    return newest_pid()


def ticks() -> int:
    """Return the time since the machine began, in the unit in which the kernel keeps the start of a process."""
    clock = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
    return time.clock_gettime_ns(clock) * os.sysconf("SC_CLK_TCK") // 10**9


def left_on_terminal(leader: int, tty: str, born_after: int) -> list[tuple[int, int]]:
    """Return pid and start time of the processes in the kernel session of ``leader`` that were born after the pid
    ``born_after`` and could print on the terminal ``tty``, without those that make a box: ``leader``, and its child if
    that begins a namespace. The cost grows with all processes born since."""
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
        if not seen or seen.state in "ZX" or not _is_process(pid) or not _prints_on(pid, device):
            continue
        if seen.parent != leader or not leads_a_namespace(pid):
            found.append((pid, seen.started))
    return found


def leads_a_namespace(pid: int) -> bool:
    """Report whether the process is process 1 of a PID namespace other than ours."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                ids = line.split()[1:]
                return len(ids) > 1 and ids[-1] == b"1"
    return False


def printing(pid: int, started: int, tty: str) -> str:
    """Return the name of that process if it lives and could print on the terminal ``tty``; else an empty text."""
    seen = read_stat(pid)
    if seen is None or seen.state in "ZX" or seen.started != started:
        return ""
    try:
        return seen.name if _prints_on(pid, os.stat(tty).st_rdev) else ""
    except OSError:
        return ""


def is_copy(pid: int, shell: int) -> bool:
    """Report whether the process is a fork of ``shell`` in its own group, as shells create to expand their prompt."""
    one, other = read_stat(pid), read_stat(shell)
    return one is not None and other is not None and one.name == other.name and group_of(pid) == group_of(shell)


def alongside(shell: int) -> list[int]:
    """Return the children that a shell without job control runs in its own group."""
    born = map(int, read_text(f"/proc/{shell}/task/{shell}/children").split())
    return [pid for pid in born if group_of(pid) == group_of(shell)]


def signal_children(shell: int, begun: int, born_after: int, number: signal.Signals) -> bool:
    """Send a signal to the process groups of the shell's children that were born since the tick ``begun`` (``ticks``),
    and to those in its own group singly. Report whether there was one. Of that tick, only those after the pid
    ``born_after`` count; pids alone do not tell, because they begin anew after the highest."""
    sent = False
    for pid in map(int, read_text(f"/proc/{shell}/task/{shell}/children").split()):
        seen = read_stat(pid)
        if seen is None or (seen.started, pid) <= (begun, born_after):
            continue
        group = group_of(pid)
        send, whom = (os.killpg, group) if group > 0 and group != group_of(shell) else (os.kill, pid)
        try:
            send(whom, number)
            sent = True
            send(whom, signal.SIGCONT)
        except OSError:
            continue
    return sent


def ask_to_leave(pids: Iterable[int]) -> None:
    """Send SIGTERM to processes, and before it SIGHUP to those that have a terminal, as at its end; stopped ones go on.

    Parents come before their children: a shell is asked before the program that it waits for ends, and so does not go
    on to the next one, for interactive shells ignore SIGTERM. Shells within the terminal's own come first, for the end
    of that one is the end of what is in the foreground. One that ignores SIGHUP as well is killed. Each is stopped
    until all have been asked, so that none ends before; but not in a terminal of tmux, which lets its children go on.
    """
    found = {pid: seen for pid in pids if (seen := read_stat(pid)) is not None}
    with_jobs = {seen.parent for pid, seen in found.items() if pid == seen.group != seen.session}
    first = {pid for pid, seen in found.items() if pid == seen.session}
    parents = [seen for pid in first if (seen := read_stat(found[pid].parent)) and found[pid].parent not in found]
    hold = not any(seen.name.startswith("tmux") for seen in parents)
    signals = {pid: _signals_to_leave(pid, seen, pid in with_jobs) for pid, seen in found.items()}

    def order(pid: int) -> tuple[bool | int, ...]:
        at = (found[pid].started, pid)
        return (signal.SIGKILL not in signals[pid], *at) if hold else (pid not in with_jobs | first, pid in first, *at)

    def send(pid: int, *numbers: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            for number in numbers:
                os.kill(pid, number)

    in_order = sorted(found, key=order)
    held = (signal.SIGSTOP,) if hold else ()
    # Nothing else is done between them: what ends may be the program of one that is still to be asked.
    for pid in in_order:
        send(pid, *held, *signals[pid])
    for pid in reversed(in_order):
        send(pid, signal.SIGCONT)


def _signals_to_leave(pid: int, seen: Stat, with_jobs: bool) -> tuple[signal.Signals, ...]:
    ignored = status_number(pid, "SigIgn:", 16)
    if ignored & _bit(signal.SIGHUP) and (with_jobs or ignored & _bit(signal.SIGTERM)):
        return (signal.SIGKILL,)
    return (signal.SIGTERM,) if seen.foreground == NO_TERMINAL else (signal.SIGHUP, signal.SIGTERM)


def _bit(number: signal.Signals) -> int:
    """Return the signal's bit in the masks of a process status."""
    return 1 << number - 1


def fed_by(pid: int, tty: str) -> bool:
    """Report whether the standard input of the process is the terminal ``tty``; True if it is not readable by us."""
    try:
        return os.stat(f"/proc/{pid}/fd/0").st_rdev in (os.stat(tty).st_rdev, CONTROLLING_TTY)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def fed_elsewhere(pid: int, tty: str) -> bool:
    """Report whether the standard input of the process is closed or not the terminal ``tty``; False if unknown."""
    try:
        terminals = (os.stat(tty).st_rdev, CONTROLLING_TTY)
        return os.stat(f"/proc/{pid}/fd/0").st_rdev not in terminals
    except FileNotFoundError:
        return os.path.exists(f"/proc/{pid}/fd") and os.path.exists(tty)
    except OSError:
        return False


def standard_input(pid: int) -> str:
    """Return the path or kind of the process's standard input."""
    try:
        return os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return "nothing"


def _is_process(pid: int) -> bool:
    """Report whether the id is that of a process: threads have numbers of the same kind."""
    return f"\nTgid:\t{pid}\n" in read_text(f"/proc/{pid}/status")


def _prints_on(pid: int, device: int) -> bool:
    """Report whether standard output or standard error is the terminal; True if they are not readable by us."""
    for number in (1, 2):
        try:
            if os.stat(f"/proc/{pid}/fd/{number}").st_rdev in (device, CONTROLLING_TTY):
                return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False
