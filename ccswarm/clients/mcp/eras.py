"""Which era of the protocol a server spoke the last time, kept in a file: asking one that does not know the question
may cost seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast


class EraFile(MutableMapping[str, str]):
    """Server → era. What cannot be read is empty, what cannot be written is not kept: it is only a cache."""

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
