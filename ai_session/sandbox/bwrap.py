"""The arguments of bubblewrap for one box, and the script that starts it.

Inside there are an empty root with the system's trees, read-only; an empty home; and the workspace at its own path.
Each source outside the system's trees is opened in advance and passed as a descriptor, so that what is mounted is what
was checked, whatever a running box does to the path in the meantime.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shlex
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ai_session.errors import SandboxRefused
from ai_session.models import SandboxProfile
from ai_session.sandbox import seccomp
from ai_session.sandbox import users as box_users
from ai_session.sandbox.workspace.protected_paths import Protection
from ai_session.system.kernel_files import besides_processes
from ai_session.system.paths_without_links import open_path

PATHS = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
"""Never looked up on a client's PATH. Ubuntu's AppArmor lets only the first make user namespaces."""
PRLIMIT = ("/usr/bin/prlimit", "/bin/prlimit")
STARTERS = (("/bin/bash", "-p"), ("/usr/bin/bash", "-p"), ("/bin/busybox", "sh"))
"""The shells that can open descriptors above 9; dash, mksh and zsh cannot. ``-p`` ignores files named in variables."""
PLAIN_STARTER = ("/bin/sh",)
"""Used if there is none of them: sources are then named by path, and descriptors above 9 are inherited."""

TREES = ("/usr", "/etc", "/opt")
SHORTCUTS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
HOME_BYTES = 1 << 30
SHM_BYTES = 256 << 20
RUN_BYTES = 64 << 20
OPEN_FILES, MOST_OPEN_FILES = 4096, 16384
ARGUMENTS = 8
FILTER = 9
INFO = 6
BLOCK = 7
USERS = 19
FIRST_SOURCE = 20
WRITABLE, READABLE = "--bind-fd", "--ro-bind-fd"
SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The bubblewrap program and how it can be used on this machine. ``options`` are those that its help names."""

    path: str
    version: str
    options: frozenset[str]
    prlimit: str
    starter: tuple[str, ...]
    fresh_proc: bool = True
    disable_userns: bool = True
    users: bool = False
    """Whether root's boxes have users other than root."""

    def has(self, option: str) -> bool:
        """Report whether this build has the option."""
        return option in self.options


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of a box's own files, all invisible inside. ``empty`` is an empty file."""

    directory: Path

    def __truediv__(self, name: str) -> str:
        return str(self.directory / name)


class Sources:
    """Open descriptors of what a box will show, to be closed once the box has inherited them or is not made."""

    def __init__(self) -> None:
        self._opened: dict[str, int] = {}

    def add(self, path: str) -> None:
        """Open ``path``, a file or directory without links in it. Raises SandboxRefused or OSError."""
        if path in self._opened:
            return
        self._opened[path] = fd = open_without_links(path)
        if stat.S_IFMT(os.fstat(fd).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            raise SandboxRefused(
                f"{path!r} is neither a file nor a directory", suggestion="name the directory that it lies in"
            )
        _check_unleased(fd, path)

    def __getitem__(self, path: str) -> int:
        return self._opened[path]

    def close(self) -> None:
        """Close every descriptor. May be called twice."""
        while self._opened:
            os.close(self._opened.popitem()[1])


def _check_unleased(fd: int, path: str) -> None:
    """Raise SandboxRefused if a program holds a write lease, which would delay any open of the file by up to 45
    seconds, also the box's starter. No program can take one while ``fd`` is open."""
    try:
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except BlockingIOError:
        raise SandboxRefused(
            f"a program holds a lease on {path!r}",
            suggestion="try again in a minute, when the system has ended the lease, or end that program first",
        ) from None
    except OSError:
        pass  # unreadable files are reported by the caller


def find() -> Bubblewrap | None:
    """Return the installed bubblewrap, or None if it or prlimit is not installed."""
    path = next((one for one in PATHS if os.access(one, os.X_OK)), "")
    prlimit = next((file for file in PRLIMIT if os.access(file, os.X_OK)), "")
    if not path or not prlimit:
        return None
    help_text = _output(path, "--help")
    version = re.search(r"\d+(?:\.\d+)+", _output(path, "--version"))
    starter = next((words for words in STARTERS if os.access(words[0], os.X_OK)), PLAIN_STARTER)
    options = set(re.findall(r"--[a-z-]+", help_text))
    if starter == PLAIN_STARTER:
        options -= {WRITABLE, READABLE}
    return Bubblewrap(path, version[0] if version else "", frozenset(options), prlimit, starter)


def missing() -> list[str]:
    """Return the names of the packages that ``find`` misses."""
    needed = {"bubblewrap": PATHS, "util-linux": PRLIMIT}
    return [name for name, paths in needed.items() if not any(os.access(one, os.X_OK) for one in paths)]


def _output(*argv: str) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


def open_without_links(path: str) -> int:
    """Return an O_PATH descriptor. Raises SandboxRefused if a part of the path is a link, or OSError."""
    try:
        return open_path(path)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        raise SandboxRefused(
            f"{path!r} is reached through a symbolic link", suggestion="use the path it leads to instead"
        ) from None


class Plan:
    """The mounts of one box: a later mount replaces an earlier one at the same path; outer ones are mounted first.

    ``taken`` maps descriptor numbers in the starter to ours, once ``arguments`` has been called.
    """

    def __init__(self, bubblewrap: Bubblewrap, sources: Sources, empty: str) -> None:
        self.taken: dict[int, int] = {}
        self._bubblewrap = bubblewrap
        self._sources = sources
        self._empty = empty
        self._mounts: dict[str, tuple[str, ...]] = {}
        self._sealed: list[str] = []
        self._numbers = count(FIRST_SOURCE)

    def system(self, hidden: Iterable[str], *, network: bool) -> None:
        """Mount the trees of the system, with the paths in ``hidden`` empty."""
        for tree in TREES:
            self._mounts[tree] = ("--ro-bind-try", tree, tree)
        for path in SHORTCUTS:
            if os.path.islink(path):
                self._mounts[path] = ("--symlink", os.readlink(path), path)
            elif os.path.isdir(path):
                self._mounts[path] = ("--ro-bind", path, path)
        self._mounts["/proc"] = ("--proc", "/proc") if self._bubblewrap.fresh_proc else ("--ro-bind", "/proc", "/proc")
        self._kernel()
        self._mounts["/dev"] = ("--dev", "/dev")
        self._mounts["/var/run"] = ("--symlink", "../run", "/var/run")
        # Not a link to /tmp: a workspace below it would be mounted somewhere else through the link.
        self.scratch("/var/tmp", SHM_BYTES, "1777")
        self.scratch("/dev/shm", SHM_BYTES, "1777")
        self.scratch("/run", RUN_BYTES, "0755")
        names = os.path.realpath("/etc/resolv.conf")
        if network and not names.startswith("/etc/") and os.path.exists(names):
            self._mounts[names] = ("--ro-bind", names, names)
        for path in hidden:
            self.hide(path)

    def _kernel(self) -> None:
        """Mount the kernel's settings read-only and hide those that only root may read.

        bubblewrap leaves /proc/sys writable to root: without capabilities the directory seems closed to it, but the
        files in it belong to root. A pattern for core files would then be a program that runs outside.
        """
        self._mounts["/proc/sys"] = ("--ro-bind", "/proc/sys", "/proc/sys")
        root = os.geteuid() == 0
        for entry in besides_processes():
            if entry.is_symlink() or not (root or os.access(entry.path, os.W_OK)):
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode) and not mode & stat.S_IROTH:
                self._mounts[entry.path] = ("--ro-bind", self._empty, entry.path)
            elif stat.S_ISDIR(mode) or mode & 0o222:
                self._mounts[entry.path] = ("--ro-bind", entry.path, entry.path)

    def scratch(self, path: str, size: int, mode: str) -> None:
        """Mount an empty directory in memory, of at most ``size`` bytes."""
        sized = ("--size", str(size)) if self._bubblewrap.has("--size") else ()
        perms = ("--perms", mode) if self._bubblewrap.has("--perms") else ()
        self._mounts[path] = (*sized, *perms, "--tmpfs", path)

    def show(self, path: str, *, write: bool) -> None:
        """Mount ``path`` unchanged. Raises SandboxRefused or FileNotFoundError."""
        self._sources.add(path)
        self._mounts[path] = (WRITABLE if write else READABLE,)

    def pin(self, path: str) -> None:
        """Mount a directory onto itself, so that it cannot be moved away along with what is protected in it."""
        if path not in self._mounts:
            self.show(path, write=True)

    def hide(self, path: str) -> None:
        """Mount something empty at ``path``."""
        if os.path.isdir(path):
            self.scratch(path, 1 << 12, "0755")
            self._sealed.append(path)
        else:
            # Not /dev/null: a device cannot be opened on these mounts, so programs would fail instead of reading
            # nothing.
            self._mounts[path] = ("--ro-bind", self._empty, path)

    def protect(self, protection: Protection) -> None:
        """Mount what protects a workspace; pins first, because they would hide mounts below them."""
        for path in protection.pins:
            self.pin(path)
        for path in protection.read_only:
            self.show(path, write=False)
            if not os.access(path, os.R_OK):
                # The starter could not open it either.
                self.hide(path)
        for path in protection.masked:
            self.hide(path)

    def arguments(self) -> list[str]:
        """Return the mounts, outermost first, and then what is made read-only."""
        words: list[str] = []
        for path in sorted(self._mounts, key=lambda path: path.split("/")):
            words += self._mounts[path]
            if self._mounts[path] not in ((WRITABLE,), (READABLE,)):
                continue
            if self._bubblewrap.has(WRITABLE):
                # Numbered here, because a descriptor that no mount uses would stay open inside.
                number = next(self._numbers)
                self.taken[number] = self._sources[path]
                words += (str(number), path)
            else:
                words[-1] = words[-1].removesuffix("-fd")
                words += (path, path)
        for path in (*self._sealed, "/"):
            words += ("--remount-ro", path)
        return words


def arguments(
    bubblewrap: Bubblewrap,
    plan: Plan,
    profile: SandboxProfile,
    env: Mapping[str, str],
    *,
    die_with_parent: bool,
    gated: bool,
) -> bytes:
    """Return the contents of the file for ``bwrap --args``. TERM is left to the terminal."""
    words = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
    if bubblewrap.users:
        plan.taken[USERS] = box_users.namespace(os.geteuid())
        # With --sync-fd, bubblewrap closes the descriptor in the programs it starts.
        words += ("--userns", str(USERS), "--sync-fd", str(USERS))
        words += (word for name in box_users.CAPABILITIES for word in ("--cap-add", name))
    else:
        words.append("--unshare-user")
    if profile.network != "host":
        words.append("--unshare-net")
    if not bubblewrap.users and bubblewrap.disable_userns and bubblewrap.has("--disable-userns"):
        words.append("--disable-userns")
    if die_with_parent:
        words.append("--die-with-parent")
    words += [*plan.arguments(), "--seccomp", str(FILTER)]
    if gated:
        words += ["--info-fd", str(INFO), "--block-fd", str(BLOCK)]
    if not bubblewrap.users and os.geteuid() == 0:
        env = {**env, "TAR_OPTIONS": env.get("TAR_OPTIONS", "--no-same-owner")}
    for name, value in env.items():
        if name != "TERM":
            words += ["--setenv", name, value]
    return os.fsencode("\0".join((*words, "")))


def limits(prlimit: str, profile: SandboxProfile) -> list[str]:
    """Return the prlimit command. Limits are per process, except ``nproc``: per user namespace, and not for root."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    return [
        prlimit,
        f"--nproc={profile.processes}",
        "--core=0",
        f"--nofile={min(OPEN_FILES, most)}:{most}",
        f"--fsize={profile.file_bytes}",
        f"--data={profile.memory_bytes}",
        "--",
    ]


def write(
    bubblewrap: Bubblewrap,
    plan: Plan,
    files: Files,
    profile: SandboxProfile,
    env: Mapping[str, str],
    *,
    die_with_parent: bool,
    gated: bool = False,
) -> tuple[str, ...]:
    """Write the files that a box is started from and return the words that start it, before those of its command.

    If ``gated``, the box blocks before it runs the command, until ``block`` is written to.
    """
    words = arguments(bubblewrap, plan, profile, env, die_with_parent=die_with_parent, gated=gated)
    private(files.directory / "args").write_bytes(words)
    (files.directory / "filter").write_bytes(seccomp.build(network=True))
    (files.directory / "empty").write_bytes(b"")
    fifos = {"taken": True, "block": gated, "info": False}
    for name, wanted in fifos.items():
        (files.directory / name).unlink(missing_ok=True)
        if wanted:
            os.mkfifo(files / name, 0o600)
    (files.directory / "start").write_text(script(bubblewrap, files, plan.taken, profile, gated=gated))
    return (*bubblewrap.starter, files / "start")


def private(path: Path) -> Path:
    """Make ``path`` a new file for its owner alone, since it will contain the environment, and return it."""
    path.unlink(missing_ok=True)
    path.touch(0o600)
    return path


def script(
    bubblewrap: Bubblewrap, files: Files, taken: Mapping[int, int], profile: SandboxProfile, *, gated: bool
) -> str:
    """Return the starter's script: it closes what it inherited, opens the sources, reports that and execs bubblewrap.

    It is one compound command, so that it is read whole before the shell's descriptor of the script is closed.
    """
    opened = " ".join(f"{number}</proc/{os.getpid()}/fd/{fd}" for number, fd in taken.items())
    words = (bubblewrap.path, "--args", str(ARGUMENTS), "--", *limits(bubblewrap.prlimit, profile))
    redirections = f"{ARGUMENTS}<{shlex.quote(files / 'args')} {FILTER}<{shlex.quote(files / 'filter')}"
    if gated:
        # In this order: opening the FIFO blocks until a reader of the box's pid is ready.
        redirections += f" {BLOCK}<{shlex.quote(files / 'block')} {INFO}>>{shlex.quote(files / 'info')}"
    closed = "?" if bubblewrap.starter == PLAIN_STARTER else "*"
    lines = [
        "{",
        "for ai_fd in /proc/self/fd/*; do",
        f'case "${{ai_fd##*/}}" in 0|1|2) ;; {closed}) eval "exec ${{ai_fd##*/}}<&-" ;; esac',
        "done",
        "unset ai_fd",
        *([f"exec {opened} || exit 126"] if opened else []),
        f"echo 1<>{shlex.quote(files / 'taken')}",
        f'exec {shlex.join(words)} "$@" {redirections}',
        "}",
        "",
    ]
    return "\n".join(lines)
