"""Which processes belong together: who asks through a relay, and whether a process that answers is one of them.

Evidence comes from ``/proc``. It prevents an agent from answering itself with the tools it has. It does not stop a
program that runs unboxed as the same user and intends to deceive, because such a program could edit our files as well.
Without ``/proc`` (macOS) nothing is known except the environment that a command line sends.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SESSION_VARIABLE = b"AI_SESSION_ID="
PROGRAM = (b"ai_session", b"ai-session")
FRONT, OPEN = b"--http", b"--no-auth"
INIT = 1


@dataclass(frozen=True, slots=True)
class Process:
    """One process when it was read. ``terminal`` is its controlling terminal's device number, 0 for none;
    ``foreground`` is that terminal's foreground process group."""

    pid: int
    name: str
    parent: int
    group: int
    session: int
    terminal: int
    foreground: int
    started: int

    @property
    def identity(self) -> str:
        """An identifier that no later process with the same pid has."""
        return f"{self.pid}:{self.started}"

    def __str__(self) -> str:
        plain = "".join(char if char.isprintable() else "?" for char in self.name)
        return f"{plain} (pid {self.pid})"


class ProcessAncestry:
    """The process table of a machine, for the daemon of ``home``. ``folder`` is where it is mounted."""

    def __init__(self, home: Path, folder: Path = Path("/proc")) -> None:
        self._home = os.path.realpath(home)
        self.folder = folder
        self.known = (folder / "self/stat").exists()
        """Whether this system has a process table to read."""

    def asking(self, pid: int | None) -> frozenset[str]:
        """Return the identities of the client behind the relay ``pid``: its parent, and if a wrapper (npx, uv, a shell)
        started the relay, the wrapper's parent.

        It stops below any leader of a terminal or login session, because a person's shells descend from that too.
        """
        relay = self.read(pid) if pid else None
        if relay is None:
            return frozenset()
        words = self.words(relay.pid)
        if FRONT in words and OPEN not in words:  # a person started it, and its clients sign in from elsewhere
            return frozenset((relay.identity,))
        found = [relay]
        for process in self._above(relay):
            inside = process.group == relay.group
            leads = process.session == process.pid
            if not inside and len(found) > 1 and (leads or _leads_a_terminal(found[-1])):
                break
            found.append(process)
            if not inside:
                break
        return frozenset(process.identity for process in found)

    def clients(self) -> frozenset[str]:
        """Return the identities, as ``asking`` does, of every client of this daemon whose relay runs, connected or not
        yet. Clients of other users or HOMEs are excluded. Reads the whole process table."""
        found = [int(entry.name) for entry in self.folder.glob("[0-9]*")] if self.known else []
        return frozenset[str]().union(
            *(self.asking(pid) for pid in found if self._is_relay(pid) and self._is_ours(pid))
        )

    def chain(self, pid: int | None) -> tuple[Process, ...]:
        """Return ``pid`` and all its ancestors without process 1, unless that leads ``pid``'s session; empty if the
        process has ended or nothing is known."""
        process = self.read(pid) if pid else None
        if process is None:
            return ()
        found = (process, *self._above(process))
        first = self.read(INIT) if process.session == INIT != process.pid and found[-1].parent == INIT else None
        return (*found, first) if first else found

    def first_in_session(self, chain: tuple[Process, ...]) -> Process | None:
        """Return the process of ``chain`` that was started with the variable that every session's shell has."""
        return next((process for process in chain if self._has_session_variable(process.pid)), None)

    def read(self, pid: int) -> Process | None:
        """Return the process with this pid from ``/proc``, or None if it has ended or cannot be read."""
        return process(pid, self.folder)

    def words(self, pid: int) -> list[bytes]:
        """Return the command line of ``pid``."""
        try:
            return (self.folder / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return []

    def of_root(self, pid: int) -> bool:
        """Report whether root started ``pid`` and it has not dropped its privileges."""
        try:
            status = (self.folder / str(pid) / "status").read_bytes()
            (line,) = (line for line in status.split(b"\n") if line.startswith(b"Uid:"))
        except (OSError, ValueError):
            return False
        return [int(uid) for uid in line.split()[1:3]] == [0, 0]

    def _above(self, process: Process) -> Iterator[Process]:
        seen = {process.pid}
        while process.parent > INIT and process.parent not in seen:
            above = self.read(process.parent)
            if above is None:
                return
            seen.add(above.pid)
            yield above
            process = above

    def _is_relay(self, pid: int) -> bool:
        words = self.words(pid)
        return b"mcp-server" in words and any(word.rpartition(b"/")[2] in PROGRAM for word in words)

    def _is_ours(self, pid: int) -> bool:
        """Report whether a relay leads to this daemon, judged by its user and HOME; an unreadable one may."""
        try:
            status = (self.folder / str(pid) / "status").read_bytes()
            user = int(status.partition(b"\nUid:")[2].split(maxsplit=2)[1])
            if user != os.geteuid():
                return False
            environment = (self.folder / str(pid) / "environ").read_bytes()
            given = next((entry[5:] for entry in environment.split(b"\0") if entry.startswith(b"HOME=")), b"")
            home = given or os.fsencode(pwd.getpwuid(user).pw_dir)
        except (OSError, ValueError, IndexError, KeyError):
            return True
        return os.path.realpath(os.fsdecode(home)) == self._home

    def _has_session_variable(self, pid: int) -> bool:
        try:
            environment = (self.folder / str(pid) / "environ").read_bytes()
        except OSError:
            return False
        return environment.startswith(SESSION_VARIABLE) or b"\0" + SESSION_VARIABLE in environment


def _leads_a_terminal(process: Process) -> bool:
    return process.session == process.pid and process.terminal != 0


def process(pid: int, folder: Path = Path("/proc")) -> Process | None:
    """Return the kernel's facts about ``pid`` now, or None if it has ended or nothing is known."""
    try:
        text = (folder / str(pid) / "stat").read_bytes()
        name = text[text.index(b"(") + 1 : text.rindex(b")")].decode(errors="replace")
        fields = text[text.rindex(b")") + 2 :].split()
        parent, group, session, terminal, foreground = map(int, fields[1:6])
        return Process(pid, name, parent, group, session, terminal, foreground, int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None
