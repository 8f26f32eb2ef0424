"""What a run looks like from what happened in it; times of events that carry none."""

from __future__ import annotations

from typing import Any

from ccswarm.cli.board import RunTable
from ccswarm.journal.chain import Record
from ccswarm.models import Execution, RunStatus
from ccswarm.runs.events import RunEvent, cut, event_from_record, format_event, nested, task_of, timed

RUN = "run_1"


def event(name: str, execution: str = RUN, at: float = 0.0, **facts: Any) -> RunEvent:
    return RunEvent(RUN, execution, {"event": name, **facts}, at)


def started(attempt: int = 1, at: float = 0.0) -> RunEvent:
    return event("task.started", task="a", agent="ada", attempt=attempt, at=at)


def ended(status: str, summary: str = "", at: float = 0.0, *, again: bool = False) -> RunEvent:
    facts = {"task": "a", "agent": "ada", "attempt": 1, "status": status, "summary": summary}
    return event("task.ended", **facts, again=again, at=at)


def call(name: str, **facts: Any) -> RunEvent:
    facts = {"run": RUN, "task": "run_1.a", "agent": "ada", "tool": "x.do", "call": "c1", **facts}
    return event_from_record(RUN, Record("w", 1, 5.0, name, facts))


def test_a_task_goes_its_way() -> None:
    board = RunTable(RUN, ["a", "b"])
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
    board = RunTable(RUN, ["a"])
    board.take(started())
    asked = {"id": "ap_1", "agent": "ada", "tool": "x.do", "arguments": {"text": "one\ntwo"}}
    board.take(event("approval.asked", "run_1.a", **asked))
    row = board.rows["a"]
    assert (row.shown, board.waits("a"), [one["id"] for one in board.questions]) == (
        RunStatus.WAITING_APPROVAL,
        True,
        ["ap_1"],
    )
    assert row.said == "waits for approval ap_1: ada asks for x.do text=one two"
    board.take(call("call.begin"))
    assert not board.waits("a")
    board.take(event("approval.answered", "run_1.a", id="ap_1", approved=False, by="me", reason="no"))
    assert (row.shown, row.said, board.questions) == (RunStatus.RUNNING, "approval ap_1 refused by me: no", [])


def test_parts_stand_under_the_task_that_handed_them_on() -> None:
    board = RunTable(RUN, ["a", "b"])
    board.take(started(at=1.0))
    board.take(event("work.handed_on", "run_1.a", run="run_1.a.hand", agent="ada", step="hand", tasks=["x", "y"]))
    assert board.rows["a"].said == "delegates 2 tasks: x, y"
    begun = {"agent": "bob", "attempt": 1}
    board.take(event("task.started", "run_1.a.hand", 2.0, task="x", **begun))
    assert board.nested() == {"a": 0, "a.hand.x": 1, "a.hand.y": 1, "b": 0}
    row = board.rows["a.hand.x"]
    assert (row.agent, row.status, row.began) == ("bob", RunStatus.RUNNING, 2.0)
    board.take(event("approval.asked", "run_1.a.hand.x", id="ap_1", agent="bob", tool="x.do", arguments={}))
    assert [one["task_id"] for one in board.questions] == ["run_1.a.hand.x"]
    assert board.waits("a"), "y has not begun, so nothing is running"
    board.take(call("call.begin", call="c2"))
    assert not board.waits("a")
    board.take(call("call.end", call="c2", status="ok", seconds=0.1))
    ended = {"task": "x", "agent": "bob", "attempt": 1, "status": "failed", "summary": "no"}
    board.take(event("task.ended", "run_1.a.hand", 3.0, **ended, again=False))
    board.take(event("work.came_back", "run_1.a", run="run_1.a.hand", status="failed"))
    statuses = [board.rows[path].status for path in ("a", "a.hand.x", "a.hand.y")]
    assert statuses == [RunStatus.RUNNING, RunStatus.FAILED, RunStatus.SKIPPED]
    assert (board.questions, board.waits("a")) == ([], False)


def test_who_judges_work_is_a_part_of_it() -> None:
    board = RunTable(RUN, ["a"])
    board.take(started(at=1.0))
    board.take(event("review.asked", "run_1.a~2", 2.0, by=["bob", "cy"], round=1))
    assert board.rows["a"].said == "to be reviewed by bob, cy"
    judge = board.rows["a.review1.bob"]
    assert (judge.agent, judge.status) == ("bob", RunStatus.RUNNING)
    board.take(event("review.said", "run_1.a~2", 3.0, by="bob", round=1, accepted=False, summary="look\nagain"))
    assert (judge.status, judge.said, judge.ended) == (RunStatus.FAILED, "look again", 3.0)
    assert board.rows["a"].said == "bob rejects it: look again"
    board.take(ended("cancelled"))
    assert board.rows["a.review1.cy"].status is RunStatus.CANCELLED


def test_tasks_are_followed_by_their_parts() -> None:
    assert nested(["b", "a", "a.h.x.g.z", "c.h", "a.h.x", "b.review1.y"]) == {
        "b": 0,
        "b.review1.y": 1,
        "a": 0,
        "a.h.x": 1,
        "a.h.x.g.z": 2,
        "c.h": 0,
    }


def test_what_was_done_before_is_done() -> None:
    board = RunTable(RUN, ["a", "b"])
    board.take(event("run.started", tasks=["a", "b"], agents=1, continues="run_0", done=["b"]))
    assert (board.rows["b"].status, board.rows["b"].said) == (RunStatus.SUCCEEDED, "in run_0")


def test_events_without_times_get_those_of_what_they_are_about() -> None:
    executions = {
        RUN: Execution(RUN, "run", RunStatus.SUCCEEDED, created_at=1.0, ended_at=9.0),
        "run_1.a": Execution("run_1.a", "task", RunStatus.SUCCEEDED, created_at=2.0, ended_at=8.0),
    }
    run_events = [
        event("run.started", tasks=["a"], agents=1),
        started(),
        event("gates.held", "run_1.a", said=""),
        event("merge", "run_1.a", at=6.0, ref="r"),
        event("gates.held", "run_1.a", said=""),
        ended("succeeded"),
        event("run.ended", status="succeeded", counts={}),
    ]
    assert [one.at for one in timed(run_events, executions)] == [1.0, 2.0, 2.0, 6.0, 6.0, 8.0, 9.0]


def test_lines_are_one_line_whatever_is_in_them() -> None:
    assert format_event(event("gate.failed", "run_1.a~2", said="gate `x`:\n  1\n2")) == "a: gate `x`: 1 2"
    assert format_event(event("merge", "run_1.a", ref="r", conflict="a.txt")) == "a: merge of r: it cannot be merged"
    assert format_event(event("something.new", number=1)) == "something.new number=1"
    assert (
        format_event(event("agent.said", "run_1.a", text="I\nsee", turn=2, tokens=12)) == "a: says: I see (12 tokens)"
    )
    assert format_event(event("work.came_back", "run_1.a~2.h.x~3", run="run_1.a~2.h.x~3.g", status="failed")) == (
        "a.h.x: the delegated work is failed"
    )
    assert format_event(call("call.refused", status="denied", code="not_granted", message="no\nway")) == (
        "a: ada x.do → denied not_granted: no way (0.0 s)"
    )
    assert len(cut("x" * 500)) == 120
    assert (task_of(RUN, RUN), task_of(RUN, "run_1.a"), task_of(RUN, "run_1.a~3")) == ("", "a", "a")
