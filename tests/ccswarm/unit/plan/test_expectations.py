"""What an answer must be, and what is said when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ccswarm.config.settings import Expect
from ccswarm.models import CallOutcome, CallStatus
from ccswarm.plan.expectations import SHOWN_CHARACTERS, record, unmet
from tests.ccswarm.support.playbooks import exited, ok

EXPECTED = [
    ({}, exited(0), ""),
    ({}, exited(3, "boom"), "expected exit code 0, got 3; its answer: boom"),
    ({}, ok("x", status="running"), "expected it to end, but it is still running; its answer: x"),
    ({}, ok("x", status="interrupted", exit_code=None), ""),
    ({"exit_code": 3}, exited(3), ""),
    ({"exit_code": 0}, exited(1), "expected exit code 0, got 1 (status finished)"),
    ({"exit_code": 0}, ok(status="running"), "expected exit code 0, got none (status running)"),
    ({"exit_code": 0}, ok("plain"), "expected exit code 0, got none (status ok); its answer: plain"),
    ({"status": "finished"}, exited(9), ""),
    ({"status": "finished"}, ok(status="lost"), "expected status finished, got lost"),
    ({"status": "ok"}, ok("plain"), ""),
    ({"contains": "two"}, exited(1, "one two"), ""),
    ({"contains": "two"}, ok("one"), "expected 'two' in the text; its answer: one"),
    ({"matches": "^b+$"}, ok("a\nbbb\nc"), ""),
    ({"matches": "^b$"}, ok("a"), "expected the text to match '^b$'; its answer: a"),
    ({"matches": '"n": 1'}, ok(n=1), ""),
    ({"equals": {"a.b[1]": {"c": 1.0}}}, ok(a={"b": [0, {"c": 1}]}), ""),
    ({"equals": {"a": True}}, ok(a=1), "expected a to be true, got 1"),
    ({"equals": {"a.b": 1}}, ok(a={}), "expected a.b to be 1, but a.b has no value: there is no b in a"),
    ({"contains": "w", "exit_code": 0}, exited(1), "expected exit code 0, got 1 (status finished); expected 'w' in"),
]


@pytest.mark.parametrize(("expect", "answer", "said"), EXPECTED)
def test_what_is_expected(expect: Mapping[str, Any], answer: CallOutcome, said: str) -> None:
    problem = unmet(Expect(**expect), answer)
    assert problem.startswith(said) if said else not problem


def test_a_failed_call_meets_no_expectation() -> None:
    failed = CallOutcome(CallStatus.TOOL_ERROR, "why", {"exit_code": 0})
    for expect in (Expect(), Expect(exit_code=0), Expect(contains="why"), Expect(status="tool_error")):
        assert unmet(expect, failed) == "expected an answer, but the call ended as tool_error (why)"
    denied = CallOutcome(CallStatus.DENIED, code="not_granted", message="no grant")
    assert unmet(Expect(), denied) == "expected an answer, but the call ended as denied (not_granted: no grant)"


def test_a_long_answer_is_shown_by_its_end() -> None:
    reported = unmet(Expect(), exited(1, "x" * 5000 + "the reason\n"))
    assert reported.endswith("xxthe reason")
    assert len(reported) < SHOWN_CHARACTERS + 60


def test_what_plans_see_of_a_call() -> None:
    assert record(ok("text")) == {"status": "ok", "text": "text"}
    assert record(ok("text", n=1)) == {"status": "ok", "n": 1}
    assert record(exited(3)) == {"status": "finished", "exit_code": 3, "output": ""}
    assert record(CallOutcome(CallStatus.OK, "text", {})) == {"status": "ok"}
    failed = CallOutcome(CallStatus.TOOL_ERROR, "why", {"status": "finished", "n": 1})
    assert record(failed) == {"status": "tool_error", "message": "why", "n": 1}
    lost = CallOutcome(CallStatus.LOST, message="it ended")
    assert record(lost) == {"status": "lost", "message": "it ended", "text": ""}
