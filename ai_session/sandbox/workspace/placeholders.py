"""What is put into a workspace for the life of a box, and removed after the last box that needs it.

A mount needs an existing path. A placeholder is removed only if it is unchanged: a directory that is empty, a file with
the same content. The ledger is in the runtime directory, one file per box, so that later daemons and other processes of
this user share it. The watch of each workspace asks it what is not news: boxes of workspaces above, below or beside it
need placeholders as well.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from ai_session.sandbox.workspace.protected_paths import Placeholder
from ai_session.system.paths_without_links import DIRECTORY, FILE, open_directory, read_file

NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors that mean this user cannot write there; then the box cannot either."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing about what was to be read."""
ALIVE = "alive"
"""The file in the box's own directory that its process locks if the box need not outlive that process."""
IGNORE, IGNORED = ".gitignore", b"*\n"
"""The file in a directory that git would otherwise offer to remove or to add."""
MOST_INTRODUCED = 1000
MISSHAPEN = (ValueError, KeyError, TypeError, AttributeError)
"""The exceptions for an invalid entry, which must not prevent a box from starting."""

Entry = tuple[Path, list[Placeholder]]
"""A box (``Path()`` if unknown), and the placeholders that exist for it."""
NOTHING: Entry = (Path(), [])


class Placeholders:
    """The ledger of one runtime directory."""

    def __init__(self, runtime_directory: Path) -> None:
        self._directory = runtime_directory / "placeholders"
        self._known: dict[str, tuple[tuple[int, int, int], Entry]] = {}
        """Each file's content when it was read, and its stamp for detecting changes; valid while the ledger is locked.
        """

    def put(self, box: Path, wanted: Sequence[Placeholder], existing: Sequence[str]) -> tuple[str, ...]:
        """Make what is missing for ``box``, a directory, and return the paths of ``wanted`` that exist now.

        Those in ``existing`` that another box made are kept for this one too. Boxes whose directory no longer exists
        are removed from the ledger.
        """
        with self._locked():
            ledger = self._entries()
            for entry in [one for one, (of, _) in ledger.items() if one != self._entry(box) and not of.is_dir()]:
                self._remove_entry(entry)
                del ledger[entry]
            held = {placeholder.path: placeholder for _, made in ledger.values() for placeholder in made}
            others = [held[path] for path in existing if path in held]
            # Recorded before it is made, so that a process killed in between leaves nothing that no other one removes.
            intended = [
                placeholder
                for placeholder in wanted
                if placeholder.path in held or not os.path.lexists(placeholder.path)
            ]
            if intended or others:
                self._record(
                    box, [*intended, *others], durable=any(placeholder.path not in held for placeholder in intended)
                )
            account = [placeholder for placeholder in intended if _make(placeholder) or placeholder.path in held]
            if account != intended:
                self._record(box, [*account, *others])
            return tuple(placeholder.path for placeholder in wanted if os.path.lexists(placeholder.path))

    def sweep(self) -> None:
        """Remove the placeholders of boxes whose directory no longer exists or whose process was killed."""
        with self._locked():
            for entry, (box, _) in self._entries().items():
                if not box.is_dir() or _abandoned(box):
                    self._remove_entry(entry)

    def held(self) -> set[str]:
        """Return the paths of all placeholders."""
        with self._locked():
            return {one.path for _, made in self._entries().values() for one in made}

    def unchanged(self, paths: Iterable[str]) -> set[str]:
        """Return those of ``paths`` that are placeholders, also by other paths than theirs, with nothing put into them,
        and the files that were made in those.

        A ledger that cannot be read has none. Raises OSError if the process or the machine is out of descriptors or
        memory.
        """
        try:
            with self._locked():
                held = {one.path: one for _, made in self._entries().values() for one in made}
                by_name: dict[str, list[Placeholder]] = {}
                for path, one in held.items():
                    by_name.setdefault(os.path.basename(path), []).append(one)
                return {path for path in paths if _is_unchanged(path, held, by_name)}
        except OSError as problem:
            if problem.errno in EXHAUSTED:
                raise
            return set()

    def introduce(self, root: str) -> bool:
        """Report whether this is the first time something is put into this workspace, and record it."""
        known = self._directory / "introduced"
        with self._locked():
            try:
                roots: list[str] = known.read_text().splitlines()
            except (OSError, UnicodeDecodeError):
                roots = []
            if (name := json.dumps(root)) in roots:
                return False
            known.write_text("\n".join([*roots[-MOST_INTRODUCED:], name, ""]))
        return True

    def drop(self, box: Path) -> None:
        """Remove the placeholders of ``box`` that no other box needs. May be called twice."""
        entry = self._entry(box)
        if entry.exists():
            with self._locked():
                self._remove_entry(entry)

    def _record(self, box: Path, placeholders: Sequence[Placeholder], *, durable: bool = False) -> None:
        """Record what exists for ``box``, or is about to; if ``durable``, so that it survives a power failure."""
        entry = self._entry(box)
        if not placeholders:
            entry.unlink(missing_ok=True)
            return
        made = [[one.path, None if one.content is None else one.content.decode(), one.ignored] for one in placeholders]
        new = entry.with_suffix(".new")
        with open(new, "w") as file:
            json.dump({"box": str(box), "made": made}, file)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        new.rename(entry)

    def _remove_entry(self, entry: Path) -> None:
        entries = self._entries()
        _, made = entries.pop(entry, NOTHING)
        entry.unlink(missing_ok=True)
        others = {one.path for _, held in entries.values() for one in held}
        for placeholder in reversed(made):
            if placeholder.path not in others:
                _remove(placeholder)

    def _entries(self) -> dict[Path, Entry]:
        """Return the ledger. Unchanged files are not read again: each box that begins or ends reads them all."""
        before = self._known
        self._known = {}
        with os.scandir(self._directory) as files:
            for file in files:
                if not file.name.endswith(".json"):
                    continue
                with suppress(FileNotFoundError):
                    seen = file.stat()
                    stamp = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
                    known = before.get(file.path)
                    if known is None or known[0] != stamp:
                        known = (stamp, _read(Path(file.path)))
                    self._known[file.path] = known
        return {Path(path): entry for path, (_, entry) in self._known.items()}

    def _entry(self, box: Path) -> Path:
        return self._directory / (hashlib.sha256(os.fsencode(box)).hexdigest()[:24] + ".json")

    @contextmanager
    def _locked(self) -> Generator[None]:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with open(self._directory / "lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _make(placeholder: Placeholder) -> bool:
    """Make the placeholder and return whether it did not exist before."""
    try:
        with _parent_of(placeholder.path) as (folder, name):
            if placeholder.content is not None:
                _write(folder, name, placeholder.content)
            else:
                os.mkdir(name, dir_fd=folder)
                if placeholder.ignored:
                    _ignore(folder, name)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno in NOT_PERMITTED:
            return False
        raise
    return True


def _ignore(folder: int, name: str) -> None:
    """Add a ``.gitignore``, so that ``git status`` does not mention the directory and ``git clean`` keeps it."""
    with suppress(OSError):
        inner = os.open(name, DIRECTORY, dir_fd=folder)
        try:
            _write(inner, IGNORE, IGNORED)
        finally:
            os.close(inner)


def _remove(placeholder: Placeholder) -> None:
    """Remove a placeholder that is unchanged. Its ``.gitignore`` is removed in any case, so that git sees what others
    have put into the directory."""
    with suppress(OSError), _parent_of(placeholder.path) as (folder, name):
        if placeholder.content is not None:
            _remove_file(folder, name, placeholder.content)
            return
        if placeholder.ignored:
            inner = os.open(name, DIRECTORY, dir_fd=folder)
            try:
                _remove_file(inner, IGNORE, IGNORED)
            finally:
                os.close(inner)
        os.rmdir(name, dir_fd=folder)


def _is_unchanged(path: str, held: Mapping[str, Placeholder], by_name: Mapping[str, Sequence[Placeholder]]) -> bool:
    """Report whether one of these placeholders, or the ``.gitignore`` of one, is at the path and as it was made."""
    outer, name = os.path.split(path)
    if name == IGNORE:
        return _is_unchanged(outer, held, by_name)
    own = held.get(path)
    return any(_is_there(path, one) for one in ((own,) if own else by_name.get(name, ())))


def _is_there(path: str, placeholder: Placeholder) -> bool:
    """Report whether this placeholder is at the path, which may be another one than its own, and as it was made."""
    try:
        with _parent_of(path) as (folder, name):
            same = placeholder.path == path or _is_same(folder, name, placeholder.path)
            return same and _is_as_made(folder, name, placeholder)
    except OSError as problem:
        if problem.errno in EXHAUSTED:
            raise
        return False


def _is_as_made(folder: int, name: str, placeholder: Placeholder) -> bool:
    """Report whether the placeholder's content is what it was. Raises OSError."""
    if (content := placeholder.content) is not None:
        # A file with another name could be changed under that one.
        links = os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink
        return links == 1 and read_file(folder, name, len(content) + 1) == content
    inner = os.open(name, DIRECTORY, dir_fd=folder)
    try:
        with os.scandir(inner) as entries:
            found = [entry.name for entry in islice(entries, 2)]
        if placeholder.ignored and found == [IGNORE]:
            return read_file(inner, IGNORE, len(IGNORED) + 1) == IGNORED
        return not found
    finally:
        os.close(inner)


def _is_same(folder: int, name: str, path: str) -> bool:
    """Report whether a path leads to the same file as a name in an open directory: a directory may be mounted twice.
    Raises OSError."""
    with _parent_of(path) as (outer, last):
        there = os.stat(last, dir_fd=outer, follow_symlinks=False)
        return os.path.samestat(there, os.stat(name, dir_fd=folder, follow_symlinks=False))


def _write(folder: int, name: str, content: bytes) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | FILE
    with open(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
        file.write(content)


def _remove_file(folder: int, name: str, content: bytes) -> None:
    with suppress(OSError):
        if read_file(folder, name, len(content) + 1) == content:
            os.unlink(name, dir_fd=folder)


@contextmanager
def _parent_of(path: str) -> Generator[tuple[int, str]]:
    """Yield the directory of a path, opened without following links, and the name in it. Raises OSError."""
    outer, name = os.path.split(path)
    folder = open_directory(outer)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _abandoned(box: Path) -> bool:
    """Report whether the box has a lock file that no process holds any more."""
    try:
        with open(box / ALIVE) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(entry: Path) -> Entry:
    box, placeholders = entry / "none", list[Placeholder]()
    try:
        content = entry.read_bytes()
    except OSError as problem:
        if problem.errno in EXHAUSTED:
            raise
        return box, placeholders
    with suppress(*MISSHAPEN):
        stored = json.loads(content)
        with suppress(*MISSHAPEN):
            box = Path(stored["box"])
        made: list[tuple[str, str | None, bool]] = stored["made"]
        placeholders = [
            Placeholder(path, content if content is None else content.encode(), own) for path, content, own in made
        ]
    return box, placeholders
