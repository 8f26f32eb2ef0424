"""Which processes belong together: who asks through a relay, and whether somebody who answers is one of them.

Evidence comes from ``/proc``. It keeps an agent from answering itself with the tools it has; it is no wall against a
program that runs unboxed as the same user and sets out to deceive, because such a program could edit our files as well.
Where ``/proc`` is missing (macOS) nothing is known, and the environment a command line sends is all there is.
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
    ``foreground`` the process group that terminal listens to."""

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
        """Never that of a later process with the same number."""
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
        """Whether this system reports it at all."""

    def asking(self, pid: int | None) -> frozenset[str]:
        """Identities of the client behind the relay ``pid``: its parent and, where a wrapper (npx, uv, a shell)
        started the relay, what started that.

        Upwards it ends before whatever leads a terminal or a login, for a person's shells hang there too.
        """
        relay = self.read(pid) if pid else None
        if relay is None:
            return frozenset()
        words = self.words(relay.pid)
        if FRONT in words and OPEN not in words:  # a person started it, and who asks signed in from elsewhere
            return frozenset((relay.identity,))
        found = [relay]
        for process in self._above(relay):
            inside = process.group == relay.group
            leads = process.session == process.pid
            if not inside and len(found) > 1 and (leads or _tops_a_terminal(found[-1])):
                break
            found.append(process)
            if not inside:
                break
        return frozenset(process.identity for process in found)

    def clients(self) -> frozenset[str]:
        """Identities as ``asking`` gives them, of every client whose relay runs, connected or about to be; clients of
        other daemons, of another user or HOME, are none. Reads the whole process table."""
        found = [int(entry.name) for entry in self.folder.glob("[0-9]*")] if self.known else []
        return frozenset[str]().union(
            *(self.asking(pid) for pid in found if self._is_relay(pid) and self._is_ours(pid))
        )

    def chain(self, pid: int | None) -> tuple[Process, ...]:
        """``pid`` and all its ancestors but the first process, which is among them only where it leads ``pid``'s
        session; empty when it has gone or nothing can be known."""
        process = self.read(pid) if pid else None
        if process is None:
            return ()
        found = (process, *self._above(process))
        first = self.read(INIT) if process.session == INIT != process.pid and found[-1].parent == INIT else None
        return (*found, first) if first else found

    def answering(self, pid: int | None) -> frozenset[str]:
        """Identities of ``chain``."""
        return frozenset(process.identity for process in self.chain(pid))

    def marked(self, chain: tuple[Process, ...]) -> Process | None:
        """The one of ``chain`` that was started with the mark every shell of ours has."""
        return next((process for process in chain if self._marked(process.pid)), None)

    def read(self, pid: int) -> Process | None:
        """The process with this id, read from ``/proc``; None when it is gone or cannot be read."""
        return process(pid, self.folder)

    def words(self, pid: int) -> list[bytes]:
        """The command line of ``pid``."""
        try:
            return (self.folder / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return []

    def of_root(self, pid: int) -> bool:
        """Whether root started ``pid`` and it has not given that up."""
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
        """Whether a relay leads to this daemon, which it finds from user and HOME alone; what cannot be read may."""
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

    def _marked(self, pid: int) -> bool:
        try:
            environment = (self.folder / str(pid) / "environ").read_bytes()
        except OSError:
            return False
        return environment.startswith(SESSION_VARIABLE) or b"\0" + SESSION_VARIABLE in environment


def _tops_a_terminal(process: Process) -> bool:
    return process.session == process.pid and process.terminal != 0


def process(pid: int, folder: Path = Path("/proc")) -> Process | None:
    """What the kernel says of ``pid`` now; None when it has gone or nothing can be known."""
    try:
        text = (folder / str(pid) / "stat").read_bytes()
        name = text[text.index(b"(") + 1 : text.rindex(b")")].decode(errors="replace")
        fields = text[text.rindex(b")") + 2 :].split()
        parent, group, session, terminal, foreground = map(int, fields[1:6])
        return Process(pid, name, parent, group, session, terminal, foreground, int(fields[19]))
    except (OSError, ValueError, IndexError):
        return None
