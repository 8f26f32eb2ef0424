"""Whatever a model answers, its task goes on or ends, and is the same when it is thought again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from ccswarm.brains.base import Assignment, CallTool, Finish, Step, Think, Wait
from ccswarm.brains.llm.loop import LlmThinking
from ccswarm.brains.llm.plugin import PLUGIN
from ccswarm.brains.llm.retries import EXPLAINED
from ccswarm.engines.base import Flow
from ccswarm.models import CallOutcome, CallStatus, ToolInfo
from tests.ccswarm.support.llm_agents import CONTEXT, recorded, reply

MOST_TURNS = 12
KEYS = st.sampled_from(
    [
        *("status", "summary", "result", "id", "offset", "call_key", "x", "session_id"),
        *("command", "stdin", "timeout_seconds", "path", "from", "to", "old", "new", "items"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
OBJECT = st.dictionaries(KEYS, JSON, max_size=4)
ENDS = st.fixed_dictionaries(
    {"status": st.sampled_from(["succeeded", "failed", "great"]), "summary": st.text(max_size=3)}
)
NAMES = st.sampled_from(
    [
        *("finish", "recall", "bash", "read", "edit", "todo"),
        *("srv__look", "srv.look", "srv.none", "", "a/b", "swarm.delegate"),
    ]
)
OWN = st.fixed_dictionaries(
    {"path": st.just("a"), "old": st.text(max_size=2), "new": st.text(max_size=2), "command": st.just("make")},
    optional={"from": JSON, "timeout_seconds": st.floats(), "stdin": st.text(max_size=2)},
)
CALLS = st.lists(
    st.fixed_dictionaries({"id": st.text(max_size=3), "name": NAMES, "arguments": st.none() | OBJECT | ENDS | OWN}),
    max_size=4,
)
ANSWERS = st.fixed_dictionaries(
    {
        "response": st.just({"parts": []}),
        "text": st.text(max_size=5),
        "calls": CALLS,
        "finish": st.sampled_from(["stop", "tool_call", "length"]),
        "usage": st.just({"tokens": 7}),
        "model": st.just("m"),
    }
)
TROUBLES = st.fixed_dictionaries(
    {
        "error": st.fixed_dictionaries(
            {"kind": st.sampled_from([*EXPLAINED, "unheard"]), "message": st.text(max_size=5)},
            optional={"retry_after": st.floats(0, 1e6)},
        )
    }
)
RESULTS = st.fixed_dictionaries(
    {"status": st.sampled_from(["running", "finished"])},
    optional={"session_id": st.just("s"), "exit_code": st.integers(0, 2), "output": st.text(max_size=3)},
)
OUTCOMES = st.builds(
    CallOutcome,
    st.sampled_from(CallStatus),
    st.text(max_size=2000),
    st.none() | st.just({"a": 1}) | RESULTS,
    code=st.sampled_from(["", "not_granted", "session_not_found", "session_exists", "shell_unavailable"]),
    message=st.text(max_size=4),
)


class RecordingFlow:
    """A flow of which only the events matter."""

    id = "run.t"

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def emit(self, event: Mapping[str, Any]) -> None:
        json.dumps(dict(event))
        self.events.append({name: value for name, value in event.items() if name != "at"})


def begun() -> LlmThinking:
    own = recorded(reply(text="a"), max_turns=MOST_TURNS, context_chars=4000, answer_chars=500, retries=2)
    own["fallback"] = ["recorded:other"]
    terminal = ("create_session", "execute_command", "read_output", "interrupt_command")
    tools = [ToolInfo("srv", "look"), *(ToolInfo("ai-session", name) for name in terminal)]
    return PLUGIN.begin(Assignment("r", "t", "ada", {"text": "Do."}, {}, tools, own), CONTEXT)


def think(heard: Sequence[Any], came: Sequence[CallOutcome]) -> tuple[list[Step], list[dict[str, Any]], LlmThinking]:
    """All steps until the task ends, with these answers and outcomes over and over."""
    thinking, flow = begun(), RecordingFlow()
    steps: list[Step] = []
    asked = called = 0
    ended: dict[str, CallOutcome] = {}
    while not steps or not isinstance(steps[-1], Finish):
        decided = asyncio.run(cast("Any", thinking.decide(cast("Flow", flow), ended)))
        assert decided, "nothing goes on, so something has to begin"
        steps += decided
        ended = {}
        for step in decided:
            if isinstance(step, Think):
                ended[step.id] = CallOutcome(CallStatus.OK, structured=heard[asked % len(heard)])
                asked += 1
            elif isinstance(step, CallTool):
                assert "call_key" not in step.arguments
                ended[step.id] = came[called % len(came)]
                called += 1
            elif isinstance(step, Wait):
                assert 0 <= step.seconds <= 900
                ended[step.id] = CallOutcome(CallStatus.OK)
        assert len(steps) < 1000
    return steps, flow.events, thinking


@given(st.lists(ANSWERS | TROUBLES, min_size=1, max_size=6), st.lists(OUTCOMES, min_size=1, max_size=4))
def test_it_ends_and_is_the_same_again(heard: list[Any], came: list[CallOutcome]) -> None:
    steps, events, thinking = think(heard, came)
    ids = [step.id for step in steps if not isinstance(step, Finish)]
    assert len(ids) == len(set(ids)), "each id once"
    assert sum(event["event"] == "agent.said" for event in events) <= MOST_TURNS
    ending = steps[-1]
    assert isinstance(ending, Finish)
    assert ending.summary
    json.dumps(ending.result)
    answered = [call for turn in thinking.conversation.turns for call in turn.calls if call.ended]
    assert all(message.text for message in thinking.conversation.messages() if message.call in answered)
    again, told_again, _ = think(heard, came)
    assert [step for step in again if not isinstance(step, Think)] == [s for s in steps if not isinstance(s, Think)]
    assert told_again == events
