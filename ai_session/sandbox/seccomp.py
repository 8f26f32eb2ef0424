"""The system calls that a boxed process may not make, as a classic BPF program for x86-64 and aarch64.

Everything is allowed except what is named here: a shell must run any program. What is refused either escapes the
namespaces (AF_VSOCK, keyrings, terminal injection), widens the kernel's attack surface (mounts, bpf, io_uring, user
namespaces), leaves files that act for another user (set-uid bits, device nodes), or makes programs outside wait (a
lease delays any open of the file for 45 seconds, also by git and editors).
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ai_session.errors import SandboxUnavailable

Instruction = tuple[int, int, int, int]

LOAD = 0x20
EQUAL = 0x15
AT_LEAST = 0x35
ANY_BIT = 0x45
AND = 0x54
RETURN = 0x06
ALLOW = 0x7FFF0000
KILL = 0x80000000
FAIL = 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data; arguments are 8 bytes each, and both machines keep the low half first."""

X32_BIT = 0x40000000
NAMESPACES = 0x7E020080
"""CLONE_NEW: TIME 0x80, NS 0x20000, CGROUP, UTS, IPC, USER, PID, NET."""
SIGNAL_OF_CLONE = 0xFF
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
F_SETLEASE, F_SETDELEG = 1024, 1040
SET_ID_BITS = 0o6000
O_CREAT, O_TMPFILE = 0o100, 0o20000000
FILE_TYPE = 0o170000
CHARACTER_DEVICE = 0o020000
BLOCK_DEVICE = 0o060000
AF_UNIX = 1
AF_INET = 2
AF_INET6 = 10
AF_NETLINK = 16
SOCK_TYPE = 0xF
SOCK_STREAM = 1
SOCK_DGRAM = 2
SOCK_RAW = 3
NETLINK_ROUTE = 0
SEGMENT_BYTES = 1 << 20
"""The largest SysV segment. The kernel has at most 4,096 of them, and those not attached are invisible outside."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One ABI: its audit number in the kernel and the numbers of its system calls, without those it lacks."""

    audit: int
    calls: Mapping[str, int]


_COMMON = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "openat2": 437,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "fchmodat2": 452,
    "open_tree_attr": 467,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
}

MACHINES = {
    "x86_64": Machine(
        0xC000003E,
        _COMMON
        | {"open": 2, "ioctl": 16, "socket": 41, "sendto": 44, "sendmsg": 46, "socketpair": 53, "clone": 56}
        | {"semget": 64, "msgget": 68, "shmget": 29, "fcntl": 72, "mkdir": 83, "creat": 85, "chmod": 90, "fchmod": 91}
        | {"syslog": 103, "mknod": 133, "uselib": 134, "ustat": 136, "sysfs": 139, "vhangup": 153, "modify_ldt": 154}
        | {"pivot_root": 155, "_sysctl": 156, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164}
        | {"mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173}
        | {"init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212}
        | {"clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250}
        | {"migrate_pages": 256, "openat": 257, "mkdirat": 258, "mknodat": 259, "fchmodat": 268, "unshare": 272}
        | {"move_pages": 279, "perf_event_open": 298, "open_by_handle_at": 304, "clock_adjtime": 305}
        | {"sendmmsg": 307, "setns": 308, "finit_module": 313, "kexec_file_load": 320, "bpf": 321}
        | {"userfaultfd": 323, "setpriority": 141, "prlimit64": 302},
    ),
    "aarch64": Machine(
        0xC00000B7,
        _COMMON
        | {"lookup_dcookie": 18, "fcntl": 25, "ioctl": 29, "mknodat": 33, "mkdirat": 34, "umount2": 39, "mount": 40}
        | {"pivot_root": 41, "nfsservctl": 42, "chroot": 51, "fchmod": 52, "fchmodat": 53, "openat": 56, "vhangup": 58}
        | {"quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106}
        | {"clock_settime": 112, "syslog": 116, "reboot": 142, "settimeofday": 170, "adjtimex": 171}
        | {"msgget": 186, "semget": 190, "shmget": 194, "socket": 198, "socketpair": 199, "sendto": 206}
        | {"sendmsg": 211, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224}
        | {"swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241}
        | {"open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "sendmmsg": 269, "finit_module": 273}
        | {"bpf": 280, "userfaultfd": 282, "kexec_file_load": 294, "setpriority": 140, "prlimit64": 261},
    ),
}

REFUSED = (
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "setns", "bpf", "perf_event_open", "userfaultfd", "add_key", "request_key"),
    *("keyctl", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon"),
    *("swapoff", "acct", "quotactl", "quotactl_fd", "open_by_handle_at", "iopl", "ioperm", "syslog", "settimeofday"),
    *("clock_settime", "adjtimex", "clock_adjtime", "vhangup", "nfsservctl", "lookup_dcookie", "uselib", "ustat"),
    *("sysfs", "_sysctl", "modify_ldt", "move_pages", "migrate_pages"),
)
ABSENT = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "openat2")
"""Calls that fail as on a kernel without them. clone3 and openat2 keep flags behind a pointer, which no filter can
read; libraries fall back to clone and openat."""


@cache
def build(
    *,
    network: bool,
    unix_sockets: bool = True,
    no_namespaces: bool = False,
    machine: str = "",
) -> bytes:
    """Return the filter as an array of ``struct sock_filter``, which the kernel and ``bwrap --seccomp`` accept.

    ``network`` allows internet sockets, as far as the network namespace has a network. ``unix_sockets`` allows AF_UNIX.
    ``no_namespaces`` is for a box without namespaces: it refuses SysV IPC, which all processes share there; netlink;
    datagram socket pairs, which could be sent to a socket of the host; and limits and priorities of other processes: a
    limit can kill as a signal does. ``machine`` defaults to this one's. Raises SandboxUnavailable for a
    machine without a table.
    """
    name = machine or os.uname().machine
    if name not in MACHINES:
        raise SandboxUnavailable(f"no system call filter for {name}", suggestion=f"supported: {', '.join(MACHINES)}")
    abi = MACHINES[name]
    program: list[Instruction] = [(LOAD, 0, 0, ARCHITECTURE), *_unless((abi.audit,), KILL), (LOAD, 0, 0, NUMBER)]
    if name == "x86_64":
        program += _when((X32_BIT,), FAIL | errno.ENOSYS, AT_LEAST)
    program += _when([abi.calls[call] for call in REFUSED if call in abi.calls], FAIL | errno.EPERM)
    program += _when([abi.calls[call] for call in ABSENT], FAIL | errno.ENOSYS)
    blocks = _flags() | {"socket": _socket(network, unix_sockets, no_namespaces)}
    if no_namespaces:
        never: list[Instruction] = [(RETURN, 0, 0, FAIL | errno.EPERM)]
        blocks |= dict.fromkeys(("shmget", "semget", "msgget"), never)
        blocks["socketpair"] = [_argument(1), (AND, 0, 0, SOCK_TYPE), *_unless((SOCK_STREAM,), FAIL | errno.EPERM)]
        oneself = [_argument(0), *_unless((0,), FAIL | errno.EPERM)]
        blocks["prlimit64"] = oneself
        blocks["setpriority"] = [*oneself, _argument(1), *_unless((0,), FAIL | errno.EPERM)]
    for call, body in blocks.items():
        if call in abi.calls:
            program += _case(abi.calls[call], body)
    program.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


def _flags() -> dict[str, list[Instruction]]:
    """Return the tests of calls refused for one argument. Values are compared on 32 bits, as the kernel reads them."""
    refuse = FAIL | errno.EPERM
    blocks = {
        "unshare": [_argument(0), *_when((NAMESPACES,), refuse, ANY_BIT)],
        "clone": [_argument(0), *_when((NAMESPACES & ~SIGNAL_OF_CLONE,), refuse, ANY_BIT)],
        "ioctl": [_argument(1), *_when((TIOCSTI, TIOCLINUX), refuse)],
        "fcntl": [_argument(1), *_when((F_SETLEASE, F_SETDELEG), refuse)],
    }
    for call, index in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2), ("creat", 1)):
        blocks[call] = [_argument(index), *_when((SET_ID_BITS,), refuse, ANY_BIT)]
    too_large: list[Instruction] = [(AT_LEAST, 0, 1, SEGMENT_BYTES + 1), (RETURN, 0, 0, FAIL | errno.EINVAL)]
    blocks["shmget"] = [_argument(1, high=True), *_unless((0,), FAIL | errno.EINVAL), _argument(1), *too_large]
    for call, index in (("mkdir", 1), ("mkdirat", 2)):
        blocks[call] = [_argument(index), *_when((SET_ID_BITS,), refuse, ANY_BIT)]
    for call, index in (("open", 1), ("openat", 2)):
        makes = [_argument(index), (ANY_BIT, 1, 0, O_CREAT | O_TMPFILE), (RETURN, 0, 0, ALLOW)]
        blocks[call] = [*makes, _argument(index + 1), *_when((SET_ID_BITS,), refuse, ANY_BIT)]
    for call, index in (("mknod", 1), ("mknodat", 2)):
        mode = _argument(index)
        kind: list[Instruction] = [mode, (AND, 0, 0, FILE_TYPE), *_when((CHARACTER_DEVICE, BLOCK_DEVICE), refuse)]
        blocks[call] = [*kind, mode, *_when((SET_ID_BITS,), refuse, ANY_BIT)]
    return blocks


def _socket(network: bool, unix_sockets: bool, no_namespaces: bool) -> list[Instruction]:
    """Allow only families that the box's namespaces contain, and no raw sockets."""
    internet = (AF_INET, AF_INET6) if network else ()
    netlink = (AF_NETLINK,) if network and not no_namespaces else ()
    families = (*((AF_UNIX,) if unix_sockets else ()), *internet, *netlink)
    refuse = FAIL | errno.EPERM
    body: list[Instruction] = [_argument(0), *_unless(families, FAIL | errno.EAFNOSUPPORT)]
    body += _case(AF_UNIX, [])
    body += _case(AF_NETLINK, [_argument(2), *_unless((NETLINK_ROUTE,), FAIL | errno.EPROTONOSUPPORT)])
    return [*body, _argument(1), (AND, 0, 0, SOCK_TYPE), *_unless((SOCK_STREAM, SOCK_DGRAM), refuse)]


def _argument(index: int, *, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS + 8 * index + 4 * high)


def _when(values: Sequence[int], verdict: int, test: int = EQUAL) -> list[Instruction]:
    """Return ``verdict`` if one of the values matches, otherwise continue after these instructions."""
    last = len(values) - 1
    tests = [(test, last - index, int(index == last), value) for index, value in enumerate(values)]
    return [*tests, (RETURN, 0, 0, verdict)]


def _unless(values: Sequence[int], verdict: int) -> list[Instruction]:
    """Return ``verdict`` if none of the values matches, otherwise continue after these instructions."""
    tests = [(EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [*tests, (RETURN, 0, 0, verdict)]


def _case(value: int, body: Iterable[Instruction]) -> list[Instruction]:
    """Run the body and then allow the call if the value matches, otherwise skip the body."""
    inner = [*body, (RETURN, 0, 0, ALLOW)]
    return [(EQUAL, 0, len(inner), value), *inner]
