"""Models that are asked over the network, at servers in memory that speak as their makers do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccswarm.brains.base import WorkerContext
from ccswarm.models import CallOutcome, CallRequest, CallStatus
from ccswarm.runs.events import RunEvent
from ccswarm.runs.events import format_event as of_people
from tests.ccswarm.support.llm_agents import KEY, SECRET, finish, llm_worker, plan, served, task_events
from tests.ccswarm.support.model_servers import (
    Asked,
    Cut,
    Fail,
    ModelServer,
    Raw,
    Reply,
    Script,
    Stall,
    answers,
    loops,
    plays,
)
from tests.ccswarm.support.swarms import MemoryWorker, settings
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = pytest.mark.anyio

KINDS = ("openai", "openai-responses", "anthropic", "gemini")
DONE = Reply("All is done.", calls=[finish()])
LOOK = Reply("I look.", calls=[("srv.look", {"path": "/a"})])


def looking() -> MemoryWorker:
    made = llm_worker()
    made.tool("srv.look", found=1)
    return made


async def ran(
    script: Script, *, made: MemoryWorker | None = None, kind: str = "openai", server: Any = None, **more: Any
) -> tuple[Mapping[str, Any], MemoryWorker, ModelServer]:
    """The task after a run with a model of that kind."""
    made = made or looking()
    async with ModelServer(script, **(server or {})) as model:
        done = await made.run(plan(served(model, kind, **more)))
    assert model.refused == [] or model.context_tokens < 10**9, model.refused
    return done.result["tasks"]["t"], made, model


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_is_done(kind: str) -> None:
    task, made, model = await ran(plays([LOOK, DONE]), kind=kind, server={"key": SECRET})
    assert (task["status"], task["summary"], made.ran) == ("succeeded", "Done.", ["turn1.call1"])
    assert (task["usage"]["tokens"], task["usage"]["dollars"]) == (220, 0.0)
    asked, second = model.asked
    assert asked.stream
    assert list(asked.tools) == ["finish", "recall", "srv__look"]
    assert "You are ada" in asked.system
    assert "Look around." in asked.prompt
    (result,) = second.results
    assert result.text.startswith("[1] ")
    assert "found" in result.text
    assert [(one["text"], one["tokens"]) for one in await task_events(made, "agent.said")] == [
        ("I look.", 110),
        ("All is done.", 110),
    ]


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_words_alone_are_answered_with_a_reminder(kind: str) -> None:
    words = Reply("I could start by looking. Should I?")
    task, made, model = await ran(plays([words, LOOK, DONE]), kind=kind)
    assert (task["status"], task["summary"], made.ran) == ("succeeded", "Done.", ["turn2.call1"])
    assert "You answered without calling a tool" in str(model.asked[1].messages)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_passes_by_itself_is_waited_for_and_asked_again(kind: str) -> None:
    script = answers([LOOK, Fail(429, retry_after=30), Cut(2), Fail(503), Stall(1), DONE])
    task, made, model = await ran(script, kind=kind, idle_seconds=1.5)
    assert (task["status"], made.ran) == ("succeeded", ["turn1.call1"])
    waits = await task_events(made, "agent.waits")
    assert [one["why"] for one in waits] == ["rate_limited", "cut", "overloaded", "timed_out"]
    assert 30 <= waits[0]["seconds"] <= 33
    assert [seconds for _, seconds in made.engine.store.slept] == [one["seconds"] for one in waits]
    assert len(model.asked) == 6, "nobody else asks again"
    assert [len(asked.messages) for asked in model.asked[1:]] == [3] * 5


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_stays_silent_and_one_that_never_ends(kind: str) -> None:
    task, _, _ = await ran(answers([Stall(0)] * 3), kind=kind, idle_seconds=0.1, retries=1)
    assert task["status"] == "failed"
    assert "does not answer in time, tried 2 times (nothing was received for 0.1 s)" in task["summary"]
    task, _, _ = await ran(answers([Stall(3)] * 3), kind=kind, request_timeout_seconds=0.2, retries=0)
    assert "the answer was not complete after 0.2 s" in task["summary"]


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Fail(401), f"refused the key in {KEY}"),
        (Fail(404), "is not known at http://127.0.0.1"),
        (Fail(400, "This is odd."), "rejected the request (This is odd.)"),
        (Fail(402, no_credit=True), "has no credit left on the account"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.corners
async def test_what_does_not_pass_ends_the_task_and_says_what_to_do(kind: str, failure: Fail, said: str) -> None:
    task, made, model = await ran(answers([failure]), kind=kind)
    assert task["status"] == "failed"
    assert said in task["summary"]
    assert "; " in task["summary"]
    assert (len(model.asked), made.engine.store.slept) == (1, [])


PAGE = Raw(b"<!doctype html><title>Welcome</title>", headers={"content-type": "text/html; charset=utf-8"})
NONE = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_else_answers_at_an_address_is_said_and_waited_for_where_a_model_was_there(kind: str) -> None:
    task, made, model = await ran(answers([PAGE] * 4), kind=kind)
    assert f"{kind}:big does not answer at http://127.0.0.1:" in task["summary"]
    assert "another service does, tried 3 times (text/html: a page with the title 'Welcome')" in task["summary"]
    assert "make sure that base_url is the URL of such an API" in task["summary"]
    assert (len(model.asked), len(made.engine.store.slept)) == (3, 2)
    others = [
        PAGE,
        Raw(b'{"error": {"message": "no credit"}}', headers=NONE),
        Raw(headers=NONE),
        Raw(headers=EVENTS),
        Raw(b"data: [1]\n\n", headers=EVENTS),
        Raw(status=302, headers={"location": "/login"}),
    ]
    broken = Raw(b"\0no gzip", headers={**EVENTS, "content-encoding": "gzip"})
    task, made, _ = await ran(answers([LOOK, *others, broken, Fail(502), DONE]), kind=kind, retries=9)
    assert task["status"] == "succeeded", task
    waits = [(one["why"], one["message"]) for one in await task_events(made, "agent.waits")]
    assert [why for why, _ in waits] == ["not_understood"] * 6 + ["cut", "server_error"]
    assert [waits[at][1] for at in (1, 2, 5)] == [
        "application/json: no credit",
        "application/json, which is empty",
        "HTTP 302, which leads to /login",
    ]


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_nobody_there_is_said_within_seconds(kind: str) -> None:
    """Unless a model has answered before: then it is waited for."""
    made = looking()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    done = await made.run(plan({"model": f"{kind}:big", "base_url": address}))
    said = done.result["tasks"]["t"]["summary"]
    assert f"{kind}:big cannot be reached at {address}, tried 3 times" in said
    assert [one["why"] for one in await task_events(made, "agent.waits")] == ["cannot_connect"] * 2
    assert sum(seconds for _, seconds in made.engine.store.slept) < 8


async def test_a_model_that_has_answered_is_waited_for_as_long_as_is_set() -> None:
    made, model = looking(), ModelServer(plays([LOOK]))
    await model.__aenter__()

    async def leaves(_: CallRequest) -> Mapping[str, Any]:
        await model.__aexit__()
        return {"found": 1}

    made.tool("srv.look", leaves)
    done = await made.run(plan(served(model, retries=5)))
    assert "cannot be reached" in done.result["tasks"]["t"]["summary"]
    assert len(made.engine.store.slept) == 5


async def test_a_provider_at_another_address_is_reported_once_and_gets_its_key() -> None:
    made = looking()
    async with ModelServer(plays([LOOK, DONE]), key=SECRET) as model:
        location = f"{model.url}/v1"
        known = {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": "sk-of-another"}
        made.task_worker.worker_context = WorkerContext(
            lambda name: known.get(name, ""), {"OPENAI_BASE_URL": location}, Path("/nowhere")
        )
        done = await made.run(plan({"model": "openai:big"}))
    assert done.result["status"] == "succeeded", done.result
    assert model.refused == []
    (where,) = await task_events(made, "agent.redirected")
    assert (where["model"], where["endpoint"]) == ("openai:big", f"{location} (OPENAI_BASE_URL)")
    said = of_people(RunEvent("run_1", "run_1.t", where, 1.0))
    assert said == f"t: asks openai:big at {location} (OPENAI_BASE_URL)"


async def test_refusals_of_the_model_are_failures() -> None:
    task, _, _ = await ran(answers([Reply("I will not do that.", stop="refusal")]), kind="anthropic")
    assert "anthropic:big refused to answer" in task["summary"]


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_then_another_model_is_asked_with_the_same_history(kind: str) -> None:
    made = looking()
    broken = answers([LOOK, Fail(500), Fail(500), Fail(500)])
    async with ModelServer(broken) as model, ModelServer(answers([Fail(503), DONE])) as second:
        other = served(second, "anthropic" if kind != "anthropic" else "openai")
        done = await made.run(plan(served(model, kind, retries=1, fallback=[other])))
    assert done.result["status"] == "succeeded"
    (changed,) = await task_events(made, "agent.changed_model")
    assert (changed["why"], changed["to"]) == ("server_error", other["model"])
    assert [result.tool for result in second.asked[0].results] == ["srv__look"]
    assert second.refused == []
    assert made.ran == ["turn1.call1"]
    assert len(await task_events(made, "agent.waits")) == 2, "each model is asked again"


@pytest.mark.parametrize("kind", first(KINDS, "openai", "gemini"))
async def test_what_the_model_does_wrong_it_is_told(kind: str) -> None:
    deep = '{"path": ' * 200_000 + "1" + "}" * 200_000
    half, listed = ("srv.look", '{"path": "/a"'), ("srv.look", "[1]")
    wrong = Reply(calls=[half, listed, ("srv.look", deep), ("rm_all", {}), ("recall", {"id": 99})])
    script = answers([wrong, Reply(calls=[("finish", {"status": "great"})]), DONE])
    if kind in ("anthropic", "gemini"):  # which never send what is no object
        script = answers([Reply(calls=wrong.calls[3:]), Reply(calls=[("finish", {"status": "great"})]), DONE])
    task, made, model = await ran(script, kind=kind)
    assert (task["status"], made.ran) == ("succeeded", [])
    said = [result.text for result in model.asked[-1].results]
    if kind not in ("anthropic", "gemini"):
        assert all("The arguments are not a JSON object" in one for one in said[:3])
    assert "not_granted" in said[-3]
    assert "There is no output 99" in said[-2]
    assert "status is 'great', and should be one of succeeded, failed, blocked" in said[-1]


async def test_an_endless_loop_of_tools_ends() -> None:
    task, made, _ = await ran(loops(("srv.look", {"path": "/a"})), max_turns=5)
    assert (task["status"], len(made.ran)) == ("failed", 5)
    made = llm_worker()

    async def fails(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.TOOL_ERROR, "no")

    made.tool("srv.look", fails)
    task, made, model = await ran(loops(("srv.look", {"path": "/a"})), made=made)
    assert "the same call failed 5 times in a row" in task["summary"]
    assert "This is the 3. time in a row that this call failed" in model.asked[-1].results[2].text


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_is_cut_short_goes_on(kind: str) -> None:
    script = answers([Reply("Half of a th", stop="length"), Reply(""), DONE])
    task, _, model = await ran(script, kind=kind, max_tokens=77)
    assert task["status"] == "succeeded"
    assert "cut off after 77 tokens" in model.asked[1].prompt
    assert "Your answer was empty" in model.asked[2].prompt
    task, _, _ = await ran(answers([Reply("Half of a th", stop="length")] * 5), kind=kind, max_tokens=77)
    assert task["summary"] == "the model's answers are cut off after 77 tokens; raise max_tokens"


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_conversation_that_is_too_long_for_the_model_gets_shorter(kind: str) -> None:
    made = llm_worker()

    async def much(request: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.OK, f"{request.arguments['path']}: " + "words " * 2000)

    made.tool("srv.look", much)
    many = [Reply(calls=[("srv.look", {"path": f"/{n}"})]) for n in range(8)]
    script = answers([*many, Reply(calls=[("recall", {"id": 1})]), DONE])
    bounds = {"answer_chars": 12_000, "sum_up_at": 0}
    task, _, model = await ran(script, made=made, kind=kind, server={"context_tokens": 12_000}, **bounds)
    assert task["status"] == "succeeded", task["summary"]
    assert model.refused, "it was too long at first"
    last = model.asked[-1]
    assert "Look around." in last.prompt
    assert "recall(id=" in last.whole_text
    assert "characters 0 to" in last.results[-1].text


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_model_sums_up_what_it_did_before_it_gets_too_long(kind: str) -> None:
    made = llm_worker()
    made.tool("srv.look", found="words " * 500)
    turns = iter([LOOK] * 9)

    def script(asked: Asked) -> Reply:
        if "This conversation gets too long" in asked.messages[-1].text:
            return Reply("The path was /a, and nothing is left.")
        return next(turns, DONE)

    task, _, model = await ran(script, made=made, kind=kind, context_chars=20_000)
    assert task["status"] == "succeeded"
    assert await task_events(made, "agent.summed_up")
    assert "The path was /a, and nothing is left." in model.asked[-1].prompt
    assert "Look around." in model.asked[-1].prompt


async def test_prices_are_counted() -> None:
    price = {"input": 2.0, "output": 20.0}
    task, _, _ = await ran(plays([LOOK, DONE]), price=price)
    assert task["usage"]["dollars"] == pytest.approx(2 * (100 * 2 + 10 * 20) / 1e6)


async def test_the_key_is_in_no_event_and_no_result() -> None:
    task, made, model = await ran(answers([Fail(401, f"Incorrect API key provided: {SECRET}")]))
    assert "Incorrect API key provided: ***" in task["summary"]
    assert model.asked[0].key == SECRET
    kept = [[*row.events, row.result, row.payload, str(row.records)] for row in made.engine.store.rows.values()]
    assert SECRET not in str(kept)


async def test_makers_keys_stay_with_their_makers() -> None:
    """Some server is named, but no key for it."""
    made = looking()
    made.task_worker.worker_context = WorkerContext(
        lambda name: f"secret of {name}", {"OPENAI_API_KEY": "own"}, made.task_worker.worker_context.state_directory
    )
    async with ModelServer(answers([DONE])) as model:
        given = {name: value for name, value in served(model).items() if name != "key"}
        await made.run(plan(given))
    assert [asked.key for asked in model.asked] == ["none"]


async def test_killed_while_a_model_thinks_only_that_question_is_asked_again() -> None:
    thinking, never = asyncio.Event(), asyncio.Event()

    async def hangs(_: Asked) -> Reply:
        thinking.set()
        await never.wait()
        return DONE

    turns = [LOOK, hangs]
    made = looking()
    async with ModelServer(lambda asked: plays(turns)(asked)) as model:
        async with made.working(), asyncio.timeout(BOUND_SECONDS):
            await made.swarm.submit(settings(plan(served(model))), "run_1", "/project")
            await thinking.wait()
            made.engine.kill()
        turns[1] = DONE
        other = llm_worker(made.engine.store, "two")
        other.tool("srv.look", found=1)
        async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
            done = await other.engine.wait("run_1")
    assert done.result["status"] == "succeeded"
    assert (made.ran, other.ran) == (["turn1.call1"], [])
    assert [asked.turns for asked in model.asked] == [0, 1, 1]
    assert model.asked[1].body == model.asked[2].body, "one history, word for word"
    assert [one["turn"] for one in await task_events(other, "agent.said")] == [1, 2]


@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_has_one_connection(kind: str) -> None:
    task, _, model = await ran(plays([LOOK, LOOK, LOOK, DONE]), kind=kind)
    assert (task["status"], model.connections) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("kind", "effort", "part"),
    [
        ("openai", "low", {"reasoning_effort": "low"}),
        ("openai-responses", "high", {"reasoning": {"effort": "high"}}),
        ("gemini", "low", {"generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": {"thinkingBudget": 2048}}}),
    ],
)
async def test_effort_headers_and_body_are_sent_and_secrets_of_headers_told_to_nobody(
    kind: str, effort: str, part: Mapping[str, Any]
) -> None:
    more: dict[str, Any] = {
        "headers": {"x-gate-token": f"env:{KEY}", "x-team": "blue"},
        "body": {"metadata": {"a": "b"}},
    }
    script = answers([LOOK, Fail(400, f"Odd {SECRET}")])
    task, made, model = await ran(script, kind=kind, key="", effort=effort, max_tokens=9000, **more)
    assert "rejected the request (Odd ***)" in task["summary"]
    assert SECRET not in str([[*row.events, row.result] for row in made.engine.store.rows.values()])
    for asked in model.asked:
        assert {name: asked.body[name] for name in part} == part
        assert asked.body["metadata"] == {"a": "b"}
        assert (asked.headers["x-gate-token"], asked.headers["x-team"]) == (SECRET, "blue")


@pytest.mark.parametrize("cache", first(["5m", "1h", "off"], "1h", "off"))
async def test_anthropic_keeps_a_conversation_as_long_as_is_said(cache: str) -> None:
    task, _, model = await ran(plays([LOOK, DONE]), kind="anthropic", cache=cache, effort="low", max_tokens=9000)
    assert task["status"] == "succeeded"
    text = model.asked[1].whole_text
    assert ('"cache_control"' in text) == (cache != "off")
    assert ('"ttl": "1h"' in text) == (cache == "1h")
    assert "thinking" in model.asked[0].body


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [True, False])
@pytest.mark.corners
async def test_images_are_shown_to_models_that_take_them(kind: str, images: bool) -> None:
    made = llm_worker()

    async def screen(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.OK, "the screen", images=({"type": "image/png", "data": PNG},))

    made.tool("srv.look", screen)
    task, _, model = await ran(plays([LOOK, DONE]), made=made, kind=kind, images=images)
    assert task["status"] == "succeeded"
    text = model.asked[1].whole_text
    assert (PNG in text) == images
    assert "the screen" in text
    assert ("images are not shown" in text) != images


async def test_gemini_gets_its_signatures_back_and_takes_over_from_others() -> None:
    made = looking()
    several = Reply("Two at once.", calls=[("srv.look", {"path": "/a"}), ("srv.look", {"path": "/b"})])
    turns = plays([LOOK, several, LOOK, DONE])

    async with ModelServer(answers([LOOK, Fail(401)])) as refusing, ModelServer(turns) as model:
        other = {**served(model, "gemini", effort="max"), "model": "gemini:gemini-3-pro"}
        done = await made.run(plan(served(refusing, "openai", fallback=[other])))
    assert done.result["status"] == "succeeded", done.result
    assert model.refused == []
    assert made.ran == ["turn1.call1", "turn2.call2", "turn2.call3", "turn3.call4"]
    assert model.asked[0].body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "high"}
    assert model.asked[0].path.endswith("/v1beta/models/gemini-3-pro:streamGenerateContent")


async def test_what_gemini_blocks_is_a_refusal_and_quotas_of_a_day_are_not_waited_for() -> None:
    task, _, _ = await ran(answers([Reply("I will not.", stop="refusal")]), kind="gemini")
    assert "gemini:big refused to answer (SAFETY)" in task["summary"]
    task, made, _ = await ran(answers([Fail(429, no_credit=True)]), kind="gemini")
    assert "has no credit left on the account" in task["summary"]
    assert made.engine.store.slept == []
