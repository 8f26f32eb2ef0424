"""Which configuration files a person has used, and as what: one that has changed since is not used before a person
agrees to it, and neither are the files that its commands name. A box may write files in its workspace; it cannot write
these records.

Configurations are parsed from the bytes that were judged. Programs are read again by whoever carries them out: they are
judged when the configuration is loaded and again right before each start of a server, and what is written between that
moment and the program's own reading is not noticed. Nor is what a program loads by itself.

Standard library only: a server asks before it answers anything.
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
"""Where ccswarm keeps the plans of clients, beside the records: nobody else writes there."""

ABSENT, DAMAGED, LINK = "absent", "damaged", "link"
MOST_BYTES = 16 << 20
"""Of a configuration."""
MOST_PROGRAM_BYTES = 256 << 20
KEPT_BYTES = 256 << 10
"""Of a program, to show what has changed; of a longer one only the digest is kept."""
CHUNK_BYTES = 1 << 20
DIGEST = "sha256-"
FILE_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""What a person's shell hands over by these is not a file that somebody else could write."""


@dataclass(frozen=True, slots=True)
class Content:
    """What lay at a path when it was looked at, once. ``path`` is absolute, ``target`` has links followed, ``named`` is
    as it was given; ``data`` is None where nothing is there, and of programs where they are long. ``digest`` is that of
    the bytes, ``absent`` where nothing is there, ``link`` of a program that a link names which leads elsewhere: it is
    the same as long as the link is."""

    path: Path
    target: Path
    data: bytes | None
    named: Path
    digest: str

    @classmethod
    def of(cls, path: Path, target: Path, data: bytes | None, named: Path) -> Content:
        """With the digest of the bytes."""
        return cls(path, target, data, named, ABSENT if data is None else _digest(data))

    @property
    def there(self) -> bool:
        """Whether there is anything."""
        return self.digest != ABSENT


@dataclass(frozen=True, slots=True)
class Record:
    """What a person used last at a path. ``data`` is in base64, None where nothing was there."""

    path: str
    target: str
    digest: str
    data: str | None
    used_at: float

    @property
    def content(self) -> Content:
        """The content when it was read; it may have changed on disk since."""
        data = None if self.data is None else base64.b64decode(self.data)
        return Content(Path(self.path), Path(self.target), data, Path(self.path), self.digest)


class Verdict(Enum):
    """``FIRST``: nobody has used the path before."""

    FIRST = "first"
    SAME = "unchanged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is not what a person used last. ``used_at`` is a Unix time. ``new`` says of one that nobody has used
    why it is asked about all the same. ``server`` is whose command names it, where one does."""

    before: Content
    now: Content
    used_at: float
    new: str = ""
    server: str | None = None

    def what(self) -> str:
        """In words."""
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
            return f"{path} exists now, and did not when it was last looked for, {when}"
        if self.before.target != self.now.target and self.before.path == self.now.path:
            return f"{path} is not the file last used {when}, but {self.now.target}"
        return f"{path} has changed since it was last used, {when}"

    def error(self) -> ConfigChanged:
        """Why it is not used."""
        return ConfigChanged(
            f"{self.what()}; it is not used until a person agrees",
            suggestion=self.remedy(),
            path=str(self.now.path),
            change=self,
        )

    def remedy(self) -> str:
        """What a person types to agree."""
        return f"ccswarm trust {shlex.quote(str(self.now.path))}"


class Source(NamedTuple):
    """A file that a run was started from, as its payload has it: ``DIGEST:PATH``."""

    path: Path
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.digest}:{self.path}" if self.digest else str(self.path)

    @classmethod
    def parse(cls, text: str) -> Source:
        """What ``str`` wrote, or a path alone."""
        digest, colon, path = text.partition(":")
        return cls(Path(path), digest) if colon and digest.startswith(DIGEST) else cls(Path(text))


def look(path: Path) -> Content:
    """What is there now. The bytes are read once, from a file that is no link any more. Raises ConfigInvalid where it
    cannot be read, or is not a file."""
    absolute = Path(os.path.abspath(path))
    if str(absolute).startswith(STREAMS):
        return Content.of(absolute, absolute, _all(absolute, path, os.O_RDONLY), path)
    target = Path(os.path.realpath(path))
    return Content.of(absolute, target, _all(target, path, FILE_ONLY), path)


def look_at_program(path: str, at: Directories) -> Content:
    """As ``look``, of a file that a command names. Where a link leads out of all these directories only the link
    counts. Raises ConfigInvalid."""
    try:
        return _program(path, at)
    except ConfigInvalid as error:
        advice = "keep it out of directories that agents write; or, if it is data, list it in data_files of its server"
        raise ConfigInvalid(f"{error.message}, and a command names it", suggestion=advice) from None


def _program(path: str, at: Directories) -> Content:
    named, target = Path(path), os.path.realpath(path)
    if not at.have(target):
        return Content(named, Path(target), None, named, LINK)
    with _opened(Path(target), named, FILE_ONLY) as stream:
        if stream is None:
            return Content.of(named, Path(target), None, named)
        digest, kept, size = hashlib.sha256(), b"", 0
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


def _all(file: Path, path: Path, flags: int) -> bytes | None:
    with _opened(file, path, flags) as stream:
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
def _opened(file: Path, path: Path, flags: int) -> Generator[BinaryIO | None]:
    """None where nothing is there. Raises ConfigInvalid where it is not a file."""
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
    """As ``look``, of a configuration or a program. Raises ConfigInvalid."""
    try:
        target = os.path.realpath(path)
        if os.stat(target).st_size > MOST_BYTES:
            return look_at_program(os.path.abspath(path), Directories.of((os.path.dirname(target),)))
    except OSError:
        pass
    return look(path)


class Program(NamedTuple):
    """A file that a command names, of that server; empty: of no server."""

    server: str
    content: Content


def programs(content: Content, environ: Mapping[str, str] | None, workspace: Path | None = None) -> list[Program]:
    """The files that the commands of a configuration, plan or suite name, below its directory, the current one, the
    workspace that it names or ``workspace``, or where a server is started. Raises ConfigInvalid where one cannot be
    read."""
    environ = files.environment(environ)
    tables = tables_in(content.data)
    commands = commands_in(tables)
    if not commands:
        return []
    bases: list[str | Path] = [os.getcwd(), *([workspace] if workspace else [])]
    if not str(content.path).startswith(STREAMS):
        named = os.path.expanduser(workspace_in(tables))
        bases += [content.path.parent, content.target.parent, content.path.parent / named]
    # A server is judged again where it is started: what lies there belongs to the first use.
    elsewhere = [os.path.join(base, one.directory) for one in commands if one.directory for base in bases]
    at = Directories.of(bases, elsewhere)
    found = {path: command.server for command in commands for path in files_of(command, at, environ)}
    return [Program(server, look_at_program(path, at)) for path, server in found.items()]


def _new(now: Content, why: str) -> Change:
    return Change(Content.of(now.path, now.path, None, now.named), now, 0.0, why)


class ConfigTrust:
    """The records of one state directory, which is private. A path has one by the name it was used by, and one with
    links followed: no other name for a file makes it one that nobody has used."""

    def __init__(self, state_directory: Path) -> None:
        self._folder = state_directory / FOLDER
        self._plans = Path(os.path.realpath(state_directory / PLANS))

    def verdict(self, now: Content) -> Verdict:
        """Whether it is what a person used last."""
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
        """What has become of it since; None where nobody has used it, or it is the same."""
        if self.verdict(now) is not Verdict.CHANGED:
            return None
        record = self.last(now.path) or self.last(now.target)
        assert record
        return Change(record.content, now, record.used_at)

    def displacing(self, now: Content, own: Path) -> Change | None:
        """A file that was come upon where work is done, not named, and that nobody has used by that name: why it is
        asked about. ``own`` is the configuration of the person's that would be used without it. None for somebody who
        has none and has used nothing yet, and where ``change`` has an answer."""
        with self._turn(fcntl.LOCK_SH):
            if not now.there or self.last(now.path):
                return None
            if os.path.lexists(own):
                return _new(now, f"is new here and would be used instead of {own}")
            if any(record.digest != ABSENT for record in self.records()):
                return _new(now, "is new here and has not been used before")
            return None

    def mistaken(self, now: Content) -> Change | None:
        """A file that was named by a word which could have been something else: why it is asked about, where nobody has
        used it."""
        if not now.there or self.verdict(now) is not Verdict.FIRST:
            return None
        return _new(now, "is a file that has not been used before, and could be meant as a task in words")

    def program_change(self, program: Program, named_by: Verdict) -> Change | None:
        """What has become of a file that a command of such a configuration names: what is there when that is used first
        is used with it, and what comes later is new."""
        change, now = self.change(program.content), program.content
        if not change and named_by is not Verdict.FIRST and self.verdict(now) is Verdict.FIRST:
            change = _new(now, "is new and has not been used before")
        return replace(change, server=program.server) if change else None

    def start_change(self, command: Command, directory: str, environ: Mapping[str, str]) -> Change | None:
        """What keeps a command from being started in that directory: a file that it names is not what a person has
        used. One that nobody has used there is the same as one of its name that somebody has used elsewhere, as in a
        clone, or it is new. Raises ConfigInvalid."""
        at = Directories.of((directory,))
        for path in files_of(command, at, environ, known=lambda path: self._file(Path(path)).exists()):
            record = self.last(Path(path))
            now = self.again(record) if record else look_at_program(path, at)
            change = self.change(now)
            if not change and self.verdict(now) is Verdict.FIRST and not self._is_copy(now):
                change = _new(now, "is new and has not been used before")
            if change:
                return replace(change, server=command.server)
        return None

    def _is_copy(self, now: Content) -> bool:
        known = ((Path(record.path).name, record.digest) for record in self.records())
        return now.digest != LINK and (now.path.name, now.digest) in known

    def again(self, record: Record) -> Content:
        """What is there now, looked at in the way that it was then. Raises ConfigInvalid."""
        path = Path(record.path)
        if record.digest == LINK:
            return Content(path, Path(os.path.realpath(path)), None, path, LINK)
        return look_at_any(path)

    def last(self, path: Path) -> Record | None:
        """What a person used at that absolute path. Of a record that is damaged nothing is known but that there is
        one."""
        try:
            return Record(**json.loads(self._file(path).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            return Record(str(path), DAMAGED, DAMAGED, None, 0.0)

    def use(self, contents: Iterable[Content]) -> None:
        """A person uses them, what their commands name before what names it. For another process that begins with the
        same files, none of them is used yet or all are. Raises OperatorError where that cannot be recorded."""
        with self._turn(fcntl.LOCK_EX):
            for content in contents:
                self.record(content)

    def record(self, now: Content) -> None:
        """A person uses it. Raises OperatorError where that cannot be recorded."""
        if self._private(now):
            return
        data = None if now.data is None else base64.b64encode(now.data).decode()
        # Where a link leads to was not looked at.
        for path in dict.fromkeys((now.path, now.target) if now.digest != LINK else (now.path,)):
            self._write(Record(str(path), str(now.target), now.digest, data, round(time.time(), 3)))

    def records(self) -> Iterator[Record]:
        """All of them."""
        for file in sorted(self._folder.glob("*.json")):
            try:
                yield Record(**json.loads(file.read_bytes()))
            except (OSError, ValueError, TypeError):
                continue

    def _private(self, content: Content) -> bool:
        """Whether nobody but this user's own programs could have written it."""
        return str(content.path).startswith(STREAMS) or content.target.parent == self._plans

    @contextmanager
    def _turn(self, how: int) -> Generator[None]:
        """While nobody else records several, or, to record several, looks."""
        with suppress(OSError):  # then there is nothing to look at, and whoever records says why it cannot be
            self._folder.mkdir(mode=0o700, exist_ok=True)
        try:
            turn = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            yield
            return
        try:
            fcntl.flock(turn, how)
            yield
        finally:
            os.close(turn)

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
"""What is used instead of a file that has changed; or raises."""


def refused(change: Change) -> Content:
    """Nothing."""
    raise change.error()


def as_used_last(change: Change) -> Content:
    """What a person used."""
    return change.before


def chosen(
    trust: ConfigTrust, path: Path | None, environ: Mapping[str, str] | None, on_change: OnChange
) -> tuple[Content | None, list[Content]]:
    """The configuration: what is at ``path``, else the first that is there where it is looked for; None where none is.
    And all that was looked at for that, those that are not there as well. One that nobody named has changed, too, where
    it is new and takes the place of another. Raises ConfigInvalid, and what ``on_change`` raises."""
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
    """Whether a configuration was come upon where work is done, and nobody named it."""
    candidates = files.candidates(environ)
    return not path and len(candidates) > 1 and content.named in candidates[:-1]


def remember_now(path: Path | None, workspace: Path | None = None) -> Content | None:
    """Called when a server starts: the configuration it finds, or its absence, and the files its commands name are
    recorded as used, unless a person used something else before. An invalid configuration is reported when it is read.
    Returns a configuration that was not named explicitly and is used for the first time."""
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
