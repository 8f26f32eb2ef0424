"""Journals that tests change."""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ccswarm.journal.writer import Journal


@contextmanager
def directory() -> Generator[Path]:
    """Yield a directory for one example of a property."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def written(where: Path, worker: str = "w1", count: int = 6) -> Path:
    """Write a journal with ``count`` records between those of its opening and closing. Return its file."""
    journal = Journal(where, worker)
    for number in range(count):
        journal.append("note", number=number)
    journal.close()
    return where / f"{worker}.jsonl"
