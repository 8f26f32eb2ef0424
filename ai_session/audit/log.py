"""The audit log: a begin record, safe on the disk, before each call, an end record after it, and other events.

If a daemon ends during a call, the next one writes the call's end record. Names, shapes and digests are recorded, and
command text with its secrets masked; never other contents.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ai_session.audit.chain import CHECKPOINT_RECORDS, TEXT_CHARS, seal, statement
from ai_session.audit.files import Writer, read_end, segments
from ai_session.audit.keys import Signer
from ai_session.errors import StorageFull
from ai_session.models import Effect, Principal
from ai_session.system.scheduling import take_short_turns

PLAIN = frozenset(
    ("session_id", "command_id", "name", "wait_for", "shell", "backend", "working_directory", "call_key", "profile")
)
"""Arguments that name things; of all other strings the length is recorded, and a digest of the long ones."""

FREE_TEXT = frozenset({"command", "cwd", "host", "message", "name", "reason", "what", "why"})
"""Facts that may contain a secret, which is masked."""

ALLOWED_WHEN_FULL = frozenset({Effect.READ, Effect.DESTRUCTIVE})
"""Calls that are allowed while records cannot be written: reading and ending, by which a person frees space."""

WAITING_BYTES = 1 << 20
"""The limit of records in memory while the disk is full: beyond it no call runs, beyond twice they are counted."""

CHECKPOINT_SECONDS = 60.0
SYNC_SECONDS = 1.0
"""End records and events are safe after this time, or with the next call's begin record."""

QUICK_SECONDS = 0.003
"""A disk that took less is synced on the loop, which a disk that becomes slow blocks once; else a thread does it."""

GUESSABLE_CHARS = 32
"""Strings up to this length get no digest, from which a password could be found by brute force."""

MASKED_CHARS = 16 * TEXT_CHARS
"""The length of text that is masked to get TEXT_CHARS of it: masks are shorter than keys."""

SYSLOG = Path("/dev/log")
_AUTHPRIV_INFO = 10 * 8 + 6
_DAY = 86_400


_Sync = tuple[asyncio.AbstractEventLoop, int, "list[asyncio.Future[None]]"]
"""The loop to notify, the bytes that the sync covers, and the futures that wait for it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A call whose begin record is written; ``seq`` is 0 if not even memory had room for it."""

    seq: int
    call_id: str
    tool: str
    began: int


class AuditLog:
    """Appends to the log in ``directory`` (mode 0700; the key is in its parent). For one event loop; the only writer.

    Raises AuditBroken if another process writes this log, OSError if the directory cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        *,
        segment_bytes: int = 64 << 20,
        retain_days: int = 365,
        redact: Callable[[str], str] = str,
        syslog: Path | None = None,
    ) -> None:
        self._writer = Writer(directory)
        self._signer = Signer(directory.parent / "audit.key")
        self._segment_bytes = segment_bytes
        self._retain_days = retain_days
        self._redact = redact
        self._syslog = syslog
        self._seq = self._writer.seq
        self._head = self._writer.head
        self._unsigned = self._writer.unsigned
        self._unfinished = dict(self._writer.unfinished)
        self._lost = 0
        self._syncs: SimpleQueue[_Sync | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._sync_in_thread, name="audit", daemon=True)
        self._syncing = self._quick = False
        self._waiters: list[asyncio.Future[None]] = []
        self._sync_timer: asyncio.TimerHandle | None = None
        self._checkpoint_timer: asyncio.TimerHandle | None = None
        self._retention_due = True
        self._closed = False
        self.appended: Callable[[], None] = lambda: None
        """Called after each record."""
        if self._writer.size == 0:
            self._append("audit.segment", {"segment": self._writer.number, **_machine()})
        self._append("audit.open", {"pid": os.getpid(), **_machine()})
        if self._writer.torn:
            self._append("audit.recover", self._writer.torn)
        for seq, (call, tool) in self._writer.unfinished.items():
            self._append("tool.end", {"call": call, "start": seq, "tool": tool, "outcome": "lost"})
            del self._unfinished[seq]

    @property
    def head(self) -> tuple[int, str]:
        """Number and hash of the newest record, which can be stored elsewhere as an anchor."""
        return self._seq, self._head

    @property
    def waiting(self) -> int:
        """The number of bytes that are not written because the disk is full."""
        return len(self._writer.waiting)

    def require_room(self, effect: Effect | None) -> None:
        """Raise StorageFull while records cannot be stored safely, unless the call only reads or ends something."""
        self._writer.flush()
        problem = self._writer.problem or self._writer.reserve()
        if problem and (effect not in ALLOWED_WHEN_FULL or self.waiting > WAITING_BYTES):
            raise StorageFull(
                f"the audit log cannot be written: {problem}",
                suggestion="free disk space; until then sessions can be read and closed, but nothing runs unrecorded",
            )

    async def begin(
        self,
        call_id: str,
        principal: Principal,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        agent: str = "",
        client_call_id: str = "",
    ) -> Entry:
        """Record a call before it is checked and run; the record is safe on the disk when this returns.

        If it cannot be written it waits in memory, and ``require_room`` raises. Raises only CancelledError, if the
        caller is cancelled; the call is then recorded as ended.
        """
        began = time.monotonic_ns()
        tool = self._mask(tool)[:64]
        facts: dict[str, Any] = {
            "call": call_id,
            "actor": self._actor(principal, agent),
            "tool": tool,
            "args": {self._mask(str(k))[:64]: self._shape(str(k), v) for k, v in list(arguments.items())[:64]},
            "request": self._mask(client_call_id)[:200] or None,
        }
        entry = Entry(self._append("tool.start", facts), call_id, tool, began)
        if entry.seq:
            self._unfinished[entry.seq] = (call_id, entry.tool)
        try:
            await self._wait_synced()
        except asyncio.CancelledError:
            self.end(entry, "cancelled")
            raise
        return entry

    def end(
        self, entry: Entry, outcome: str, *, rule: str = "", code: str = "", facts: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        """Record how a call ended; return number and hash of the record, which is soon safe, even if this process
        crashes.

        ``outcome``: ok, tool_error, invalid, denied, limited, timeout, cancelled, crash or lost (unknown). Never
        raises.
        """
        record: dict[str, Any] = self._masked(facts or {})
        record |= {"call": entry.call_id, "start": entry.seq, "tool": entry.tool, "outcome": outcome}
        record |= {"us": (time.monotonic_ns() - entry.began) // 1000, "rule": rule or None, "code": code or None}
        self._append("tool.end", record)
        self._unfinished.pop(entry.seq, None)
        self._sync_soon()
        return self.head

    def event(self, event: str, principal: Principal | None = None, **facts: Any) -> None:
        """Record an event that is not a call: ``session.create``, ``net.deny``, ``policy.change`` … Never raises."""
        self._append(event, self._masked(facts) | ({"actor": self._actor(principal, "")} if principal else {}))
        self._sync_soon()

    def close(self) -> None:
        """Sign and sync the log, and allow another writer. A second call has no effect."""
        if self._closed:
            return
        self._closed = True
        for timer in (self._sync_timer, self._checkpoint_timer):
            if timer:
                timer.cancel()
        self._syncs.put(None)
        if self._unsigned:
            self._checkpoint()
        self._writer.close()

    def _append(self, event: str, facts: Mapping[str, Any]) -> int:
        if self.waiting > 2 * WAITING_BYTES:
            self._writer.flush()
        if self.waiting > 2 * WAITING_BYTES:
            self._lost += 1
            return 0
        if self._lost and event != "audit.lost":
            lost = self._lost
            self._lost = 0
            self._append("audit.lost", {"records": lost})
        if self._unsigned >= CHECKPOINT_RECORDS - 1 and event != "audit.checkpoint":
            self._checkpoint()
        record = {**facts, "v": 1, "seq": self._seq + 1, "prev": self._head, "event": event}
        record |= {"ts": time.time_ns() // 1000, "mono": time.monotonic_ns() // 1000}
        line, self._head = seal(record)
        self._seq += 1
        self._unsigned += 1
        self._writer.write(line)
        self.appended()
        return self._seq

    def _checkpoint(self) -> None:
        """Sign the newest record's hash, and send it to the system's log, which others store."""
        seq, head = self.head
        signature = self._signature("audit.checkpoint", seq, head)
        begun = [[number, *call] for number, call in self._unfinished.items()] or None
        if not self._append("audit.checkpoint", {"size": seq, "root": head, "begun": begun, **signature}):
            return
        self._unsigned = 0
        if self._syslog:
            message = f"<{_AUTHPRIV_INFO}>ai-session[{os.getpid()}]: audit {seq}:{head} key {self._signer.public}"
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
                out.sendto(message.encode(), str(self._syslog))

    def _signature(self, event: str, size: int, root: str) -> dict[str, str]:
        return {"key": self._signer.public, "sig": self._signer.sign(statement(event, size, root))}

    async def _wait_synced(self) -> None:
        """Wait until what is written now is on the disk, or could not be; concurrent callers share a sync."""
        if self._quick and len(self._unfinished) == 1 and not self._syncing and not self._closed:
            self._sync_here()  # no other call begins that could share it
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if not self._syncing and not self._closed:
            if self._quick:
                self._syncing = True
                asyncio.get_running_loop().call_soon(self._sync_here)
            else:
                self._start_sync()
        if not self._closed:
            await waiter

    def _start_sync(self) -> None:
        """Sync in a dedicated thread: a slow disk may take seconds, and an executor would add 30 µs each time."""
        covered = self._waiters
        self._waiters = []
        self._syncing = True
        if self._thread.ident is None:
            self._thread.start()
        self._syncs.put((asyncio.get_running_loop(), self._writer.unsynced, covered))

    def _sync_here(self) -> None:
        """Sync on the loop if the disk was quick the last time: a thread switch takes as long as the disk itself."""
        covered = self._waiters
        self._waiters = []
        count = self._writer.unsynced
        self._synced(count, "" if self._closed else self._timed_sync(), covered)

    def _timed_sync(self) -> str:
        began = time.perf_counter()
        problem = self._writer.sync()
        self._quick = time.perf_counter() - began < QUICK_SECONDS
        return problem

    def _sync_in_thread(self) -> None:
        take_short_turns()
        while sync := self._syncs.get():
            loop, count, covered = sync
            problem = self._timed_sync()
            with suppress(RuntimeError):  # the loop has ended, and with it those who waited
                loop.call_soon_threadsafe(self._synced, count, problem, covered)

    def _synced(self, count: int, problem: str, covered: list[asyncio.Future[None]]) -> None:
        self._syncing = False
        for waiter in covered if not self._closed else (*covered, *self._waiters):
            if not waiter.done():
                waiter.set_result(None)
        if self._closed:
            return  # close() has synced everything
        self._writer.synced(count, problem)
        if not problem and self._writer.size >= self._segment_bytes:
            self._rotate()
        if self._waiters:
            self._start_sync()

    def _rotate(self) -> None:
        self._checkpoint()
        try:
            self._writer.rotate()  # blocks for the disk, once in a hundred thousand calls
        except OSError:
            return  # the old segment remains in use until the next call
        self._retention_due = True
        self._append("audit.segment", {"segment": self._writer.number, **_machine()})

    def _sync_soon(self) -> None:
        if self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # without a loop, close() does it
        if self._sync_timer is None:
            self._sync_timer = loop.call_later(SYNC_SECONDS, self._sync_now)
        if self._checkpoint_timer is None and self._unsigned:
            self._checkpoint_timer = loop.call_later(CHECKPOINT_SECONDS, self._checkpoint_now)

    def _sync_now(self) -> None:
        self._sync_timer = None
        if self._retention_due:
            self._expire()
        if not self._syncing and self._writer.unsynced:
            self._start_sync()

    def _expire(self) -> None:
        """Remove segments beyond the retention time; a signed record of them remains."""
        self._retention_due = False
        oldest = time.time() - self._retain_days * _DAY
        expired: list[Path] = []
        last: dict[str, Any] = {}
        for path in segments(self._writer.directory)[:-1]:
            newest = read_end(path).records if path.stat().st_mtime < oldest else []
            if not newest or newest[-1]["ts"] > oldest * 1e6:
                break
            expired.append(path)
            last = newest[-1]
        if not expired:
            return
        facts = {"size": last["seq"], "root": last["hash"], "files": [path.name for path in expired]}
        self._append("audit.tombstone", facts | self._signature("audit.tombstone", last["seq"], last["hash"]))
        if not self._writer.waiting and not self._writer.sync():
            self._writer.remove(expired)

    def _checkpoint_now(self) -> None:
        self._checkpoint_timer = None
        if self._unsigned:
            self._checkpoint()
            self._sync_soon()

    def _shape(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            if name in PLAIN and len(value) <= 200:
                return self._mask(value)
            raw = value.encode("utf-8", "surrogatepass")
            facts: dict[str, Any] = {"chars": len(value)}
            if name == "command":
                facts |= {"text": self._mask(value), "sha256": hashlib.sha256(raw).hexdigest()}
            elif len(value) > GUESSABLE_CHARS:
                facts["sha256"] = hashlib.sha256(raw).hexdigest()[:16]
            return facts
        return {"type": type(value).__name__, "items": len(value) if isinstance(value, dict | list) else 0}  # pyright: ignore[reportUnknownArgumentType]

    def _masked(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            k: self._shape(k, v) if k == "command" else self._mask(v) if k in FREE_TEXT and isinstance(v, str) else v
            for k, v in facts.items()
        }

    def _actor(self, principal: Principal, agent: str) -> dict[str, Any]:
        claims = {"client": self._mask(principal.client)[:200] or None, "agent": self._mask(agent)[:200] or None}
        subject = {"subject": self._mask(principal.subject)[:200]} if principal.subject else {}
        return {"kind": principal.kind, "uid": principal.uid, "pid": principal.pid, **subject, **claims}

    def _mask(self, text: str) -> str:
        if not text:
            return ""
        try:
            masked = self._redact(text[:MASKED_CHARS])
        except Exception:
            return "(could not be masked)"  # only omitting the text is safe
        # The end of what was masked may be half a secret, which no pattern recognizes.
        known = len(masked) - (TEXT_CHARS if len(text) > MASKED_CHARS else 0)
        return masked[: max(0, min(TEXT_CHARS, known))]


def _machine() -> dict[str, str]:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return {"host": os.uname().nodename, "boot": boot}
