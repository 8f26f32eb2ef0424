"""Paths of a workspace: relations between them, and their form in a message."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

EXAMPLES, MOST_SHOWN = 3, 160
"""The number of paths named in a message, and of characters shown of each."""


class Names:
    """The names in one directory, listed once: checking each of many names takes longer than the rest of the search."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._names: set[str] | None = {name.casefold() for name in os.listdir(directory)}
        except FileNotFoundError:
            self._names = set()
        except OSError:
            self._names = None  # a directory that cannot be listed may still be searched

    def have(self, path: str) -> bool:
        """Report whether ``path`` exists below the directory, also as a broken link."""
        known = self._names is None or path.partition("/")[0].casefold() in self._names
        return known and os.path.lexists(os.path.join(self._directory, path))


def between(root: str, path: str) -> Iterator[str]:
    """Yield the directories above ``path`` and below ``root``, innermost first."""
    directory = os.path.dirname(path)
    while below(directory, root):
        yield directory
        directory = os.path.dirname(directory)


def below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def absolute(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}" if path else root


def some(paths: Sequence[str]) -> str:
    return ", ".join(map(shown, paths[:EXAMPLES])) + (", …" if len(paths) > EXAMPLES else "")


def shown(path: str) -> str:
    """Return a path that others may have named, for use in a message: one short line of visible characters."""
    plain = path if path.isprintable() else repr(path)[1:-1]
    return plain if len(plain) <= MOST_SHOWN else f"{plain[: MOST_SHOWN // 2]}…{plain[-MOST_SHOWN // 2 :]}"
