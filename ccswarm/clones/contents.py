"""The contents of a commit's files as they are checked out, except for filters. Functions and methods block.

Of many files the bytes are read one after the other from one private file, and only those that git converts (line
endings, ``ident``, encodings) are checked out first. A few files are all checked out, which starts fewer programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from ccswarm.clones.git import Git, PrivateRepository, unusable

LINK = "120000"
CONVERTED = ("eol", "ident", "working-tree-encoding")
"""The attributes, except filters, by which a checked-out file differs from the repository's bytes."""
PIECE_BYTES = 1 << 20
FEW = 100


@dataclass(frozen=True, slots=True)
class Blob:
    """One path of a commit. ``mode`` is in git's notation."""

    path: str
    mode: str
    oid: str


class Contents:
    """The contents of ``blobs`` in the tree ``commit``. Use it in a ``with`` block; ``directory`` must not exist."""

    def __init__(
        self, git: Git, repository: PrivateRepository, directory: Path, commit: str, blobs: Sequence[Blob]
    ) -> None:
        self._modes = {blob.path: blob.mode for blob in blobs}
        self._checked_out = directory
        files = [blob for blob in blobs if blob.mode != LINK]
        every = repository.converts or len(blobs) < FEW
        converted = (
            {blob.path for blob in files} if every else paths_converted(git, repository, directory, commit, files)
        )
        git.files(repository, directory, commit, sorted(converted))
        self._bytes: dict[str, tuple[int, int]] = {}
        """The position of each in the file, and its length."""
        self._file: IO[bytes] = open(directory.with_suffix(".blobs"), "x+b")  # noqa: SIM115 - closed by ``with``
        try:
            if unconverted := [blob for blob in blobs if blob.path not in converted]:
                self._find(git, repository, unconverted)
        except BaseException:
            self._file.close()
            raise

    def _find(self, git: Git, repository: PrivateRepository, unconverted: Sequence[Blob]) -> None:
        stdin = "".join(f"{blob.oid}\n" for blob in unconverted).encode()
        git.private(repository, "cat-file", "--batch", "--buffer", stdin=stdin, output=self._file)
        self._file.seek(0)
        for blob in unconverted:
            _, kind, *size = self._file.readline().split()
            if kind != b"blob":
                raise unusable("cat-file", repository.path, f"{blob.path}: {blob.oid} is not a file", 1)
            self._bytes[blob.path] = self._file.tell(), int(size[0])
            self._file.seek(int(size[0]) + 1, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def is_link(self, path: str) -> bool:
        return self._modes[path] == LINK

    def is_executable(self, path: str) -> bool:
        return self._modes[path] == "100755"

    def size(self, path: str) -> int:
        if path in self._bytes:
            return self._bytes[path][1]
        return (self._checked_out / path).stat().st_size

    def read(self, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file, or the target of a link, in pieces."""
        if path not in self._bytes:
            with open(self._checked_out / path, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
            return
        begin, left = self._bytes[path]
        self._file.seek(begin)
        while left and (piece := self._file.read(min(left, PIECE_BYTES))):
            left -= len(piece)
            yield piece


def paths_converted(
    git: Git, repository: PrivateRepository, directory: Path, commit: str, blobs: Sequence[Blob]
) -> set[str]:
    """Return the paths that git converts on checkout."""
    index = {"GIT_INDEX_FILE": str(directory.with_suffix(".attributes"))}
    git.private(repository, "read-tree", commit, variables=index)
    if not git.private(repository, "ls-files", "-z", "--", ":(icase)*.gitattributes", variables=index):
        return set()
    stdin = b"".join(blob.path.encode(errors="surrogateescape") + b"\0" for blob in blobs)
    output = git.private(
        repository, "check-attr", "--cached", "-z", "--stdin", *CONVERTED, stdin=stdin, variables=index
    )
    fields = output.decode(errors="surrogateescape").split("\0")
    return {
        path
        for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=False)
        if value not in ("unspecified", "unset") and (name, value) != ("eol", "lf")
    }
