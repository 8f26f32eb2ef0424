"""What the kernel says of a session's processes: who holds the terminal, whether it waits for input, who belongs to it.

Evidence comes from ``/proc`` and termios only, never from output text. Where ``/proc`` is missing (macOS) every
answer is "unknown" (None, or an empty list) and nothing raises. Knows nothing of shells, marks or backends.
"""

from __future__ import annotations

import os
import signal
import stat
import termios
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from ai_session.models import InputMode, SandboxLevel

COOKIE_VARIABLE = "AI_SESSION_ID"
_GENERATIONS = {SandboxLevel.BWRAP: 2, SandboxLevel.BWRAP_NOPROC: 2, SandboxLevel.LANDLOCK: 1}
"""How far the shell is below the process that makes its box."""

_SWEEP_ROUNDS = 200
_EMPTY_SCANS = 20
_LOOKS_WHILE_BECOMING = 1000
_CONTROLLING_TTY = os.makedev(5, 0)
_READ_WCHANS = ("wait_woken", "n_tty_read")
_POLL_WCHANS = ("poll", "select", "io_cqring_wait")


@dataclass(frozen=True, slots=True)
class Foreground:
    """Who holds the terminal.

    ``group`` is the foreground process group, ``leads_itself`` is true when that is the shell's own group, ``name`` the
    short name of the group's leader. ``stopped``: every process of the group is stopped. ``input_mode`` is None unless
    the group is known to wait for the terminal: for a line, for a line that is not echoed, or for single keys.
    """

    group: int
    leads_itself: bool
    name: str
    stopped: bool
    input_mode: InputMode | None


class _Wait(Enum):
    BUSY = auto()
    READING = auto()
    POLLING = auto()
    ASLEEP = auto()
    UNREADABLE = auto()


@dataclass(frozen=True, slots=True)
class _Calls:
    """Numbers of the system calls a program waits in; ``reads`` maps one to the argument that is the descriptor."""

    reads: Mapping[int, int]
    polls: frozenset[int]
    selects: frozenset[int]


_MACHINES = {
    "x86_64": _Calls(
        reads={0: 0, 19: 0, 275: 0, 40: 1},  # read, readv, splice, sendfile
        polls=frozenset({7, 23, 232, 270, 271, 281, 426, 441}),
        selects=frozenset({23, 270}),
    ),
    "aarch64": _Calls(
        reads={63: 0, 65: 0, 76: 0, 71: 1},
        polls=frozenset({22, 72, 73, 426, 441}),
        selects=frozenset({72}),
    ),
}
_CALLS = _MACHINES.get(os.uname().machine)


@dataclass(frozen=True, slots=True)
class _Stat:
    name: str
    state: str
    parent: int
    group: int
    session: int
    foreground: int
    started: int


def foreground(pid: int, tty: str) -> Foreground | None:
    """Who holds the terminal ``tty`` (a device path) whose session the shell ``pid`` leads; None when not known.

    A shell in the foreground is judged like any program: at its prompt it waits for ``raw`` (line editor) or ``line``
    input, while it runs a command that is a builtin ``read``. Which of the two, its marks say.
    One answer is one moment: a program that works in short steps may be met between two of them.
    """
    shell = _read_stat(pid)
    if shell is None or shell.foreground <= 0:
        return None
    group = shell.foreground
    found = ((member, _read_stat(member)) for member in _pids() if _group_of(member) == group)
    members = {member: seen for member, seen in found if seen is not None and seen.state not in "ZX"}
    leader = members.get(group) or next(iter(members.values()), None)
    stopped = bool(members) and all(seen.state == "T" for seen in members.values())
    mode = _input_mode(tty, members) if not stopped and (members or _is_hidden(group)) else None
    return Foreground(group, group == shell.group, leader.name if leader else "", stopped, mode)


def _is_hidden(group: int) -> bool:
    """Whether it has processes that we may not see, and is not one that has just ended."""
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _input_mode(tty: str, members: Mapping[int, _Stat]) -> InputMode | None:
    """A blocked read on the terminal is proof. Sleeping in poll, or out of our sight (sudo, su), counts only together
    with a mode that a program sets to ask for something: a server with an ordinary terminal polls as well."""
    try:
        fd = os.open(tty, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        flags: int = termios.tcgetattr(fd)[3]
        device = os.fstat(fd).st_rdev
    except (OSError, termios.error):
        return None
    finally:
        os.close(fd)
    waits = {wait for pid, seen in members.items() for wait in _waits(pid, seen, device)} or {_Wait.UNREADABLE}
    line = bool(flags & termios.ICANON)
    asks = not line or not flags & termios.ECHO
    asleep = _Wait.BUSY not in waits and (_Wait.POLLING in waits or _Wait.UNREADABLE in waits)
    if _Wait.READING not in waits and not (asks and asleep):
        return None
    if not line:
        return "raw"
    return "password" if asks else "line"


def _waits(pid: int, seen: _Stat, device: int) -> Iterable[_Wait]:
    if seen.state in "RD":
        return (_Wait.BUSY,)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return ()
    return [_thread_wait(pid, thread, device) for thread in threads]


def _thread_wait(pid: int, thread: str, device: int) -> _Wait:
    """The system call tells all, but Yama may keep it from a non-ancestor; ``wchan`` is open to the same user."""
    call = _read(f"/proc/{pid}/task/{thread}/syscall").split()
    if call == ["running"]:
        return _Wait.BUSY
    if call and _CALLS is not None:
        return _call_wait(pid, call, device, _CALLS)
    wchan = _read(f"/proc/{pid}/task/{thread}/wchan")
    if wchan in ("", "0"):
        return _Wait.UNREADABLE
    if wchan in _READ_WCHANS:
        # A blocking receive on a socket sleeps in the same kernel function.
        return _Wait.UNREADABLE if _has_socket(pid) else _Wait.READING
    return _Wait.POLLING if any(part in wchan for part in _POLL_WCHANS) else _Wait.ASLEEP


def _call_wait(pid: int, call: list[str], device: int, calls: _Calls) -> _Wait:
    number = int(call[0])
    if number in calls.reads and _is_terminal(pid, int(call[1 + calls.reads[number]], 16), device):
        return _Wait.READING
    # A select over one descriptor looks at descriptor 0 alone: `read -t` in the shells.
    if number in calls.selects and int(call[1], 16) == 1 and _is_terminal(pid, 0, device):
        return _Wait.READING
    return _Wait.POLLING if number in calls.polls else _Wait.ASLEEP


def _is_terminal(pid: int, fd: int, device: int) -> bool:
    try:
        found = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev in (device, _CONTROLLING_TTY)


def _has_socket(pid: int) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(os.readlink(entry.path).startswith("socket:") for entry in descriptors)
    except OSError:
        return True


def boxed(pid: int, level: SandboxLevel) -> int | None:
    """The shell in the box of that level whose terminal's own process is ``pid``; None before it is there.

    It is the oldest child, or grandchild, of what made the box, whatever else ends up there later.
    """
    for _ in range(_GENERATIONS.get(level, 0)):
        children = _read(f"/proc/{pid}/task/{pid}/children").split()
        born = {child: started for child in map(int, children) if (started := start_time(child)) is not None}
        if not born:
            return None
        pid = min(born, key=lambda child: (born[child], child))
    return pid


def stopped(pid: int) -> bool:
    """Whether the process was stopped and not told to go on."""
    seen = _read_stat(pid)
    return seen is not None and seen.state == "T"


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of the process: with the pid it names one process for good; None: unknown."""
    seen = _read_stat(pid)
    return None if seen is None else seen.started


def alive(pid: int, started: int | None) -> bool:
    """Whether the process that had ``start_time`` ``started`` still runs (a zombie does not); None: any of that pid."""
    seen = _read_stat(pid)
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


def members(cookie: str) -> list[int]:
    """Live processes of a session: those born with ``AI_SESSION_ID=<cookie>`` in their environment, their descendants,
    and what lives in a kernel session that one of these leads; never the caller. Some ms; call it off the loop."""
    found = set(_holders(cookie))
    return sorted(pid for pid in found | _linked(found) if alive(pid, None))


def sweep(cookie: str) -> int:
    """Kill every member of the session; returns how many processes were killed.

    All are stopped before the first is killed, so that none can fork away; this repeats until none is left, or a
    bounded number of rounds found some that cannot be killed. Blocks some ms; call it off the event loop.
    """
    killed: set[tuple[int, int | None]] = set()
    empty = 0
    for _ in range(_SWEEP_ROUNDS):
        newest = _newest_pid()
        stopped = _stop_members(cookie)
        killed |= {(pid, started) for pid, started in stopped.items() if _signal(pid, signal.SIGKILL)}
        empty = 0 if stopped else empty + 1
        # A scan may miss a process that hands over to its child meanwhile, unless nothing at all was born.
        if empty == _EMPTY_SCANS or (empty and newest == _newest_pid()):
            break
    return len(killed)


def ask_to_leave(cookie: str) -> list[int]:
    """Sends every member SIGTERM; returns those that were still there then. Blocks some ms."""
    for pid in members(cookie):
        if _signal(pid, signal.SIGTERM):
            _signal(pid, signal.SIGCONT)
    return members(cookie)


def _stop_members(cookie: str) -> dict[int, int | None]:
    """Stop the members as they are found, until a scan finds no other; returns the stopped with their start times."""
    stopped: dict[int, int | None] = {}
    seen: set[int] = set()

    def stop(found: Iterable[int]) -> bool:
        fresh = False
        for pid in found:
            if pid not in seen and _signal(pid, signal.SIGSTOP):
                stopped[pid] = start_time(pid)
                fresh = True
            seen.add(pid)
        return fresh

    while stop(_holders(cookie)) | stop(_linked(seen)):
        pass
    return stopped


def _holders(cookie: str) -> Iterator[int]:
    """Processes with the cookie in their environment, newest first: what forks fast is read before it has gone."""
    entry = f"{COOKIE_VARIABLE}={cookie}".encode()
    mine = os.getpid()
    for pid in sorted(_pids(), reverse=True):
        if pid != mine and entry in _environment(pid).split(b"\0"):
            yield pid


def _environment(pid: int) -> bytes:
    """What the process was born with. One that is just becoming another program has none yet: it is asked again."""
    for _ in range(_LOOKS_WHILE_BECOMING):
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                found = file.read()
        except OSError:
            return b""
        # Fields 23 and 51: a process of the kernel, or one that ends, has no memory; the environment's end comes last.
        tail = [] if found else _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(tail) < 49 or tail[20] == "0" or tail[48] != "0":
            return found
        os.sched_yield()
    return b""


def _linked(found: set[int]) -> set[int]:
    """Processes that are not in ``found`` but descend from it or live in a kernel session that one of it leads."""
    if not found:
        return set()
    # A daemon started inside a session is no link: its other children belong to other sessions.
    outside = found | {os.getpid()}
    rest = {pid: seen for pid in _pids() if pid not in outside and (seen := _read_stat(pid)) is not None}
    linked: set[int] = set()
    leaders = set(found)
    while leaders:
        leaders = {pid for pid, seen in rest.items() if seen.parent in leaders or seen.session in leaders}
        linked |= leaders
        for pid in leaders:
            del rest[pid]
    return {pid for pid in linked if alive(pid, None)}


def _newest_pid() -> str:
    return _read("/proc/loadavg").rpartition(" ")[2]


def _signal(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _group_of(pid: int) -> int:
    # 0.4 us; reading the same from /proc/PID/stat costs 10.
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _read_stat(pid: int) -> _Stat | None:
    text = _read(f"/proc/{pid}/stat")
    head, close, tail = text.rpartition(")")
    if not close:
        return None
    fields = tail.split()
    state, parent, group, session, _, tpgid = fields[:6]
    return _Stat(head.partition("(")[2], state, int(parent), int(group), int(session), int(tpgid), int(fields[19]))


def _read(path: str) -> str:
    return _read_bytes(path).decode(errors="replace").strip()


def _read_bytes(path: str) -> bytes:
    """The file's bytes; nothing when the process has gone or is not ours to look into."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
