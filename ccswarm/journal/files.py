"""The files of the journal: one for each worker, ``<worker>.jsonl``, of whole lines but perhaps for the last."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from pathlib import Path

from ccswarm.journal.chain import Link, Record, opened

_SUFFIX = ".jsonl"
_WINDOW_BYTES = 64 << 10


def directory_of(state_directory: Path) -> Path:
    """Where the journal lies."""
    return state_directory / "journal"


def file_of(directory: Path, worker: str) -> Path:
    """Where the worker writes."""
    return directory / f"{worker}{_SUFFIX}"


def files(directory: Path) -> dict[str, Path]:
    """Worker → its file, sorted; none where there is no such directory."""
    return {path.name.removesuffix(_SUFFIX): path for path in sorted(directory.glob(f"*{_SUFFIX}"))}


@dataclass(frozen=True, slots=True)
class End:
    """How a file ends: its last record and any bytes after it; ``terminated``: whether these end a line."""

    last: Link | None
    left: bytes
    terminated: bool


def end_of(path: Path) -> End:
    """Read from the end no further than the last record. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        window = _WINDOW_BYTES
        while True:
            start = file.seek(max(0, size - window))
            data = file.read(size - start)
            position = len(data)
            while position:
                begin = data.rfind(b"\n", 0, position - 1) + 1
                line = data[begin:position]
                if link := opened(line if line.endswith(b"\n") else line + b"\n"):
                    return End(link, data[position:], data.endswith(b"\n"))
                position = begin
            if start == 0:
                return End(None, data, data.endswith(b"\n") or not data)
            window *= 4


def read(directory: Path, run_id: str = "") -> Iterator[Record]:
    """Every record that is what its hash says, of ``run_id`` where one is given, in the order of time; also while
    workers write. Raises OSError."""
    # A file is open only between its first and its last record: thousands of workers leave more than may be open.
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
            if link := opened(line):
                yield link.record
