"""What a run looks like from what happened in it; times of events that carry none."""

from __future__ import annotations

from typing import Any

from ccswarm.cli_board import Board
from ccswarm.runs_events import Happening, cut, of_record, task_of, timed, told
from ccswarm.engines.base import Execution
from ccswarm.journal_chain import Record
from ccswarm.models import RunStatus

RUN = "run_1"


def event(name: str, execution: str = RUN, at: float = 0.0, **facts: Any) -> Happening:
    return Happening(RUN, execution, {"event": name, **facts}, at)


def started(attempt: int = 1, at: float = 0.0) -> Happening:
    return event("task.started", task="a", agent="ada", attempt=attempt, execution="run_1.a", at=at)


def ended(status: str, summary: str = "", at: float = 0.0, *, again: bool = False) -> Happening:
    facts = {"task": "a", "agent": "ada", "attempt": 1, "status": status, "summary": summary}
    return event("task.ended", **facts, again=again, at=at)


def call(name: str, **facts: Any) -> Happening:
    facts = {"run": RUN, "task": "run_1.a", "agent": "ada", "tool": "x.do", "call": "c1", **facts}
    return of_record(RUN, Record("w", 1, 5.0, name, facts))


def test_a_task_goes_its_way() -> None:
    board = Board(RUN, ["a", "b"])
    board.take(event("run.started", tasks=["a", "b"], agents=1))
    board.take(started(at=10.0))
    row = board.rows["a"]
    assert (board.status, row.status, row.agent, row.began) == (RunStatus.RUNNING, RunStatus.RUNNING, "ada", 10.0)
    board.take(call("call.begin", args={"command": {"text": "ls -l"}}))
    assert (row.said, row.calls) == ("x.do ls -l", {"c1"})
    board.take(call("call.end", status="ok", exit_code=2, seconds=0.25))
    assert (row.said, row.calls) == ("x.do → ok, exit code 2 (0.2 s)", set())
    board.take(ended("failed", "it broke", at=12.0))
    assert (row.shown, row.said, row.ended) == (RunStatus.FAILED, "it broke", 12.0)
    board.take(started(attempt=2, at=13.0))
    assert (row.shown, row.attempt, row.began, row.ended) == (RunStatus.RUNNING, 2, 10.0, 0.0)
    board.take(event("run.ended", status="succeeded", counts={"succeeded": 2}))
    assert (board.status, board.rows["b"].status) == (RunStatus.SUCCEEDED, RunStatus.QUEUED)


def test_it_waits_for_people_when_nothing_else_goes_on() -> None:
    board = Board(RUN, ["a"])
    board.take(started())
    asked = {"id": "ap_1", "agent": "ada", "tool": "x.do", "arguments": {"text": "one\ntwo"}}
    board.take(event("approval.asked", "run_1.a", **asked))
    row = board.rows["a"]
    assert (row.shown, row.waits, [one["id"] for one in board.questions]) == (
        RunStatus.WAITING_APPROVAL,
        True,
        ["ap_1"],
    )
    assert row.said == "waits for approval ap_1: ada asks for x.do text=one two"
    board.take(call("call.begin"))
    assert not row.waits
    board.take(event("approval.answered", "run_1.a", id="ap_1", approved=False, by="me", reason="no"))
    assert (row.shown, row.said, board.questions) == (RunStatus.RUNNING, "approval ap_1 refused by me: no", [])


def test_what_was_done_before_is_done() -> None:
    board = Board(RUN, ["a", "b"])
    board.take(event("run.started", tasks=["a", "b"], agents=1, continues="run_0", done=["b"]))
    assert (board.rows["b"].status, board.rows["b"].said) == (RunStatus.SUCCEEDED, "in run_0")


def test_events_without_times_get_those_of_what_they_are_about() -> None:
    executions = {
        RUN: Execution(RUN, "run", RunStatus.SUCCEEDED, created_at=1.0, ended_at=9.0),
        "run_1.a": Execution("run_1.a", "task", RunStatus.SUCCEEDED, created_at=2.0, ended_at=8.0),
    }
    happenings = [
        event("run.started", tasks=["a"], agents=1),
        started(),
        event("gates.held", "run_1.a", said=""),
        event("merge", "run_1.a", at=6.0, ref="r"),
        event("gates.held", "run_1.a", said=""),
        ended("succeeded"),
        event("run.ended", status="succeeded", counts={}),
    ]
    assert [one.at for one in timed(happenings, executions)] == [1.0, 2.0, 2.0, 6.0, 6.0, 8.0, 9.0]


def test_lines_are_one_line_whatever_is_in_them() -> None:
    assert told(event("gate.failed", "run_1.a~2", said="gate `x`:\n  1\n2")) == "a: gate `x`: 1 2"
    assert told(event("merge", "run_1.a", ref="r", conflict="a.txt")) == "a: merge of r: conflict: a.txt"
    assert told(event("something.new", number=1)) == "something.new number=1"
    assert told(call("call.refused", status="denied", code="not_granted", message="no\nway")) == (
        "a: ada x.do → denied not_granted: no way (0.0 s)"
    )
    assert len(cut("x" * 500)) == 120
    assert (task_of(RUN, RUN), task_of(RUN, "run_1.a"), task_of(RUN, "run_1.a~3")) == ("", "a", "a")
