"""The difference of two commits or trees, by file and line by line. Blocks.

git compares them in a private repository, so no driver, filter or text conversion is run.
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
"""The git command. Its output has the counts first, then an empty record and the patch."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """One changed file. ``added`` and ``removed`` count lines, None for a binary file."""

    path: str
    added: int | None
    removed: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference from ``base`` to a commit or tree. ``git apply`` accepts ``text``, except for binary files."""

    base: str
    commit: str
    files: tuple[ChangedFile, ...]
    text: bytes

    @property
    def added(self) -> int:
        """The added lines of all files."""
        return sum(one.added or 0 for one in self.files)

    @property
    def removed(self) -> int:
        """The removed lines of all files."""
        return sum(one.removed or 0 for one in self.files)

    @property
    def summary(self) -> str:
        """The number of files and lines, as a short text."""
        return f"{len(self.files)} file{'' if len(self.files) == 1 else 's'}, +{self.added} −{self.removed}"


def compare(git: Git, repository: PrivateRepository, base: str, commit: str) -> Difference:
    """Return the difference. Raises WorkRefused if it exceeds the limits."""
    counted, _, text = git.private(repository, *WORDS, base, commit).partition(b"\0\0")
    files: list[ChangedFile] = []
    for line in counted.decode(errors="surrogateescape").split("\0") if counted else ():
        added, removed, path = line.split("\t", 2)
        files.append(ChangedFile(path, *(None if one == "-" else int(one) for one in (added, removed))))
    return Difference(base, commit, tuple(files), text)
