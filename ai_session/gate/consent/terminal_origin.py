"""Where a process's terminal comes from: a login at this machine, another machine, an agent, or unknown.

The kernel's process table, open files and sockets are the evidence. A terminal counts as local only on positive
evidence: every parent up to a login that root runs, or to a terminal program, and no agent that holds the terminal's
other side. A process cut off from its parents (a second fork, a service manager, cron) has no such evidence. A program
that runs unboxed as the same user can still type into a local window (``tmux send-keys``, a terminal program's remote
control); signed answers protect against that.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ai_session.gate.consent.ancestry import Process, ProcessAncestry
from ai_session.system.open_files import Descriptors, open_descriptors, terminal_systems, unix_peers

REMOTE_ENTRIES = (
    *("sshd", "dropbear", "tinysshd", "telnetd", "in.telnetd", "mosh-server", "etserver", "etterminal", "tailscaled"),
    *("teleport", "ttyd", "gotty", "wetty", "xrdp-", "containerd-shim", "conmon", "runc", "crun", "lxc-attach"),
)
"""Beginnings of the names of programs that let in people who are not at this machine."""

LOGINS = ("login", "agetty", "sulogin", "SessionLeader", "Relay(")
"""Beginnings of the names of programs that root runs for logins at a console; the last two are WSL's."""

TERMINAL_PROGRAMS = (
    *("gnome-terminal-server", "kgx", "ptyxis", "ptyxis-agent", "konsole", "yakuake", "xfce4-terminal"),
    *("mate-terminal", "lxterminal", "qterminal", "deepin-terminal", "tilix", "terminology", "cosmic-term", "xterm"),
    *("urxvt", "rxvt", "st", "kitty", "alacritty", "foot", "wezterm-gui", "ghostty", "contour", "rio", "sakura"),
)
"""Executables whose windows belong to a person. Editors are excluded, because their agents type there too."""

MULTIPLEXERS = ("tmux", "screen", "zellij")
"""Executables whose terminals are shown in other terminals."""

PTS_MAJORS = range(136, 144)
MINORS_EACH = 256


class Origin(StrEnum):
    """Where a terminal comes from."""

    LOCAL = "local"
    REMOTE = "remote"
    AGENT = "agent"
    DETACHED = "detached"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of the process that answers. ``why`` is a text; ``ancestors`` are the
    identities of ``ProcessAncestry.chain``."""

    origin: Origin
    why: str
    ancestors: frozenset[str] = field(default=frozenset(), repr=False)


class Terminals:
    """Judges processes by where their terminals come from. ``programs`` are absolute paths of further executables whose
    windows belong to a person."""

    def __init__(self, process_ancestry: ProcessAncestry, programs: Collection[str] = ()) -> None:
        self._process_ancestry = process_ancestry
        self._programs = {os.path.realpath(path) for path in programs}

    @property
    def known(self) -> bool:
        """Whether this system reports processes at all."""
        return self._process_ancestry.known

    def has_clients(self) -> bool:
        """Report whether a client of this daemon runs."""
        return bool(self._process_ancestry.clients())

    def find(self, pid: int | None, identity: str = "") -> Finding:
        """Return where ``pid``'s terminal comes from. ``identity``, if known, is that of the process that is meant.

        Takes some 50 ms: it reads the whole process table.
        """
        return _Search(self._process_ancestry, self._programs).find(pid, identity)


class _Search:
    """One inspection of the machine, which reads the facts of all processes once."""

    def __init__(self, process_ancestry: ProcessAncestry, programs: Collection[str]) -> None:
        self._process_ancestry = process_ancestry
        self._programs = programs
        self._clients = process_ancestry.clients()
        self._descriptors: Descriptors | None = None
        self._multiplexers: set[int] = set()

    def find(self, pid: int | None, identity: str) -> Finding:
        chain = self._process_ancestry.chain(pid)
        if not chain or (identity and chain[0].identity != identity):
            return Finding(Origin.NONE, "nothing is known about the process that answers")
        return replace(self._judge(chain), ancestors=frozenset(process.identity for process in chain))

    def _judge(self, chain: tuple[Process, ...]) -> Finding:
        own = chain[0]
        if why := self._agent(chain):
            return Finding(Origin.AGENT, why)
        if not own.terminal:
            return Finding(Origin.NONE, f"{own} has no terminal, so no person can have typed in it")
        path = _path(own.terminal)
        leader = next((at for at, process in enumerate(chain) if process.pid == own.session), None)
        if leader is None:
            return Finding(Origin.DETACHED, f"{own} was cut off from the shell of {path}: its parents are gone")
        if own.foreground != own.group:
            return Finding(Origin.DETACHED, f"{own} is in the background of {path}")
        return self._judge_drivers(own, path) or self._judge_entry(path, chain[leader:])

    def _agent(self, chain: tuple[Process, ...]) -> str:
        """Return why one of these processes belongs to an agent; empty if none does."""
        if process := self._process_ancestry.first_in_session(chain):
            return f"{process} runs inside a session, and what runs inside a session cannot answer for the person"
        if process := next((process for process in chain if process.identity in self._clients), None):
            return f"{process} is a client, or was started by one, and a client cannot answer for its person"
        return ""

    def _judge_drivers(self, own: Process, path: str) -> Finding | None:
        """Return what holds the terminal's other side and so may type into it, unless it is a person's program."""
        number = _pts(own.terminal)
        if number is None:
            return None
        systems, multiplexer = terminal_systems(own.pid, self._process_ancestry.folder), None
        if not systems:
            return Finding(Origin.DETACHED, f"{own} does not let others see which terminal {path} is")
        for pid in sorted(self._open.masters.get(number, ())):
            driver = self._process_ancestry.chain(pid)
            if not driver or not systems & terminal_systems(pid, self._process_ancestry.folder):
                continue
            if why := self._agent(driver):
                return Finding(Origin.AGENT, f"the other side of {path} is held by an agent: {why}")
            if self._is_multiplexer(driver[0]):
                multiplexer = driver[0]
            elif not self._is_trusted_driver(driver):
                why = f"the other side of {path} is held by {driver[0]}, which is not a known terminal program"
                return Finding(Origin.DETACHED, why)
        return self._judge_multiplexer(multiplexer, path) if multiplexer else None

    def _judge_entry(self, path: str, above: Sequence[Process]) -> Finding:
        """Judge the processes from the leader of the terminal's session upwards."""
        if entry := next(filter(_is_remote_entry, above), None):
            if self._entry_is_roots(above):
                return Finding(Origin.REMOTE, f"{path} came in through {entry}, which agents can use as well")
            return Finding(
                Origin.DETACHED,
                f"{path} comes from {entry}, which was not started by root, so anybody may have started it",
            )
        for process in above:
            if process.name.startswith(LOGINS) and self._process_ancestry.of_root(process.pid):
                return Finding(Origin.LOCAL, f"{path} belongs to a login at this machine")
        for process in above[1:]:
            if self._is(process, TERMINAL_PROGRAMS):
                return Finding(Origin.LOCAL, f"{path} is a window of {process}")
        top = above[-1]
        if top.parent == 0:
            why = f"{path} was opened by {top} from outside this machine's or container's own processes"
            return Finding(Origin.REMOTE, why)
        return Finding(Origin.DETACHED, f"{path} comes from {top}, which is neither a login nor a terminal program")

    def _judge_multiplexer(self, server: Process, path: str) -> Finding:
        """Judge a multiplexer's terminal by all the terminals in which it is shown."""
        self._multiplexers.add(server.pid)
        peers = unix_peers()
        ends = {peers[inode] for inode in self._open.of(server.pid) if inode in peers}
        pids = {pid for inode in ends for pid in self._open.sockets.get(inode, ()) if pid != server.pid}
        clients = [chain for pid in sorted(pids) if (chain := self._process_ancestry.chain(pid))]
        elsewhere = [chain for chain in clients if server.pid not in [process.pid for process in chain]]
        found = [self._judge(chain) for chain in elsewhere if chain[0].terminal or self._agent(chain)]
        for origin in (Origin.AGENT, Origin.DETACHED, Origin.NONE, Origin.REMOTE, Origin.LOCAL):
            if one := next((one for one in found if one.origin is origin), None):
                return replace(one, why=f"{path} is shown by {server} in another terminal: {one.why}")
        return Finding(Origin.DETACHED, f"{path} belongs to {server}, which shows it in no terminal")

    def _is_trusted_driver(self, chain: Sequence[Process]) -> bool:
        return (_is_remote_entry(chain[0]) and self._entry_is_roots(chain)) or self._is(chain[0], TERMINAL_PROGRAMS)

    def _entry_is_roots(self, above: Sequence[Process]) -> bool:
        """Report whether root runs the program that lets people in: any user can take its name."""
        return any(_is_remote_entry(process) and self._process_ancestry.of_root(process.pid) for process in above)

    def _is_multiplexer(self, process: Process) -> bool:
        return process.pid not in self._multiplexers and self._is(process, MULTIPLEXERS, configured=False)

    def _is(self, process: Process, names: Collection[str], *, configured: bool = True) -> bool:
        """Report whether it runs such an executable, which only root can have installed, or a configured one."""
        try:
            executable = os.readlink(self._process_ancestry.folder / str(process.pid) / "exe")
            owned = os.stat(executable)
        except OSError:
            return False
        known = os.path.basename(executable) in names and owned.st_uid == 0 and not owned.st_mode & 0o022
        return known or (configured and executable in self._programs)

    @property
    def _open(self) -> Descriptors:
        if self._descriptors is None:
            self._descriptors = open_descriptors(self._process_ancestry.folder)
        return self._descriptors


def _pts(device: int) -> int | None:
    """Return the number below /dev/pts of a terminal's device."""
    major, minor = os.major(device), os.minor(device)
    return (major - PTS_MAJORS.start) * MINORS_EACH + minor if major in PTS_MAJORS else None


def _is_remote_entry(process: Process) -> bool:
    return process.name.startswith(REMOTE_ENTRIES)


def _path(device: int) -> str:
    number = _pts(device)
    if number is not None:
        return f"/dev/pts/{number}"
    major, minor = os.major(device), os.minor(device)
    if major == 4:
        return f"/dev/tty{minor}" if minor < 64 else f"/dev/ttyS{minor - 64}"
    return f"terminal {major}:{minor}"
