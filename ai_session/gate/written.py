"""Directories that boxes may write, and what a command outside of any box reads there.

What a box wrote stays when the box is gone, so they are kept in a file. A rule that allows a command is about its
words; what a Makefile or a repository's settings make of them is for whoever wrote these.

A directory is known by its path and by its device and inode, so one that was moved is still known. A copy is not, nor
is what was taken out of one.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ai_session.gate.policy.rules import pieces
from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.sessions.session import Session
from ai_session.system.path_steps import steps
from ai_session.tools.base import Subject

FILE = "box-writable.jsonl"
"""Its name in the runtime directory: one path a line, or a path with the device and inode that it had."""

MOVERS = frozenset(("cd", "chdir", "pushd", "popd", "dirs", "z", "j"))
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
SEPARATORS = re.compile(r"[\s=:@,;|&<>(){}'\"`]+")

PINNING = frozenset((SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC, SandboxLevel.LANDLOCK))
"""Levels at which a box holds directories themselves, not their paths."""

Commands = Sequence[Sequence[str | None]]
Identity = tuple[int, int]
"""Device and inode of a directory: it keeps them when it is moved within its file system."""


class WrittenDirectories:
    """``path`` keeps them for the next daemon; ``always`` are those that some box may be given at any time. ``own`` is
    where boxes write files of ours, which nobody reads who looks around above it.

    Where the file cannot be read every directory counts.
    """

    def __init__(self, path: Path | None = None, always: Sequence[str] = (), own: str = "") -> None:
        self._path = path
        self._known: set[str] = set()
        self._above: set[str] = set()
        self._identities: dict[Identity, str] = {}
        self._seen: dict[str, tuple[int, int, str]] = {}
        self._pinned: dict[str, int] = {}
        self._own = {own} if own else set[str]()
        for directory, identity in (*((one, None) for one in always), *_kept(path)):
            self._count(directory, identity)
            self._count(directory, _identity(directory))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known))

    def _into(self, step: str) -> bool:
        return step in self._known or step in self._own or _identity(step) in self._identities

    async def add(self, profile: SandboxProfile, workspace: str = "") -> None:
        """A box of this profile, or for another ``workspace``, may be started. Raises OSError where that cannot be
        kept; it counts all the same."""
        directories = (workspace or profile.workspace, *profile.writable) if profile.name == "workspace" else ()
        await asyncio.to_thread(self._add, directories)

    async def add_of(self, subject: Subject, *, opens: bool) -> None:
        """As ``add``, of a call in a session with a box or, where it ``opens`` one, of a box to come.

        A box keeps the directories that it was given, whatever comes to stand at their paths: once is enough.
        """
        session = subject.session
        box = session.terminal.pid if session and session.terminal and not opens else 0
        if session and box and self._pinned.get(session.spec.session_id) == box:
            return
        await self.add(subject.profile)
        if session and box and subject.level in PINNING:
            self._pinned[session.spec.session_id] = box

    def _add(self, directories: Sequence[str]) -> None:
        for directory in filter(None, directories):
            known = os.path.realpath(os.path.expanduser(directory))
            identity = _identity(known)
            lines: list[object] = [] if known in self._known else [known]
            if identity and self._identities.get(identity) != known:  # the path may be that of a new directory
                lines.append({"path": known, "device": identity[0], "inode": identity[1]})
            self._count(known, identity)
            if lines and self._path is not None:
                fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
                with open(fd, "ab") as file:
                    file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def _count(self, directory: str, identity: Identity | None) -> None:
        self._known.add(directory)
        if identity:
            self._identities[identity] = directory
        while directory != "/":
            directory = os.path.dirname(directory)
            self._above.add(directory)

    def on_the_way(self, path: str) -> str:
        """The directory of a box that an absolute path leads into, also by a link somewhere; empty for none."""
        with suppress(OSError):  # no program gets further than its links do
            return next((step for step in steps(path) if self._into(step)), "")
        return ""

    def _any(self, paths: Iterable[str]) -> str:
        return next((found for path in paths if (found := self.on_the_way(path))), "")

    def read_through(self, path: str) -> str:
        """As ``on_the_way``, and a directory of a box below it as well: what is read as a whole is read there, too. One
        that was moved is found right below it, and no deeper."""
        last = "/"
        with suppress(OSError):
            for step in steps(path):
                if self._into(step):
                    return step
                last = step
            if last in self._above:
                below = last.rstrip("/") + "/"
                if found := next((known for known in sorted(self._known) if known.startswith(below)), ""):
                    return found
            return self._moved_into(last)
        return ""

    def _moved_into(self, directory: str) -> str:
        """What lies right in it of directories that are no longer where they were given."""
        with os.scandir(directory) as entries:  # of what is no directory nothing more need be asked
            inodes = {identity[1] for identity, path in [*self._identities.items()] if _identity(path) != identity}
            if not inodes:
                return ""
            paths = [entry.path for entry in entries if entry.inode() in inodes]
        return next((path for path in paths if _identity(path) in self._identities), "")

    async def why(self, subject: Subject, commands: Commands) -> str:
        """Of a call in a session without a box: why leave for these commands does not hold, empty where it does."""
        return await asyncio.to_thread(self._why, subject, commands)

    def _why(self, subject: Subject, commands: Commands) -> str:
        if subject.session is None:
            return ""
        session = subject.session
        found = self._of_words(session, commands) or self._of_state(session)
        return found and f"{found}, so a session in a box could determine what it does"

    def _of_words(self, session: Session, commands: Commands) -> str:
        base, env = session.at.cwd, session.spec.env
        if directory := self.read_through(base):
            return f"it would run in {base}, where a box may write ({directory})"
        for at, words in enumerate(commands):
            for piece in (piece for word in words if word for piece in pieces(word)):
                path = os.path.join(base, _expanded(piece, env.get("HOME", "/")))
                if directory := self.read_through(path):
                    return f"{piece!r} is where a box may write ({directory})"
            if words and words[0] in MOVERS and at < len(commands) - 1:
                targets = [word for word in words[1:] if word and not word.startswith("-")]
                if words[0] != "cd" or len(targets) != 1 or len(words) != 2 or env.get("CDPATH"):
                    return "the directory it changes to is unknown, and may be one that a box may write to"
                base = os.path.join(base, _expanded(targets[0], env.get("HOME", "/")))
        return ""

    def _of_state(self, session: Session) -> str:
        """What the shell may have taken from where a box may write: by variables it began with, by earlier commands."""
        spec, cwd = session.spec, session.at.cwd
        for name, value in spec.env.items():
            if directory := self._any(os.path.join(cwd, piece) for piece in SEPARATORS.split(value) if "/" in piece):
                return f"{name} of its session names {directory}, where a box may write"
        if directory := self.on_the_way(spec.working_directory):
            return f"its session began in {directory}, where a box may write"
        return self._of_history(session)

    def _of_history(self, session: Session) -> str:
        # The records first, for a command that is added meanwhile then counts as one that is forgotten.
        records = session.history.all()
        spec = session.spec
        count = session.history.count
        known = len(self._known) + len(self._identities)
        seen, among, why = self._seen.get(spec.session_id, (0, known, ""))
        if among != known:
            seen, why = 0, ""
        if not why and count - seen > len(records):
            why = "the first commands of its session are no longer known, and may have changed to where a box may write"
        for record in records[len(records) - (count - seen) :] if not why and count > seen else ():
            paths = (record.cwd, *_named(record.command, record.cwd, spec.env))
            if directory := self._any(paths):
                why = f"an earlier command of its session named {directory}, where a box may write"
                break
        self._seen[spec.session_id] = (count, known, why)
        return why

    def forget(self, session_id: str) -> None:
        """The session is gone."""
        self._seen.pop(session_id, None)
        self._pinned.pop(session_id, None)


def _kept(path: Path | None) -> list[tuple[str, Identity | None]]:
    if path is None:
        return []
    try:
        return [_line(json.loads(line)) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return [("/", None)]


def _line(said: Any) -> tuple[str, Identity | None]:
    if isinstance(said, str):
        return said, None
    return str(said["path"]), (int(said["device"]), int(said["inode"]))


def _identity(directory: str) -> Identity | None:
    """None where there is no directory."""
    try:
        found = os.lstat(directory)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _named(command: str, base: str, env: Mapping[str, str]) -> Iterator[str]:
    """The paths that a command names, as far as its text and the session's first variables say."""
    known = {**env, "PWD": base}
    text = VARIABLE.sub(lambda found: known.get(found[1] or found[2], ""), command)
    for piece in SEPARATORS.split(text):
        if "/" in piece or piece in ("..", "~"):
            yield os.path.join(base, _expanded(piece, known.get("HOME", "/")))


def _expanded(piece: str, home: str) -> str:
    return home + piece[1:] if piece == "~" or piece.startswith("~/") else piece
