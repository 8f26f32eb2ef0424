"""Directories that boxes may write to, and what a command outside any box reads there.

What a box wrote outlives the box, so the directories are stored in a file. A rule that allows a command is about its
words; what a Makefile or a repository's settings do with them is up to their author.

A directory is known by its path and by its device and inode, so that a moved one is still known. A copy is not, nor is
what was taken out of one.
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
"""The file's name in the runtime directory: one path a line, or a path with the device and inode that it had."""

MOVERS = frozenset(("cd", "chdir", "pushd", "popd", "dirs", "z", "j"))
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)\}")
SEPARATORS = re.compile(r"[\s=:@,;|&<>(){}'\"`]+")

PINNING = frozenset((SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC, SandboxLevel.LANDLOCK))
"""Levels at which a box holds directories themselves, not their paths."""

Commands = Sequence[Sequence[str | None]]
Identity = tuple[int, int]
"""Device and inode of a directory, which it keeps when it is moved within its file system."""


class WrittenDirectories:
    """The directories, stored in ``path`` for the next daemon; ``always`` are those a box may be given at any time.

    ``own`` is where boxes write files of ours, which does not count for the directories above it. If the file cannot be
    read, every directory counts.
    """

    def __init__(self, path: Path | None = None, always: Sequence[str] = (), own: str = "") -> None:
        self._path = path
        self._known: set[str] = set()
        self._above: set[str] = set()
        self._identities: dict[Identity, str] = {}
        self._seen: dict[str, tuple[int, int, str]] = {}
        self._pinned: dict[str, int] = {}
        self._own = {own} if own else set[str]()
        for directory, identity in (*((one, None) for one in always), *_stored(path)):
            self._count(directory, identity)
            self._count(directory, _identity(directory))

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._known))

    def _leads_in(self, step: str) -> bool:
        return step in self._known or step in self._own or _identity(step) in self._identities

    async def add(self, profile: SandboxProfile, workspace: str = "") -> None:
        """Add the directories of a box of this profile, or for another ``workspace``, that may be started. Raises
        OSError if they cannot be stored; they count all the same."""
        directories = (workspace or profile.workspace, *profile.writable) if profile.name == "workspace" else ()
        await asyncio.to_thread(self._add, directories)

    async def add_of(self, subject: Subject, *, opens: bool) -> None:
        """Do the same for a call in a session with a box, or if it ``opens`` one, for the box to be made.

        A box keeps the directories it was given, whatever replaces them at their paths, so that they are added once.
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

    def leads_into(self, path: str) -> str:
        """Return the directory of a box into which an absolute path leads, also through a link; empty for none."""
        with suppress(OSError):  # no program can follow the path further either
            return next((step for step in steps(path) if self._leads_in(step)), "")
        return ""

    def _first_in(self, paths: Iterable[str]) -> str:
        return next((found for path in paths if (found := self.leads_into(path))), "")

    def read_through(self, path: str) -> str:
        """Do the same, and consider directories of boxes below the path: what is read as a whole is read there too. A
        moved one is found only directly below it."""
        last = "/"
        with suppress(OSError):
            for step in steps(path):
                if self._leads_in(step):
                    return step
                last = step
            if last in self._above:
                below = last.rstrip("/") + "/"
                if found := next((known for known in sorted(self._known) if known.startswith(below)), ""):
                    return found
            return self._moved_into(last)
        return ""

    def _moved_into(self, directory: str) -> str:
        """Return a directory directly in this one that is no longer where it was given to a box."""
        with os.scandir(directory) as entries:  # raises if it is not a directory
            inodes = {identity[1] for identity, path in [*self._identities.items()] if _identity(path) != identity}
            if not inodes:
                return ""
            paths = [entry.path for entry in entries if entry.inode() in inodes]
        return next((path for path in paths if _identity(path) in self._identities), "")

    async def why(self, subject: Subject, commands: Commands) -> str:
        """Return why permission for these commands does not apply outside a box; empty if it does."""
        return await asyncio.to_thread(self._why, subject, commands)

    def _why(self, subject: Subject, commands: Commands) -> str:
        if subject.session is None:
            return ""
        session = subject.session
        found = self._why_words(session, commands) or self._why_state(session)
        return found and f"{found}, so a session in a box could determine what it does"

    def _why_words(self, session: Session, commands: Commands) -> str:
        base, env = session.cwd, session.spec.env
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

    def _why_state(self, session: Session) -> str:
        """Return what the shell may have read from where a box may write: its first variables, earlier commands."""
        spec, cwd = session.spec, session.cwd
        for name, value in spec.env.items():
            paths = (os.path.join(cwd, piece) for piece in SEPARATORS.split(value) if "/" in piece)
            if directory := self._first_in(paths):
                return f"{name} of its session names {directory}, where a box may write"
        if directory := self.leads_into(spec.working_directory):
            return f"its session began in {directory}, where a box may write"
        return self._why_history(session)

    def _why_history(self, session: Session) -> str:
        # The records first, so that a command added meanwhile counts as a forgotten one.
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
            if directory := self._first_in(paths):
                why = f"an earlier command of its session named {directory}, where a box may write"
                break
        self._seen[spec.session_id] = (count, known, why)
        return why

    def forget(self, session_id: str) -> None:
        """Forget a session that no longer exists."""
        self._seen.pop(session_id, None)
        self._pinned.pop(session_id, None)


def _stored(path: Path | None) -> list[tuple[str, Identity | None]]:
    if path is None:
        return []
    try:
        return [_entry(json.loads(line)) for line in path.read_bytes().splitlines()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        return [("/", None)]


def _entry(line: Any) -> tuple[str, Identity | None]:
    if isinstance(line, str):
        return line, None
    return str(line["path"]), (int(line["device"]), int(line["inode"]))


def _identity(directory: str) -> Identity | None:
    """Return the identity of a directory, or None if there is none."""
    try:
        found = os.lstat(directory)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def _named(command: str, base: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the paths that a command names, as far as its text and the session's first variables tell."""
    known = {**env, "PWD": base}
    text = VARIABLE.sub(lambda found: known.get(found[1] or found[2], ""), command)
    for piece in SEPARATORS.split(text):
        if "/" in piece or piece in ("..", "~"):
            yield os.path.join(base, _expanded(piece, known.get("HOME", "/")))


def _expanded(piece: str, home: str) -> str:
    return home + piece[1:] if piece == "~" or piece.startswith("~/") else piece
