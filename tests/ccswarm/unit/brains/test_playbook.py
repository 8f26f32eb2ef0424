"""The playbook: what each key of a step does, and that nothing depends on the order in which calls end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentwire.plugins import load
from ccswarm.brains.base import CallTool, Wait
from ccswarm.brains.playbook.plugin import PLUGIN
from ccswarm.brains.playbook.results import STEP_BYTES, TEXT_BYTES
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, CallStatus
from tests.ccswarm.support.playbooks import (
    BROKEN,
    NOTHING,
    Pick,
    arguments,
    assignment,
    backwards,
    exited,
    first,
    last,
    ok,
    run,
    step,
    task,
    together,
)


def test_it_is_the_plugin_of_that_name() -> None:
    assert load("ccswarm.brains", "playbook") is PLUGIN
    assert PLUGIN.name == "playbook"


def test_steps_run_one_after_the_other() -> None:
    ended = run(task(step("a"), step("b"), step("c")), pick=together)
    assert (ended.ids, ended.most) == (["a", "b", "c"], 1)
    assert (ended.finish.status, ended.finish.summary) == ("succeeded", "3 steps done")
    assert ended.steps == {name: {"status": "ok", "id": name} for name in ("a", "b", "c")}


def test_needs_say_what_comes_before_and_what_goes_on_together() -> None:
    plan = task(step("join", needs=["x", "y"]), step("x", needs=[]), step("y", needs=[]), step("after"))
    ended = run(plan)
    assert (ended.ids, ended.most) == (["x", "y", "join", "after"], 2)


def test_what_starts_together_starts_in_the_order_of_the_plan() -> None:
    plan = task(step("late", needs=["y"]), step("early", needs=["x"]), step("x", needs=[]), step("y", needs=[]))
    assert run(plan, pick=together).ids == ["x", "y", "late", "early"]


def test_a_call_is_what_the_step_says() -> None:
    plan = task(step("a", agent="bob", args={"x": [1, {"y": "z"}]}, timeout_seconds=2.5), step("b"))
    call, other = run(plan).decided
    assert call == CallTool("a", "s.do", {"x": [1, {"y": "z"}]}, "bob", 2.5)
    assert other == CallTool("b", "s.do", {})


def test_references_carry_results_on() -> None:
    plan = task(
        step("a", save_as="first", agent="bob", args={"who": "${agent.name}"}),
        step("b", args={"n": "${steps.a.n}", "m": "${steps.first.n}", "text": "n=${steps.a.n} ${run.id} ${task.id}"}),
        step("c", args={"old": "${needs.u.steps.z.v}", "where": "${workspace}/x", "who": "${agent.name}"}),
    )
    ended = run(plan, {"a": ok(n=7)}, inputs={"u": {"steps": {"z": {"v": [1]}}}})
    assert arguments(ended) == {
        "a": {"who": "bob"},
        "b": {"n": 7, "m": 7, "text": "n=7 run_1 t"},
        "c": {"old": [1], "where": "/project/x", "who": "ada"},
    }
    assert ended.steps["first"] == ended.steps["a"] == {"status": "ok", "n": 7}


@pytest.mark.parametrize(
    ("settings", "attempt"),
    [({}, "1"), ({"attempt": 2, "round": 1}, "2"), ({"round": 3}, "1-3"), ({"attempt": 2, "round": 3}, "2-3")],
)
def test_each_attempt_has_a_name(settings: Mapping[str, Any], attempt: str) -> None:
    ended = run(task(step("a", args={"name": "x-${task.attempt}"})), settings=settings)
    assert list(arguments(ended).values()) == [{"name": f"x-{attempt}"}]


def test_an_answer_without_fields_is_its_text() -> None:
    ended = run(task(step("a"), step("b", args={"x": "${steps.a.text}"})), {"a": ok("hello")})
    assert arguments(ended)["b"] == {"x": "hello"}
    assert ended.steps["a"] == {"status": "ok", "text": "hello"}


def test_a_value_that_is_missing_fails_the_step_and_says_so() -> None:
    ended = run(task(step("a"), step("b", args={"x": "${steps.a.output}"}), step("c")))
    assert (ended.ids, ended.finish.status) == (["a"], "failed")
    assert ended.finish.summary == (
        "b: ${steps.a.output} has no value: there is no output in a (there is id, status); skipped: c"
    )
    assert ended.steps["c"] == {"status": "skipped", "message": "it needs b, which failed"}


@pytest.mark.parametrize(("when", "runs"), [("${steps.a.n} == 1", True), ("${steps.a.n} != 1", False)])
def test_when_decides_whether_a_step_runs(when: str, runs: bool) -> None:
    ended = run(task(step("a"), step("b", when=when), step("c")), {"a": ok(n=1)})
    assert ended.ids == (["a", "b", "c"] if runs else ["a", "c"])
    assert ended.finish.status == "succeeded"
    assert ended.finish.summary == ("3 steps done" if runs else "2 steps done, not needed: b")
    assert ended.steps["b"]["status"] == ("ok" if runs else "skipped")


def test_a_condition_on_what_was_passed_over() -> None:
    plan = task(step("a", when="${run.id} == x"), step("b", when="${steps.a.status} == skipped"))
    assert run(plan).ids == ["b"]


def test_for_each_calls_once_for_each_item() -> None:
    plan = task(
        step("each", for_each=["x", {"n": 1}], args={"item": "${item}", "text": "<${item}>"}),
        step("after", args={"all": "${steps.each}", "second": "${steps.each[1].id}"}),
    )
    ended = run(plan)
    assert ended.ids == ["each[0]", "each[1]", "after"]
    assert arguments(ended)["each[1]"] == {"item": {"n": 1}, "text": '<{"n": 1}>'}
    assert arguments(ended)["after"]["second"] == "each[1]"
    assert ended.steps["each"] == [{"status": "ok", "id": "each[0]"}, {"status": "ok", "id": "each[1]"}]


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (["a", "b"], ["a", "b"]),
        ("a b\n\n c\r\nd\n", ["a b", " c", "d"]),
        ([], []),
        ("", []),
        ([[1], None], [[1], None]),
    ],
)
def test_items_are_those_of_a_list_or_the_lines_of_a_text(value: object, items: list[object]) -> None:
    plan = task(step("a"), step("each", for_each="${steps.a.v}", args={"item": "${item}"}))
    ended = run(plan, {"a": ok(v=value)})
    assert [call["item"] for name, call in arguments(ended).items() if name != "a"] == items
    assert len(ended.steps["each"]) == len(items)
    assert ended.finish.status == "succeeded"


@pytest.mark.parametrize("value", [3, {"a": 1}, None])
def test_nothing_else_has_items(value: object) -> None:
    ended = run(task(step("a"), step("each", for_each="${steps.a.v}")), {"a": ok(v=value, w=1)})
    assert "each: for_each needs a list or a text, not " in ended.finish.summary


def test_each_item_has_its_condition() -> None:
    plan = task(step("each", for_each=[1, 2, 3], when="${item} != 2"))
    ended = run(plan)
    assert ended.ids == ["each[0]", "each[2]"]
    assert [result["status"] for result in ended.steps["each"]] == ["ok", "skipped", "ok"]


@pytest.mark.parametrize("pick", [first, last])
def test_no_more_items_go_on_than_parallel_says(pick: Pick) -> None:
    ended = run(task(step("each", for_each=list(range(9)), parallel=3)), pick=pick)
    assert ended.most == 3
    assert ended.ids == [f"each[{at}]" for at in range(9)]


def test_a_failed_item_fails_the_step_after_all_were_tried() -> None:
    plan = task(step("each", for_each=[0, 1, 2], parallel=2), step("after"))
    ended = run(plan, {"each[0]": BROKEN, "each[2]": exited(4)})
    assert ended.ids == ["each[0]", "each[1]", "each[2]"]
    assert ended.finish.summary == (
        "each[0]: expected an answer, but the call ended as tool_error (no such thing); "
        "each[2]: expected exit code 0, got 4; skipped: after"
    )


def test_many_failed_items_are_all_named_and_some_told() -> None:
    ended = run(task(step("each", for_each=list(range(8)))), {"each": BROKEN})
    assert ended.finish.summary.count("no such thing") == 5
    assert ended.finish.summary.endswith("; and so each[5], each[6], each[7]")


def test_a_second_try_comes_after_a_pause_that_grows() -> None:
    plan = task(step("a", retry={"times": 3, "seconds": 2, "factor": 3}))
    ended = run(plan, {"a": BROKEN, "a#4": ok("at last")})
    assert ended.ids == ["a", "a#2.pause", "a#2", "a#3.pause", "a#3", "a#4.pause", "a#4"]
    assert [wait.seconds for wait in ended.decided if isinstance(wait, Wait)] == [2, 6, 18]
    assert (ended.finish.status, ended.steps["a"]["text"]) == ("succeeded", "at last")


def test_a_pause_is_never_longer_than_a_day() -> None:
    ended = run(task(step("a", retry={"times": 100, "seconds": 1, "factor": 1e9})), {"a": BROKEN})
    assert max(wait.seconds for wait in ended.decided if isinstance(wait, Wait)) == 86400


def test_without_a_pause_it_is_tried_at_once() -> None:
    ended = run(task(step("a", retry={"times": 2, "seconds": 0})), {"a": exited(1)})
    assert ended.ids == ["a", "a#2", "a#3"]
    assert ended.finish.summary == "a: expected exit code 0, got 1 (tried 3 times)"


def test_items_are_tried_again_in_their_order() -> None:
    plan = task(step("each", for_each=[0, 1, 2], parallel=3, retry={"times": 1, "seconds": 0}))
    assert run(plan, {"each": BROKEN}, backwards).ids[3:] == ["each[0]#2", "each[1]#2", "each[2]#2"]


def test_a_pausing_item_keeps_its_place() -> None:
    plan = task(step("each", for_each=[0, 1], retry={"times": 1}))
    assert run(plan, {"each[0]": BROKEN}).ids == ["each[0]", "each[0]#2.pause", "each[0]#2", "each[1]"]


@pytest.mark.parametrize("status", [status for status in CallStatus if status is not CallStatus.OK])
def test_only_what_another_try_may_mend_is_tried_again(status: CallStatus) -> None:
    worth = status in (CallStatus.TOOL_ERROR, CallStatus.TIMEOUT, CallStatus.LOST, CallStatus.UNAVAILABLE)
    failed = CallOutcome(status, code="some_code", message="why")
    ended = run(task(step("a", retry={"times": 1, "seconds": 0})), {"a": failed})
    assert ended.ids == (["a", "a#2"] if worth else ["a"])
    assert f"expected an answer, but the call ended as {status} (some_code: why)" in ended.finish.summary
    assert ended.steps["a"]["status"] == status


def test_what_came_of_an_expectation_is_told_and_kept() -> None:
    failing, fine = (
        step("a", expect={"exit_code": 3}),
        step("b", needs=[], expect={"exit_code": 3, "status": "finished"}),
    )
    ended = run(task(failing, fine), {"a": exited(1, "boom"), "b": exited(3)})
    said = "expected exit code 3, got 1 (status finished); its answer: boom"
    assert (ended.finish.status, ended.finish.summary) == ("failed", f"a: {said}")
    assert ended.steps["a"] == {"status": "finished", "exit_code": 1, "output": "boom", "problem": said}
    assert "problem" not in ended.steps["b"]


def test_after_a_failure_what_does_not_need_it_goes_on() -> None:
    plan = task(step("a"), step("b"), step("c", needs=[]), step("d"), step("e", needs=["b", "d"]))
    ended = run(plan, {"a": BROKEN, "d": exited(2)}, together)
    assert ended.ids == ["a", "c", "d"]
    assert ended.finish.summary == (
        "a: expected an answer, but the call ended as tool_error (no such thing); d: expected exit code 0, got 2; "
        "skipped: b, e"
    )
    assert ended.steps["e"]["message"] == "it needs b, d, which failed"


def test_a_failed_gate_ends_the_task_at_once() -> None:
    plan = task(step("a", gate=True), step("b", needs=[]), step("c"))
    ended = run(plan, {"a": exited(1)}, first)
    assert ended.ids == ["a", "b"]
    assert (ended.finish.status, ended.finish.summary) == ("failed", "gate a: expected exit code 0, got 1")
    assert set(ended.steps) == {"a"}


def test_of_gates_that_fail_together_the_upper_one_is_reported() -> None:
    plan = task(step("a", needs=[], gate=True), step("b", needs=[], gate=True))
    ended = run(plan, {"a": BROKEN, "b": BROKEN}, backwards)
    assert ended.finish.summary.startswith("gate a: ")


def test_a_gate_that_holds_is_a_step() -> None:
    assert run(task(step("a", gate=True), step("b"))).finish.status == "succeeded"


def test_a_gate_is_tried_again_first() -> None:
    plan = task(step("a", gate=True, retry={"times": 1, "seconds": 0}), step("b"))
    assert run(plan, {"a": BROKEN, "a#2": ok()}).finish.status == "succeeded"


def test_a_gate_whose_arguments_are_missing_fails_at_once() -> None:
    ended = run(task(step("a"), step("b", gate=True, args={"x": "${steps.a.y}"}), step("c", needs=[])), pick=first)
    assert ended.finish.summary.startswith("gate b: ${steps.a.y} has no value")


CLOSE = step("close", always=True, args={"id": "${steps.open.id}"})


def test_what_is_always_carried_out_comes_last_whatever_became_of_the_others() -> None:
    plan = task(CLOSE, step("open"), step("test"), step("after"), step("beside", needs=[]), step("tell", always=True))
    for pick in (first, backwards, together, last):
        ended = run(plan, pick=pick)
        assert ended.finish.summary == "6 steps done"
        assert ended.ids[-2:] == ["close", "tell"]
        failed = run(plan, {"test": exited(1)}, pick)
        assert failed.finish.summary == "test: expected exit code 0, got 1; skipped: after"
        assert failed.ids[-2:] == ["close", "tell"]
        assert arguments(failed)["close"] == {"id": "open"}
    both = run(plan, {"test": exited(1), "close": BROKEN})
    assert "; close: expected an answer" in both.finish.summary
    assert both.ids[-1] == "tell", "one does not keep another from being carried out"


def test_where_nothing_was_opened_there_is_nothing_to_close() -> None:
    nothing = run(task(step("open"), step("test"), CLOSE, step("tell", always=True)), {"open": BROKEN})
    assert nothing.ids == ["open", "tell"]
    assert nothing.finish.summary.endswith("no such thing); skipped: test")
    missing = run(task(step("open"), step("close", always=True, args={"id": "${steps.open.what}"})))
    assert missing.finish.summary.startswith("close: ${steps.open.what} has no value")
    each = step("close", always=True, for_each=["open", "other"], args={"id": "${steps.open.id}", "x": "${item}"})
    assert run(task(step("open"), each), {"open": BROKEN}).ids == ["open"]


@pytest.mark.parametrize("pick", [first, last, together])
def test_after_a_gate_that_failed_only_what_is_always_carried_out_is_begun_and_at_once(pick: Pick) -> None:
    """What went on beside the gate, or begins with its end, is not waited for."""
    plan = task(
        step("open"),
        step("slow"),
        step("gate", needs=["open"], gate=True),
        step("more", needs=["open"]),
        step("late"),
        CLOSE,
        step("tell", always=True),
    )
    ended = run(plan, {"gate": exited(1)}, pick)
    assert (ended.finish.status, ended.finish.summary) == ("failed", "gate gate: expected exit code 0, got 1")
    assert [name for name in ended.ids if name in ("close", "tell", "late")][-2:] == ["close", "tell"]
    both = run(plan, {"gate": exited(1), "close": BROKEN}, pick)
    assert both.finish.summary.startswith("gate gate: expected exit code 0, got 1; close: expected an answer")


def test_texts_of_a_result_are_cut_but_not_within_the_task() -> None:
    long = "ä" * 10_000
    ended = run(task(step("a"), step("b", args={"x": "${steps.a.output}"})), {"a": exited(0, long)})
    assert arguments(ended)["b"]["x"] == long
    reported = ended.steps["a"]["output"]
    assert len(reported.encode()) <= TEXT_BYTES
    assert reported.startswith("äää") and reported.endswith("äää") and "bytes left out" in reported  # noqa: PT018
    assert ended.steps["a"]["exit_code"] == 0


def test_a_step_with_too_many_results_is_reported_as_text() -> None:
    ended = run(task(step("a")), {"a": ok(rows=[{"n": n, "text": "x" * 40} for n in range(STEP_BYTES // 40)])})
    reported = ended.steps["a"]
    assert (reported["status"], len(reported["text"].encode()) <= TEXT_BYTES) == ("cut", True)


WRONG = [
    (task(), "task t has no steps"),
    (task(step("a"), step("a")), "task t: a is the name of 2 results"),
    (task(step("a", needs=["b"]), step("b", needs=["a"])), "task t: a → b → a wait for each other"),
    (
        task(step("a", args={"x": "${steps.b.y}"}), step("b")),
        "${steps.b.y} refers to a step that runs after it: put b above it",
    ),
    (task(step("a", args={"x": "${needs.u}"})), "${needs.u} refers to a task that its own task does not need"),
    (task({"id": "a"}), "task t: 1 validation error"),
]


@pytest.mark.parametrize(("plan", "said"), WRONG)
def test_what_cannot_be_carried_out_is_not_begun(plan: Mapping[str, Any], said: str) -> None:
    with pytest.raises(PlanInvalid) as caught:
        PLUGIN.begin(assignment(plan), NOTHING)
    assert said in caught.value.message
