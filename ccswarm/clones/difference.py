"""What two commits, or trees, differ in: by file, and line by line. Blocks.

git compares them in a repository of ours: no driver, filter or conversion to text of anybody is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from ccswarm.clones.git import Git, PrivateRepository

WORDS = (
    "diff-tree",
    "-r",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--numstat",
    "-z",
    "--patch",
)
"""The counts come first, and an empty record after them."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """``added`` and ``removed`` count lines; None where the file is no text."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """From ``base`` to ``commit``, which may be a tree. ``text`` is what ``git apply`` reads, but for files that are no
    text."""

    base: str
    commit: str
    files: tuple[ChangedFile, ...]
    text: bytes

    @property
    def added(self) -> int:
        """Lines, of all files."""
        return sum(one.added or 0 for one in self.files)

    @property
    def removed(self) -> int:
        """Lines, of all files."""
        return sum(one.removed or 0 for one in self.files)

    @property
    def summary(self) -> str:
        """In few words."""
        return f"{len(self.files)} file{'' if len(self.files) == 1 else 's'}, +{self.added} −{self.removed}"


def compare(git: Git, repository: PrivateRepository, base: str, commit: str) -> Difference:
    """Raises WorkRefused where that is more than can be shown."""
    counted, _, text = git.private(repository, *WORDS, base, commit).partition(b"\0\0")
    files: list[ChangedFile] = []
    for line in counted.decode(errors="surrogateescape").split("\0") if counted else ():
        added, removed, path = line.split("\t", 2)
        files.append(ChangedFile(path, *(None if one == "-" else int(one) for one in (added, removed))))
    return Difference(base, commit, tuple(files), text)
