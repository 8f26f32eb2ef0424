"""A file with the protocol era that each server used last.

Asking a server in an era it does not know may take seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast


class EraFile(MutableMapping[str, str]):
    """A mapping of servers to eras. It is only a cache: unreadable data is empty, and write errors are ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self) -> dict[str, str]:
        try:
            found: Any = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {str(key): str(value) for key, value in cast("dict[Any, Any]", found).items()}

    def _write(self, eras: dict[str, str]) -> None:
        written = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            written.write_text(json.dumps(eras))
            written.replace(self._path)
        with suppress(OSError):
            written.unlink(missing_ok=True)

    def __getitem__(self, key: str) -> str:
        return self._read()[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._write(self._read() | {key: value})

    def __delitem__(self, key: str) -> None:
        eras = self._read()
        del eras[key]
        self._write(eras)

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
