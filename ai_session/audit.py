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
from ai_session.models import Effect, Principal

PLAIN = frozenset({"session_id", "command_id", "name", "wait_for", "shell", "backend"})
"""Arguments that name things; all other strings are recorded as length and digest."""

WITHOUT_ROOM = frozenset({Effect.READ, Effect.DESTRUCTIVE})
"""What may go on while records find no room: looking and ending, which is how a person frees some."""

WAITING_BYTES = 1 << 20
"""Records kept in memory until there is room; with more, nothing goes on."""


class AuditLog:
    """Append-only file of records, mode 0600. A record that finds no room is kept in memory and written later."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.waiting = b""
        """Records that found no room yet."""

    def require_room(self, effect: Effect | None) -> None:
        """Raises StorageFull while earlier records wait for room, unless the call only looks or ends something."""
        if (problem := self._flush()) and (effect not in WITHOUT_ROOM or len(self.waiting) > WAITING_BYTES):
            raise StorageFull(
                f"the audit log cannot be written: {problem}",
                suggestion="free disk space; until then sessions can be read and closed, but nothing runs unrecorded",
            )

    def begin(self, call_id: str, principal: Principal, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The record of a call that is about to be judged."""
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
        self.waiting += json.dumps(record, separators=(",", ":")).encode() + b"\n"
        self._flush()

    def _flush(self) -> str:
        try:
            while self.waiting:
                self.waiting = self.waiting[os.write(self._fd, self.waiting) :]
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
