"""The audit log as the gate uses it: what is recorded, what is safe when, what happens without room."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit.chain import CHECKPOINT_RECORDS, Anchor, Report
from ai_session.audit.files import lines, records, segments, verify
from ai_session.audit.keys import check, public_key
from ai_session.audit.log import WAITING_BYTES, AuditLog
from ai_session.errors import AuditBroken, StorageFull
from ai_session.models import Effect, Principal
from tests.support.bounds import BOUND_SECONDS
from tests.support.full_disk import no_file_longer_than

ME = Principal("mcp", uid=1000, pid=7, client="test")
pytestmark = pytest.mark.anyio


def judged(directory: Path, *anchors: tuple[int, str]) -> Report:
    key = public_key(directory.parent / "audit.key")
    return verify(directory, check, key=key, anchors=[Anchor(*anchor) for anchor in anchors])


def found(directory: Path, event: str) -> list[dict[str, Any]]:
    return [record for record in records(lines(directory)) if record["event"] == event]


@pytest.fixture
def audit(home: Path) -> Iterator[AuditLog]:
    log = AuditLog(home / "audit")
    yield log
    log.close()


async def test_shapes_are_kept_and_contents_never(home: Path, audit: AuditLog) -> None:
    given = {"session_id": "build", "text": "s3cret" + 26 * "x", "stdin": "\udcff", "n": 3, "s": 0.5}
    given |= {"env": {"TOKEN": "s3cret"}, "keys": 33 * "x"}
    entry = await audit.begin("call_1", ME, "execute_command", given, agent="tester", client_call_id="7")
    audit.end(entry, "ok", rule="default", facts={"exit_code": 0, "session": "s1", "code": None})
    audit.close()
    (path,) = segments(home / "audit")
    assert b"s3cret" not in path.read_bytes()
    (start,), (end,) = found(home / "audit", "tool.start"), found(home / "audit", "tool.end")
    assert start["args"] == {
        "session_id": "build",
        "text": {"chars": 32},
        "stdin": {"chars": 1},
        "keys": {"chars": 33, "sha256": hashlib.sha256(33 * b"x").hexdigest()[:16]},
        "env": {"type": "dict", "items": 1},
        "n": 3,
        "s": "0.5",
    }
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


async def test_what_does_not_even_fit_into_memory_is_counted(home: Path, audit: AuditLog) -> None:
    with no_file_longer_than(0):
        while audit.waiting <= 2 * WAITING_BYTES:
            audit.event("net.deny", host="a" * 4000)
        before = audit.waiting
        for _ in range(10):
            audit.end(await audit.begin("call_1", ME, "sample", {}), "denied")
        assert audit.waiting == before
    audit.event("net.deny", host="b")
    audit.close()
    report = judged(home / "audit", audit.head)
    assert (report.problems, report.lost_records) == ([], 20)


@pytest.mark.parametrize("quick", [True, False])
async def test_the_begin_record_is_safe_when_begin_returns(audit: AuditLog, quick: bool) -> None:
    audit._quick = quick
    audit.event("server.start")
    assert audit._writer.unsynced > 0
    await audit.begin("call_1", ME, "sample", {})
    assert audit._writer.unsynced == 0


async def test_calls_at_once_have_one_begin_and_one_end_each(home: Path, audit: AuditLog) -> None:
    async def call(number: int) -> None:
        for turn in range(5):
            entry = await audit.begin(f"call_{number}_{turn}", ME, "sample", {})
            await asyncio.sleep(0)
            audit.end(entry, "ok")

    await asyncio.gather(*(call(number) for number in range(40)))
    audit.close()
    begins = {record["seq"]: record["call"] for record in found(home / "audit", "tool.start")}
    ends = {record["start"]: record["call"] for record in found(home / "audit", "tool.end")}
    assert begins == ends
    assert len(set(begins.values())) == 200
    assert judged(home / "audit", audit.head).problems == []


async def test_a_call_cancelled_before_it_began_has_its_end(home: Path, audit: AuditLog) -> None:
    calls = [asyncio.create_task(audit.begin(f"call_{number}", ME, "sample", {})) for number in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[2].cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    audit.end(await calls[1], "ok")
    with pytest.raises(asyncio.CancelledError):
        await calls[2]
    audit.close()
    ends = {record["call"]: record["outcome"] for record in found(home / "audit", "tool.end")}
    assert ends == {"call_0": "cancelled", "call_1": "ok", "call_2": "cancelled"}
    assert judged(home / "audit").open_calls == 0


@pytest.mark.parametrize("between", [0, CHECKPOINT_RECORDS, 3 * CHECKPOINT_RECORDS, 1000])
async def test_a_call_that_its_writer_did_not_survive_is_ended_by_the_next(home: Path, between: int) -> None:
    """Also when checkpoints and whole segments came between; 1000 records fill one, in the midst of a call."""
    audit = AuditLog(home / "audit", segment_bytes=1 << 17)
    early = await audit.begin("early", ME, "execute_command", {})
    answered = await audit.begin("answered", ME, "sample", {})
    for _ in range(between):
        audit.event("note", why="n" * 200)
    audit.end(answered, "ok")
    late = await audit.begin("late", ME, "sample", {})
    shutil.copytree(home / "audit", home / "killed/audit")
    shutil.copy(home / "audit.key", home / "killed")
    for entry in (early, late):
        audit.end(entry, "ok")
    audit.close()

    left = home / "killed/audit"
    assert judged(left).open_calls == 2
    AuditLog(left).close()
    for _ in range(2):
        ends = [
            (record["call"], record["start"], record["tool"], record["outcome"]) for record in found(left, "tool.end")
        ]
        assert ends == [
            ("answered", answered.seq, "sample", "ok"),
            ("early", early.seq, "execute_command", "lost"),
            ("late", late.seq, "sample", "lost"),
        ]
        assert (judged(left).problems, judged(left).open_calls) == ([], 0)
        AuditLog(left).close()
    assert len(segments(left)) == (2 if between == 1000 else 1)


async def test_a_writer_killed_right_after_it_began_a_segment_is_survived(home: Path) -> None:
    audit = AuditLog(home / "audit", segment_bytes=1 << 16)
    entry = await audit.begin("call_1", ME, "sample", {})
    while len(segments(home / "audit")) == 1:
        last = await audit.begin("other", ME, "sample", {"name": "n" * 200})
        audit.end(last, "ok")
    audit.close()
    os.truncate(segments(home / "audit")[1], 0)
    AuditLog(home / "audit").close()
    lost = [record["start"] for record in found(home / "audit", "tool.end") if record["outcome"] == "lost"]
    assert lost == [entry.seq, last.seq]
    assert judged(home / "audit").open_calls == 0


@pytest.mark.parametrize("quick", [True, False])
async def test_whoever_waits_while_the_log_is_closed_is_let_go(audit: AuditLog, quick: bool) -> None:
    audit._quick = quick
    waiting = [asyncio.create_task(audit.begin(f"call_{number}", ME, "sample", {})) for number in range(2)]
    await asyncio.sleep(0)
    waiting.append(asyncio.create_task(audit.begin("call_2", ME, "sample", {})))
    await asyncio.sleep(0)
    audit.close()
    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(*waiting)
        audit.end(await audit.begin("call_3", ME, "sample", {}), "ok")
    audit.close()


async def test_segments_carry_the_chain_on_and_the_old_ones_expire_with_a_signed_tombstone(home: Path) -> None:
    audit = AuditLog(home / "audit", segment_bytes=1 << 14, retain_days=365)
    seen: list[tuple[int, str]] = []
    while len(segments(home / "audit")) < 4:
        seen.append(audit.end(await audit.begin("call", ME, "sample", {"name": "n" * 200}), "ok"))
    audit.close()
    paths = segments(home / "audit")
    assert [path.name for path in paths] == [f"audit-{number:06}.jsonl" for number in range(1, 5)]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert all(path.stat().st_blocks * 512 < 1 << 19 for path in paths), "the reserve was given back"
    assert judged(home / "audit", *seen).problems == []

    audit = AuditLog(home / "audit", retain_days=0)
    seen.append(audit.end(await audit.begin("call", ME, "sample", {}), "ok"))
    async with asyncio.timeout(BOUND_SECONDS):
        while paths[0].exists():
            seen.append(audit.end(await audit.begin("call", ME, "sample", {}), "ok"))
    audit.close()
    assert segments(home / "audit") == paths[3:]
    report = judged(home / "audit", *seen)
    assert (report.problems, report.first_seq > 100) == ([], True)
    (tombstone,) = found(home / "audit", "audit.tombstone")
    assert tombstone["files"] == [path.name for path in paths[:3]]


async def test_a_segment_that_is_gone_without_a_tombstone_is_missed(home: Path) -> None:
    audit = AuditLog(home / "audit", segment_bytes=1 << 16)
    while len(segments(home / "audit")) < 4:
        audit.end(await audit.begin("call", ME, "sample", {"name": "n" * 200}), "ok")
    audit.close()
    for number in range(3):
        shutil.copytree(home / "audit", home / f"{number}")
        segments(home / f"{number}")[number].unlink()
        assert judged(home / f"{number}").broken > 0
    shutil.copytree(home / "audit", home / "3")
    segments(home / "3")[3].unlink()
    assert judged(home / "3").broken == 0
    assert judged(home / "3", audit.head).broken == 1


def test_one_writer(home: Path) -> None:
    first = AuditLog(home / "audit")
    with pytest.raises(AuditBroken, match="another process writes"):
        AuditLog(home / "audit")
    first.close()
    first.close()
    second = AuditLog(home / "audit")
    assert second.head[0] > first.head[0]
    second.close()
    assert judged(home / "audit", first.head, second.head).problems == []


async def test_events_say_what_and_who_and_their_texts_are_masked(home: Path) -> None:
    audit = AuditLog(home / "audit", redact=lambda text: text.replace("s3cret", "***"))
    audit.event("net.deny", ME, host="s3cret.example", port=443)
    audit.event("sandbox.degrade", reason="no s3cret", level="landlock")
    given = {"command": "echo s3cret", "session_id": "s3cret", "stdin": "s3cret" * 9}
    audit.end(await audit.begin("call_1", ME, "execute_command", given), "ok", facts={"cwd": "/s3cret"})
    audit.close()
    (path,) = segments(home / "audit")
    assert b"s3cret" not in path.read_bytes()
    (deny,) = found(home / "audit", "net.deny")
    assert (deny["host"], deny["port"], deny["actor"]["client"]) == ("***.example", 443, "test")
    (start,) = found(home / "audit", "tool.start")
    assert start["args"]["command"]["text"] == "echo ***"
    assert len(start["args"]["command"]["sha256"]) == 64
    assert len(start["args"]["stdin"]["sha256"]) == 16


async def test_where_masking_fails_no_text_is_recorded(home: Path) -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    audit = AuditLog(home / "audit", redact=fail)
    audit.end(await audit.begin("call_1", ME, "execute_command", {"command": "echo s3cret"}), "ok")
    audit.close()
    assert b"s3cret" not in segments(home / "audit")[0].read_bytes()


@pytest.mark.parametrize("there", [True, False])
def test_the_systems_log_gets_what_was_signed_where_there_is_one(home: Path, there: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as system:
        if there:
            system.bind(str(home / "log"))
        audit = AuditLog(home / "audit", syslog=home / "log")
        for _ in range(CHECKPOINT_RECORDS + 6):
            audit.event("note")
        audit.close()
        if there:
            _, _, text = system.recv(4096).decode().partition(": audit ")
            seq, head = text.split()[0].split(":")
            assert judged(home / "audit", (int(seq), head)).anchored_seq == int(seq) == CHECKPOINT_RECORDS - 1
    assert judged(home / "audit").checkpoints == 2


def test_the_key_stays_and_without_it_signatures_are_no_longer_the_logs(home: Path) -> None:
    AuditLog(home / "audit").close()
    key = public_key(home / "audit.key")
    AuditLog(home / "audit").close()
    assert public_key(home / "audit.key") == key
    assert judged(home / "audit").checkpoints == 2
    (home / "audit.key").unlink()
    AuditLog(home / "audit").close()
    assert any("key" in problem.what for problem in judged(home / "audit").problems)
