"""Paths of a workspace: below its root, above one another, and in a text."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

EXAMPLES, MOST_SHOWN = 3, 160
"""Paths named in a text, and characters of each."""


class Names:
    """What one directory holds, listed once: asking for each of many names takes longer than all else of a survey."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        try:
            self._names: set[str] | None = {name.casefold() for name in os.listdir(directory)}
        except FileNotFoundError:
            self._names = set()
        except OSError:
            self._names = None  # what cannot be listed may still be searched

    def have(self, path: str) -> bool:
        """Whether there is something, a link that leads nowhere as well."""
        known = self._names is None or path.partition("/")[0].casefold() in self._names
        return known and os.path.lexists(os.path.join(self._directory, path))


def between(root: str, path: str) -> Iterator[str]:
    """Directories above ``path`` and below ``root``."""
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
    """A path of a tree that others may write to, to be put into a text: one short line, nothing invisible."""
    plain = path if path.isprintable() else repr(path)[1:-1]
    return plain if len(plain) <= MOST_SHOWN else f"{plain[: MOST_SHOWN // 2]}…{plain[-MOST_SHOWN // 2 :]}"
