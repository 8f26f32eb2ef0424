"""An agent that thinks, on an engine in memory: its calls, its end, what goes wrong, and what is left after a kill."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ccswarm.brains.base import Assignment, CallTool, Finish, Think
from ccswarm.brains.cli import prompts
from ccswarm.brains.llm import prompts as prompt
from ccswarm.brains.llm.plugin import PLUGIN
from ccswarm.brains.llm.settings import read
from ccswarm.models import CallOutcome, CallRequest, CallStatus, ToolInfo
from ccswarm.runs.events import RunEvent
from ccswarm.runs.events import format_event as of_people
from ccswarm.runs.status import facts_of
from tests.ccswarm.support.llm_agents import CONTEXT, finish, llm_worker, plan, recorded, reply, task_events
from tests.ccswarm.support.swarms import MemoryWorker, settings
from tests.ccswarm.unit.brains.test_llm_any_answer import RecordingFlow
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

LOOK = ("srv.look", {"path": "/a"})


async def ran(made: MemoryWorker, *replies: Mapping[str, Any], task: Any = None, **more: Any) -> Mapping[str, Any]:
    """The task after a run of these replies."""
    done = await made.run(plan(recorded(*replies, **more), task=task))
    return done.result["tasks"]["t"]


def heard(made: MemoryWorker) -> list[tuple[str, dict[str, Any]]]:
    return [(request.tool, dict(request.arguments)) for request in made.task_worker.calls]


async def test_calls_of_one_answer_go_on_side_by_side_and_later_ones_use_what_came() -> None:
    made = llm_worker()
    both = asyncio.Barrier(2)

    async def look(request: CallRequest) -> Mapping[str, Any]:
        if request.arguments["path"] != "/c":
            await asyncio.wait_for(both.wait(), BOUND_SECONDS)
        return {"found": {"names": [request.arguments["path"] * 2]}}

    made.tool("srv.look", look)
    first = reply(LOOK, ("srv.look", {"path": "/b"}), text="I look at both.")
    second = reply(("srv.look", {"path": "/c", "from": {"names": ["$1.found.names", "$2.found.names.0", "$1"]}}))
    task = await ran(made, first, second, reply(finish(result={"n": 3})))
    assert (task["status"], task["summary"], task["result"]) == ("succeeded", "Done.", {"summary": "Done.", "n": 3})
    assert heard(made)[2] == ("srv.look", {"path": "/c", "from": {"names": [["/a/a"], "/b/b", "$1"]}})
    assert made.ran == ["turn1.call1", "turn1.call2", "turn2.call3"]
    events = await task_events(made, "agent.said")
    assert [(one["turn"], one["text"], one["calls"]) for one in events] == [
        (1, "I look at both.", ["srv.look", "srv.look"]),
        (2, "", ["srv.look"]),
        (3, "", ["finish"]),
    ]
    assert {(one["task"], one["agent"], one["model"]) for one in events} == {("t", "ada", "recorded")}


@pytest.mark.parametrize("words", ["I'll start by exploring the repository.", "I have no access. Should I proceed?"])
async def test_words_alone_are_no_success(words: str) -> None:
    made = llm_worker()
    task = await ran(made, *[reply(text=words)] * 3)
    assert task["status"] == "failed"
    assert task["summary"] == f"the model did not call finish, so the result is unknown; it said: {words}"
    assert task["result"]["reached"]["last_words"] == words
    assert len(await task_events(made, "agent.said")) == 3, "it was reminded twice, and not more often"


async def test_a_model_that_is_reminded_goes_on_and_finishes() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    words = reply(text="Now I look.")
    task = await ran(made, words, words, reply(LOOK), words, words, reply(finish(summary="Looked.")))
    assert (task["status"], task["summary"]) == ("succeeded", "Looked.")
    assert heard(made) == [("srv.look", {"path": "/a"})]


async def test_a_model_is_told_that_words_alone_end_nothing() -> None:
    own = recorded(reply(text="Done!"))
    asked = Assignment("run", "t", "ada", {"text": "Look."}, {}, [], own, "", "/work", type="coder")
    assert "Words alone end nothing." in PLUGIN.begin(asked, CONTEXT).conversation.system


@pytest.mark.parametrize("status", ["failed", "blocked"])
async def test_a_task_ends_as_its_agent_says(status: str) -> None:
    task = await ran(llm_worker(), reply(finish(status, "Nobody has a key.", result={"asked": 2})))
    assert (task["status"], task["summary"]) == (status, "Nobody has a key.")


async def test_what_a_task_builds_on_and_what_checks_it_are_told() -> None:
    gates = [{"command": "make test"}, {"tool": "srv.judge", "args": {"n": 1}, "expect": {"equals": {"fine": True}}}]
    given = {"text": "Build on it.", "gates": gates}
    inputs = {"t": {"summary": "Done.", "colour": "green"}}
    own = recorded(reply(finish()))
    asked = Assignment("run", "build", "ada", given, inputs, [], own, "", "/work", type="coder")
    conversation = PLUGIN.begin(asked, CONTEXT).conversation
    assert "Build on it." in conversation.task
    assert '"colour": "green"' in conversation.task
    assert 'make test\nsrv.judge {"n": 1} answers {"equals": {"fine": true}}\n' in conversation.task + "\n"
    assert "make test\nsrv.judge" in prompts.begin(asked)
    assert conversation.system.startswith("You are ada, a coder")
    assert "/work" in conversation.system


async def test_what_is_not_offered_is_refused_and_the_model_goes_on() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    wrong = reply(("srv.wipe", {"path": "/"}), ("nonsense", {}))
    task = await ran(made, wrong, reply(LOOK), reply(finish()))
    assert task["status"] == "succeeded"
    assert made.ran == ["turn2.call3"]


async def test_a_refused_end_is_reported() -> None:
    made = llm_worker()

    async def fails(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.TOOL_ERROR, "no such file")

    made.tool("srv.look", fails)
    replies = (reply(LOOK, finish()), reply(finish("great")), reply(finish(summary="")), reply(finish(summary="Now.")))
    task = await ran(made, *replies)
    assert (task["status"], task["summary"]) == ("succeeded", "Now.")
    assert len(await task_events(made, "agent.said")) == 4


async def test_calls_next_to_the_finish_come_first() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    task = await ran(made, reply(finish(), LOOK))
    assert (task["status"], made.ran) == ("succeeded", ["turn1.call2"])


async def test_the_same_failure_again_and_again_ends_the_task() -> None:
    made = llm_worker()

    async def fails(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.TOOL_ERROR, "no such file")

    made.tool("srv.look", fails)
    task = await ran(made, *[reply(LOOK, text=f"Try {n}.") for n in range(60)])
    assert task["status"] == "failed"
    assert task["summary"].startswith("the same call failed 5 times in a row: srv.look: tool_error")
    assert task["result"] == {"reached": {"turns": 5, "last_words": "Try 4."}}
    assert len(made.ran) == 5


async def test_tools_too_many_to_be_sent_with_each_question_are_said_before_the_model_is_asked() -> None:
    made = llm_worker()
    for number in range(300):
        made.tool(f"big.tool_{number:0>50}", found=1)
    task = await ran(made, reply(finish()), tools_chars=20_000)
    assert (task["status"], await task_events(made, "agent.said")) == ("failed", [])
    assert re.match(r"the 302 tools it is granted take [\d,]+ characters, .*\(those of big: [\d,]+\)", task["summary"])
    again = await made.run(plan(recorded(reply(finish()))), "run_2")
    assert again.result["tasks"]["t"]["status"] == "succeeded"


async def test_without_any_setting_a_gate_that_fails_is_heard_of_twice_and_a_job_may_take_two_hundred_answers() -> None:
    made = llm_worker()
    codes = [1, 1, 0]

    async def judge(_: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": codes.pop(0)}

    made.tool("srv.judge", judge)
    gates = [{"tool": "srv.judge", "expect": {"exit_code": 0}}]
    replies = [reply(finish()), reply(finish()), reply(finish(summary="Now it holds."))]
    task = await ran(made, *replies, task={"gates": gates})
    assert (task["status"], task["summary"]) == ("succeeded", "Now it holds.")
    assert read({"replies": [{}]}).max_turns == 200


async def test_a_loop_that_never_fails_ends_too() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    task = await ran(made, *[reply(LOOK) for _ in range(60)], max_turns=7)
    assert (task["status"], task["summary"]) == ("failed", "not done within 7 answers of the model")
    assert len(made.ran) == 7


async def test_of_hundreds_of_calls_in_one_answer_the_first_are_made_and_the_model_is_told() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    calls = [("srv.look", {"number": number}) for number in range(70)]
    done = await made.run(plan(recorded(reply(*calls, finish()), reply(finish(summary="Seen.")))))
    assert (done.result["status"], done.result["tasks"]["t"]["summary"]) == ("succeeded", "Seen.")
    assert len(made.ran) == 64
    shown = done.result["tasks"]["t"]["usage"]["calls"]
    assert shown == 64


async def test_empty_answers_end_the_task() -> None:
    task = await ran(llm_worker(), *[reply() for _ in range(60)])
    assert (task["status"], task["summary"]) == ("failed", "the model's answers are empty")


async def test_the_end_of_what_is_recorded_is_a_failure_that_says_so() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    task = await ran(made, reply(LOOK))
    assert task["status"] == "failed"
    assert "it has 1 recorded answer for task t, and was asked again" in task["summary"]
    task = await ran(llm_worker(), reply(("srv.look", {"path": "$1.nothing"})))
    assert "reply 1 refers to $1.nothing, which does not exist" in task["summary"]


async def test_replies_may_be_a_file_or_by_task(tmp_path: Any) -> None:
    said = [reply(finish(summary="From a file."))]
    (tmp_path / "said.json").write_text(json.dumps(said))
    made = llm_worker()
    done = await made.run(plan({"model": "recorded:said.json"}), workspace=str(tmp_path))
    assert done.result["tasks"]["t"]["summary"] == "From a file."
    by_task = {"other": [reply(finish(summary="Not this."))], "t": [reply(finish(summary="This."))]}
    done = await made.run(plan({"replies": by_task}), "run_2")
    assert done.result["tasks"]["t"]["summary"] == "This."
    done = await made.run(plan({"model": "recorded:gone.json"}), "run_3", workspace=str(tmp_path))
    assert "gone.json" in done.result["tasks"]["t"]["summary"]
    (tmp_path / "said.json").write_text('[{"calls": 3}]')
    done = await made.run(plan({"model": "recorded:said.json"}), "run_4", workspace=str(tmp_path))
    assert "0.calls: should be a list" in done.result["tasks"]["t"]["summary"]


async def test_work_that_is_given_back_goes_on_in_the_same_conversation() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    made.tool("ai-session.create_session", session_id="s")
    made.tool("ai-session.close_session", closed=True)
    codes = iter([1, 1, 0])

    async def check(_: CallRequest) -> Mapping[str, Any]:
        return {"exit_code": next(codes), "status": "finished"}

    made.tool("ai-session.execute_command", check)
    task = {"gates": [{"command": "make test"}], "rounds": 3}
    replies = (
        reply(LOOK),
        reply(finish()),
        reply(LOOK),
        reply(finish(summary="Mended.")),
        reply(finish(summary="At last.")),
    )
    found = await ran(made, *replies, task=task)
    assert (found["status"], found["summary"]) == ("succeeded", "At last.")
    assert [one["turn"] for one in await task_events(made, "agent.said")] == [1, 2, 3, 4, 5]
    own = [name for name in made.ran if name.startswith("turn")]
    assert own == ["turn1.call1", "turn3.call3"], "no two calls of a task have one name"


async def test_a_budget_of_tokens_ends_the_run_and_keeps_what_was_done() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    spent = {"input_tokens": 90, "output_tokens": 10}
    thinks = recorded(*[reply(LOOK, **spent) for _ in range(9)])
    both: dict[str, Any] = plan(recorded(reply(finish(summary="First."), **spent)))
    both["agents"].append({"name": "bob", "brain": "llm", "grants": ["*"], "settings": thinks})
    both["tasks"] = [
        {"id": "one", "text": "Do one.", "agent": "ada"},
        {"id": "two", "text": "Do two.", "agent": "bob", "needs": ["one"]},
    ]
    done = await made.run({**both, "swarm": {"budget": {"tokens": 350}}})
    assert done.result["status"] == "budget_exhausted"
    tasks = done.result["tasks"]
    assert (tasks["one"]["status"], tasks["one"]["summary"]) == ("succeeded", "First.")
    assert (tasks["two"]["status"], tasks["two"]["scope"]) == ("budget_exhausted", "run")
    assert done.result["usage"]["tokens"] == 400, "what an answer cost is known only when it is there"


async def test_a_budget_of_dollars_ends_the_task() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    price = {"input": 1.0, "output": 10.0}
    spent = {"input_tokens": 1000, "output_tokens": 100}
    replies = [reply(LOOK, **spent) for _ in range(9)]
    task = await ran(made, *replies, price=price, task={"budget": {"dollars": 0.005}})
    assert (task["status"], task["scope"]) == ("budget_exhausted", "task")
    assert task["usage"]["dollars"] == pytest.approx(0.006)


async def test_killed_in_the_middle_of_calls_it_goes_on_with_one_history() -> None:
    made = llm_worker()
    reached, never = asyncio.Event(), asyncio.Event()

    async def hang(request: CallRequest) -> Mapping[str, Any]:
        if request.arguments["path"] == "/b":
            reached.set()
            await never.wait()
        return {"found": request.arguments["path"]}

    made.tool("srv.look", hang)
    replies = (
        reply(("srv.look", {"path": "/first"}), text="One."),
        reply(LOOK, ("srv.look", {"path": "/b"}), text="Two."),
        reply(("srv.look", {"path": "$3.found"}), text="Three."),
        reply(finish()),
    )
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        await made.swarm.submit(settings(plan(recorded(*replies))), "run_1", "/project")
        await reached.wait()
        made.engine.kill()
    other = llm_worker(made.engine.store, "two")
    other.tool("srv.look", hang)
    reached.set()
    never.set()
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    assert done.result["status"] == "succeeded"
    assert [one["text"] for one in await task_events(other, "agent.said")] == ["One.", "Two.", "Three.", ""]
    assert made.ran == ["turn1.call1", "turn2.call2", "turn2.call3"]
    assert "turn1.call1" not in other.ran, "what is recorded is not called again"
    again = [call for call in other.task_worker.calls if call.step_id == "turn2.call3"]
    assert [(call.key, call.claim) for call in again] == [(made.task_worker.calls[2].key, "one")]


@pytest.mark.parametrize("moment", range(2, 50, 2))
async def test_killed_at_any_moment_it_comes_to_the_same(moment: int) -> None:
    effects: dict[str, str] = {}

    async def look(request: CallRequest) -> Mapping[str, Any]:
        effects[request.key] = request.step_id
        return {"found": request.arguments["path"] + "/x"}

    made = llm_worker()
    made.tool("srv.look", look)
    replies = (
        reply(LOOK, ("srv.look", {"path": "/b"}), text="One.", input_tokens=5),
        reply(("srv.look", {"path": "$2.found"}), ("recall", {"id": 1}), text="Two.", input_tokens=5),
        reply(text="", input_tokens=5),
        reply(finish(result={"last": "$3.found"}), input_tokens=5),
    )
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        await made.swarm.submit(settings(plan(recorded(*replies))), "run_1", "/project")
        for _ in range(moment):
            await asyncio.sleep(0)
        made.engine.kill()
    other = llm_worker(made.engine.store, "two")
    other.tool("srv.look", look)
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    task = done.result["tasks"]["t"]
    assert (task["status"], task["result"]) == ("succeeded", {"summary": "Done.", "last": "/b/x/x"})
    assert (task["usage"]["calls"], task["usage"]["tokens"]) == (3, 20)
    assert sorted(effects.values()) == ["turn1.call1", "turn1.call2", "turn2.call3"], "one key for each call"
    assert [one["text"] for one in await task_events(other, "agent.said")] == ["One.", "Two.", "", ""]


async def test_a_person_is_asked_and_the_answer_may_come_after_a_kill() -> None:
    made = llm_worker()
    made.tool("srv.look", found=1)
    made.task_worker.asks.add("srv.look")
    agreed = settings(plan(recorded(reply(LOOK), reply(LOOK, text="Again."), reply(finish()))))
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        await made.swarm.submit(agreed, "run_1", "/project")
        while not await made.swarm.approvals():
            await made.engine.store.change()
        made.engine.kill()
    assert made.ran == []
    other = llm_worker(made.engine.store, "two")
    other.tool("srv.look", found=1)
    other.task_worker.asks.add("srv.look")
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        for yes in (True, False):
            while not (asked := await other.swarm.approvals()):
                await other.engine.store.change()
            assert (asked[0]["agent"], asked[0]["tool"]) == ("ada", "srv.look")
            await other.swarm.answer(asked[0]["id"], approved=yes, by="eve", reason="" if yes else "once is enough")
            while [one["id"] for one in await other.swarm.approvals()] == [asked[0]["id"]]:
                await other.engine.store.change()
        done = await other.engine.wait("run_1")
    assert (done.result["status"], other.ran) == ("succeeded", ["turn1.call1"])


def test_people_are_notified_in_one_line() -> None:
    def line(event: str, **facts: Any) -> str:
        return of_people(RunEvent("run_1", "run_1.t", {"event": event, "at": 1.0, **facts}, 1.0))

    assert line("agent.said", text="I\nlook.", calls=["srv.look"], tokens=7) == "t: says: I look. (7 tokens)"
    assert line("agent.said", text="", calls=["srv.look", "finish"], tokens=0) == "t: calls srv.look, finish"
    failed = {"model": "openai:big", "why": "overloaded", "message": "Try later."}
    assert line("agent.waits", seconds=2.5, **failed) == "t: asks openai:big again in 2.5 s: overloaded: Try later."
    changed = line("agent.changed_model", to="anthropic:small", **failed)
    assert changed == "t: continues with anthropic:small: openai:big: overloaded: Try later."


LONG = "words " * 400
LIST = [{"text": "Look", "status": "done"}, {"text": "Mend", "status": "doing"}]


def long_job(notes: str, turns: int = 12) -> list[dict[str, Any]]:
    """Each answer is followed by 2,400 characters of output; notes are there for whenever they are asked for."""
    looks = [reply(("srv.look", {"path": f"/{n}"}), notes=notes, input_tokens=1) for n in range(turns)]
    return [
        reply(("todo", {"items": LIST}), LOOK, input_tokens=1),
        *looks,
        reply(finish(), notes=notes, input_tokens=1),
    ]


def summing(made: MemoryWorker) -> MemoryWorker:
    async def look(request: CallRequest) -> Mapping[str, Any]:
        return {"text": LONG, "ticket_id": f"T-{request.arguments['path']}", "command_id": "c"}

    made.tool("srv.look", look)
    made.tool("ai-session.create_session", session_id="s")
    made.tool("ai-session.execute_command", exit_code=0)
    return made


async def test_a_long_conversation_is_summed_up_once_and_no_fact_is_lost() -> None:
    made = summing(llm_worker())
    task = await ran(made, *long_job("I was at /3."), context_chars=20_000)
    assert task["status"] == "succeeded", task["summary"]
    summed = await task_events(made, "agent.summed_up")
    assert 1 <= len(summed) <= 3, "not with each answer"
    assert all(one["chars"] > 0.7 * 20_000 > one["left"] for one in summed)
    spoken = len(await task_events(made, "agent.said"))
    assert task["usage"]["tokens"] == spoken + len(summed), "what it costs is counted"
    facts = await facts_of(made.engine, "run_1")
    assert facts["tasks"]["t"]["todo"] == LIST, "status shows it"


async def test_what_was_noted_takes_the_place_of_what_is_left_out() -> None:
    own = recorded(*long_job("I was at /3."), context_chars=20_000)
    tools = [ToolInfo("ai-session", "create_session"), ToolInfo("ai-session", "execute_command")]
    thinking = PLUGIN.begin(Assignment("run", "t", "ada", {"text": "Look."}, {}, tools, own, "", ""), CONTEXT)
    flow, ended = RecordingFlow(), dict[str, CallOutcome]()
    for _ in range(60):
        (step, *others) = await thinking.decide(cast("Any", flow), ended)
        if isinstance(step, Finish):
            break
        assert others == []
        if isinstance(step, Think):
            ended = {step.id: CallOutcome(CallStatus.OK, structured=await step.function(""))}
        elif isinstance(step, CallTool):
            facts = {"text": LONG, "ticket_id": f"T-{step.arguments['path']}"}
            ended = {step.id: CallOutcome(CallStatus.OK, LONG, facts)}
    shown = "\n".join(message.text for message in thinking.conversation.messages())
    assert "answers are left out here. recall shows the outputs 1 to" in shown
    assert "I was at /3." in shown
    for known in ("ticket_id T-/0 (srv.look)", "Your list: Look (done); Mend (doing)"):
        assert known in shown
    assert thinking.conversation.recall(2, 0)


async def test_without_notes_the_conversation_is_shortened_as_before() -> None:
    made = summing(llm_worker())
    task = await ran(made, *long_job(""), context_chars=20_000)
    assert (task["status"], await task_events(made, "agent.summed_up")) == ("succeeded", [])


@pytest.mark.parametrize("moment", range(20, 200, 30))
async def test_killed_while_it_sums_up_no_answer_is_asked_for_again(moment: int) -> None:
    made = summing(llm_worker())
    async with made.working(), asyncio.timeout(BOUND_SECONDS):
        given = plan(recorded(*long_job("Notes."), context_chars=20_000))
        await made.swarm.submit(settings(given), "run_1", "/project")
        for _ in range(moment):
            await asyncio.sleep(0)
        made.engine.kill()
    other = summing(llm_worker(made.engine.store, "two"))
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    summed = await task_events(other, "agent.summed_up")
    task = done.result["tasks"]["t"]
    assert task["usage"]["tokens"] == len(await task_events(other, "agent.said")) + len(summed)
    assert summed


@pytest.mark.parametrize("items", [None, [{"text": "a"}], [{"text": "a", "status": []}], ["a"], [{"status": "done"}]])
async def test_a_list_that_is_none_is_said(items: Any) -> None:
    made = summing(llm_worker())
    task = await ran(made, reply(("todo", {"items": items}), finish()), reply(finish(summary="Now.")))
    assert task["summary"].startswith("Done." if items is None else "Now.")


async def test_what_a_person_says_is_heard_before_the_next_answer_and_again_after_a_kill() -> None:
    made, begun = llm_worker(), asyncio.Event()

    async def look(_: CallRequest) -> Mapping[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        return {}

    made.tool("srv.look", look)
    own = plan(recorded(reply(LOOK), reply(finish(summary="Done."))))
    async with made.working():
        await made.swarm.submit(settings(own), "run_1", "/work")
        await asyncio.wait_for(begun.wait(), BOUND_SECONDS)
        await made.swarm.say("run_1.t", "Leave the tests.", by="ann", key="1")
        await made.swarm.say("run_1.t", "Leave the tests.", by="ann", key="1")
        while not await task_events(made, "person.said"):
            await made.engine.store.change()
        made.engine.kill()
    other = llm_worker(made.engine.store, "two")
    other.tool("srv.look", found=1)
    async with other.working("second"):
        done = await asyncio.wait_for(other.engine.wait("run_1"), BOUND_SECONDS)
    assert done.result["tasks"]["t"]["status"] == "succeeded"
    assert [(one["by"], one["text"]) for one in await task_events(other, "person.said")] == [
        ("ann", "Leave the tests.")
    ]


async def test_what_is_said_is_shown_to_the_model_and_keeps_it_from_ending_unheard() -> None:
    given = recorded(reply(LOOK), reply(finish()), reply(finish()))
    asked = Assignment("run", "t", "ada", {"text": "Look."}, {}, [], given, "", "", type="coder")
    thinking, flow = PLUGIN.begin(asked, CONTEXT), Emitting()
    thinking.hear("ann", "First this.")
    (ask,) = await thinking.decide(flow, {})
    assert thinking.conversation.task.endswith(prompt.SAID.format(by="ann", text="First this."))
    (call,) = await thinking.decide(flow, {ask.id: await thought(ask)})
    thinking.hear("ann", "Then that.")
    (ask,) = await thinking.decide(flow, {call.id: CallOutcome(CallStatus.OK, "found")})
    assert thinking.conversation.turns[-1].note == prompt.SAID.format(by="ann", text="Then that.")
    thinking.hear("ann", "Do not end yet.")  # while the model writes that it ends
    (ask,) = await thinking.decide(flow, {ask.id: await thought(ask)})
    turn = thinking.conversation.turns[-1]
    assert prompt.HEAR_FIRST in turn.calls[0].answer
    assert "Do not end yet." in turn.note
    (over,) = await thinking.decide(flow, {ask.id: await thought(ask)})
    assert isinstance(over, Finish)


class Emitting:
    """As much of a flow as a brain needs that is asked by hand."""

    id = "run.t"

    async def emit(self, event: Mapping[str, Any]) -> None:
        assert event["event"]


async def thought(step: Any) -> CallOutcome:
    return CallOutcome(CallStatus.OK, structured=await step.function(""))
