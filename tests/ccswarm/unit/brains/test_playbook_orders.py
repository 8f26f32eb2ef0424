"""Nothing that a playbook decides depends on the order in which its calls end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ccswarm.models import CallOutcome, CallStatus
from tests.ccswarm.support.playbooks import BROKEN, Pick, arguments, exited, last, ok, run, step, task, together

NAMES = "abcdef"
ANSWERS = st.sampled_from([ok("fine"), exited(0, "1\n2"), exited(1), BROKEN, CallOutcome(CallStatus.DENIED)])


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Up to six steps, each after some of those above it."""
    steps: list[dict[str, Any]] = []
    for at, name in enumerate(NAMES[: draw(st.integers(1, len(NAMES)))]):
        facts: dict[str, Any] = {}
        if draw(st.booleans()):
            facts["needs"] = draw(st.lists(st.sampled_from(NAMES[:at]), unique=True)) if at else []
        if draw(st.booleans()):
            facts |= {"for_each": list(range(draw(st.integers(0, 4)))), "parallel": draw(st.integers(1, 3))}
            facts["when"] = draw(st.sampled_from(["", "${item} != 1"]))
        if draw(st.booleans()):
            facts["retry"] = {"times": draw(st.integers(1, 2)), "seconds": draw(st.sampled_from([0, 1]))}
        if facts.get("needs"):
            facts["args"] = {"status": f"${{steps.{facts['needs'][0]}}}"}
        steps.append(step(name, **facts))
    return task(*steps)


def outcomes(draw: st.DrawFn) -> dict[str, CallOutcome]:
    tries = [name + again for name in NAMES for again in ("", "#2", "#3")]
    items = [f"{name}[{at}]{again}" for name in NAMES for at in range(4) for again in ("", "#2")]
    return {name: draw(ANSWERS) for name in draw(st.lists(st.sampled_from(tries + items), unique=True, max_size=12))}


def picks(draw: st.DrawFn) -> Pick:
    """Some of what goes on, in any order."""
    return lambda going: draw(st.permutations(going))[: draw(st.integers(1, len(going)))]


@given(plans(), st.data())
def test_the_order_in_which_calls_end_changes_nothing(plan: dict[str, Any], data: st.DataObject) -> None:
    answers = data.draw(st.composite(outcomes)())
    one = run(plan, answers)
    for pick in (together, last, data.draw(st.composite(picks)())):
        other = run(plan, answers, pick)
        assert json.dumps(other.finish.result) == json.dumps(one.finish.result)
        assert (other.finish.status, other.finish.summary) == (one.finish.status, one.finish.summary)
        assert sorted(other.ids) == sorted(one.ids)
        assert arguments(other) == arguments(one)


@given(plans(), st.data())
def test_the_same_endings_give_the_same_decisions(plan: dict[str, Any], data: st.DataObject) -> None:
    """In whatever order those that are told together are told; a gate may be among the steps."""
    for each in plan["steps"]:
        each["gate"] = data.draw(st.booleans())
    answers = data.draw(st.composite(outcomes)())
    reported: list[Sequence[str]] = []

    def record(going: Sequence[str]) -> Sequence[str]:
        reported.append(data.draw(st.permutations(going))[: data.draw(st.integers(1, len(going)))])
        return reported[-1]

    one = run(plan, answers, record)
    replay = iter(reported)
    other = run(plan, answers, lambda _: next(replay)[::-1])
    assert other == one
