"""A run that failed is gone on with as a new one: what succeeded is not done again, and the plan may be mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ccswarm.support.runs import BASE, RunVerbs, step, task

FAIL = '[[tasks.steps]]\nid = "fail"\ntool = "small.fail"\n'


@pytest.mark.torture  # test_swarm.py; what was asked in words is repeated below
def test_a_corrected_plan_resumes_where_the_run_failed(home: Path) -> None:
    verbs = RunVerbs(home, BASE)
    plan = home / "plan.toml"
    good = task("one", step("say"), more='agent = "ada"')
    plan.write_text(good + task("two", FAIL, more='needs = ["one"]'))
    first = verbs.result("run", str(plan), code=1)
    assert {name: one["status"] for name, one in first["tasks"].items()} == {"one": "succeeded", "two": "failed"}

    verbs.rewrite(good + task("two", step("mended"), more='needs = ["one"]'), plan)
    second = verbs.result("resume", "last")
    assert second["run"] != first["run"]
    assert {name: one["status"] for name, one in second["tasks"].items()} == {"one": "succeeded", "two": "succeeded"}
    assert second["usage"]["calls"] == 1

    said = verbs.run("resume", second["run"], code=2)
    assert "is over: succeeded" in said.err


THINKER = """
[[agents]]
name = "tess"
brain = "llm"
[agents.settings]
model = "recorded:"
replies = [{ calls = [{ tool = "finish", arguments = { status = "STATUS", summary = "Done." } }] }]
"""


def test_what_was_asked_in_words_is_asked_again(home: Path) -> None:
    verbs = RunVerbs(home, BASE + task("other", step("say")) + THINKER.replace("STATUS", "failed"))
    first = verbs.result("run", "make it so", code=1)
    assert {name: one["status"] for name, one in first["tasks"].items()} == {"main": "failed"}

    verbs.rewrite(BASE + task("other", step("say")) + THINKER.replace("STATUS", "succeeded"))
    second = verbs.result("resume", "last")
    assert {name: one["status"] for name, one in second["tasks"].items()} == {"main": "succeeded"}
