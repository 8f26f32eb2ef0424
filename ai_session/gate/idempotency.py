"""A call with a key runs once: a repeated key joins the running call or gets its recorded result.

Clients repeat calls after a crash, and orchestrators rely on it for fencing. Records are stored on disk for a day; a
call that began but was never recorded is reported as interrupted instead of running twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ai_session.errors import CallInterrupted, CallKeyConflict
from ai_session.gate import state_files
from ai_session.models import ToolResult

NEW = "use a new key for a new call"


class CallKeys:
    """One file per key in ``directory``; removed after ``keep_seconds``."""

    def __init__(self, directory: Path, keep_seconds: float) -> None:
        self._directory = directory
        self._keep_seconds = keep_seconds
        self._running: dict[str, tuple[Mapping[str, Any], asyncio.Task[ToolResult]]] = {}
        directory.mkdir(mode=0o700, exist_ok=True)

    def expire(self) -> None:
        """Remove records older than the limit; called at start and hourly."""
        oldest = time.time() - self._keep_seconds
        for path in self._directory.glob("*.json"):
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)

    async def once(
        self,
        tool: str,
        key: str,
        arguments: Mapping[str, Any],
        run: Callable[[float, str], Awaitable[ToolResult]],
        *,
        resumable: bool,
        opens: bool = False,
        session: str = "",
        caller: str = "",
    ) -> ToolResult:
        """Run, join or repeat a call. A key gives access only to results of the same ``caller``, and of the same
        ``session``, the id of the one that was judged; a tool that ``opens`` one returns its id. A repeated call whose
        session is gone gets the recorded result, unless it was to open that.

        ``run`` is passed the time when the key was first used or 0, and a name of the call that no other call has; if
        ``resumable``, it finds what an earlier run began and does not begin it twice. Cancelling one caller leaves the
        call running for the others. Raises CallKeyConflict, CallInterrupted.
        """
        name = _sha256(f"{caller}\0{tool}\0{key}")
        digest = _sha256(json.dumps(arguments, sort_keys=True, default=str))

        def check(known: Mapping[str, Any]) -> None:
            if known["digest"] != digest:
                raise CallKeyConflict(f"call_key {key[:40]!r} was used before with other arguments", suggestion=NEW)
            before = known.get("session", "")
            if before and before != session and (session or opens):
                raise CallKeyConflict(
                    f"call_key {key[:40]!r} was used before for session {before}, which no longer has that name",
                    suggestion=f"{NEW}; list_sessions shows what there is",
                )

        if name in self._running:
            known, task = self._running[name]
            check(known)
            return await asyncio.shield(task)
        path = self._directory / f"{name}.json"
        stored = _read(path, self._keep_seconds)
        if stored is not None:
            check(stored)
            if (result := stored.get("result")) is not None and not _unfinished(result):
                return ToolResult(text=result["text"], structured=result["structured"], is_error=result["is_error"])
            if not resumable:
                raise CallInterrupted(
                    f"a call with key {key[:40]!r} was started, but ai-session stopped before its result was recorded",
                    suggestion="look at the session with get_session_info; use a new call_key to do it again",
                )
        begun = 0.0 if stored is None else float(stored.get("begun", path.stat().st_mtime))
        entry = {"digest": digest, "session": session, "begun": begun or time.time()}
        state_files.write(path, entry)
        call = run(begun, _sha256(name + digest))
        task = asyncio.ensure_future(self._record(name, path, entry, call, opens=opens))
        self._running[name] = (entry, task)
        return await asyncio.shield(task)

    async def _record(
        self, name: str, path: Path, entry: Mapping[str, Any], call: Awaitable[ToolResult], *, opens: bool
    ) -> ToolResult:
        try:
            result = await call
            stored_result = {"text": result.text, "structured": dict(result.structured), "is_error": result.is_error}
            opened = {"session": result.structured.get("session_id", "")} if opens else {}
            state_files.write(path, {**entry, **opened, "result": stored_result})
            return result
        except Exception:
            path.unlink(missing_ok=True)
            raise
        finally:
            self._running.pop(name, None)


def _unfinished(result: Mapping[str, Any]) -> bool:
    """Report whether the result is "still running"; then the call runs again, so that a repeat gets the end."""
    return result["structured"].get("status") == "running"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _read(path: Path, keep_seconds: float) -> dict[str, Any] | None:
    try:
        if path.stat().st_mtime < time.time() - keep_seconds:
            return None
        stored: dict[str, Any] = json.loads(path.read_bytes())
        return stored if "digest" in stored else None
    except (OSError, ValueError, TypeError):
        return None
