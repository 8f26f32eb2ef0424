"""Parts of the swarm's server that need no process: cursors, places of problems, lines, what is listed of a plan."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentwire.json_lines import LineReader, Refused, encode, parse, scrub
from ccswarm.errors import InvalidArguments
from ccswarm.models import Execution, RunStatus
from ccswarm.runs.events import RunEvent
from ccswarm.servers.mcp.toolsets.swarm.answers import Carriers, page_answer, shortened
from ccswarm.servers.mcp.toolsets.swarm.calls import _placed as placed  # pyright: ignore[reportPrivateUsage]
from ccswarm.servers.mcp.toolsets.swarm.cursor import Position

RUN = "run_1"


def run_event(execution: str, count: int, event: str, /, **facts: Any) -> RunEvent:
    return RunEvent(RUN, execution, {"event": event, **facts}, 1.0, count)


def test_a_cursor_says_what_was_read_of_all_that_goes_on() -> None:
    position = Position(RUN)
    position.advance(run_event(RUN, 1, "run.started"))
    position.advance(run_event(RUN, 2, "task.started", task="a", execution=f"{RUN}.a", attempt=1))
    position.advance(run_event(RUN, 3, "task.started", task="b", execution=f"{RUN}.b~2", attempt=2))
    position.advance(run_event(f"{RUN}.a", 4, "agent.said", text="x"))
    position.advance(
        run_event(f"{RUN}.a", 5, "work.handed_on", run=f"{RUN}.a.hand", agent="x", step="hand", tasks=["c"])
    )
    position.advance(run_event(f"{RUN}.a.hand", 2, "task.started", task="c", execution=f"{RUN}.a.hand.c", attempt=1))
    assert str(position) == "3;a:5;b~2:0;a.hand:2;a.hand.c:0"
    again = Position(RUN, str(position))
    assert again.counts == position.counts
    again.advance(run_event(RUN, 4, "task.ended", task="a", attempt=1))
    assert str(again) == "4;b~2:0"


@pytest.mark.parametrize("text", ["x", "-1", "1;", "1;a", "1;a:", "1;../x:1", "1;a:1;", "9" * 13, "1\n", "1;a:1 "])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        Position(RUN, text)


@given(st.text(max_size=200))
def test_no_cursor_breaks_anything(text: str) -> None:
    with suppress(InvalidArguments):
        assert Position(RUN, text).counts


@pytest.mark.parametrize(
    ("problem", "location"),
    [
        ("task a: step x: tool small.ecko, which does not exist", "task a: step x"),
        ("task a: needs zed, which does not exist", "task a"),
        ("task a: gate 2: needs either a command or a tool", "task a: gate 2"),
        ("task a: review: by bob, which does not exist", "task a: review"),
        ("agent eve: no key", "agent eve"),
        ("[tasks.a.steps.#1] id should be a text", "[tasks.a.steps.#1] id"),
        ("there are tasks but no agents: add an [[agents]]", ""),
    ],
)
def test_a_problem_begins_with_its_place(problem: str, location: str) -> None:
    reported = placed(problem)
    assert reported["location"] == location
    assert problem.endswith(reported["problem"])


def test_who_carries_a_run_out() -> None:
    run = Execution(RUN, "run", RunStatus.RUNNING, worker="w1")
    assert Carriers(frozenset({"w1"}), "w1").of(run) == "this server"
    assert Carriers(frozenset({"w1"}), "w2").of(run) == "w1"
    assert Carriers(frozenset({"w2"}), "w2").of(run) == ""
    assert Carriers(frozenset()).status(run) == "interrupted"
    assert Carriers(frozenset({"w1"})).status(run, waiting=True) == "waiting_approval"


@given(st.text(max_size=30_000), st.integers(0, 40_000))
def test_pages_of_a_result_are_the_result(text: str, offset: int) -> None:
    facts = page_answer(RUN, "", "succeeded", text, offset).facts
    assert facts["text"] == text[offset : offset + 7000]
    assert facts["more"] is (offset + 7000 < len(text))
    assert facts["next_offset"] == offset + len(facts["text"])


def test_long_texts_of_events_say_that_they_are_cut() -> None:
    reported = shortened({"a": ["x" * 3000], "n": 1})
    assert reported["a"][0].endswith("… (1000 more characters)")
    assert reported["n"] == 1


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_sent_is_always_text(value: Any) -> None:
    assert json.loads(encode({"x": scrub(value)})) is not None


@given(st.binary(max_size=2000))
def test_no_line_breaks_the_reader(data: bytes) -> None:
    for line in LineReader(limit=500).feed(data + b"\n"):
        if isinstance(line, Refused):
            continue
        with suppress(Refused):
            message = parse(line)
            assert message is None or isinstance(message.get("method", ""), str)
