"""Runs a program inside Landlock, seccomp and limits, and supervises it: ``landlock_exec.py SPEC -- argv...``.

It exits with the program's exit status, or dies by the same signal. Whatever the program started ends with it, and also
when this process gets SIGTERM or the terminal's SIGHUP. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import stat
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

_CREATE = 444
_ADD_RULE = 445
_RESTRICT = 446
_EXECUTE = 1
_WRITE_FILE = 2
_READ_FILE = 4
_READ_DIR = 8
_MAKE_CHAR = 64
_MAKE_BLOCK = 2048
_TRUNCATE = 16384
_IOCTL_DEVICE = 32768
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_USE_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE
_RIGHTS_OF_ABI = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_RIGHTS = 16
_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_CAPBSET_DROP = 24
_PR_SET_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION_3 = 0x20080522
_GRACE_SECONDS = 1.0
"""The time between SIGTERM and SIGKILL for the process tree; a session's own grace comes before it."""
_SWEEP_ROUNDS = 200

_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP}
_TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

OF_THE_TERMINAL = ("TERM",)
"""The variables that come from the terminal and not from the box's specification."""


def abi() -> int:
    """Return the version of the kernel's Landlock ABI; 0 if it has none or it is switched off."""
    if sys.platform != "linux":
        return 0
    version_flag = 1
    return max(0, _libc().syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(version_flag)))


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the program and exit as it did; 126 if it could not be boxed, 127 if it could not be run."""
    spec_path, separator, *argv = arguments
    if separator != "--" or not argv:
        raise SystemExit("usage: landlock_exec.py SPEC -- argv...")
    with open(spec_path, "rb") as file:
        spec: dict[str, Any] = json.load(file)
    with open(spec["filter"], "rb") as file:
        seccomp = file.read()
    _check(_libc().prctl(_PR_SET_SUBREAPER, 1, 0, 0, 0), "become the parent of orphans")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        _enter(spec, seccomp, argv, parent)
    _supervise(child, spec["scratch"])


def _enter(spec: Mapping[str, Any], seccomp: bytes, argv: Sequence[str], parent: int) -> NoReturn:
    try:
        _check(_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "end with the supervisor")
        if os.getppid() != parent:
            os._exit(126)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Python ignores these two, and an ignored signal stays ignored in the program.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        _limit(spec["limits"])
        _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges")
        _drop_capabilities()
        _restrict(spec["readable"], spec["writable"], spec["devices"], spec["network"])
        _filter(seccomp)
    except BaseException as error:
        os.write(2, f"ai-session: the sandbox cannot be entered: {error}\n".encode())
        os._exit(126)
    try:
        env: dict[str, str] = {**_terminal_variables(), **spec["env"]}
        os.execve(shutil.which(argv[0], path=env.get("PATH", os.defpath)) or argv[0], list(argv), env)
    except OSError as error:
        os.write(2, f"ai-session: {argv[0]}: {error.strerror}\n".encode())
        os._exit(127)


def _terminal_variables() -> dict[str, str]:
    """Return the variables the terminal set, from the original environment: Python adds a locale of its own."""
    with open("/proc/self/environ", "rb") as file:
        entries = [os.fsdecode(entry).partition("=") for entry in file.read().split(b"\0")]
    return {name: value for name, _, value in entries if name in OF_THE_TERMINAL}


def _limit(limits: Mapping[str, int]) -> None:
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        if name == "NPROC":
            # Without a user namespace the kernel counts all threads of this user, in and outside the box.
            wanted += _threads_of_user()
        hard = resource.getrlimit(number)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def _threads_of_user() -> int:
    count, user = 0, os.getuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _drop_capabilities() -> None:
    """Drop what root may do beyond its files. An ordinary user has no capabilities and may not drop any."""
    libc = _libc()
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    _check(libc.capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)), "drop capabilities")


def _restrict(readable: Sequence[str], writable: Sequence[str], devices: Sequence[str], network: bool) -> None:
    """Allow only these paths, no signal and no abstract socket out of the box, and no TCP unless ``network``."""
    version = abi()
    handled = (1 << _RIGHTS_OF_ABI.get(version, _ALL_RIGHTS)) - 1
    tcp = 0 if network else 3
    scopes = 3
    attributes = struct.pack("<QQQ", handled, tcp, scopes)
    fd = _libc().syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    _check(fd, "make a Landlock ruleset")
    for path in readable:
        for part, rights in _readable_parts(path):
            _allow(fd, part, rights & handled)
    for path in writable:
        _allow(fd, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEVICE))
    for path in (*devices, *_terminal()):
        _allow(fd, path, _USE_DEVICE & handled)
    _check(_libc().syscall(_RESTRICT, fd, ctypes.c_uint32(0)), "restrict itself with Landlock")
    os.close(fd)


def _terminal() -> tuple[str, ...]:
    """Return the device of the box's own terminal, if standard input is one."""
    return (os.ttyname(0),) if os.isatty(0) else ()


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no right
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= _OF_FILES
    beneath = 1
    rule = struct.pack("<Qi", rights, fd)
    _check(_libc().syscall(_ADD_RULE, ruleset, beneath, rule, ctypes.c_uint32(0)), f"allow {path}")
    os.close(fd)


def _readable_parts(path: str) -> list[tuple[str, int]]:
    """Return paths and rights for ``path``. Root gets only what everybody may read of /etc: modes do not bind it."""
    if os.geteuid() != 0 or not path.startswith("/etc"):
        return [(path, _READ)]
    try:
        mode = os.stat(path, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            return [(path, _READ)] if mode & stat.S_IROTH else []
        inside = [part for name in os.listdir(path) for part in _readable_parts_inside(f"{path}/{name}")]
    except OSError:
        return []
    if not mode & stat.S_IROTH or not mode & stat.S_IXOTH:
        return []
    whole = all(rights == _READ for _, rights in inside)
    return [(path, _READ)] if whole else [(path, _READ_DIR), *(part for part in inside if part[1])]


def _readable_parts_inside(path: str) -> list[tuple[str, int]]:
    """Return ``_readable_parts`` of a path inside /etc; none for a link, and no rights for what is withheld."""
    if os.path.islink(path):
        return []
    return _readable_parts(path) or [(path, 0)]


def _filter(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))

    given = Program(len(program) // 8, ctypes.addressof(code))
    _check(_libc().prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(given), 0, 0), "install the filter")


def _supervise(child: int, scratch: str) -> NoReturn:
    for number in _TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # A session leader has no shell above it that could resume it.
    mirrors_stops = os.getsid(0) != os.getpid()
    status: int | None = None
    while status is None:
        number = signal.sigwait(_WATCHED)
        if number == signal.SIGHUP:
            _signal(child, signal.SIGHUP)
            _signal(child, signal.SIGCONT)
        elif number == signal.SIGTERM:
            _terminate()
            break
        status = _reap(child, mirrors_stops)
    _sweep()
    shutil.rmtree(scratch, ignore_errors=True)
    _end_as(signal.SIGTERM if status is None else status)


def _reap(child: int, mirrors_stops: bool) -> int | None:
    """Return the program's wait status once it has ended, otherwise None. Reaps every other child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid == child and os.WIFSTOPPED(status):
            if mirrors_stops:
                os.kill(os.getpid(), signal.SIGSTOP)
                _signal(child, signal.SIGCONT)
        elif pid == child:
            return status


def _terminate() -> None:
    tree = list(_tree())
    for pid in tree:
        # Stopped, no shell goes on because another one that it waits for has ended first.
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGTERM):
            _signal(pid, number)
    for pid in reversed(tree):
        _signal(pid, signal.SIGCONT)
    deadline = time.monotonic() + _GRACE_SECONDS
    while _children(os.getpid()) and (left := deadline - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, left)
        _reap(0, False)


def _sweep() -> None:
    """Kill the process tree; all of it is stopped first, parents before their children: none forks away or goes on."""
    for _ in range(_SWEEP_ROUNDS):
        stopped: set[int] = set()
        while fresh := [pid for pid in _tree() if pid not in stopped]:
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped.update(fresh)
        for pid in stopped:
            _signal(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _tree() -> Iterator[int]:
    """Yield every descendant, including zombies; orphans are adopted by this process."""
    pending = _children(os.getpid())
    while pending:
        pid = pending.pop()
        yield pid
        pending += _children(pid)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def _end_as(status: int) -> NoReturn:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1:])
