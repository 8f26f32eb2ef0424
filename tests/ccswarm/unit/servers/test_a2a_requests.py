"""What a message of A2A asks for, and how long is waited for what comes of it."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from ccswarm.config.settings import AgentSettings, Settings, SwarmSettings
from ccswarm.servers.a2a.standard.card import card_of, tag_of
from ccswarm.servers.a2a.standard.errors import Fault
from ccswarm.servers.a2a.standard.requests import MOST_REFERRED_CHARS, agent_in, plan_in, require_output_type, with_text
from ccswarm.servers.a2a.standard.runs import wait_until_interrupted
from ccswarm.servers.a2a.standard.wire import Sent, parse_send
from ccswarm.servers.a2a.task_store import State, Task, Tasks
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
THINKS = AgentSettings(name="tim", type="researcher", brain="llm")
LEADS = AgentSettings(name="lea", type="coordinator", brain="llm", capabilities=("order", "coordinator"))
FOLLOWS = AgentSettings(name="ada")
STEPS = AgentSettings(name="eve", settings={"steps": [{"id": "say", "tool": "small.echo"}]})


def message(*parts: Any, **more: Any) -> Sent:
    shown = [{"text": part} if isinstance(part, str) else part for part in parts]
    return parse_send({"message": {"messageId": "m", "role": "ROLE_USER", "parts": shown}, **more}, "1.0")


def of(*agents: AgentSettings) -> Settings:
    return Settings(agents=agents)


def test_who_thinks_is_given_what_earlier_tasks_came_to() -> None:
    data = {"steps": [2**60]}
    artifact = {"artifactId": "main", "parts": [{"text": "all done"}, {"data": data}]}
    earlier = Task("run_1", "standard", state=State.COMPLETED, artifacts=[artifact])
    (task,) = with_text(message("go on"), "", of(FOLLOWS, STEPS, THINKS), [earlier]).tasks
    assert (task.agent, task.text) == ("eve", "go on")
    (task,) = with_text(message("go on"), "tim", of(FOLLOWS, STEPS, THINKS), [earlier]).tasks
    reported = '\n\n(Earlier task run_1, completed:\nall done\n{"steps": [1152921504606846976]})'
    assert (task.agent, task.text) == ("tim", f"go on{reported}")
    several = message("one", {"data": {"b": 1, "a": [2**60]}}, "two")
    (task,) = with_text(several, "", of(THINKS), []).tasks
    assert task.text == 'one\n\n{"b": 1, "a": [1152921504606846976]}\n\ntwo'
    (task,) = with_text(message("lead"), "", of(THINKS, LEADS), []).tasks
    assert task.agent == "lea"
    long = Task("run_2", "standard", artifacts=[{"artifactId": "a", "parts": [{"text": "x" * 10_000}]}])
    (task,) = with_text(message("go on"), "", of(THINKS), [long]).tasks
    assert task.text.count("x") == MOST_REFERRED_CHARS
    for agents in ((), (FOLLOWS,)):
        with pytest.raises(Fault):
            with_text(message("x"), "", of(*agents), [])


def test_a_message_has_at_most_one_plan() -> None:
    assert plan_in(message("words", {"data": {"other": 1}}, {"data": [1]})) == ""
    assert plan_in(message("words", {"data": {"plan": {"ü": 1}}})) == '{"ü": 1}'
    assert plan_in(message({"data": {"plan": "[[tasks]]"}})) == "[[tasks]]"
    raw = base64.b64encode(b"[[tasks]]").decode()
    for name in (
        {"mediaType": "application/toml; charset=utf-8"},
        {"filename": "plan.toml"},
        {"filename": "plan.json"},
    ):
        assert plan_in(message({"raw": raw, **name}, "please")) == "[[tasks]]"
    old = {"messageId": "m", "role": "user", "parts": [{"kind": "file", "file": {"bytes": raw, "name": "p.toml"}}]}
    assert plan_in(parse_send({"message": old}, "0.3")) == "[[tasks]]"
    for parts in (
        ({"data": {"plan": None}},),
        ({"data": {"plan": ""}},),
        ({"data": {"plan": "[[tasks]]", "workspace": "/"}},),
        ({"data": {"plan": "x"}}, {"raw": "eA==", "filename": "a.TOML"}),
        ({"raw": "gA==", "filename": "a.toml"},),
    ):
        with pytest.raises(Fault):
            plan_in(message(*parts))


def test_who_is_meant_and_what_is_taken() -> None:
    assert agent_in(message("x")) == ""
    for name in ("agent", "skill", "skillId"):
        assert agent_in(message("x", metadata={name: "tim", "other": 1})) == "tim"
    for modes in ([], ["text"], ["text/markdown"], ["application/json"], ["*/*"], ["image/png", "text/plain; q=1"]):
        require_output_type(message("x", configuration={"acceptedOutputModes": modes}))
    with pytest.raises(Fault):
        require_output_type(message("x", configuration={"acceptedOutputModes": ["image/png", "video/mp4"]}))


def test_a_card_says_what_is_configured() -> None:
    settings = Settings(agents=(LEADS,), swarm=SwarmSettings(name="stars"))
    card = card_of(settings, "http://localhost:1", secured=True)
    assert (card["name"], card["url"]) == ("stars", "http://localhost:1/")
    assert card["skills"][0]["tags"] == ["coordinator", "order"]
    assert card["security"] == [{"bearer": []}, {"key": []}]
    assert tag_of(card) != tag_of(card_of(settings, "http://localhost:2", secured=True))
    assert card_of(of(), "http://localhost:1", secured=False)["skills"][0]["id"] == "ccswarm.plan"


async def test_nobody_waits_longer_than_that(tmp_path: Path) -> None:
    tasks = Tasks(tmp_path, 1.0)
    tasks.open()
    try:
        task = tasks.begin("standard", "run_1")
        await wait_until_interrupted(tasks, task, 0.01)
        assert task.state is State.SUBMITTED
        for state in (State.INPUT_REQUIRED, State.COMPLETED):
            waiting = asyncio.create_task(wait_until_interrupted(tasks, task, 60))
            await asyncio.sleep(0)
            tasks.set_state(task, State.WORKING)
            tasks.set_state(task, state)
            await asyncio.wait_for(waiting, BOUND_SECONDS)
            await wait_until_interrupted(tasks, task, 60)
            tasks.set_state(task, State.WORKING)
    finally:
        tasks.close()
