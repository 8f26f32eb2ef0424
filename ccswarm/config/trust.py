"""The configuration files that a person approved by using them, and the files that their commands name.

One that has changed since is not used until a person agrees. A program in a box may write files in its workspace, but
not these records.

Configurations are parsed from the bytes that were checked. Programs are read again when they run: they are checked when
the configuration is loaded and again right before each start of a server. A change between that check and the program's
own reading is not detected. Neither is what a program loads by itself.

Standard library only: servers use it before anything else.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
import shlex
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from agentwire.system import whole_files
from ccswarm.config import files
from ccswarm.config.programs import Command, Directories, commands_in, files_of, tables_in, workspace_in
from ccswarm.errors import ConfigChanged, ConfigInvalid, OperatorError

FOLDER = "trust"
PLANS = "plans"
"""The directory of plans sent by clients, next to the records. Only ccswarm writes there."""

ABSENT, DAMAGED, LINK = "absent", "damaged", "link"
MOST_BYTES = 16 << 20
"""The largest configuration."""
MOST_PROGRAM_BYTES = 256 << 20
KEPT_BYTES = 256 << 10
"""The largest program whose content is stored, to show changes. Of larger ones only the digest is stored."""
CHUNK_BYTES = 1 << 20
DIGEST = "sha256-"
FILE_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Paths by which a person's shell passes a stream, which no other program could write."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a path contained when it was read, once.

    ``path`` is absolute, ``target`` has links resolved, ``named`` is as given. ``data`` is None for a missing file and
    a long program. ``digest`` is that of the bytes, ``absent`` for a missing file, or ``link`` for a program named by a
    link that leads out of agents' directories; that one is unchanged while the link is.
    """

    path: Path
    target: Path
    data: bytes | None
    named: Path
    digest: str

    @classmethod
    def of(cls, path: Path, target: Path, data: bytes | None, named: Path) -> Content:
        """Return a content with the digest of the bytes."""
        return cls(path, target, data, named, ABSENT if data is None else _digest(data))

    @property
    def there(self) -> bool:
        """Whether the file exists."""
        return self.digest != ABSENT


@dataclass(frozen=True, slots=True)
class Record:
    """The last content that a person used at a path. ``data`` is in base64, None if the file was absent."""

    path: str
    target: str
    digest: str
    data: str | None
    used_at: float

    @property
    def content(self) -> Content:
        """The recorded content; the file may have changed since."""
        data = None if self.data is None else base64.b64decode(self.data)
        return Content(Path(self.path), Path(self.target), data, Path(self.path), self.digest)


class Verdict(Enum):
    """How a content compares with its record. ``FIRST`` means that the path has none."""

    FIRST = "first"
    SAME = "unchanged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """A file that differs from what a person used last. ``used_at`` is a Unix time. ``new`` is the reason to ask about
    a file that was never used. ``server`` is the server whose command names it, if one does."""

    before: Content
    now: Content
    used_at: float
    new: str = ""
    server: str | None = None

    def what(self) -> str:
        """Describe the change in a sentence."""
        path, when = str(self.now.path), time.strftime("%Y-%m-%d %H:%M", time.localtime(self.used_at))
        if self.server is not None:
            path += f", named by the command of server {self.server}," if self.server else ", named by a command,"
        if self.new:
            return f"{path} {self.new}"
        if not self.used_at:
            return f"the record of {path} as it was last used is damaged"
        if not self.now.there:
            return f"{path}, last used {when}, is gone"
        if not self.before.there:
            return f"{path} exists now, but did not when it was last checked, {when}"
        if self.before.target != self.now.target and self.before.path == self.now.path:
            return f"{path} is not the file last used {when}, but {self.now.target}"
        return f"{path} has changed since it was last used, {when}"

    def error(self) -> ConfigChanged:
        """Return the error that explains why the file is not used."""
        without = "nothing starts until a person agrees to continue without it"
        return ConfigChanged(
            f"{self.what()}; {'it is not used until a person agrees' if self.now.there else without}",
            suggestion=self.remedy(),
            path=str(self.now.path),
            change=self,
        )

    def remedy(self) -> str:
        """Return the command by which a person agrees."""
        return f"ccswarm trust {shlex.quote(str(self.now.path))}"


class Source(NamedTuple):
    """A file that a run was started from, in its payload's form ``DIGEST:PATH``."""

    path: Path
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.digest}:{self.path}" if self.digest else str(self.path)

    @classmethod
    def parse(cls, text: str) -> Source:
        """Parse the result of ``str``, or a path alone."""
        digest, colon, path = text.partition(":")
        return cls(Path(path), digest) if colon and digest.startswith(DIGEST) else cls(Path(text))


def look(path: Path) -> Content:
    """Read a configuration once, from a file that is no longer a link. Raises ConfigInvalid if it cannot be read."""
    absolute = Path(os.path.abspath(path))
    if str(absolute).startswith(STREAMS):
        return Content.of(absolute, absolute, _read_all(absolute, path, os.O_RDONLY), path)
    target = Path(os.path.realpath(path))
    return Content.of(absolute, target, _read_all(target, path, FILE_ONLY), path)


def look_at_program(path: str, at: Directories) -> Content:
    """Read a file that a command names, or only the link if it leads out of ``at``. Raises ConfigInvalid."""
    try:
        return _program(path, at)
    except ConfigInvalid as error:
        advice = "keep it out of directories that agents write; or, if it is data, list it in data_files of its server"
        raise ConfigInvalid(f"{error.message}, and a command names it", suggestion=advice) from None


def _program(path: str, at: Directories) -> Content:
    named, target = Path(path), os.path.realpath(path)
    if not at.contains(target):
        return Content(named, Path(target), None, named, LINK)
    with _open(Path(target), named, FILE_ONLY) as stream:
        if stream is None:
            return Content.of(named, Path(target), None, named)
        digest = hashlib.sha256()
        kept = b""
        size = 0
        try:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
                kept, size = (kept or chunk)[: KEPT_BYTES + 1], size + len(chunk)
                if size > MOST_PROGRAM_BYTES:
                    raise _too_long(named, MOST_PROGRAM_BYTES)
        except OSError as error:
            raise _unreadable(named, error.strerror) from None
    data = kept if size <= KEPT_BYTES else None
    return Content(named, Path(target), data, named, DIGEST + digest.hexdigest())


def _read_all(file: Path, path: Path, flags: int) -> bytes | None:
    with _open(file, path, flags) as stream:
        if stream is None:
            return None
        try:
            data = stream.read(MOST_BYTES + 1)
        except OSError as error:
            raise _unreadable(path, error.strerror) from None
    if len(data) > MOST_BYTES:
        raise _too_long(path, MOST_BYTES)
    return data


@contextmanager
def _open(file: Path, path: Path, flags: int) -> Generator[BinaryIO | None]:
    """Open a file; None if it does not exist. Raises ConfigInvalid if it is not a regular file."""
    try:
        descriptor = os.open(file, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise _unreadable(path, error.strerror) from None
        yield None
        return
    if flags & os.O_NOFOLLOW and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable(path, "it is not a file")
    with open(descriptor, "rb") as stream:
        yield stream


def _digest(data: bytes) -> str:
    return DIGEST + hashlib.sha256(data).hexdigest()


def _unreadable(path: Path, why: str | None) -> ConfigInvalid:
    return ConfigInvalid(f"{path} cannot be read: {why}", suggestion="fix the file")


def _too_long(path: Path, most: int) -> ConfigInvalid:
    return _unreadable(path, f"it has more than {most >> 20} MB")


def look_at_any(path: Path) -> Content:
    """Read a configuration or a program. Raises ConfigInvalid."""
    try:
        target = os.path.realpath(path)
        if os.stat(target).st_size > MOST_BYTES:
            return look_at_program(os.path.abspath(path), Directories.of((os.path.dirname(target),)))
    except OSError:
        pass
    return look(path)


class Program(NamedTuple):
    """A file that a server's command names. ``server`` is empty for other commands."""

    server: str
    content: Content


def programs(content: Content, environ: Mapping[str, str] | None, workspace: Path | None = None) -> list[Program]:
    """Return the files that the commands of a configuration, plan or suite name. They lie below its directory, the
    current directory, the workspace it names, ``workspace``, or where a server is started. Raises ConfigInvalid if one
    cannot be read."""
    environ = files.environment(environ)
    tables = tables_in(content.data)
    commands = commands_in(tables)
    if not commands:
        return []
    bases: list[str | Path] = [os.getcwd(), *([workspace] if workspace else [])]
    if not str(content.path).startswith(STREAMS):
        named = os.path.expanduser(workspace_in(tables))
        bases += [content.path.parent, content.target.parent, content.path.parent / named]
    # A server is checked again where it starts: the files there belong to the first use.
    elsewhere = [os.path.join(base, one.directory) for one in commands if one.directory for base in bases]
    at = Directories.of(bases, elsewhere)
    found = {path: command.server for command in commands for path in files_of(command, at, environ)}
    return [Program(server, look_at_program(path, at)) for path, server in found.items()]


def _new_file(now: Content, why: str) -> Change:
    return Change(Content.of(now.path, now.path, None, now.named), now, 0.0, why)


class ConfigTrust:
    """The records of one state directory, which is private. A file has records under its name and its path with links
    resolved, so that another name does not make it a new file."""

    def __init__(self, state_directory: Path) -> None:
        self._folder = state_directory / FOLDER
        self._plans = Path(os.path.realpath(state_directory / PLANS))

    def verdict(self, now: Content) -> Verdict:
        """Compare a content with what a person used last."""
        if self._private(now):
            return Verdict.SAME
        own, other = self.last(now.path), self.last(now.target)
        if own and own.target != str(now.target):
            return Verdict.CHANGED
        if now.digest == LINK:
            return Verdict.SAME if own else Verdict.FIRST
        known = [record.digest for record in (own, other) if record]
        if not known:
            return Verdict.FIRST
        return Verdict.SAME if now.digest in known else Verdict.CHANGED

    def change(self, now: Content) -> Change | None:
        """Return the change since a person used the file, or None if it is the same or was never used."""
        if self.verdict(now) is not Verdict.CHANGED:
            return None
        record = self.last(now.path) or self.last(now.target)
        assert record
        return Change(record.content, now, record.used_at)

    def displacing(self, now: Content, own: Path) -> Change | None:
        """Return why a person is asked about a discovered configuration that was never used under that name. It would
        replace ``own``, the user's configuration, or others have been used before. None if neither is so, and if the
        path has a record."""
        with self._lock(fcntl.LOCK_SH):
            if not now.there or self.last(now.path):
                return None
            if os.path.lexists(own):
                return _new_file(now, f"is new here and would be used instead of {own}")
            if any(record.digest != ABSENT for record in self.records()):
                return _new_file(now, "is new here and has not been used before")
            return None

    def mistaken(self, now: Content) -> Change | None:
        """Return why a person is asked about an unused file whose name could have been meant as a task's text."""
        if not now.there or self.verdict(now) is not Verdict.FIRST:
            return None
        return _new_file(now, "is a file that has not been used before, and may be meant as a task's text")

    def program_change(self, program: Program, named_by: Verdict) -> Change | None:
        """Return the change of a file that a configuration's command names. A file that exists when that configuration
        is first used is used with it; one that appears later is new."""
        change, now = self.change(program.content), program.content
        if not change and named_by is not Verdict.FIRST and self.verdict(now) is Verdict.FIRST:
            change = _new_file(now, "is new and has not been used before")
        return replace(change, server=program.server) if change else None

    def start_change(self, command: Command, directory: str, environ: Mapping[str, str]) -> Change | None:
        """Return the change that prevents a command from starting in that directory, or None. The files that it names
        must be as a person used them. A file without a record must equal one of that name used elsewhere, as in a
        clone. Raises ConfigInvalid."""
        at = Directories.of((directory,))
        for path in files_of(command, at, environ, known=lambda path: self._file(Path(path)).exists()):
            record = self.last(Path(path))
            now = self.again(record) if record else look_at_program(path, at)
            change = self.change(now)
            if not change and self.verdict(now) is Verdict.FIRST and not self._is_copy(now):
                change = _new_file(now, "is new and has not been used before")
            if change:
                return replace(change, server=command.server)
        return None

    def _is_copy(self, now: Content) -> bool:
        known = ((Path(record.path).name, record.digest) for record in self.records())
        return now.digest != LINK and (now.path.name, now.digest) in known

    def again(self, record: Record) -> Content:
        """Read a recorded file in the same way as it was read then. Raises ConfigInvalid."""
        path = Path(record.path)
        if record.digest == LINK:
            return Content(path, Path(os.path.realpath(path)), None, path, LINK)
        return look_at_any(path)

    def last(self, path: Path) -> Record | None:
        """Return the record of an absolute path. A damaged record has only the path."""
        try:
            return Record(**json.loads(self._file(path).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            return Record(str(path), DAMAGED, DAMAGED, None, 0.0)

    def use(self, contents: Iterable[Content]) -> None:
        """Record that a person uses these contents, programs before the file that names them. Other processes see all
        of these records or none. Raises OperatorError if they cannot be written."""
        with self._lock(fcntl.LOCK_EX):
            for content in contents:
                self.record(content)

    def record(self, now: Content) -> None:
        """Record that a person uses a content. Raises OperatorError if it cannot be written."""
        if self._private(now):
            return
        data = None if now.data is None else base64.b64encode(now.data).decode()
        # The target of the link was not read.
        for path in dict.fromkeys((now.path, now.target) if now.digest != LINK else (now.path,)):
            self._write(Record(str(path), str(now.target), now.digest, data, round(time.time(), 3)))

    def records(self) -> Iterator[Record]:
        """Yield all readable records."""
        for file in sorted(self._folder.glob("*.json")):
            try:
                yield Record(**json.loads(file.read_bytes()))
            except (OSError, ValueError, TypeError):
                continue

    def _private(self, content: Content) -> bool:
        """Report whether only this user's own programs can have written it."""
        return str(content.path).startswith(STREAMS) or content.target.parent == self._plans

    @contextmanager
    def _lock(self, how: int) -> Generator[None]:
        """Hold the lock on the records: exclusive to write several, shared to read them together."""
        with suppress(OSError):  # there are no records then, and writing one reports the reason
            self._folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            yield
            return
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)

    def _file(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"

    def _write(self, record: Record) -> None:
        file = self._file(Path(record.path))
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            whole_files.replace(file, json.dumps(asdict(record)).encode())
        except OSError as error:
            raise OperatorError(
                f"the use of {record.path} cannot be recorded: {error.strerror}",
                suggestion=f"free disk space in {self._folder}, or set XDG_STATE_HOME",
            ) from None


OnChange = Callable[[Change], Content]
"""Returns the content to use instead of a changed file, or raises."""


def refused(change: Change) -> Content:
    """Raise the error of the change."""
    raise change.error()


def as_used_last(change: Change) -> Content:
    """Return the content a person used last."""
    return change.before


def chosen(
    trust: ConfigTrust, path: Path | None, environ: Mapping[str, str] | None, on_change: OnChange
) -> tuple[Content | None, list[Content]]:
    """Return the configuration, and all contents read while searching for it, including absent ones. It is the file at
    ``path``, else the first that exists of the candidates, else None. A discovered file that is new and replaces
    another counts as changed. Raises ConfigInvalid, and what ``on_change`` raises."""
    seen: list[Content] = []
    paths = (path,) if path else files.candidates(environ)
    for one in paths:
        content = look(one)
        change = trust.change(content)
        if not change and one != paths[-1]:
            change = trust.displacing(content, paths[-1])
        if change:
            content = on_change(change)
        seen.append(content)
        if content.data is not None or len(paths) == 1 or (not change and os.path.islink(one)):
            return content, seen
    return None, seen


def is_discovered(content: Content, path: Path | None, environ: Mapping[str, str] | None = None) -> bool:
    """Report whether a configuration was found in the working directory or above it, and not named."""
    candidates = files.candidates(environ)
    return not path and len(candidates) > 1 and content.named in candidates[:-1]


def remember_now(path: Path | None, workspace: Path | None = None) -> Content | None:
    """Record as used the configuration that a starting server finds, or its absence, and the files its commands name.
    Files with a record keep theirs. An invalid configuration is reported when it is loaded. Returns a discovered
    configuration that is used for the first time."""
    changed: set[Path] = set()

    def as_before(change: Change) -> Content:
        changed.add(change.now.path)
        return as_used_last(change)

    begun: Content | None = None
    try:
        trust = ConfigTrust(files.state_directory())
        _, seen = chosen(trust, path, None, as_before)
        for content in seen:
            if content.path in changed or trust.verdict(content) is not Verdict.FIRST:
                continue
            named = [program.content for program in programs(content, None, workspace)]
            trust.use([*(one for one in named if trust.verdict(one) is Verdict.FIRST), content])
            begun = content if content.there and is_discovered(content, path, None) else begun
    except OperatorError:
        return begun
    return begun
