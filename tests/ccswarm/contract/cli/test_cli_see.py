"""What agents thought and did, what they answered, and what is said to them: transcript, result, say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccswarm.journal.writer import read
from tests.ccswarm.support.llm_agents import finish, reply
from tests.ccswarm.support.runs import BASE, TWO, RunVerbs, step, task
from tests.ccswarm.support.verbs import agent
from tests.support.bounds import BOUND_SECONDS

FAIL = '[[tasks.steps]]\nid = "x"\ntool = "small.fail"\n'


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    """Where kim thinks: looks into a pipe, then ends its task."""
    replies = [
        reply(("pipe.read", {"path": str(home / "pipe")}), text="I look.", input_tokens=40, output_tokens=2),
        reply(finish(summary="Looked.", result={"found": 3})),
    ]
    kim = agent("kim", "pipe.*", more='brain = "llm"\nsettings = { replies = ' + _toml(replies) + " }")
    return RunVerbs(home, BASE + kim + task("look", more='agent = "kim"\ntext = "What is there?"'))


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + " }"  # pyright: ignore[reportUnknownVariableType]
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)  # pyright: ignore[reportUnknownArgumentType]


def test_a_person_speaks_to_an_agent_that_works_and_all_of_it_can_be_read(verbs: RunVerbs) -> None:
    with verbs.started("run", "--json") as process:
        with verbs.held() as pipe:
            assert verbs.run("result", code=1).err.startswith("look is running\nnext: ccswarm logs -f run_")
            said = verbs.json("say", "last.look", "Look\nagain.")
            assert (said["task"], said["agent"], said["text"]) == ("look", "kim", "Look\nagain.")
            assert (
                verbs.run("say", "last", "And hurry.").err == "Said to kim in look, to be received with its next step\n"
            )
            assert process.process.stdout
            while b"And hurry." not in process.process.stdout.readline():
                pass
            pipe.write("nothing")
        result = json.loads(process.process.communicate(timeout=BOUND_SECONDS)[0].splitlines()[-1])
    assert (result["status"], result["exit_code"]) == ("succeeded", 0)
    assert result["answer"] == {"task": "look", "text": "Looked.\n\n3"}
    shown = verbs.json("transcript")
    (attempt,) = shown["attempts"]
    assert (attempt["task"], attempt["agent"], attempt["status"], attempt["asked"]) == (
        "look",
        "kim",
        "succeeded",
        "What is there?",
    )
    entries = attempt["entries"]
    heard = [one for one in entries if one.get("event") == "person.said"]
    assert [one["text"] for one in heard] == ["Look\nagain.", "And hurry."]
    thoughts = [one for one in entries if one["kind"] == "thought"]
    assert [one["text"] for one in thoughts] == ["I look.", ""]
    assert thoughts[0]["calls"][0]["tool"] == "pipe.read"
    (call,) = [one for one in entries if one["kind"] == "call" and one["tool"] == "pipe.read"]
    assert (call["status"], call["agent"]) == ("ok", "kim")
    assert "nothing" in json.dumps(call["answer"])
    assert shown["usage"]["tokens"] == attempt["usage"]["tokens"] > 0
    reported = verbs.run("transcript", "last", "look").out
    for line in ("== look (kim): succeeded", "    What is there?", "I look.", "says to it: Look again.", "→ ok"):
        assert line in reported
    words = [record.facts for record in read(verbs.state / "journal") if record.event == "person.said"]
    assert [(one["text"], one["by"] != "") for one in words] == [("Look\nagain.", True), ("And hurry.", True)]
    assert verbs.run("journal", "verify").code == 0
    nothing = verbs.run("say", "last.look", "Too late.", code=2)
    assert "no task 'look' is running" in nothing.err
    assert "no task of the run is running" in nothing.err


@pytest.mark.parametrize("failed", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_what_a_run_came_to_ends_it_and_can_be_asked_for_again(home: Path, failed: bool) -> None:
    """And of one that ``failed``, what it lacks."""
    verbs = RunVerbs(home, BASE + TWO)
    assert verbs.run("result", code=2).err.startswith("error run_not_found: there are no runs")
    lines = verbs.run("run").out.splitlines()
    answered = verbs.run("result").out
    assert lines[-len(answered.splitlines()) :] == answered.splitlines()
    one = verbs.json("result", "last", "one")
    assert (one["task"], one["status"], one["over"]) == ("one", "succeeded", True)
    assert verbs.json("result")["task"] == "two"
    assert "use one of: one, two" in verbs.run("result", "last", "three", code=2).err
    assert "use one of: one, two" in verbs.run("transcript", "last", "three", code=2).err
    if not failed:
        return
    verbs.rewrite(BASE + task("bad", FAIL, more='agent = "ada"'))
    verbs.run("run", code=1)
    said = verbs.run("result", code=1)
    assert said.err.startswith("bad has ended: failed (x: ")
    assert verbs.json("result", code=1)["status"] == "failed"
    assert "error" not in verbs.json("transcript")


@pytest.mark.torture  # what nobody hears is refused above, too
def test_who_follows_a_playbook_hears_nothing(home: Path) -> None:
    verbs = RunVerbs(
        home, BASE + task("hold", step("wait", "pipe.read", path="${workspace}/pipe"), more='agent = "ada"')
    )
    with verbs.started("run", "--json") as process:
        with verbs.held() as pipe:
            assert "the agent of hold receives nothing" in verbs.run("say", "last.hold", "Stop.", code=2).err
            assert "give from 1 to" in verbs.run("say", "last.hold", " ", code=2).err
            pipe.write("x")
        process.process.communicate(timeout=BOUND_SECONDS)
