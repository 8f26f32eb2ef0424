"""What a run came to, as a person reads it."""

from __future__ import annotations

from ccswarm.models import Execution, RunStatus
from ccswarm.runs.answers import answer, last_task

TASKS = [{"id": "one"}, {"id": "two"}, {"id": "three", "needs": ["one"]}]
RUN = Execution("run_1", "run", RunStatus.FAILED, payload={"plan": {"tasks": TASKS}})


def test_it_is_told_by_the_last_task_that_failed_else_by_the_last_that_no_other_needs() -> None:
    done = {name: {"status": RunStatus.SUCCEEDED, "attempts": 1} for name in ("one", "two", "three")}
    assert last_task(RUN, done) == "three"
    assert last_task(RUN, {**done, "two": {"status": RunStatus.FAILED, "attempts": 1}}) == "two"
    assert last_task(RUN, {"one": done["one"], "three": {"status": RunStatus.SKIPPED, "attempts": 0}}) == "one"
    assert last_task(RUN, {}) == ""


def test_a_model_that_gave_up_is_reported_by_its_last_text_if_any() -> None:
    for words in ("I cannot find it.", ""):
        assert answer({"result": {"reached": {"turns": 2, "last_words": words}}}) == words


def test_steps_that_printed_nothing_say_nothing_and_facts_are_shown() -> None:
    silent = {"status": "finished", "exit_code": 0, "output": ""}
    assert answer({"result": {"steps": {"a": {**silent, "output": "said\n"}, "b": silent}}}) == "said"
    assert answer({"result": {"steps": {"a": silent}}}) == ""
    assert answer({"result": {"steps": {"a": {"found": 3}}}}) == '{"found": 3}'
