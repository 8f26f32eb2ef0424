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
MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    parent: int
    group: int
    session: int
    terminal: int
    started: int

    @property
    def identity(self) -> str:
        """Never that of a later process with the same number."""
        return f"{self.pid}:{self.started}"


class Lineage:
    """The process table of a machine, for the daemon of ``home``. ``folder`` is where it is mounted."""

    def __init__(self, home: Path, folder: Path = Path("/proc")) -> None:
        self._home = os.path.realpath(home)
        self._folder = folder
        self.known = (folder / "self/stat").exists()
        """Whether this machine tells at all."""

    def asking(self, pid: int | None) -> frozenset[str]:
        """Identities of the client behind the relay ``pid``: its parent and, where a wrapper (npx, uv, a shell)
        started the relay, what started that.

        Upwards it ends before whatever leads a terminal or a login, for a person's shells hang there too.
        """
        relay = self._read(pid) if pid else None
        if relay is None:
            return frozenset()
        words = self._words(relay.pid)
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
        found = [int(entry.name) for entry in self._folder.glob("[0-9]*")] if self.known else []
        return frozenset[str]().union(
            *(self.asking(pid) for pid in found if self._is_relay(pid) and self._is_ours(pid))
        )

    def answering(self, pid: int | None) -> frozenset[str]:
        """Identities of ``pid`` and all its ancestors; empty when it has gone or nothing can be known."""
        process = self._read(pid) if pid else None
        return frozenset(p.identity for p in (process, *self._above(process))) if process else frozenset()

    def in_session(self, pid: int | None) -> bool:
        """Whether ``pid`` or an ancestor was started with the mark every shell of ours has."""
        process = self._read(pid) if pid else None
        return process is not None and any(self._marked(p.pid) for p in (process, *self._above(process)))

    def _above(self, process: _Process) -> Iterator[_Process]:
        for _ in range(MAX_DEPTH):
            above = self._read(process.parent) if process.parent > 1 else None
            if above is None:
                return
            yield above
            process = above

    def _is_relay(self, pid: int) -> bool:
        words = self._words(pid)
        return b"mcp-server" in words and any(word.rpartition(b"/")[2] in PROGRAM for word in words)

    def _is_ours(self, pid: int) -> bool:
        """Whether a relay leads to this daemon, which it finds from user and HOME alone; what cannot be read may."""
        try:
            status = (self._folder / str(pid) / "status").read_bytes()
            user = int(status.partition(b"\nUid:")[2].split(maxsplit=2)[1])
            environment = (self._folder / str(pid) / "environ").read_bytes()
            given = next((entry[5:] for entry in environment.split(b"\0") if entry.startswith(b"HOME=")), b"")
            home = given or os.fsencode(pwd.getpwuid(user).pw_dir)
        except (OSError, ValueError, IndexError, KeyError):
            return True
        return user == os.geteuid() and os.path.realpath(os.fsdecode(home)) == self._home

    def _words(self, pid: int) -> list[bytes]:
        try:
            return (self._folder / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return []

    def _marked(self, pid: int) -> bool:
        try:
            environment = (self._folder / str(pid) / "environ").read_bytes()
        except OSError:
            return False
        return environment.startswith(SESSION_VARIABLE) or b"\0" + SESSION_VARIABLE in environment

    def _read(self, pid: int) -> _Process | None:
        try:
            text = (self._folder / str(pid) / "stat").read_bytes()
            fields = text[text.rindex(b")") + 2 :].split()
            parent, group, session, terminal = map(int, fields[1:5])
            return _Process(pid, parent, group, session, terminal, int(fields[19]))
        except (OSError, ValueError, IndexError):
            return None


def _tops_a_terminal(process: _Process) -> bool:
    return process.session == process.pid and process.terminal != 0
