"""The changes in clones, for read-only inspection: without waiting, and even if the disk is full."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ccswarm.clones.collect import Clones
from ccswarm.clones.difference import Difference
from ccswarm.clones.git import Git

ROOM_BYTES = 64 << 20
MEMORY = Path("/dev/shm")


class Looker:
    """A read-only inspector of one repository's clones, created with the arguments of ``Workspaces``. It waits for no
    lock and writes nothing to the directory of clones. Methods block, and raise WorkspaceUnusable with git's message if
    git fails."""

    def __init__(self, repository: Path, root: Path, environ: Mapping[str, str]) -> None:
        self._clones = Clones(repository, root, Git(environ, written=(str(repository),)))
        self._environ = environ

    def difference(self, base: str, commit: str) -> Difference:
        with self._scratch() as scratch:
            return self._clones.difference(base, commit, scratch)

    def under_way(self, run_id: str, name: str) -> Difference | None:
        """Return the difference that collecting a clone now would make, or None if it does not exist. Raises
        WorkRefused as ``Workspaces.commit`` does."""
        with self._scratch() as scratch:
            return self._clones.under_way(run_id, name, scratch)

    def is_collected(self, run_id: str, name: str) -> bool:
        """Report whether all work in an existing clone is at its ref. Raises WorkRefused, too."""
        with self._scratch() as scratch:
            return self._clones.is_collected(run_id, name, scratch)

    @contextmanager
    def _scratch(self) -> Generator[Path]:
        """Yield a directory on the disk if that has space, else in memory."""
        usual = Path(self._environ.get("TMPDIR") or "/tmp")
        with tempfile.TemporaryDirectory(
            prefix="ccswarm-", dir=usual if has_room(usual) or not has_room(MEMORY) else MEMORY
        ) as path:
            yield Path(path)


def has_room(directory: Path) -> bool:
    """Report whether a few files can be created there."""
    try:
        known = os.statvfs(directory)
    except OSError:
        return False
    return os.access(directory, os.W_OK) and known.f_bavail * known.f_frsize >= ROOM_BYTES
