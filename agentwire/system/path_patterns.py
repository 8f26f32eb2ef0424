"""Patterns of paths like those of .gitignore; names are compared as the most lenient file system compares them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

_IGNORED = frozenset(
    map(
        chr,
        (
            0xAD,
            0x34F,
            0x180E,
            0xFEFF,
            *range(0x200B, 0x2010),
            *range(0x202A, 0x202F),
            *range(0x2060, 0x2070),
            *range(0xFE00, 0xFE10),
        ),
    )
)
"""Characters that HFS+ ignores when it compares names, or that are invisible."""
_WILD = frozenset("*?[\\")


def parents(path: str) -> Iterator[str]:
    """Yield the paths of the directories above ``path``, the nearest first, without the root."""
    while path := path.rpartition("/")[0]:
        yield path


def fold(name: str) -> str:
    """Return ``name`` without what some file system ignores: case, width, invisible characters, final dots, spaces.

    A name of nothing else stays as it is.
    """
    seen = name
    if not name.isascii():
        seen = "".join(char for char in unicodedata.normalize("NFKC", name) if char not in _IGNORED)
    return seen.casefold().rstrip(". ") or name


def fold_path(path: str) -> str:
    """Return ``path`` with each of its names folded."""
    return "/".join(map(fold, path.split("/")))


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern. ``names`` are globs for the names of a path; ``**`` matches any number of names."""

    text: str
    excepts: bool
    directories: bool
    names: tuple[str, ...]

    @property
    def regex(self) -> re.Pattern[str]:
        """Matches a whole folded path."""
        return _compiled(self.names)

    @property
    def last(self) -> str:
        """The glob of the last name."""
        return self.names[-1]


def parse(line: str) -> Pattern:
    """Parse a line like those of .gitignore: without a slash it fits at any depth, with one from the top.

    Raises ValueError that says what is wrong.
    """
    excepts = line.startswith("!")
    text = line[1:] if excepts else line
    directories = text.endswith("/")
    names = text.casefold().rstrip("/").lstrip("/").split("/")
    if "\0" in text or "" in names or names[-1] in (".", "..") or not text.strip():
        raise ValueError(f"{line!r} is not a pattern of a path")
    if "/" not in text.rstrip("/"):
        names.insert(0, "**")
    try:
        if "[" in text:  # nothing else can be wrong
            _compiled(tuple(names))
    except re.error as error:
        raise ValueError(f"{line!r} is not a pattern of a path: {error}") from None
    return Pattern(line, excepts, directories, tuple(names))


@lru_cache(maxsize=4096)
def _compiled(names: tuple[str, ...]) -> re.Pattern[str]:
    """Compile on first use: few lines of a table are ever compared with a path, and each takes 0.2 ms."""
    return re.compile("".join(_translate(names)), re.DOTALL)


def _translate(names: Sequence[str]) -> Iterator[str]:
    for number, name in enumerate(names, 1):
        last = number == len(names)
        if name == "**":
            yield ".+" if last else "(?:.+/)?"
        else:
            yield _glob(name) + ("" if last else "/")


def _glob(name: str) -> str:
    """Return the glob as a regular expression in which nothing matches a slash."""
    parts: list[str] = []
    at = 0
    while at < len(name):
        char = name[at]
        at += 1
        if char == "*":
            parts.append("[^/]*")
        elif char == "?":
            parts.append("[^/]")
        elif char == "[" and (end := name.find("]", at + 1)) > 0:
            inner = name[at:end].replace("\\", "\\\\")
            parts.append(f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]")
            at = end + 1
        else:
            if char == "\\" and at < len(name):
                char, at = name[at], at + 1
            parts.append(re.escape(char))
    return "".join(parts)


class Patterns:
    """Patterns in order; the last one that fits a path decides."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Raises ValueError."""
        self.all = tuple(map(parse, reversed(dict.fromkeys(reversed(list(lines))))))

    @cached_property
    def _plain(self) -> frozenset[str]:
        return frozenset(pattern.last for pattern in self.all if not _WILD & set(pattern.last))

    @cached_property
    def _wild(self) -> re.Pattern[str] | None:
        wild = dict.fromkeys(pattern.last for pattern in self.all if _WILD & set(pattern.last))
        return re.compile("|".join(".*" if last == "**" else _glob(last) for last in wild), re.DOTALL) if wild else None

    def may_fit(self, name: str) -> bool:
        """Return False if no path with this last name can fit. Fast, because it is called for every file of a tree."""
        folded = fold(name)
        return folded in self._plain or bool(self._wild and self._wild.fullmatch(folded))

    def deciding(self, path: str, *, directory: bool) -> Pattern | None:
        """Return the pattern that decides about the path itself, relative to the top; None if none fits."""
        folded = fold_path(path)
        name = folded.rpartition("/")[2]
        for pattern in reversed(self.all):
            if pattern.directories and not directory:
                continue
            # The cheap comparison first: a regular expression would have to be compiled.
            if (pattern.last == name or pattern.last not in self._plain) and pattern.regex.fullmatch(folded):
                return pattern
        return None

    def fits(self, path: str, *, directory: bool) -> bool:
        """Report whether the path itself matches and is not excepted."""
        return (found := self.deciding(path, directory=directory)) is not None and not found.excepts

    @cached_property
    def _leading(self) -> tuple[tuple[str, ...], ...]:
        """The globs of the directories above everything that a pattern names."""
        ways = {one.names[:count] for one in self.all if not one.excepts for count in range(1, len(one.names))}
        return tuple(sorted(way for way in ways if set(way) != {"**"}))

    @cached_property
    def _leading_names(self) -> re.Pattern[str]:
        globs = dict.fromkeys(".*" if way[-1] == "**" else _glob(way[-1]) for way in self._leading)
        return re.compile("|".join(globs) or r"(?!)", re.DOTALL)

    def may_lead(self, name: str) -> bool:
        """Return False if ``leads_to`` is false for all paths with this last name. Fast, like ``may_fit``."""
        return self._leading_names.fullmatch(fold(name)) is not None

    def leads_to(self, path: str) -> bool:
        """Report whether a pattern names something below the path: a link at this path decides what that is."""
        folded = fold_path(path)
        return any(_compiled(way).fullmatch(folded) for way in self._leading)

    def around(self, path: str, *, directory: bool = False) -> str:
        """Return the outermost of the path and the directories above it that fits; empty if none does."""
        names = path.split("/")
        for count in range(1, len(names) + 1):
            if self.fits(outer := "/".join(names[:count]), directory=directory or count < len(names)):
                return outer
        return ""


@lru_cache(maxsize=64)
def patterns(*lines: str) -> Patterns:
    """Return ``Patterns`` of these lines, cached. Raises ValueError."""
    return Patterns(lines)
