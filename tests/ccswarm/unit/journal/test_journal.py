"""The journal: what is appended is read back, and what a crash left is told of and stays where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ccswarm.errors import ConfigInvalid, JournalBroken, OperatorError
from ccswarm.journal.chain import GENESIS, MOST_ITEMS, TEXT_CHARS, is_torn, parse_line, plain, seal
from ccswarm.journal.files import end_of
from ccswarm.journal.writer import MOST_PENDING, Journal, Record, read, verify
from tests.ccswarm.support.journals import directory, written

ROOT = Path(__file__).parents[4]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)
WRITES_FOREVER = """
import sys
from pathlib import Path
from ccswarm.journal.writer import Journal
journal, number = Journal(Path(sys.argv[1]), "w1"), 0
while True:
    journal.append("note", number=number, text="x" * (number * 7919 % 3000))
    print(number, flush=True)
    number += 1
"""
LITTLE_ROOM = """
import resource, sys
from pathlib import Path
from ccswarm.errors import StorageFull
from ccswarm.journal.writer import MOST_PENDING, Journal
journal = Journal(Path(sys.argv[1]), "w1")
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, most))
count = 0
try:
    while True:
        journal.append("before", number=count, text="x" * 100)
        count += 1
except StorageFull as error:
    print(error.message)
for number in range(count, count + MOST_PENDING + 3):
    journal.note("call.end", number=number)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
print(journal.append("after", number=count + MOST_PENDING), *journal.head)
journal.close()
"""


def numbers(where: Path) -> list[int]:
    return [record.facts["number"] for record in read(where) if not record.event.startswith("journal.")]


def program(text: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", text, *arguments]


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "w1")
    assert [journal.append("call.begin", run="r1", event="a fact"), journal.append("x", sync=True)] == [2, 3]
    assert journal.head[0] == 3
    journal.close()
    journal.close()
    first, begin, bare, last = read(tmp_path / "journal")
    assert [first.event, bare.event, last.event] == ["journal.open", "x", "journal.close"]
    assert (begin.worker, begin.seq, begin.run_id) == ("w1", 2, "r1")
    assert dict(begin.facts) == {"run": "r1", "event": "a fact"}
    assert first.facts["pid"] == os.getpid()


def test_nobody_else_may_look(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir(mode=0o755)
    file = written(tmp_path / "journal")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@given(st.dictionaries(st.text(), ANYTHING, max_size=6), st.text())
def test_any_facts_are_read_back(facts: dict[str, Any], event: str) -> None:
    line, digest = seal(Record("w1", 7, 1.5, event, facts), GENESIS)
    link = parse_line(line)
    assert link
    assert (link.digest, link.prev) == (digest, GENESIS)
    assert link.record == Record("w1", 7, 1.5, str(plain(event)), plain(facts))
    assert plain(link.record.facts) == link.record.facts
    assert line.count(b"\n") == 1


def test_what_is_too_long_for_a_record_is_cut() -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = [deep]
    assert len(plain("x" * 10_000)) == TEXT_CHARS
    assert len(plain(list(range(1000)))) == MOST_ITEMS
    assert plain({"a": 10**5000, 10**5000: float("nan"), "b": b"x"}) == {"a": hex(10**5000)[:64]} | {
        hex(10**5000)[:64]: "nan",
        "b": "(bytes)",
    }
    assert str(plain(deep)).count("[") < 10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=4))
@example([0.999, 0.999])
def test_every_cut_is_reported_and_nothing_before_it_is_lost(cuts: list[float]) -> None:
    with directory() as where:
        file = written(where, count=3)
        for cut in cuts:
            whole = file.read_bytes()
            left = whole[: round(len(whole) * cut)]
            file.write_bytes(left)
            sound = [link for line in left.splitlines() if (link := parse_line(line + b"\n"))]
            torn = end_of(file).left.removesuffix(b"\n")
            assert verify(where).sound
            Journal(where, "w1").close()
            assert file.read_bytes().startswith(left)
            after = list(read(where))
            assert after[: len(sound)] == [link.record for link in sound]
            reported = [] if not torn else [("journal.recover", len(torn))]
            assert [(r.event, r.facts.get("bytes")) for r in after[len(sound) :]] == [
                *reported,
                ("journal.open", None),
                ("journal.close", None),
            ]
            report = verify(where)
            assert report.problems == []
            assert report.unclosed == []


def test_a_line_that_only_lacks_its_newline_is_a_record(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes()[:-1])
    Journal(tmp_path, "w1").close()
    report = verify(tmp_path)
    assert (report.sound, report.recoveries, report.records) == (True, 0, 10)


def test_changed_lines_are_not_taken_for_torn_ones(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"journal.close", b"journal.clown"))
    Journal(tmp_path, "w1").close()
    report = verify(tmp_path)
    assert (report.sound, report.recoveries) == (False, 0)
    assert not is_torn(b"")
    assert not is_torn(b'{"event"\n{"event":"other')
    assert is_torn(b'{"event"\n{"event":"journal.re')


@pytest.mark.parametrize("lines", [pytest.param(3, marks=pytest.mark.torture), 40])
def test_a_killed_writer_loses_nothing_it_acknowledged(tmp_path: Path, lines: int) -> None:
    for generation in range(3):
        process = subprocess.Popen(program(WRITES_FOREVER, str(tmp_path)), stdout=subprocess.PIPE, cwd=ROOT)
        with process:
            assert process.stdout
            for _ in range(lines):
                assert process.stdout.readline()
            process.kill()
            acknowledged = [int(line) for line in process.stdout if line.endswith(b"\n")]
        most = acknowledged[-1] if acknowledged else lines - 1
        mine = numbers(tmp_path)
        begins = [position for position, number in enumerate(mine) if number == 0]
        assert len(begins) == generation + 1
        assert mine[begins[-1] :] == list(range(len(mine) - begins[-1]))
        assert mine[-1] >= most
    report = verify(tmp_path)
    assert (report.problems, report.unclosed) == ([], ["w1"])


def test_a_full_disk_is_said_and_what_was_kept_is_written_later(tmp_path: Path) -> None:
    done = subprocess.run(program(LITTLE_ROOM, str(tmp_path)), capture_output=True, text=True, cwd=ROOT, check=True)
    said, last = done.stdout.splitlines()
    assert "cannot be written" in said or "full" in said
    mine = numbers(tmp_path)
    assert mine == list(range(len(mine)))
    *_, lost, _, _ = records = list(read(tmp_path))
    events = [record.event for record in records]
    ends = ["call.end"] * MOST_PENDING
    assert events[events.index("journal.recover") :] == [
        "journal.recover",
        *ends,
        "journal.lost",
        "after",
        "journal.close",
    ]
    assert lost.facts == {"records": 3}
    report = verify(tmp_path)
    assert (report.problems, report.recoveries) == ([], 1)
    assert last.split()[0] == str(report.records - 1)


def test_a_worker_has_one_writer(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "w1")
    with pytest.raises(JournalBroken, match="another process writes the journal of worker w1"):
        Journal(tmp_path, "w1")
    Journal(tmp_path, "w2").close()
    journal.close()
    Journal(tmp_path, "w1").close()
    with pytest.raises(JournalBroken, match="closed"):
        journal.append("late")
    journal.note("late")
    assert verify(tmp_path).sound


@pytest.mark.parametrize("name", ["", ".", "a/b", "../x", "-x", "ä", "x" * 200, "a\n"])
def test_a_worker_id_is_a_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigInvalid, match="is not a valid worker name"):
        Journal(tmp_path, name)


def test_a_place_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="cannot be written"):
        Journal(tmp_path / "file", "w1")
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/w1.jsonl").symlink_to(tmp_path / "file")
    with pytest.raises(JournalBroken, match="cannot be written"):
        Journal(tmp_path / "journal", "w1")


def test_threads_may_share_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "w1")

    def append(number: int) -> int:
        return journal.append("note", number=number)

    with ThreadPoolExecutor(8) as pool:
        given_numbers = list(pool.map(append, range(400)))
    journal.close()
    assert sorted(given_numbers) == list(range(2, 402))
    assert sorted(numbers(tmp_path)) == list(range(400))
    assert verify(tmp_path).sound


def test_workers_are_read_as_one_in_the_order_of_time(tmp_path: Path) -> None:
    journals = [Journal(tmp_path, f"w{number}") for number in range(5)]
    for number in range(100):
        journals[number * 7 % 5].append("note", number=number, run=f"r{number % 2}")
    for journal in journals:
        journal.close()
    times = [record.at for record in read(tmp_path)]
    assert times == sorted(times)
    one_run = list(read(tmp_path, "r1"))
    assert len(one_run) == 50
    assert {record.run_id for record in one_run} == {"r1"}
    for worker in range(5):
        sequence = [record.seq for record in read(tmp_path) if record.worker == f"w{worker}"]
        assert sequence == list(range(1, 23))
    assert list(read(tmp_path / "nowhere")) == []


def test_few_files_are_open_at_once(tmp_path: Path) -> None:
    for number in range(40):
        written(tmp_path, f"w{number}", count=1)
    mine = Path("/proc/self/fd")
    held = len(list(mine.iterdir()))
    assert max(len(list(mine.iterdir())) - held for _ in read(tmp_path)) <= 2


def test_time_never_goes_back_in_a_file(tmp_path: Path) -> None:
    line, _ = seal(Record("w1", 1, 9e9, "journal.open", {}), GENESIS)
    (tmp_path / "w1.jsonl").write_bytes(line)
    Journal(tmp_path, "w1").close()
    assert [record.at for record in read(tmp_path)] == [9e9] * 3
    assert verify(tmp_path).sound


def test_the_end_is_found_behind_a_long_tail(tmp_path: Path) -> None:
    file = written(tmp_path)
    with file.open("ab") as more:
        more.write(b"x" * 300_000)
    end = end_of(file)
    assert end.last
    assert (end.last.record.event, len(end.left), end.terminated) == ("journal.close", 300_000, False)
