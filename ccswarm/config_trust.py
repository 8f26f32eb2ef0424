"""Which configuration files a person has used, and as what: one that has changed since is not used before a person
agrees to it. A box may write files in its workspace; it cannot write these records.

Standard library only: a server asks before it answers anything.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ccswarm import config_files
from ccswarm.errors import ConfigChanged, ConfigInvalid, OperatorError

FOLDER = "trust"
PLANS = "plans"
"""Where ccswarm keeps the plans of clients, beside the records: nobody else writes there."""

ABSENT, DAMAGED = "absent", "damaged"
MOST_BYTES = 16 << 20
STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""What a person's shell hands over by these is no file that somebody else could write."""


@dataclass(frozen=True, slots=True)
class Content:
    """What lay at a path when it was looked at, once. ``path`` is absolute, ``target`` has links followed, ``named`` is
    as it was given; ``data`` is None where nothing is there."""

    path: Path
    target: Path
    data: bytes | None
    named: Path

    @property
    def digest(self) -> str:
        """Of the bytes; ``absent`` where there are none."""
        return ABSENT if self.data is None else "sha256-" + hashlib.sha256(self.data).hexdigest()


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
        """As it was looked at then."""
        data = None if self.data is None else base64.b64decode(self.data)
        return Content(Path(self.path), Path(self.target), data, Path(self.path))


class Verdict(Enum):
    """``FIRST``: nobody has used the path before."""

    FIRST = "first"
    SAME = "unchanged"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """A file that is not what a person used last. ``used_at`` is a Unix time."""

    before: Content
    now: Content
    used_at: float

    def what(self) -> str:
        """In words."""
        path, when = self.now.path, time.strftime("%Y-%m-%d %H:%M", time.localtime(self.used_at))
        if not self.used_at:
            return f"the record of what {path} was when it was last used is damaged"
        if self.now.data is None:
            return f"{path}, last used {when}, is gone"
        if self.before.data is None:
            return f"{path} is there now, and was not when it was last looked for, {when}"
        if self.before.target != self.now.target and self.before.path == self.now.path:
            return f"{path} is another file than the one last used {when}: {self.now.target}"
        return f"{path} has changed since it was last used, {when}"

    def error(self) -> ConfigChanged:
        """Why it is not used."""
        return ConfigChanged(
            f"{self.what()}; it is not used before a person agrees",
            suggestion=self.remedy(),
            path=str(self.now.path),
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
        return cls(Path(path), digest) if colon and digest.startswith("sha256-") else cls(Path(text))


def look(path: Path) -> Content:
    """What is there now. The bytes are read once, from a file that is no link any more. Raises ConfigInvalid where it
    cannot be read, or is no file."""
    absolute = Path(os.path.abspath(path))
    if str(absolute).startswith(STREAMS):
        return Content(absolute, absolute, _all(absolute, path, os.O_RDONLY), path)
    target = Path(os.path.realpath(path))
    return Content(absolute, target, _all(target, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), path)


def _all(file: Path, path: Path, flags: int) -> bytes | None:
    try:
        descriptor = os.open(file, flags | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise _unreadable(path, error.strerror) from None
    if flags & os.O_NOFOLLOW and not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable(path, "it is no file")
    try:
        with open(descriptor, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror) from None
    if len(data) > MOST_BYTES:
        raise _unreadable(path, f"it has more than {MOST_BYTES >> 20} MB")
    return data


def _unreadable(path: Path, why: str | None) -> ConfigInvalid:
    return ConfigInvalid(f"{path} cannot be read: {why}", suggestion="mend the file")


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

    def last(self, path: Path) -> Record | None:
        """What a person used at that absolute path. Of a record that is damaged nothing is known but that there is
        one."""
        try:
            return Record(**json.loads(self._file(path).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError):
            return Record(str(path), DAMAGED, DAMAGED, None, 0.0)

    def record(self, now: Content) -> None:
        """A person uses it. Raises OperatorError where that cannot be recorded."""
        if self._private(now):
            return
        data = None if now.data is None else base64.b64encode(now.data).decode()
        for path in dict.fromkeys((now.path, now.target)):
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

    def _file(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"

    def _write(self, record: Record) -> None:
        file = self._file(Path(record.path))
        beside = file.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as out:
                json.dump(asdict(record), out)
            beside.replace(file)
        except OSError as error:
            raise OperatorError(
                f"it cannot be recorded that {record.path} is used: {error.strerror}",
                suggestion=f"make room in {self._folder}, or set XDG_STATE_HOME",
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
    And all that was looked at for that, those that are not there as well. Raises ConfigInvalid, and what ``on_change``
    raises."""
    seen: list[Content] = []
    paths = (path,) if path else config_files.candidates(environ)
    for one in paths:
        content = look(one)
        change = trust.change(content)
        if change:
            content = on_change(change)
        seen.append(content)
        named = path is not None or len(paths) == 1
        if content.data is not None or named or (not change and os.path.islink(one)):
            return content, seen
    return None, seen


def remember_now(path: Path | None, environ: Mapping[str, str] | None = None) -> None:
    """A server begins: what it finds as its configuration now, or does not find, is from now on what was used, unless
    a person used something else before. What is wrong with it is told when it is read."""
    try:
        trust = ConfigTrust(config_files.state_directory(environ))
        _, seen = chosen(trust, path, environ, as_used_last)
        for content in seen:
            if trust.verdict(content) is Verdict.FIRST:
                trust.record(content)
    except OperatorError:
        return
