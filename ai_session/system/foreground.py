"""The processes that hold a terminal, and whether they wait for input.

Evidence comes from ``/proc`` and termios only, never from output text. Without ``/proc`` (macOS) every result is
"unknown" (None), and nothing raises.
"""

from __future__ import annotations

import os
import select
import stat
import struct
import termios
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from ai_session.models import InputMode
from ai_session.system.kernel_files import CONTROLLING_TTY, Stat, all_pids, group_of, read_stat, read_text

_READ_WCHANS = ("wait_woken", "n_tty_read")
_POLL_WCHANS = ("poll", "select", "io_cqring_wait")


@dataclass(frozen=True, slots=True)
class Foreground:
    """The foreground process group of a terminal.

    ``leads_itself`` is true if ``group`` is the shell's own group; ``name`` is the short name of the group's leader.
    ``stopped``: every process of the group is stopped. ``input_mode`` is None unless the group is known to wait for the
    terminal: for a line, for a line that is not echoed, or for single keys.
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
    """Numbers of the system calls in which programs wait; ``reads`` maps each to the index of its descriptor."""

    reads: Mapping[int, int]
    polls: frozenset[int]
    selects: frozenset[int]
    lists: frozenset[int]
    """Those of ``polls`` whose first two arguments are a list of descriptors and its length."""


_MACHINES = {
    "x86_64": _Calls(
        reads={0: 0, 19: 0, 275: 0, 40: 1},  # read, readv, splice, sendfile
        polls=frozenset({7, 23, 232, 270, 271, 281, 426, 441}),
        selects=frozenset({23, 270}),
        lists=frozenset({7, 271}),
    ),
    "aarch64": _Calls(
        reads={63: 0, 65: 0, 76: 0, 71: 1},
        polls=frozenset({22, 72, 73, 426, 441}),
        selects=frozenset({72}),
        lists=frozenset({73}),
    ),
}
_CALLS = _MACHINES.get(os.uname().machine)


def find(pid: int, tty: str) -> Foreground | None:
    """Return who holds the terminal ``tty`` (a device path) whose session the shell ``pid`` leads; None if unknown.

    A shell in the foreground is treated like any program: at its prompt it waits for ``raw`` (line editor) or ``line``
    input, and so it does during a builtin ``read``. Its marks tell them apart. The result is a snapshot: a program that
    works in short steps may be seen between two of them.
    """
    shell = read_stat(pid)
    if shell is None or shell.foreground <= 0:
        return None
    group = shell.foreground
    found = ((member, read_stat(member)) for member in all_pids() if group_of(member) == group)
    members = {member: seen for member, seen in found if seen is not None and seen.state not in "ZX"}
    leader = members.get(group) or next(iter(members.values()), None)
    stopped = bool(members) and all(seen.state == "T" for seen in members.values())

    def waits(device: int) -> Iterable[_Wait]:
        of_members = (_waits(member, seen, device, is_shell=member == pid) for member, seen in members.items())
        return chain.from_iterable(of_members)

    mode = _input_mode(tty, waits) if not stopped and (members or _is_hidden(group)) else None
    return Foreground(group, group == shell.group, leader.name if leader else "", stopped, mode)


def input_mode_of(pid: int, tty: str) -> InputMode | None:
    """Return how this process waits for its terminal, whatever its group does; None if it does not, or if unknown.

    A thread other than its first must be blocked in a read for that: fish has one that polls while programs draw the
    prompt.
    """
    seen = read_stat(pid)
    if seen is None or seen.state in "ZXTt":
        return None
    return _input_mode(tty, lambda device: _waits(pid, seen, device, is_shell=True))


def is_busy(pid: int, tty: str) -> bool:
    """Report whether this process is known to do something other than wait for its terminal."""
    seen = read_stat(pid)
    if seen is None or seen.state in "ZXTt" or input_mode_of(pid, tty) is not None:
        return False
    return seen.state in "RD" or bool(read_text(f"/proc/{pid}/syscall"))


def rival(pid: int, tty: str) -> str:
    """Return the name and id of a process that reads ``tty`` outside of the foreground group of the shell ``pid``, and
    may therefore take what is typed; empty if none is known. The kernel prevents that only within the same session."""
    try:
        terminal = os.stat(tty)
    except OSError:
        return ""
    if (shell := read_stat(pid)) is None:
        return ""
    for other in all_pids():
        if group_of(other) != shell.foreground and _reads_file(other, terminal) and (seen := read_stat(other)):
            return f"{seen.name!r} (process {other})"
    return ""


def _reads_file(pid: int, file: os.stat_result) -> bool:
    """Report whether the process is blocked reading exactly that file; a name or device number cannot show that."""
    call = read_text(f"/proc/{pid}/syscall").split()
    if _CALLS is None or not call or not call[0].isdecimal() or int(call[0]) not in _CALLS.reads:
        return False
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/fd/{int(call[1 + _CALLS.reads[int(call[0])]], 16)}"), file)
    except OSError:
        return False


def _is_hidden(group: int) -> bool:
    """Report whether the group has processes that are not visible to us; False if it has just ended."""
    try:
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _input_mode(tty: str, waits_of: Callable[[int], Iterable[_Wait]]) -> InputMode | None:
    """Return the input mode of threads that wait so for a terminal of that device number. A blocked read on the
    terminal is proof. Sleeping in poll, or being invisible (sudo, su), counts only in a mode that programs set to ask
    for something: servers poll terminals, too."""
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
    waits = set(waits_of(device)) or {_Wait.UNREADABLE}
    line = bool(flags & termios.ICANON)
    asks = not line or not flags & termios.ECHO
    asleep = _Wait.BUSY not in waits and (_Wait.POLLING in waits or _Wait.UNREADABLE in waits)
    if _Wait.READING not in waits and not (asks and asleep):
        return None
    if not line:
        return "raw"
    return "password" if asks else "line"


def _waits(pid: int, seen: Stat, device: int, *, is_shell: bool) -> Iterable[_Wait]:
    if seen.state in "RD":
        return (_Wait.BUSY,)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return ()
    waits = {thread: _thread_wait(pid, thread, device) for thread in threads}
    return [wait for thread, wait in waits.items() if not is_shell or int(thread) == pid or wait is _Wait.READING]


def _thread_wait(pid: int, thread: str, device: int) -> _Wait:
    """``syscall`` shows everything, but Yama may hide it from a non-ancestor; the same user can read ``wchan``."""
    call = read_text(f"/proc/{pid}/task/{thread}/syscall").split()
    if call == ["running"]:
        return _Wait.BUSY
    if call and _CALLS is not None:
        return _call_wait(pid, call, device, _CALLS)
    wchan = read_text(f"/proc/{pid}/task/{thread}/wchan")
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
    # A select over one descriptor checks descriptor 0 alone: `read -t` in the shells. busybox polls it.
    if number in calls.selects and int(call[1], 16) == 1 and _is_terminal(pid, 0, device):
        return _Wait.READING
    if number in calls.lists and int(call[2], 16) == 1 and _is_terminal(pid, _polled(pid, int(call[1], 16)), device):
        return _Wait.READING
    return _Wait.POLLING if number in calls.polls else _Wait.ASLEEP


def _polled(pid: int, address: int) -> int:
    """Return the first descriptor of a list that the process polls for input; -1 if there is none."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        descriptor, events = struct.unpack("ih", os.pread(memory, 6, address))
    except (OSError, struct.error):
        return -1
    finally:
        os.close(memory)
    return descriptor if events & select.POLLIN else -1


def _is_terminal(pid: int, fd: int, device: int) -> bool:
    try:
        found = os.stat(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev in (device, CONTROLLING_TTY)


def _has_socket(pid: int) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as descriptors:
            return any(os.readlink(entry.path).startswith("socket:") for entry in descriptors)
    except OSError:
        return True


def leads(pid: int) -> bool:
    """Report whether the group of ``pid`` holds its terminal; cheaper than ``find``."""
    seen = read_stat(pid)
    return seen is not None and seen.foreground == seen.group


def line_edited(tty: str) -> bool:
    """Report whether the terminal has the mode of a shell's line editor, which a ``read`` of single keys lacks."""
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
    # bash, zsh and mksh disable the key that quotes the next one, fish all such keys, busybox the interrupt key or all
    # signal keys; other programs that disable these also turn off output processing.
    own_keys = not flags & termios.IEXTEN or any(keys[key] in (b"\0", 0) for key in (termios.VLNEXT, termios.VINTR))
    own_keys = own_keys or bool(output & termios.OPOST and not flags & termios.ISIG)
    return not flags & (termios.ICANON | termios.ECHO) and own_keys


def position(pid: int) -> tuple[int, int] | None:
    """Return where in its program the process waits: the system call, and the stack pointer in it. A shell reads its
    terminal at one position for its prompt and in others for what it runs. None if it does not wait, or if unknown."""
    call = read_text(f"/proc/{pid}/syscall").split()
    return (int(call[0]), int(call[-2], 16)) if len(call) > 3 else None


def read_size(pid: int) -> int | None:
    """Return the size of the read in which the process is blocked, in bytes; None if it is in none, or unknown."""
    call = read_text(f"/proc/{pid}/syscall").split()
    if len(call) < 4 or _CALLS is None or _CALLS.reads.get(int(call[0])) != 0:
        return None
    return int(call[3], 16)
