"""The files of the journal: ``<worker>.jsonl`` for each worker. Only the last line may be incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path

from agentwire import chain
from ccswarm.journal.chain import Link, Record, parse_line

_SUFFIX = ".jsonl"


def directory_of(state_directory: Path) -> Path:
    """Return the journal's directory."""
    return state_directory / "journal"


def file_of(directory: Path, worker: str) -> Path:
    """Return the path of the worker's file."""
    return directory / f"{worker}{_SUFFIX}"


def files(directory: Path) -> dict[str, Path]:
    """Return the file of each worker, sorted by name; empty if the directory does not exist."""
    return {path.name.removesuffix(_SUFFIX): path for path in sorted(directory.glob(f"*{_SUFFIX}"))}


@dataclass(frozen=True, slots=True)
class End:
    """The end of a file: its last record and the bytes after it. ``terminated``: they end with a newline."""

    last: Link | None
    left: bytes
    terminated: bool


def end_of(path: Path) -> End:
    """Find the end of a file, reading backwards no further than the last record. Raises OSError."""
    with path.open("rb") as file:
        data = b""
        for data, _ in chain.ends(file):
            position = len(data)
            while position:
                begin = data.rfind(b"\n", 0, position - 1) + 1
                line = data[begin:position]
                if link := parse_line(line if line.endswith(b"\n") else line + b"\n"):
                    return End(link, data[position:], data.endswith(b"\n"))
                position = begin
        return End(None, data, data.endswith(b"\n") or not data)


def read(directory: Path, run_id: str = "") -> Iterator[Record]:
    """Yield every record with a correct hash, in order of time, also while workers write. Raises OSError."""
    # A file is open only between its first and its last record: thousands of workers exceed the limit of open files.
    waiting: list[tuple[float, str, int, Record | None, Iterator[Record]]] = []
    for worker, path in files(directory).items():
        if first := next(_records(path), None):
            waiting.append((first.at, worker, 0, None, _records(path)))
    heapify(waiting)
    while waiting:
        _, worker, _, record, rest = heappop(waiting)
        if record and (not run_id or record.run_id == run_id):
            yield record
        if following := next(rest, None):
            heappush(waiting, (following.at, worker, following.seq, following, rest))


def _records(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for line in file:
            if link := parse_line(line):
                yield link.record
