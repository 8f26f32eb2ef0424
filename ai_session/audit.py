"""One JSON line per call: who asked for what, what was decided, how it ended. Shapes and digests, never contents."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ai_session.errors import StorageFull
from ai_session.models import Principal

PLAIN = frozenset({"session_id", "command_id", "name", "wait_for", "shell", "backend"})
"""Arguments that name things; all other strings are recorded as length and digest."""


class AuditLog:
    """Append-only file of records, mode 0600. A record that cannot be written is kept, and no further call begins."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._unwritten = b""

    def begin(self, call_id: str, principal: Principal, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The record of a call that is about to be judged. Raises StorageFull while earlier records wait for room."""
        if problem := self._flush():
            raise StorageFull(
                f"the audit log cannot be written: {problem}", suggestion="free disk space; nothing runs unrecorded"
            )
        return {
            "at": round(time.time(), 6),
            "call_id": call_id,
            "principal": {
                "kind": principal.kind,
                "client": principal.client,
                "uid": principal.uid,
                "pid": principal.pid,
            },
            "tool": tool[:64],
            "arguments": {str(k)[:64]: _shape(str(k), v) for k, v in arguments.items()},
        }

    def end(self, record: dict[str, Any], outcome: str, *, rule: str = "", code: str = "") -> None:
        """Complete and append the record; never raises, for the call has been made."""
        record |= {"outcome": outcome, "rule": rule, "seconds": round(time.time() - record["at"], 6)}
        if code:
            record["code"] = code
        self._unwritten += json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self._flush()

    def _flush(self) -> str:
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._fd, self._unwritten) :]
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def close(self) -> None:
        """Release the file."""
        os.close(self._fd)


def _shape(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        if name in PLAIN and len(value) <= 200:
            return value.encode("utf-8", "replace").decode()
        raw = value.encode("utf-8", "surrogatepass")
        return {"chars": len(value), "sha256": hashlib.sha256(raw).hexdigest()[:16]}
    return {"type": type(value).__name__, "items": len(value) if isinstance(value, dict | list) else 0}  # pyright: ignore[reportUnknownArgumentType]
