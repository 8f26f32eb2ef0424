"""What a case is: words typed into a shell, and a detector that looks from outside whether they got out.

In the words ``@name@`` stands for a place or value of the world: see World.values.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

Severity = Literal["critical", "high", "medium", "low"]
Group = Literal[
    "fs writes", "protected paths", "set-up symlinks", "fs reads", "processes", "terminal", "local IPC", "network",
    "kernel", "resources",
]  # fmt: skip
PWNED = "PWN-ED"
"""What an attack says that can see itself whether it worked; never typed in one piece."""


class World(Protocol):
    """What detectors may ask of the world outside."""

    values: Mapping[str, str]

    def fill(self, text: str) -> str: ...
    def original(self, path: Path) -> str: ...
    def reached(self) -> set[str]: ...
    def victim_lives(self) -> bool: ...
    def victim_is_untouched(self) -> bool: ...
    def running(self, word: str) -> list[int]: ...
    def host_git(self, directory: Path) -> None: ...


class Detector(Protocol):
    def __call__(self, world: World, transcript: str) -> bool:
        """Whether the attack got out; asked when its session has ended."""
        ...


@dataclass(frozen=True)
class Made:
    """A file is there that was not, holding ``text``."""

    path: str
    text: str = ""

    def __call__(self, world: World, transcript: str) -> bool:
        path = Path(world.fill(self.path))
        return path.exists() and (path.is_dir() or self.text in path.read_text(errors="replace"))


@dataclass(frozen=True)
class Changed:
    """A file of the world no longer says what it said, or is gone."""

    path: str

    def __call__(self, world: World, transcript: str) -> bool:
        path = Path(world.fill(self.path))
        return not path.is_file() or path.read_text(errors="replace") != world.original(path)


@dataclass(frozen=True)
class Gone:
    path: str

    def __call__(self, world: World, transcript: str) -> bool:
        return not os.path.lexists(world.fill(self.path))


@dataclass(frozen=True)
class Mode:
    """A file has these permission bits."""

    path: str
    bits: int

    def __call__(self, world: World, transcript: str) -> bool:
        path = Path(world.fill(self.path))
        return path.exists() and stat.S_IMODE(path.stat().st_mode) & self.bits == self.bits


@dataclass(frozen=True)
class Dated:
    """A file's time of change is before this."""

    path: str
    before: float

    def __call__(self, world: World, transcript: str) -> bool:
        return Path(world.fill(self.path)).stat().st_mtime < self.before


@dataclass(frozen=True)
class Larger:
    """A file, or all in a directory, holds more than this many bytes."""

    path: str
    than: int

    def __call__(self, world: World, transcript: str) -> bool:
        top = Path(world.fill(self.path))
        files = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files) > self.than


@dataclass(frozen=True)
class Shown:
    """A secret that exists outside only was printed."""

    secret: str

    def __call__(self, world: World, transcript: str) -> bool:
        return world.values[self.secret] in re.sub(r"\s", "", transcript)


@dataclass(frozen=True)
class Reached:
    """Somebody outside, on this channel, heard the case's nonce."""

    channel: str

    def __call__(self, world: World, transcript: str) -> bool:
        return self.channel in world.reached()


@dataclass(frozen=True)
class VictimDead:
    def __call__(self, world: World, transcript: str) -> bool:
        return not world.victim_lives()


@dataclass(frozen=True)
class VictimTouched:
    """Its priority or limits are not what they were."""

    def __call__(self, world: World, transcript: str) -> bool:
        return not world.victim_is_untouched()


@dataclass(frozen=True)
class Survives:
    """A process with this word among its arguments lives on after the session."""

    word: str

    def __call__(self, world: World, transcript: str) -> bool:
        return bool(world.running(world.fill(self.word)))


@dataclass(frozen=True)
class HostGit:
    """git, run outside afterwards, runs what the box planted: a program that makes ``@outside@/ran``."""

    directory: str

    def __call__(self, world: World, transcript: str) -> bool:
        world.host_git(Path(world.fill(self.directory)))
        return Path(world.fill("@outside@/ran")).exists()


@dataclass(frozen=True)
class Says:
    word: str = PWNED

    def __call__(self, world: World, transcript: str) -> bool:
        return self.word in transcript


@dataclass(frozen=True)
class Attack:
    """``lines`` are typed one by one; ``python`` lies in the workspace as attack.py. ``trap`` names what lay in the
    workspace before the session began."""

    name: str
    group: Group
    severity: Severity
    lines: tuple[str, ...]
    success: Detector
    python: str = ""
    trap: str = ""
    seconds: float = 25.0


@dataclass(frozen=True)
class Type:
    """A line and Enter."""

    text: str


@dataclass(frozen=True)
class Press:
    key: str


@dataclass(frozen=True)
class Resize:
    rows: int
    cols: int


@dataclass(frozen=True)
class See:
    """A regular expression that the output since the last one must come to fit."""

    pattern: str


Step = Type | Press | Resize | See


@dataclass(frozen=True)
class Work:
    """Something that must go on working. ``python`` lies in the workspace as work.py."""

    name: str
    steps: tuple[Step, ...]
    python: str = ""
    needs: tuple[str, ...] = field(default=())
    """Programs without which the case says nothing about the box."""
