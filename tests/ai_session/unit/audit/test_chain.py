"""The chain: what is written is read alike, and whatever is done to the bytes of a log is found."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ai_session.audit.chain import (
    CHECKPOINT_RECORDS,
    GENESIS,
    Anchor,
    Report,
    Verifier,
    canonical,
    seal,
    statement,
    unseal,
)
from ai_session.audit.keys import check

OWN, FOREIGN = Ed25519PrivateKey.from_private_bytes(b"k" * 32), Ed25519PrivateKey.from_private_bytes(b"x" * 32)

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)


def public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


def chain(bodies: list[dict[str, Any]], key: Ed25519PrivateKey = OWN) -> list[bytes]:
    """Lines of these records, numbered and chained anew, checkpoints signed anew."""
    head, lines = GENESIS, []
    for seq, body in enumerate(bodies, 1):
        record = {name: value for name, value in body.items() if name != "hash"} | {"seq": seq, "prev": head}
        if record["event"] == "audit.checkpoint":
            signature = key.sign(statement("audit.checkpoint", seq - 1, head)).hex()
            record |= {
                "size": seq - 1,
                "root": head,
                "sig": signature,
                "key": key.public_key().public_bytes_raw().hex(),
            }
        line, head = seal(record)
        lines.append(line)
    return lines


def bodies(count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"event": "audit.segment"}]
    while len(found) < count:
        if len(found) % 10 == 9:
            found.append({"event": "audit.checkpoint"})
        elif found[-1]["event"] == "tool.start":
            found.append({"event": "tool.end", "start": len(found), "outcome": "ok"})
        else:
            found.append({"event": "tool.start", "tool": "execute_command", "args": {"n": len(found)}})
    return found


KEY = public(OWN)
LOG = chain(bodies(60))
ANCHOR = Anchor(60, json.loads(LOG[-1])["hash"])


def judge(lines: list[bytes], *anchors: Anchor, key: str = KEY) -> Report:
    verifier = Verifier(check, key=key, anchors=anchors)
    for position, line in enumerate(lines, 1):
        verifier.line(f"log:{position}", line)
    return verifier.finish()


def test_a_log_that_nobody_touched_is_sound() -> None:
    report = judge(LOG, ANCHOR)
    assert report.problems == []
    assert (report.records, report.last_seq, report.head) == (60, 60, ANCHOR.head)
    assert (report.checkpoints, report.signed_seq, report.anchored_seq) == (6, 59, 60)
    assert report.calls > 20


def test_the_hash_is_that_of_the_bytes_before_it() -> None:
    for line in LOG:
        body, _, tail = line.rpartition(b',"hash":"')
        assert hashlib.sha256(body + b"}").hexdigest().encode() == tail.removesuffix(b'"}\n')
        assert canonical({k: v for k, v in json.loads(line).items() if k != "hash"}) == body + b"}"


EDITS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a word": lambda log: [*log[:25], log[25].replace(b"tool.", b"tool,"), *log[26:]],
    "a number": lambda log: [*log[:25], log[25].replace(b'"seq":26', b'"seq":62'), *log[26:]],
    "a space": lambda log: [*log[:25], log[25].replace(b",", b", ", 1), *log[26:]],
    "the case of its hash": lambda log: [*log[:25], log[25][:-66] + log[25][-66:].upper(), *log[26:]],
    "the last record": lambda log: [*log[:-1], log[-1].replace(b"audit.", b"audit,")],
    "the first record": lambda log: [log[0].replace(b"segment", b"Segment"), *log[1:]],
    "a record with a hash of its own": lambda log: [
        *log[:25],
        seal({**json.loads(log[25]), "tool": "list_sessions", "hash": None})[0],
        *log[26:],
    ],
    "a record deleted": lambda log: log[:25] + log[26:],
    "the first record deleted": lambda log: log[1:],
    "a call deleted": lambda log: log[:21] + log[23:],
    "two swapped": lambda log: [*log[:25], log[26], log[25], *log[27:]],
    "one repeated": lambda log: [*log[:25], log[25], *log[25:]],
    "one inserted": lambda log: [
        *log[:25],
        seal({"event": "tool.start", "seq": 26, "prev": json.loads(log[24])["hash"]})[0],
        *log[25:],
    ],
    "garbage inserted": lambda log: [*log[:25], b"\0\xff{}\n", *log[25:]],
    "an empty line inserted": lambda log: [*log[:25], b"\n", *log[25:]],
    "the middle cut": lambda log: log[:10] + log[50:],
    "the head cut": lambda log: log[20:],
    "rebuilt without a record, signatures kept": lambda log: resealed(log[:25] + log[26:]),
    "rebuilt and signed with another key": lambda log: chain(read(log[:25] + log[26:]), FOREIGN),
}

WITH_ANCHOR: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the tail cut": lambda log: log[:-25],
    "the last record cut": lambda log: log[:-1],
    "all cut": lambda log: [],
    "the tail cut and written anew": lambda log: chain(read(log[:35]) + bodies(60)[36:]),
    "rebuilt with the key": lambda log: chain(read(log[:25] + log[26:])),
    "rebuilt without checkpoints": lambda log: chain(
        [body for body in read(log) if body["event"] != "audit.checkpoint"]
    ),
}


def read(log: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log]


def resealed(log: list[bytes]) -> list[bytes]:
    """The chain made anew by somebody without the key: checkpoints say what is so, their signatures are old."""
    head, lines = GENESIS, []
    for seq, line in enumerate(log, 1):
        record = {**json.loads(line), "seq": seq, "prev": head, "hash": None}
        if record["event"] == "audit.checkpoint":
            record |= {"size": seq - 1, "root": head}
        line, head = seal(record)
        lines.append(line)
    return lines


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_what_is_done_to_the_bytes_is_found(edit: Callable[[list[bytes]], list[bytes]]) -> None:
    assert judge(LOG).broken == 0
    report = judge(edit(LOG))
    assert report.broken > 0
    assert report.problems[0].what


@pytest.mark.parametrize("edit", WITH_ANCHOR.values(), ids=WITH_ANCHOR)
def test_a_cut_tail_and_a_rebuilt_log_are_found_with_an_anchor(edit: Callable[[list[bytes]], list[bytes]]) -> None:
    assert judge(edit(LOG), ANCHOR).broken > 0


@given(st.integers(0, len(LOG) - 1), st.data())
def test_any_other_byte_anywhere_is_found(number: int, data: st.DataObject) -> None:
    line = LOG[number]
    at = data.draw(st.integers(0, len(line) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != line[at] and value != 10))
    assert judge([*LOG[:number], line[:at] + bytes([byte]) + line[at + 1 :], *LOG[number + 1 :]]).broken > 0


def test_one_change_is_reported_once_with_its_location() -> None:
    report = judge([*LOG[:25], LOG[25].replace(b"tool.", b"tool,"), *LOG[26:]])
    assert [problem.location for problem in report.problems if "changed" in problem.what] == ["log:26"]


def test_an_anchor_in_the_middle_says_up_to_where_the_log_is_the_one_that_was_seen() -> None:
    anchor = Anchor(30, json.loads(LOG[29])["hash"])
    assert judge(LOG, anchor).anchored_seq == 30
    rebuilt = chain([json.loads(line) for line in LOG[:10]] + bodies(60)[11:])
    assert any("anchored" in problem.what for problem in judge(rebuilt, anchor).problems)


def test_a_remembered_key_is_the_one_that_counts() -> None:
    foreign = chain([json.loads(line) for line in LOG], FOREIGN)
    assert judge(foreign, key="").broken == 0
    head = json.loads(foreign[-1])["hash"]
    assert judge(foreign, Anchor(60, head, KEY), key="").broken == 1


def test_records_without_signatures_end_somewhere() -> None:
    unsigned: list[dict[str, Any]] = [{"event": "audit.segment"}] + [{"event": "note"}] * (CHECKPOINT_RECORDS - 1)
    assert judge(chain(unsigned)).broken == 0
    assert judge(chain([*unsigned, {"event": "note"}])).broken == 1


@pytest.mark.parametrize("start", [2, 3])
def test_an_end_without_its_begin_and_a_second_end_are_found(start: int) -> None:
    calls = [{"event": "audit.segment"}, {"event": "tool.start"}, {"event": "tool.end", "start": 2}]
    assert judge(chain(calls)).broken == 0
    assert judge(chain([*calls, {"event": "tool.end", "start": start}])).broken == 1


@pytest.mark.parametrize("sign", [True, False])
def test_the_head_may_be_gone_where_a_signed_tombstone_says_so(sign: bool) -> None:
    gone = json.loads(LOG[19])
    head, lines = gone["hash"], list(LOG[20:])
    key = OWN if sign else FOREIGN
    tombstone = {"size": 20, "root": head, "key": KEY, "event": "audit.tombstone", "seq": 61, "prev": ANCHOR.head}
    tombstone["sig"] = key.sign(statement("audit.tombstone", 20, head)).hex()
    report = judge([*lines, seal(tombstone)[0]])
    assert (report.broken == 0) is sign
    assert report.first_seq == 21


def test_only_so_many_problems_are_kept_and_all_counted() -> None:
    report = judge([b"{}\n"] * 100)
    assert len(report.problems) == report.most_problems
    assert report.broken == 100


@given(st.dictionaries(st.text(), ANYTHING, max_size=6))
def test_any_record_is_written_and_read_alike(facts: dict[str, Any]) -> None:
    line, digest = seal({**facts, "seq": 1, "prev": GENESIS})
    record = unseal(line)
    assert record is not None
    assert line.count(b"\n") == 1
    assert record.pop("hash") == digest
    assert canonical(record) + b"\n" == line.rpartition(b',"hash"')[0] + b"}\n"
    assert not any(isinstance(value, float) for value in record.values())


@given(st.lists(st.binary().map(lambda data: data + b"\n"), max_size=5), st.integers(0, 60))
def test_any_bytes_are_judged_and_never_raise(garbage: list[bytes], at: int) -> None:
    assert judge([*LOG[:at], *garbage, *LOG[at:]]).broken >= len(garbage)


FIELDS = ["start", "size", "root", "sig", "key", "records"]
EVENTS = ["tool.end", "audit.checkpoint", "audit.tombstone", "audit.lost", "audit.segment"]


@given(
    st.sampled_from(EVENTS),
    st.dictionaries(st.sampled_from(["start", "size", "root", "sig", "key", "records"]), ANYTHING),
)
def test_any_record_with_a_hash_of_its_own_is_judged_and_never_raises(event: str, facts: dict[str, Any]) -> None:
    judge([*LOG[50:], seal({"event": event, **facts, "seq": 61, "prev": ANCHOR.head})[0]])


def test_numbers_that_readers_disagree_on_are_text() -> None:
    record = unseal(seal({"seq": 1, "prev": "", "a": 0.1, "b": math.inf, "c": 10**5000, "d": [1.5], "e": True})[0])
    assert record is not None
    assert (record["a"], record["b"], record["d"], record["e"]) == ("0.1", "inf", ["1.5"], True)
    assert len(record["c"]) == 64
