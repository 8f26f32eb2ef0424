"""The files of the audit log: what a crash leaves is set aside and kept, what somebody did is not taken for a crash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_session.audit.chain import GENESIS, Anchor, Report, seal
from ai_session.audit.files import RESERVE_BYTES, Writer, last_lines, lines, read_end, records, segments, verify
from ai_session.audit.keys import check, public_key
from ai_session.audit.log import AuditLog
from tests.conftest import BY_CHANCE

ROOT = Path(__file__).parents[4]
SMALL_DISK = """
import asyncio, os, sys
from pathlib import Path
from ai_session.audit.log import AuditLog
from ai_session.errors import StorageFull
from ai_session.models import Effect, Principal
me, home = Principal("person", uid=0), Path(sys.argv[1])
async def main():
    audit = AuditLog(home / "audit")
    audit.end(await audit.begin("before", me, "sample", {}), "ok")
    fd = os.open(home / "fill", os.O_CREAT | os.O_WRONLY)
    try:
        while os.write(fd, bytes(65536)): pass
    except OSError: os.close(fd)
    calls = 0
    while audit.waiting == 0:
        entry = await audit.begin(f"full{calls}", me, "sample", {"name": "n" * 200})
        audit.require_room(Effect.READ)
        audit.end(entry, "ok")
        calls += 1
    try: audit.require_room(Effect.EXECUTE)
    except StorageFull as error: print(error.message)
    print(calls)
    os.unlink(home / "fill")
    audit.end(await audit.begin("after", me, "sample", {}), "ok")
    audit.require_room(Effect.EXECUTE)
    audit.close()
    print(*audit.head)
asyncio.run(main())
"""


def test_a_sync_that_comes_after_the_end_says_so(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "audit")
    writer.close()
    assert writer.sync() == "closed"


def judged(directory: Path, *anchors: tuple[int, str]) -> Report:
    key = public_key(directory.parent / "audit.key")
    return verify(directory, check, key=key, anchors=[Anchor(*anchor) for anchor in anchors])


def events(directory: Path) -> list[str]:
    return [record["event"] for record in records(lines(directory))]


@pytest.fixture
def crashed(home: Path) -> Path:
    """What a killed process leaves: a log that nobody closed."""
    audit = AuditLog(home / "running" / "audit")
    for number in range(100):
        audit.event("note", number=number)
    shutil.copytree(home / "running", home / "killed")
    audit.close()
    return home / "killed" / "audit"


TEARS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: data,
    "no newline": lambda data: data[:-1],
    "half a record": lambda data: data[:-40],
    "a byte of a record": lambda data: data + b"{",
    "zeros": lambda data: data + bytes(5000),
    "half a record and zeros": lambda data: data[:-40] + bytes(4096),
    "everything but half the first record": lambda data: data[:40],
    "everything": lambda data: b"",
}


@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)
def test_a_torn_tail_is_no_alarm_and_is_kept(crashed: Path, tear: Callable[[bytes], bytes]) -> None:
    (path,) = segments(crashed)
    data = tear(path.read_bytes())
    path.write_bytes(data)
    torn = data.rpartition(b"\n")[2]
    before = judged(crashed)
    assert (before.problems, before.torn_bytes) == ([], len(torn))

    audit = AuditLog(crashed)
    audit.event("note")
    audit.close()
    report = judged(crashed, audit.head)
    assert (report.problems, report.torn_bytes, report.recoveries) == ([], 0, bool(torn))
    assert path.read_bytes().startswith(data.removesuffix(torn))
    if torn:
        (kept,) = crashed.glob("*.torn.*")
        (recovery,) = (r for r in records(lines(crashed)) if r["event"] == "audit.recover")
        assert kept.read_bytes() == torn
        assert kept.stat().st_mode & 0o777 == 0o600
        assert recovery["file"] == kept.name == f"{path.name}.torn.1"
        assert (recovery["bytes"], recovery["sha256"]) == (len(torn), hashlib.sha256(torn).hexdigest())


def test_each_torn_tail_has_a_file_of_its_own(crashed: Path) -> None:
    for number in range(1, 4):
        (path,) = segments(crashed)
        with path.open("ab") as file:
            file.write(b"torn" * number)
        AuditLog(crashed).close()
        assert (crashed / f"{path.name}.torn.{number}").read_bytes() == b"torn" * number
    assert judged(crashed).problems == []
    assert judged(crashed).recoveries == 3


@settings(suppress_health_check=[*BY_CHANCE, HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.data())
def test_a_cut_anywhere_is_recovered_from(crashed: Path, data: st.DataObject) -> None:
    shutil.rmtree(crashed.parent / "cut", ignore_errors=True)
    copy = Path(shutil.copytree(crashed, crashed.parent / "cut"))
    (path,) = segments(copy)
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
    assert judged(copy).problems == []
    AuditLog(copy).close()
    assert judged(copy).problems == []


def test_a_changed_record_at_the_end_is_no_torn_tail(crashed: Path) -> None:
    (path,) = segments(crashed)
    path.write_bytes(path.read_bytes()[:-200].rpartition(b"\n")[0] + b"changed\n")
    assert judged(crashed).broken > 0
    audit = AuditLog(crashed)
    audit.close()
    assert judged(crashed, audit.head).broken > 0
    assert b"changed\n" in path.read_bytes()


def test_however_often_it_is_killed_there_are_signatures(home: Path) -> None:
    directory = home / "0" / "audit"
    for number in range(30):
        audit = AuditLog(directory)
        for _ in range(7):
            audit.event("note")
        shutil.copytree(directory.parent, home / f"{number + 1}")
        audit.close()
        directory = home / f"{number + 1}" / "audit"
    report = judged(directory)
    assert report.problems == []
    assert report.checkpoints >= 3


def test_a_new_segment_without_its_first_record_is_begun_again(crashed: Path) -> None:
    (crashed / "audit-000002.jsonl").write_bytes(b"")
    assert judged(crashed).problems == []
    audit = AuditLog(crashed)
    audit.close()
    assert judged(crashed, audit.head).problems == []
    (first, *_) = records(lines_of(crashed / "audit-000002.jsonl"))
    assert (first["event"], first["segment"]) == ("audit.segment", 2)


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_what_could_not_be_made_safe_is_written_anew(home: Path) -> None:
    """After a failed sync the kernel takes lost pages for clean, so a second sync would succeed and prove nothing."""
    writer = Writer(home / "audit")
    first, head = seal({"seq": 1, "prev": GENESIS})
    second, head = seal({"seq": 2, "prev": head})
    third, _ = seal({"seq": 3, "prev": head})
    writer.write(first)
    writer.synced(writer.unsynced, writer.sync())
    writer.write(second)
    count = writer.unsynced
    writer.write(third)
    writer.synced(count, "Input/output error")
    assert (writer.problem, bytes(writer.waiting), writer.unsynced) == ("Input/output error", second + third, 0)
    writer.flush()
    assert writer.path.read_bytes() == first + second + third
    assert writer.problem, "only a sync that succeeds ends it"
    writer.synced(writer.unsynced, writer.sync())
    assert (writer.problem, writer.unsynced) == ("", 0)
    writer.close()
    assert writer.path.read_bytes() == first + second + third


def test_room_is_kept_beyond_the_end_and_given_back(home: Path) -> None:
    writer = Writer(home / "audit")
    assert writer.path.stat().st_size == 0
    assert writer.path.stat().st_blocks * 512 >= RESERVE_BYTES
    while writer.size < RESERVE_BYTES:
        writer.write(b"x" * 9999 + b"\n")
        assert writer.reserve() == ""
        assert writer.path.stat().st_blocks * 512 >= writer.size + RESERVE_BYTES // 2
    writer.close()
    assert writer.path.stat().st_blocks * 512 < RESERVE_BYTES * 3 // 2


def test_on_a_full_disk_reading_and_closing_are_still_recorded(home: Path) -> None:
    mount = 'mount -t tmpfs -o size=4m,mode=700 none "$1" && "$2" -c "$3" "$1" && cp -a "$1" "$4"'
    (home / "small").mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-ec", mount, "sh"]
    given = [str(home / "small"), sys.executable, SMALL_DISK, str(home / "kept")]
    ran = subprocess.run(
        [*command, *given], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    problem, calls, head = ran.stdout.splitlines()
    assert problem == "the audit log cannot be written: No space left on device"
    assert int(calls) > RESERVE_BYTES // 2 // 1500
    seq, digest = head.split()
    report = judged(home / "kept" / "audit", (int(seq), digest))
    assert (report.problems, report.open_calls, report.calls) == ([], 0, int(calls) + 2)


def test_the_end_of_a_segment_is_read_no_further_than_the_newest_signature(crashed: Path) -> None:
    (path,) = segments(crashed)
    end = read_end(path)
    assert (end.size, end.torn) == (path.stat().st_size, b"")
    assert end.records[-1]["number"] == 99
    assert any(record["event"] == "audit.checkpoint" for record in end.records)
    with path.open("ab") as file:
        file.write(b"\xff" * 300_000)
    assert read_end(path).records[-1]["number"] == 99
    assert len(read_end(path).torn) == 300_000


def test_the_newest_lines_come_from_several_segments(home: Path) -> None:
    (home / "audit").mkdir()
    for number in range(1, 4):
        (home / "audit" / f"audit-00000{number}.jsonl").write_bytes(b"%d a\n%d b\n" % (number, number))
    (home / "audit" / "audit-000003.jsonl.torn.1").write_bytes(b"torn\n")
    assert last_lines(home / "audit", 3) == [b"2 b\n", b"3 a\n", b"3 b\n"]
    assert len(last_lines(home / "audit", 100)) == 6
