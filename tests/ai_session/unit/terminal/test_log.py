"""The output log: offsets that stay true through kills, full disks, retention and files cut by others."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.errors import OutputExpired
from ai_session.terminal.log import (
    FOLLOW_BYTES,
    MEMORY_BYTES,
    READ_BYTES,
    RELEASE_BYTES,
    FollowedLog,
    MappedLog,
    OutputLog,
    Source,
)
from tests.support.bounds import BOUND_SECONDS, pause

READER = """
import os, sys
from pathlib import Path
from ai_session.terminal.log import MappedLog
log, fd = MappedLog(Path(sys.argv[1])), int(sys.argv[2])
try:
    while log.fill(lambda room: os.readv(fd, [room])):
        pass
except OSError:  # EIO: the other side has closed the terminal
    pass
"""

FULL_DISK = """
import json, os, re, resource, sys
from pathlib import Path
from ai_session.terminal.log import MappedLog
folder, how = Path(sys.argv[1]), sys.argv[2]
ballast = folder / "ballast"
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
else:
    ballast.write_bytes(bytes(300_000))
log = MappedLog(folder / "log")
written = bytearray()

def put(count):
    for _ in range(count):
        piece = b"".join(b"%09d\\n" % (len(written) // 10 + i) for i in range(5000))
        written.extend(piece)
        def source(room):
            room[: len(piece)] = piece
            return len(piece)
        assert log.fill(source) == piece

def check():
    data = log.read(0, log.end)
    kept = (part.span() for part in re.finditer(rb"[^\\0]+", data))
    exact = all(data[start:end] == written[start:end] for start, end in kept)
    return {"end": log.end, "length": len(data), "nul": data.count(0), "exact": exact,
            "lost": log.lost_bytes(0, log.end), "newest": data[-100_000:] == written[-100_000:]}

facts = {}
put(16); facts["full"] = check()
put(60); facts["flooded"] = check()
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
else:
    ballast.unlink(); os.system(f"mount -o remount,size=64m {folder}")
put(1); facts["room"] = check()
before = log.end
log.close()
log = MappedLog(folder / "log")
facts["reopened"] = check()
put(2); facts["later"] = check()
print(json.dumps(facts))
"""


def giving(*pieces: bytes) -> Source:
    """A source that hands out ``pieces`` one by one and then nothing."""
    queue = list(pieces)

    def source(room: memoryview) -> int:
        if not queue:
            return 0
        piece = queue.pop(0)
        room[: len(piece)] = piece
        return len(piece)

    return source


def put(log: OutputLog, data: bytes) -> None:
    for start in range(0, len(data), READ_BYTES):
        assert log.fill(giving(data[start : start + READ_BYTES])) == data[start : start + READ_BYTES]


def numbers(count: int, first: int = 0) -> bytes:
    return b"".join(b"%09d\n" % number for number in range(first, first + count))


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_bytes_are_read_back_by_offset(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    assert log.fill(giving(b"one")) == b"one"
    assert log.fill(giving(b"\0\xfftwo")) == b"\0\xfftwo"
    assert log.fill(giving()) == b""
    assert (log.first, log.end) == (0, 8)
    assert log.read(2, 6) == b"e\0\xfft"
    assert log.read(5, 999) == b"two"
    assert log.read(8, 999) == log.read(5, 5) == b""
    assert log.lost_bytes(0, 8) == 0


@given(st.lists(st.binary(max_size=200), max_size=20), st.integers(0, 4000), st.integers(0, 4000))
def test_any_slice_is_what_was_put_in(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], a: int, b: int
) -> None:
    log = MappedLog(tmp_path_factory.mktemp("slices") / "log")
    for piece in pieces:
        log.fill(giving(piece))
    assert log.read(a, b) == b"".join(pieces)[a:b]
    log.close()


def test_a_log_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    put(log, numbers(30_000))
    log.close()
    log.close()
    again = MappedLog(tmp_path / "log")
    put(again, numbers(30_000, first=30_000))
    assert again.read(0, again.end) == numbers(60_000)
    assert again.lost_bytes(0, again.end) == 0


def test_a_chunk_that_was_stored_but_not_committed_is_found(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    put(log, b"committed ")
    fd = os.open(tmp_path / "log", os.O_RDWR)
    os.pwrite(fd, b"stored\0\0x" + b"y" * 60_000, log.end)
    os.close(fd)
    log.close()
    again = MappedLog(tmp_path / "log")
    assert again.read(0, again.end) == b"committed stored\0\0x" + b"y" * 60_000
    assert int.from_bytes((tmp_path / "log.end").read_bytes(), "little") == again.end


def test_space_is_reserved_before_output_takes_it(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    for size in (1, READ_BYTES, 3_000_000):
        put(log, b"x" * size)
        assert used_bytes(tmp_path / "log") >= log.end
        assert (tmp_path / "log").stat().st_size <= log.end + 2 * RELEASE_BYTES


def test_retention_releases_space_and_keeps_offsets(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log", retain_bytes=2 << 20)
    data = numbers(1_000_000)
    put(log, data)
    assert log.end == len(data)
    assert 2 << 20 <= log.end - log.first < (2 << 20) + RELEASE_BYTES + READ_BYTES
    assert used_bytes(tmp_path / "log") < (2 << 20) + 3 * RELEASE_BYTES
    assert log.read(log.first, log.end) == data[log.first :]
    with pytest.raises(OutputExpired, match=f"before offset {log.first}") as caught:
        log.read(log.first - 1, log.end)
    assert str(log.first) in caught.value.suggestion
    log.close()
    again = MappedLog(tmp_path / "log", retain_bytes=2 << 20)
    assert (again.first, again.end, again.lost_bytes(0, again.end)) == (log.first, log.end, 0)


def test_a_file_cut_by_somebody_else_is_survived(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    put(log, b"a" * 200_000)
    os.truncate(tmp_path / "log", 0)
    end, master = pipe_with(b"after")
    assert log.fill(lambda room: os.readv(end, [room])) == b"after"
    os.close(master)
    os.close(end)
    assert log.read(200_000, log.end) == b"after"
    assert log.lost_bytes(0, log.end) == 200_000
    log.close()
    assert MappedLog(tmp_path / "log").read(200_000, 200_005) == b"after"


def pipe_with(data: bytes) -> tuple[int, int]:
    end, start = os.pipe()
    os.write(start, data)
    return end, start


def test_a_source_that_fails_is_the_callers_affair(tmp_path: Path) -> None:
    log = MappedLog(tmp_path / "log")
    with pytest.raises(OSError, match="Bad file"):
        log.fill(lambda room: os.readv(-1, [room]))
    put(log, b"fine")
    assert log.read(0, 4) == b"fine"


FULL_DISKS = ["limit", "tmpfs"] if os.geteuid() == 0 else ["limit"]


@pytest.mark.parametrize("how", FULL_DISKS)
def test_a_full_disk_loses_only_what_memory_cannot_keep(tmp_path: Path, how: str) -> None:
    argv = [sys.executable, "-Sc", FULL_DISK, str(tmp_path), how]
    if how == "tmpfs":
        argv = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=1m none {tmp_path} && exec "$@"', "sh", *argv]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=BOUND_SECONDS, env={**os.environ, "PYTHONPATH": "."}
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert all(fact["exact"] and fact["newest"] and fact["end"] == fact["length"] for fact in facts.values()), facts
    assert facts["full"]["lost"] == facts["full"]["nul"] == 0
    for name in ("flooded", "room"):
        assert facts[name]["lost"] == facts[name]["nul"] > 0
    assert facts["flooded"]["end"] - facts["flooded"]["lost"] > MEMORY_BYTES
    # Only whole pages of a file can be missing, and space that was reserved but not used is not missing.
    for name in ("reopened", "later"):
        assert facts[name]["nul"] == facts["room"]["nul"]
        assert facts["room"]["lost"] - READ_BYTES - 8192 <= facts[name]["lost"] <= facts["room"]["lost"]


def committed(path: Path) -> int:
    return int.from_bytes(path.read_bytes(), "little") if path.exists() else 0


@pytest.mark.parametrize("kills", [2, pytest.param(30, marks=pytest.mark.torture)])
def test_a_killed_reader_loses_nothing(tmp_path: Path, kills: int) -> None:
    path, text = tmp_path / "log", numbers(kills * 35_000)
    (tmp_path / "text").write_bytes(text)
    master, slave = pty.openpty()
    child = subprocess.Popen(["cat", str(tmp_path / "text")], stdout=slave, stdin=slave, stderr=slave)
    os.close(slave)
    dice = random.Random(7)
    argv = [sys.executable, "-Sc", READER, str(path), str(master)]
    for _ in range(kills):
        reader = subprocess.Popen(argv, pass_fds=[master], env={**os.environ, "PYTHONPATH": "."})
        wanted = committed(tmp_path / "log.end") + dice.randrange(1, 300_000)
        while committed(tmp_path / "log.end") < wanted and reader.poll() is None:
            pause()
        assert reader.poll() is None, "the reader ended before it was killed"
        reader.kill()
        reader.wait()
    assert (
        subprocess.run(argv, pass_fds=[master], env={**os.environ, "PYTHONPATH": "."}, timeout=BOUND_SECONDS).returncode
        == 0
    )
    os.close(master)
    child.wait()
    log = MappedLog(path)
    assert log.read(0, log.end) == text.replace(b"\n", b"\r\n")
    assert log.lost_bytes(0, log.end) == 0


def test_following_reads_what_another_process_appends(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before")
    log = FollowedLog(path)
    assert (log.first, log.end, log.fill()) == (0, 6, b"")
    with path.open("ab") as file:
        file.write(numbers(100_000))
    taken = b""
    while chunk := log.fill():
        assert len(chunk) <= FOLLOW_BYTES
        taken += chunk
    assert taken == numbers(100_000)
    assert log.read(0, log.end) == b"before" + taken


def test_a_followed_log_need_not_be_there_yet_and_may_vanish(tmp_path: Path) -> None:
    log = FollowedLog(tmp_path / "log")
    assert log.fill() == b""
    (tmp_path / "log").write_bytes(b"here")
    assert log.fill() == b"here"
    (tmp_path / "log").unlink()
    assert log.fill() == b""
    assert log.read(0, 4) == b"here"


def test_a_followed_log_that_is_cut_goes_on_with_new_offsets(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = FollowedLog(path)
    path.write_bytes(b"old output")
    assert log.fill() == b"old output"
    path.write_bytes(b"new")
    assert log.fill() == b"new"
    assert (log.first, log.end) == (10, 13)
    assert log.read(10, 13) == b"new"
    with pytest.raises(OutputExpired):
        log.read(0, 3)


def test_retention_of_a_followed_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = FollowedLog(path, retain_bytes=1 << 20)
    data = numbers(800_000)
    with path.open("ab") as file:
        for start in range(0, len(data), 100_000):
            file.write(data[start : start + 100_000])
            file.flush()
            while log.fill():
                pass
    assert log.end - log.first < (1 << 20) + RELEASE_BYTES + FOLLOW_BYTES
    assert used_bytes(path) < 4 << 20
    assert log.read(log.first, log.end) == data[log.first :]
    log.close()
    again = FollowedLog(path)
    assert (again.first, again.end) == (log.first, log.end)
