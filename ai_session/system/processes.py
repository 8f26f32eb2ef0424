"""What the kernel says of a session's processes: who holds the terminal, whether it waits for input, who belongs to it.

Evidence comes from ``/proc`` and termios only, never from output text. Where ``/proc`` is missing (macOS) every
answer is "unknown" (None, or an empty list) and nothing raises. Knows nothing of shells, marks or backends.
"""

from __future__ import annotations

import os
import resource
import signal
import stat
import termios
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from ai_session.models import InputMode, SandboxLevel

COOKIE_VARIABLE = "AI_SESSION_ID"
_GENERATIONS = {SandboxLevel.BWRAP: 2, SandboxLevel.BWRAP_NOPROC: 2, SandboxLevel.LANDLOCK: 1}
"""How far the shell is below the process that makes its box."""

_COOKIE = COOKIE_VARIABLE.encode()
_READ_BYTES = 1 << 16
_Identity = tuple[int, int]
_SWEEP_ROUNDS = 200
_EMPTY_LOOKS = 20
_LOOKS_WHILE_BECOMING = 1000
_MOST_BORN = 2000
"""Looked at one by one: 2 ms."""

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


def input_mode_of(pid: int, tty: str) -> InputMode | None:
    """How this one process waits for its terminal, whatever others of its group do; None when it does not, or when
    nobody can say."""
    seen = _read_stat(pid)
    return _input_mode(tty, {pid: seen}) if seen is not None and seen.state not in "ZXTt" else None


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


def job(shell: int, group: int) -> int:
    """The group of the shell's own job that ``group`` belongs to, which may be one of a shell that runs in it."""
    pid, found = group, group
    while (seen := _read_stat(pid)) is not None and pid not in (0, shell):
        found, pid = seen.group, seen.parent
    return found if pid == shell else group


def leads(pid: int) -> bool:
    """Whether the group of ``pid`` has its terminal; cheaper to ask than ``foreground``."""
    seen = _read_stat(pid)
    return seen is not None and seen.foreground == seen.group


def reads(pid: int, tty: str) -> bool:
    """Whether the process itself waits for the terminal ``tty``, whatever others in its group do."""
    seen = _read_stat(pid)
    return seen is not None and seen.state not in "ZXT" and _input_mode(tty, {pid: seen}) is not None


def line_edited(tty: str) -> bool:
    """Whether the terminal is as a shell's own line editor sets it, which a ``read`` of single keys does not."""
    try:
        fd = os.open(tty, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _, output, _, flags, _, _, keys = termios.tcgetattr(fd)
    except (OSError, termios.error):
        return False
    finally:
        os.close(fd)
    # bash, zsh and mksh take over the key that quotes the next one, fish all of the kind, busybox the interrupt, or all
    # keys that signal; programs that do without these print as they are told, too.
    own_keys = not flags & termios.IEXTEN or any(keys[key] in (b"\0", 0) for key in (termios.VLNEXT, termios.VINTR))
    own_keys = own_keys or bool(output & termios.OPOST and not flags & termios.ISIG)
    return not flags & (termios.ICANON | termios.ECHO) and own_keys


def switches(pid: int) -> int:
    """How often the process has gone to sleep by itself."""
    return _status_number(pid, "voluntary_ctxt_switches:", 10)


def controls_jobs(pid: int) -> bool:
    """Whether the process ignores the key that stops jobs, as shells do that a person types to."""
    return bool(_status_number(pid, "SigIgn:", 16) & 1 << signal.SIGTSTP - 1)


def command_line(pid: int) -> bytes:
    """The arguments of the process, each followed by a NUL; empty when it is gone."""
    return _read_bytes(f"/proc/{pid}/cmdline")


def image(pid: int) -> bytes:
    """Stays the same until the process becomes another program, even one of the same name; empty where it is hidden."""
    # Where the kernel put what is loaded, which it draws anew each time.
    return _read_bytes(f"/proc/{pid}/auxv")


def program(pid: int) -> str:
    """Path of what the process runs, or its short name where that is hidden; empty when it is gone."""
    try:
        return os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
    except OSError:
        seen = _read_stat(pid)
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


def read_size(pid: int) -> int | None:
    """How many bytes at most the process asks for in the read it is blocked in; None: in none, or not known."""
    call = _read(f"/proc/{pid}/syscall").split()
    if len(call) < 4 or _CALLS is None or _CALLS.reads.get(int(call[0])) != 0:
        return None
    return int(call[3], 16)


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


def go_on(pid: int) -> None:
    """Continues the stopped group of the process."""
    group = _group_of(pid)
    try:
        if group > 0:
            os.killpg(group, signal.SIGCONT)
    except OSError:
        return


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
    """Live processes of a session, as ``Membership`` finds them. Some ms; call it off the loop."""
    return sorted(Membership((cookie,)).look()[cookie])


def sweep(cookie: str) -> int:
    """``Membership.sweep`` of one session: how many processes were killed. Blocks some ms; call it off the loop."""
    return Membership((cookie,)).sweep()[cookie]


def ask_to_leave(cookie: str) -> list[int]:
    """``Membership.ask_to_leave`` of one session: whom it was sent to. Blocks some ms."""
    return Membership((cookie,)).ask_to_leave()[cookie]


class Membership:
    """Which processes belong to which of some sessions, found by looking at those of the whole machine.

    To a session belong those born with ``AI_SESSION_ID=<cookie>`` in their environment, their descendants, and what
    lives in a kernel session that one of these leads; never the caller. What was read of a process is not read again,
    so a second look costs 1 ms where the first took 10. All methods block; call them off the event loop.
    """

    def __init__(self, cookies: Iterable[str]) -> None:
        self._cookies = {f"{COOKIE_VARIABLE}={cookie}".encode(): cookie for cookie in cookies}
        self._known: dict[_Identity, str] = {}
        """The session each process was born in, "" for none of these."""
        self._missed = False

    def look(self, meet: Callable[[int, str], object] | None = None) -> dict[str, set[int]]:
        """The live members of each session; ``meet`` is called with each as soon as it is found."""
        found: dict[str, set[int]] = {cookie: set() for cookie in self._cookies.values()}
        newest, pids = _newest_pid(), _identities()
        # Newest first: what forks fast is read before it has gone.
        pids.sort(reverse=True)
        sessions = {identity: _session_of(identity[0]) for identity in pids if identity not in self._known}
        gone: list[int] = []
        for identity in pids:
            cookie = self._born_in(identity)
            if cookie is None:
                gone.append(sessions[identity])
            elif cookie and alive(identity[0], None):
                found[cookie].add(identity[0])
                if meet is not None:
                    meet(identity[0], cookie)
        inodes = dict(pids)
        # It may have been a member with a child by now, unless others began its kernel session. And numbers that began
        # anew meanwhile may have led a process past the listing.
        others = {leader for leader in gone if self._known.get((leader, inodes.get(leader, 0))) == ""}
        self._missed = not others.issuperset(gone) or newest > _newest_pid()
        if any(found.values()):
            by_session = _by_session(pid for pid, _ in pids)
            for cookie, those in found.items():
                for pid in _linked(those, by_session):
                    those.add(pid)
                    if meet is not None:
                        meet(pid, cookie)
        return found

    def _born_in(self, identity: _Identity) -> str | None:
        """The session of a process, "" for none of these; None where it ended before it was known."""
        pid = identity[0]
        if identity in self._known or pid == os.getpid():
            return self._known.get(identity, "")
        try:
            environment = _environment(pid)
        except PermissionError:
            return ""
        except OSError:
            seen = _read_stat(pid)
            if seen is not None:
                self._known[identity] = ""
            return None if seen is None or seen.state in "ZX" else ""
        words = environment.split(b"\0") if _COOKIE in environment else ()
        cookie = self._known[identity] = next((self._cookies[word] for word in words if word in self._cookies), "")
        return cookie

    def ask_to_leave(self) -> dict[str, list[int]]:
        """Sends every member SIGTERM; returns whom it was sent to."""
        asked = {cookie: sorted(those) for cookie, those in self.look().items()}
        for pid in (pid for those in asked.values() for pid in those):
            if _signal(pid, signal.SIGTERM):
                _signal(pid, signal.SIGCONT)
        return asked

    def sweep(self) -> dict[str, int]:
        """Kills every member; returns how many processes of each session were killed.

        All are stopped before the first is killed, so that none can fork away; this repeats until none is left, or a
        bounded number of rounds found some that cannot be killed.
        """
        killed: dict[str, set[tuple[int, int | None]]] = {cookie: set() for cookie in self._cookies.values()}
        empty = 0
        for _ in range(_SWEEP_ROUNDS):
            stopped = self._stop()
            for (pid, started), cookie in stopped.items():
                if _signal(pid, signal.SIGKILL):
                    killed[cookie].add((pid, started))
            empty = 0 if stopped else empty + 1
            # A process may have handed over to its child and gone before it was read, unless none had gone.
            if empty == _EMPTY_LOOKS or (empty and not self._missed):
                break
        return {cookie: len(those) for cookie, those in killed.items()}

    def _stop(self) -> dict[tuple[int, int | None], str]:
        """Stops members as they are found, until a look finds no other; whose they were, by number and start time."""
        stopped: dict[tuple[int, int | None], str] = {}
        seen: set[int] = set()

        def stop(pid: int, cookie: str) -> None:
            if pid not in seen and _signal(pid, signal.SIGSTOP):
                stopped[pid, start_time(pid)] = cookie
            seen.add(pid)

        before = -1
        while before < len(stopped):
            before = len(stopped)
            self.look(stop)
        return stopped


def _identities() -> list[_Identity]:
    """All processes, each with the inode of its directory, which no later process of the same number has."""
    try:
        with os.scandir("/proc") as entries:
            return [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    """What the process was born with. One that is just becoming another program has none yet: it is asked again.

    Raises OSError where there is none: it has ended, or is one of the kernel's; PermissionError where it is not for us.
    """
    for _ in range(_LOOKS_WHILE_BECOMING):
        if found := _contents(f"/proc/{pid}/environ"):
            return found
        # Fields 23 and 51: who has ended, and a process of the kernel, has no memory; the environment's end comes last.
        tail = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if len(tail) < 49 or tail[20] == "0":
            raise ProcessLookupError(pid)
        if tail[48] != "0":
            return b""
        os.sched_yield()
    return b""


def _contents(path: str) -> bytes:
    """Of a file that gives less than is asked for at its end only; half the cost of a file object. Raises OSError."""
    fd, found = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while part := os.read(fd, _READ_BYTES):
            found += part
            if len(part) < _READ_BYTES:
                break
    finally:
        os.close(fd)
    return found


def _by_session(pids: Iterable[int]) -> dict[int, list[int]]:
    """The processes of each kernel session, by its leader."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        found.setdefault(_session_of(pid), []).append(pid)
    return found


def _session_of(pid: int) -> int:
    """Who leads its kernel session, -1 where it has ended."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _linked(found: Collection[int], by_session: Mapping[int, list[int]]) -> Iterator[int]:
    """Processes that are not in ``found`` but descend from it or live in a kernel session that one of it leads."""
    # A daemon started inside a session is no link: its other children belong to other sessions.
    outside = {*found, os.getpid()}
    leaders = set(found) - {os.getpid()}
    while leaders:
        near = {pid for leader in leaders for pid in (*_children(leader), *by_session.get(leader, ()))}
        leaders = {pid for pid in near - outside if alive(pid, None)}
        outside |= near
        yield from leaders


def _children(pid: int) -> list[int]:
    """Of all its threads. Where the kernel keeps no list of them, all processes are asked for their parent."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.read().split())
    if found or _lists_children():
        return found
    return [child for child in _pids() if (seen := _read_stat(child)) is not None and seen.parent == pid]


@cache
def _lists_children() -> bool:
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def newest() -> int:
    """The pid that was given out last; 0 where nobody says."""
    return _newest_pid()


def left_on_terminal(leader: int, tty: str, born_after: int) -> list[tuple[int, int]]:
    """Pid and start time of the processes that live in the kernel session of ``leader``, were born after that pid
    was given out and could print on the terminal ``tty``. Costs as much as were born since, on the whole machine."""
    if (last := _newest_pid()) == born_after > 0:
        return []
    try:
        session, device = os.getsid(leader), os.stat(tty).st_rdev
    except OSError:
        return []
    few = born_after and 0 <= last - born_after <= _MOST_BORN
    found: list[tuple[int, int]] = []
    for pid in range(born_after + 1, last + 1) if few else _pids():
        if _session_of(pid) != session or pid == leader or pid <= born_after:
            continue
        seen = _read_stat(pid)
        if seen and seen.state not in "ZX" and _is_process(pid) and _prints_on(pid, device):
            found.append((pid, seen.started))
    return found


def printing(pid: int, started: int, tty: str) -> str:
    """The name of that process while it lives and could print on the terminal ``tty``; else nothing."""
    seen = _read_stat(pid)
    if seen is None or seen.state in "ZX" or seen.started != started:
        return ""
    try:
        return seen.name if _prints_on(pid, os.stat(tty).st_rdev) else ""
    except OSError:
        return ""


def is_copy(pid: int, shell: int) -> bool:
    """Whether the process is one that ``shell`` made of itself in its own group, as it does to expand its prompt."""
    one, other = _read_stat(pid), _read_stat(shell)
    return one is not None and other is not None and one.name == other.name and _group_of(pid) == _group_of(shell)


def fed_by(pid: int, tty: str) -> bool:
    """Whether the standard input of the process is the terminal ``tty``; also where we may not look."""
    try:
        return os.stat(f"/proc/{pid}/fd/0").st_rdev in (os.stat(tty).st_rdev, _CONTROLLING_TTY)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _is_process(pid: int) -> bool:
    """And not one of the threads of another, which have numbers of the same kind."""
    return f"\nTgid:\t{pid}\n" in _read(f"/proc/{pid}/status")


def _prints_on(pid: int, device: int) -> bool:
    """Whether its output or its errors go to the terminal; also where we may not look."""
    for number in (1, 2):
        try:
            if os.stat(f"/proc/{pid}/fd/{number}").st_rdev in (device, _CONTROLLING_TTY):
                return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def _newest_pid() -> int:
    if (load := _load()) is None:
        return 0
    text = os.pread(load, 256, 0).rpartition(b" ")[2].strip()
    return int(text) if text.isdigit() else 0


@cache
def _load() -> int | None:
    """Open for good, for it is read around each command."""
    try:
        return os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


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


def _status_number(pid: int, name: str, base: int) -> int:
    _, found, rest = _read(f"/proc/{pid}/status").partition("\n" + name)
    return int(rest.split(None, 1)[0], base) if found else 0


def _read(path: str) -> str:
    return _read_bytes(path).decode(errors="replace").strip()


def _read_bytes(path: str) -> bytes:
    """The file's bytes; nothing when the process has gone or is not ours to look into."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    found = b""
    try:
        while chunk := os.read(fd, _READ_BYTES):
            found += chunk
    except OSError:
        return b""
    finally:
        os.close(fd)
    return found
