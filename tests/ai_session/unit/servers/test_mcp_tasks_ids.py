"""What a task's id says, and what an id that somebody made up says."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from ai_session.servers.mcp.tasks import MAX_ID_CHARS, POLL_MS, PREFIX, TTL_SECONDS, Wait

COMMAND = {"session_id": "s", "command_id": "cmd_abcdefghijklmnopqrstuv", "wait_for": "finish"}
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from([*COMMAND, "x"]), inner, max_size=4),
)


def made_up(value: Any) -> str:
    return PREFIX + base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def refused(task_id: str) -> bool:
    try:
        Wait.of(task_id)
    except MCPError as problem:
        return problem.code == -32602
    return False


TIMES = st.floats(min_value=1, max_value=time.time())
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=99)


@given(TIMES, st.none() | st.floats(0, 1e9), st.booleans(), WORDS)
def test_an_id_says_all_there_is_to_know(at: float, seconds: float | None, began: bool, pattern: str) -> None:
    wait = Wait({**COMMAND, "pattern": pattern}, began, round(at, 3), seconds)
    assert Wait.of(wait.task_id) == wait
    assert wait.task_id.isascii()  # it is sent in a header


@given(st.text(max_size=200) | JSON.map(made_up))
def test_an_id_that_nobody_gave_out_is_refused_or_read_whole(task_id: str) -> None:
    if not refused(task_id):
        wait = Wait.of(task_id)
        assert wait.task_id == task_id
        assert wait.task_facts("working")["createdAt"].endswith("Z")


TOMORROW = "tomorrow and later"


@pytest.mark.parametrize("at", [0, -1, float("nan"), float("inf"), TOMORROW, 1e300])
def test_times_that_cannot_be_are_refused(at: float | str) -> None:
    assert refused(made_up([1, time.time() + 2 * TTL_SECONDS if at == TOMORROW else at, None, COMMAND]))
    assert not refused(made_up([1, 1000.5, None, COMMAND]))


def test_only_what_a_look_takes_is_in_it() -> None:
    assert refused(made_up([1, 1000.5, None, {"session_id": "s"}]))
    assert refused(made_up([1, 1000.5, None, []]))
    assert refused(made_up([2, 1000.5, None, COMMAND]))  # another way to write the same
    assert refused(made_up([1, 1000.5, None, {**COMMAND, "pattern": "x" * MAX_ID_CHARS}]))
    assert refused(made_up([1, 1000.5, None, {**COMMAND, "pattern": "\ud800"}]))


@pytest.mark.parametrize(("age", "milliseconds"), [(0, 500), (9, 500), (11, 2000), (59, 2000), (61, 5000), (1e4, 5000)])
def test_the_longer_it_takes_the_less_often_is_asked(age: float, milliseconds: int) -> None:
    assert [most for most, _ in POLL_MS] == [10, 60, float("inf")]
    wait = Wait(COMMAND, began_command=True, created_at=time.time() - age, seconds=None)
    assert wait.task_facts("working")["pollIntervalMs"] == milliseconds
    assert not wait.over


def test_it_is_over_when_it_has_waited_for_as_long_as_it_was_asked_to() -> None:
    begun = time.time() - 10
    assert Wait(COMMAND, began_command=True, created_at=begun, seconds=9.5).over
    assert not Wait(COMMAND, began_command=True, created_at=begun, seconds=900).over
