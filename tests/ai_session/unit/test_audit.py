"""The audit log as the gate uses it: what is recorded, what is safe when, what happens without room."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit import WAITING_BYTES, AuditLog
from ai_session.audit_chain import CHECKPOINT_RECORDS, Anchor, Report
from ai_session.audit_files import lines, records, segments, verify
from ai_session.audit_keys import check, public_key
from ai_session.errors import AuditBroken, StorageFull
from ai_session.models import Effect, Principal

ME = Principal("mcp", uid=1000, pid=7, client="test")
pytestmark = pytest.mark.anyio


def judged(directory: Path, *anchors: tuple[int, str]) -> Report:
    key = public_key(directory.parent / "audit.key")
    return verify(directory, check, key=key, anchors=[Anchor(*anchor) for anchor in anchors])


def found(directory: Path, event: str) -> list[dict[str, Any]]:
    return [record for record in records(lines(directory)) if record["event"] == event]


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Writes beyond fail with EFBIG, as those on a full disk do with ENOSPC."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def audit(home: Path) -> Iterator[AuditLog]:
    log = AuditLog(home / "audit")
    yield log
    log.close()


async def test_shapes_are_kept_and_contents_never(home: Path, audit: AuditLog) -> None:
    given = {"session_id": "build", "text": "s3cret", "stdin": "\udcff", "env": {"TOKEN": "s3cret"}, "n": 3, "s": 0.5}
    entry = await audit.begin("call_1", ME, "execute_command", given, agent="tester", client_call_id="7")
    audit.end(entry, "ok", rule="default", facts={"exit_code": 0, "session": "s1", "code": None})
    audit.close()
    (path,) = segments(home / "audit")
    assert b"s3cret" not in path.read_bytes()
    (start,), (end,) = found(home / "audit", "tool.start"), found(home / "audit", "tool.end")
    assert start["args"] == {
        "session_id": "build", "text": {"chars": 6}, "stdin": {"chars": 1},
        "env": {"type": "dict", "items": 1}, "n": 3, "s": "0.5",
    }  # fmt: skip
    assert start["actor"] == {"kind": "mcp", "uid": 1000, "pid": 7, "client": "test", "agent": "tester"}
    assert (start["call"], start["tool"], start["request"]) == ("call_1", "execute_command", "7")
    assert (end["call"], end["start"], end["outcome"], end["rule"]) == ("call_1", start["seq"], "ok", "default")
    assert (end["exit_code"], end["session"], "code" in end) == (0, "s1", False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert (home / "audit.key").stat().st_mode & 0o777 == 0o600


async def test_while_records_find_no_room_sessions_can_be_read_and_ended_and_nothing_runs(
    home: Path, audit: AuditLog
) -> None:
    audit.require_room(Effect.EXECUTE)
    with no_file_longer_than(0):
        audit.end(await audit.begin("call_1", ME, "sample", {}), "ok")
        for effect in (Effect.READ, Effect.DESTRUCTIVE):
            audit.require_room(effect)
        for effect in (Effect.EXECUTE, Effect.WRITE, Effect.NETWORK, None):
            with pytest.raises(StorageFull):
                audit.require_room(effect)
        while audit.waiting <= WAITING_BYTES:
            audit.end(await audit.begin("call_2", ME, "sample", {"name": "a" * 200}), "ok")
        with pytest.raises(StorageFull):
            audit.require_room(Effect.READ)
    audit.end(await audit.begin("call_3", ME, "sample", {}), "ok")
    audit.require_room(Effect.EXECUTE)
    audit.close()
    report = judged(home / "audit", audit.head)
    assert (report.problems, report.open_calls, report.lost_records) == ([], 0, 0)
    assert report.calls > 1000
