"""What the journal proves: whatever is done to its bytes is found, and calls are those of the server's audit log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.chain import Findings, Problem
from ccswarm.journal.chain import parse_line, seal
from ccswarm.journal.writer import Journal, Record, join, verify
from tests.ccswarm.support.journals import directory, written

Lines = list[bytes]
Change = Callable[[Lines], Lines]


def rebuilt(lines: Lines, first: int) -> Lines:
    """The same records from ``first`` on with other facts, chained anew."""
    kept, head = lines[:first], json.loads(lines[first])["prev"]
    for line in lines[first:]:
        link = parse_line(line)
        assert link
        record = Record(link.record.worker, link.record.seq, link.record.at, link.record.event, {"other": 1})
        new, head = seal(record, head)
        kept.append(new)
    return kept


FOUND: dict[str, Change] = {
    "edited": lambda lines: [lines[0], lines[1].replace(b'"number":0', b'"number":9'), *lines[2:]],
    "edited first": lambda lines: [lines[0].replace(b'"pid"', b'"pdi"'), *lines[1:]],
    "edited last": lambda lines: [*lines[:-1], lines[-1].replace(b"close", b"clown")],
    "removed": lambda lines: [*lines[:3], *lines[4:]],
    "removed first": lambda lines: lines[1:],
    "swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "repeated": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "added": lambda lines: [*lines[:3], b'{"event":"x"}\n', *lines[3:]],
    "blank": lambda lines: [*lines[:3], b"\n", *lines[3:]],
    "one rebuilt": lambda lines: [*rebuilt(lines, 3)[:4], *lines[4:]],
    "shortened": lambda lines: [*lines[:3], lines[3][:50] + b"\n", *lines[4:]],
}
FOUND_BY_HEADS: dict[str, Change] = {
    "rebuilt to the end": lambda lines: rebuilt(lines, 2),
    "cut": lambda lines: lines[:-2],
    "emptied": lambda _: [],
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_done_to_a_file_is_found(tmp_path: Path, name: str) -> None:
    file = written(tmp_path)
    assert verify(tmp_path).sound
    file.write_bytes(b"".join(FOUND[name](file.read_bytes().splitlines(keepends=True))))
    report = verify(tmp_path)
    assert not report.sound
    assert all(problem.location.startswith("w1.jsonl") for problem in report.problems)


@pytest.mark.parametrize("name", FOUND_BY_HEADS)
def test_what_a_chain_cannot_tell_is_found_by_a_head_noted_before(tmp_path: Path, name: str) -> None:
    file = written(tmp_path)
    heads = verify(tmp_path).heads
    file.write_bytes(b"".join(FOUND_BY_HEADS[name](file.read_bytes().splitlines(keepends=True))))
    assert verify(tmp_path).sound
    assert not verify(tmp_path, heads).sound
    file.unlink()
    assert verify(tmp_path, heads).problems == [Problem("w1.jsonl", "the file is missing")]


def test_a_journal_that_grew_has_the_head_noted_before(tmp_path: Path) -> None:
    written(tmp_path)
    heads = verify(tmp_path).heads
    written(tmp_path)
    report = verify(tmp_path, heads)
    assert (report.problems, report.records, report.files) == ([], 16, 1)
    assert report.heads["w1"][0] == 16


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    with directory() as where:
        file = written(where, count=2)
        heads = verify(where).heads
        text = bytearray(file.read_bytes())
        last = text.rindex(b"\n", 0, len(text) - 1) + 1
        position = data.draw(st.integers(0, len(text) - 1))
        text[position] ^= data.draw(st.integers(1, 255))
        file.write_bytes(text)
        assert not verify(where, heads).sound
        assert position >= last or not verify(where).sound


def test_files_that_changed_names_are_found(tmp_path: Path) -> None:
    one, other = written(tmp_path, "w1"), written(tmp_path, "w2")
    one.rename(tmp_path / "x")
    other.rename(one)
    (tmp_path / "x").rename(other)
    found = {problem.what for problem in verify(tmp_path).problems}
    assert found == {"it is a record of worker w1", "it is a record of worker w2"}


def test_torn_bytes_cannot_be_taken_away(tmp_path: Path) -> None:
    file = written(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    Journal(tmp_path, "w1").close()
    report = verify(tmp_path)
    torn = len(whole) - 40 - (whole.rindex(b"\n", 0, -1) + 1)
    assert (report.problems, report.torn_bytes, report.recoveries) == ([], torn, 1)
    lines = file.read_bytes().splitlines(keepends=True)
    assert b'"event":"journal.close"' in lines[7]
    changed = [lines[7].replace(b"close", b"cloSe"), b""]
    for other in changed:
        file.write_bytes(b"".join([*lines[:7], other, *lines[8:]]))
        assert not verify(tmp_path).sound
    assert [problem.what for problem in verify(tmp_path).problems] == ["it reports torn bytes that do not exist"]


def test_who_did_not_close_is_named(tmp_path: Path) -> None:
    written(tmp_path, "closed")
    journal = Journal(tmp_path, "open")
    assert verify(tmp_path).unclosed == ["open"]
    journal.close()
    assert verify(tmp_path).unclosed == []


def test_many_problems_are_counted(tmp_path: Path) -> None:
    file = written(tmp_path, count=2 * Findings.most_problems)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(reversed(lines)))
    report = verify(tmp_path)
    assert len(report.problems) == Findings.most_problems
    assert report.broken == len(lines)


class TwoLogs:
    """A journal and an audit log that agree; tests make them differ."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self.journal = Journal(where, "w1")
        self.audit: list[dict[str, Any]] = []

    def call(self, name: str, server_call: str = "", *, ended: bool = True) -> None:
        """A call as the toolbox records it, and as the server does."""
        self.journal.append("call.begin", call=f"ccall_{name}", run="r1", tool="s.t")
        self.audited(f"call_{name}", f"ccall_{name}")
        if ended:
            self.journal.append("call.end", call=f"ccall_{name}", run="r1", server_call=server_call)

    def audited(self, call: str, request: str = "", client: str = "ccswarm") -> None:
        actor = {"kind": "mcp", "client": client}
        self.audit.append({"event": "tool.start", "call": call, "request": request, "actor": actor})
        self.audit.append({"event": "tool.end", "call": call, "start": len(self.audit), "outcome": "ok"})

    def lines(self) -> list[bytes]:
        return [json.dumps(record).encode() + b"\n" for record in self.audit]


@pytest.fixture
def pair(tmp_path: Path) -> TwoLogs:
    logs = TwoLogs(tmp_path)
    for name in "abc":
        logs.call(name, f"call_{name}")
    return logs


def found(pair: TwoLogs) -> list[str]:
    pair.journal.close()
    report = join(pair.where, pair.lines())
    assert report.broken == len(report.problems)
    return [f"{problem.location}: {problem.what}" for problem in report.problems]


def test_calls_stand_once_in_each_log(pair: TwoLogs) -> None:
    pair.audited("call_x", "7", client="claude-code")
    pair.audit.append({"event": "audit.checkpoint"})
    pair.journal.append("call.refused", call="ccall_z", run="r1", code="not_granted")
    pair.journal.close()
    report = join(pair.where, pair.lines())
    assert (report.problems, report.calls, report.joined, report.refused) == ([], 3, 3, 1)
    assert (report.open, report.in_progress, report.sound) == ([], [], True)


def test_calls_without_an_answer_are_joined_by_their_own_id(pair: TwoLogs) -> None:
    pair.call("lost")
    pair.call("killed", ended=False)
    pair.call("still")
    del pair.audit[-1]
    pair.journal.append("call.begin", call="ccall_never_sent")
    pair.journal.append("call.end", call="ccall_never_sent", status="unavailable")
    pair.journal.close()
    report = join(pair.where, pair.lines())
    assert report.problems == []
    assert (report.calls, report.joined) == (7, 6)
    assert (report.open, report.in_progress) == (["ccall_killed"], ["ccall_still"])


def test_a_call_the_server_does_not_know_is_found(pair: TwoLogs) -> None:
    del pair.audit[2:4]
    assert found(pair) == ["ccall_b: the server called it call_b, whose audit log has no record of it"]


def test_a_call_the_journal_does_not_know_is_found(pair: TwoLogs) -> None:
    pair.audited("call_1", "ccall_hidden", client="something else")
    pair.audited("call_2", "", client="ccswarm 1.0")
    pair.audited("call_3", "", client="ccswarm/1.0")
    pair.audit.append({"event": "tool.start", "call": "call_4", "actor": {"agent": "ccswarm"}})
    pair.audited("call_5", "", client="ccswarmer")
    pair.audit.append({"event": "tool.start", "call": "call_6", "actor": "ccswarm"})
    unknown = "the server received this call from ccswarm, but the journal has no record of it"
    assert found(pair) == [f"call_{number}: {unknown}" for number in (1, 2, 3, 4)]


def test_a_call_sent_twice_is_found(pair: TwoLogs) -> None:
    pair.audited("call_again", "ccall_b")
    assert found(pair) == ["ccall_b: the server received it 2 times: call_b, call_again"]


def test_a_call_that_was_lost_with_its_server_may_be_asked_again(pair: TwoLogs) -> None:
    for call_id, outcome in (("call_1", "lost"), ("call_2", "ok")):
        pair.audited(call_id, "ccall_lost")
        pair.audit[-1]["outcome"] = outcome
    pair.journal.append("call.begin", call="ccall_lost")
    pair.journal.append("call.end", call="ccall_lost", status="ok", server_call="call_2")
    assert found(pair) == []
    pair.audit[-3]["outcome"] = "ok"
    assert found(pair) == ["ccall_lost: the server received it 2 times: call_1, call_2"]


def test_a_call_whose_answer_was_lost_may_be_asked_again_with_its_key(pair: TwoLogs) -> None:
    pair.audited("call_again", "ccall_b")
    pair.audit[-1]["repeated"] = True
    assert found(pair) == []


def test_missing_and_doubled_records_are_found(pair: TwoLogs) -> None:
    del pair.audit[1]
    pair.audit.append(dict(pair.audit[1]))
    pair.journal.append("call.begin", call="ccall_c")
    pair.journal.append("call.end", call="ccall_x", server_call="call_x")
    pair.call("twice", "call_twice")
    pair.journal.append("call.end", call="ccall_twice", server_call="call_twice")
    assert found(pair) == [
        "ccall_c: the journal has 2 begin and 1 end records of it",
        "ccall_x: the journal has 0 begin and 1 end records of it",
        "ccall_twice: the journal has 1 begin and 2 end records of it",
        "ccall_a: the audit log has 1 begin and 0 end records of call_a",
        "ccall_b: the audit log has 2 begin and 1 end records of call_b",
        "ccall_x: the server called it call_x, whose audit log has no record of it",
    ]


def test_calls_that_changed_places_are_found(pair: TwoLogs) -> None:
    pair.audit[0]["request"], pair.audit[2]["request"] = pair.audit[2]["request"], pair.audit[0]["request"]
    assert found(pair) == [
        "ccall_a: the server called it call_a, whose audit log names request ccall_b",
        "ccall_b: the server called it call_b, whose audit log names request ccall_a",
    ]


def test_lines_that_are_no_records_are_found(pair: TwoLogs) -> None:
    pair.journal.close()
    lines = pair.lines()
    assert [problem.location for problem in join(pair.where, [b"{\n", b"[]\n", *lines]).problems] == [
        "audit:1",
        "audit:2",
    ]
    assert join(pair.where, [*lines, lines[0][:20]]).sound


def test_an_empty_journal_joins_an_empty_log(tmp_path: Path) -> None:
    assert join(tmp_path, []).sound
    assert verify(tmp_path).heads == {}
