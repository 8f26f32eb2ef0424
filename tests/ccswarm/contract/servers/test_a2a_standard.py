"""A2A 0.3 and 1.0 as clients write them, against a running server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ccswarm.support.a2a_standard_server import (
    TEXT,
    Served,
    Wire,
    old_message,
    plan_message,
    served,
    text_message,
)
from tests.ccswarm.support.runs import RunVerbs
from tests.conftest import client_environment, environment

SAY: dict[str, Any] = {"id": "say", "tool": "small.echo", "args": {"text": "hi"}}
PLAN: dict[str, Any] = {"tasks": [{"id": "one", "agent": "bob", "steps": [SAY]}]}
PLAN_TOML = '[[tasks]]\nid = "one"\nagent = "bob"\n[[tasks.steps]]\nid = "say"\ntool = "small.echo"\n'
COMPLETED, WORKING, WAITS = "TASK_STATE_COMPLETED", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, TEXT)


@pytest.fixture(scope="module")
def server(verbs: RunVerbs) -> Iterator[Served]:
    with served(verbs) as server:
        yield server


@pytest.fixture(autouse=True)
def at_home(shared_home: Path) -> Iterator[None]:
    """Verbs find the store of the server."""
    with environment(client_environment(shared_home)):
        yield


@pytest.fixture
def wire(server: Served) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        yield wire


def data_of(task: Any, name: str = "main") -> Any:
    """What a task of the run came to."""
    (artifact,) = [one for one in task["artifacts"] if one["artifactId"] == name]
    return next(part["data"] for part in artifact["parts"] if "data" in part)


def file_part(text: str, **about: str) -> dict[str, Any]:
    return {"raw": base64.b64encode(text.encode()).decode(), **about}


def test_a_message_of_either_version_is_a_run_and_its_result_an_artifact(wire: Wire, verbs: RunVerbs) -> None:
    message = text_message("count the stars", metadata={"agent": "ada"})
    task = wire.ask("SendMessage", message=message)["task"]
    assert set(task) == {"id", "contextId", "status", "artifacts", "history"}
    assert task["status"]["state"] == COMPLETED
    assert task["artifacts"][0]["parts"][0] == {"text": "1 step done"}
    assert task["artifacts"][0]["metadata"] == {"status": "succeeded", "agent": "ada"}
    assert data_of(task)["steps"]["do"]["params"]["arguments"]["text"] == "count the stars"
    assert task["history"] == [{**message, "contextId": task["contextId"], "taskId": task["id"]}]
    assert verbs.json("runs", "show", task["id"])["status"] == "succeeded"
    assert wire.ask("GetTask", id=task["id"]) == task

    old = wire.ask("tasks/get", id=task["id"])
    assert (old["kind"], old["status"]["state"], old["history"][0]["role"]) == ("task", "completed", "user")
    assert [part["kind"] for part in old["artifacts"][0]["parts"]] == ["text", "data"]
    said = wire.ask("message/send", message=old_message("count them again"))
    assert (said["kind"], said["status"]["state"]) == ("task", "completed")
    assert data_of(said)["steps"]["do"]["params"]["arguments"]["text"] == "count them again"
    assert said["history"][0]["parts"] == [{"kind": "text", "text": "count them again"}]


def test_what_happens_comes_in_order(wire: Wire) -> None:
    configuration = {"historyLength": 0}
    with wire.stream("SendStreamingMessage", message=text_message("say it"), configuration=configuration) as events:
        found = list(events)
    assert [next(iter(event)) for event in found] == [
        "task",
        "statusUpdate",
        "statusUpdate",
        "artifactUpdate",
        "statusUpdate",
        "statusUpdate",
    ]
    first, *_, last = found
    assert first["task"]["status"]["state"] in ("TASK_STATE_SUBMITTED", WORKING)
    assert "history" not in first["task"]
    number = first["task"]["id"]
    assert all(one["taskId"] == number for event in found[1:] for one in event.values())
    words = [event["statusUpdate"]["status"]["message"]["parts"][0]["text"] for event in found[1:3]]
    assert words == ["run started: 1 task, 5 agents", "main: started by ada"]
    assert last == {"statusUpdate": {**last["statusUpdate"], "contextId": first["task"]["contextId"]}}
    assert last["statusUpdate"]["status"]["state"] == COMPLETED
    task = wire.ask("GetTask", id=number)
    assert found[3]["artifactUpdate"]["artifact"] == task["artifacts"][0]
    assert last["statusUpdate"]["status"]["timestamp"] == task["status"]["timestamp"]


@pytest.mark.torture
def test_what_happens_comes_in_order_in_the_older_version(wire: Wire) -> None:
    with wire.stream("message/stream", message=old_message("say it")) as events:
        old = list(events)
    kinds = ["task", "status-update", "status-update", "artifact-update", "status-update", "status-update"]
    assert [event["kind"] for event in old] == kinds
    assert [event["final"] for event in old if "final" in event] == [False, False, False, True]
    assert old[-1]["status"]["state"] == "completed"


def test_who_is_here_is_on_the_card(wire: Wire) -> None:
    answer = wire.http.get("/.well-known/agent-card.json")
    card = answer.json()
    assert wire.http.get("/.well-known/agent.json").json() == card
    address = f"{wire.url}/"
    assert [(one["url"], one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]] == [
        (address, "JSONRPC", "1.0"),
        (wire.url, "HTTP+JSON", "1.0"),
        (address, "JSONRPC", "0.3"),
    ]
    assert (card["url"], card["preferredTransport"], card["protocolVersion"]) == (address, "JSONRPC", "0.3.0")
    assert card["capabilities"] == {"streaming": True, "pushNotifications": False}
    skills = {skill["id"]: skill for skill in card["skills"]}
    assert list(skills) == ["ada", "ann", "eve", "flo", "bob", "ccswarm.plan"]
    assert (skills["ada"]["tags"], skills["ada"]["inputModes"][0]) == (["researcher", "analysis"], "text/plain")
    assert skills["eve"]["description"].endswith("a person is asked before all calls")
    assert skills["bob"]["inputModes"] == ["application/json", "application/toml"]
    assert "securitySchemes" not in card
    again = wire.http.get("/.well-known/agent-card.json", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.torture
@pytest.mark.parametrize(
    "part",
    [
        {"data": {"plan": PLAN}},
        {"data": {"plan": PLAN_TOML}},
        file_part(PLAN_TOML, filename="plan.toml"),
        file_part(PLAN_TOML, mediaType="application/toml; charset=utf-8"),
        file_part(json.dumps(PLAN), filename="plan.json"),
    ],
)
def test_a_plan_comes_as_data_as_a_text_or_as_a_file(wire: Wire, part: dict[str, Any]) -> None:
    task = wire.done({"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part, {"text": "please"}]})
    assert [artifact["name"] for artifact in task["artifacts"]] == ["one"]
    assert data_of(task, "one")["steps"]["say"]["params"]["name"] == "echo"


@pytest.mark.torture
def test_a_plan_comes_as_a_file_in_the_older_version(wire: Wire) -> None:
    file = {"kind": "file", "file": {"bytes": file_part(PLAN_TOML)["raw"], "name": "p.toml"}}
    assert wire.ask("message/send", message=old_message(file))["status"]["state"] == "completed"


def test_problems_of_a_plan_are_reported_with_their_locations(wire: Wire) -> None:
    def step(**more: Any) -> Any:
        return {"tasks": [{"id": "one", "agent": "bob", "steps": [{**SAY, **more}]}]}

    for plan, field, what in (
        ({"tasks": []}, "plan", "there are no tasks"),
        ({"tasks": [{"id": "one", "steps": 5}]}, "plan: [tasks.one] steps", "should be a list"),
        (
            {**PLAN, "agents": [{"name": "eve", "approval": "auto"}]},
            "plan",
            "[agents] can only be set in the person's configur",
        ),
        ({**PLAN, "swarm": {"max_agents": 900}}, "plan: [swarm] max_agents", "can only be set in the person's confi"),
        (
            {**PLAN, "mcp": {"servers": [{"name": "x", "command": "id"}]}},
            "plan",
            "[mcp] can only be set in the person's config",
        ),
        (step(needs=["nix"]), "plan: task one", "step say needs nix, which does not exist"),
        (step(tool="small.nothing"), "plan: task one: step say", "tool small.nothing, which does not exist"),
        (step(args={"text": "${steps.nix.text}"}), "plan: task one: step say", "${steps.nix.text} refers to"),
        ("[[tasks]", "plan", "Expected"),
        ("{", "plan", "Expecting property name"),
        (PLAN_TOML.replace("bob", "nobody"), "plan: task one", ""),
    ):
        fault = wire.fault("SendMessage", message=plan_message(plan))
        assert fault["code"] == -32602, (plan, fault)
        (detail,) = fault["data"]
        assert detail["@type"] == "type.googleapis.com/google.rpc.BadRequest"
        first = detail["fieldViolations"][0]
        assert first["field"] == field, (plan, fault)
        assert what in first["description"], (plan, fault)
    both = {**plan_message(PLAN), "parts": [{"data": {"plan": PLAN}}, {"data": {"plan": PLAN}}]}
    for message, reported in (
        (both, "message.parts: has more than one plan"),
        (plan_message(5), "message.parts[0].data.plan: must be an object or a TOML string"),
        (plan_message(" "), "message.parts: has an empty plan"),
        (plan_message(PLAN, metadata={"agent": "ada"}), "metadata.agent: a plan itself assigns its agents"),
    ):
        assert reported in wire.fault("SendMessage", message=message)["message"]
    assert wire.ask("ListTasks", contextId="none of these began")["totalSize"] == 0


@pytest.mark.torture
@pytest.mark.parametrize("metadata", [{}, {"agent": "ada"}, {"skill": "ada"}, {"skillId": "ada"}])
def test_words_go_to_the_agent_that_is_named_or_the_first_that_takes_any(wire: Wire, metadata: dict[str, str]) -> None:
    assert wire.done(text_message("x", metadata=metadata))["artifacts"][0]["metadata"]["agent"] == "ada"


def test_words_for_nobody_who_takes_any_are_refused(wire: Wire) -> None:
    for metadata, reported in (
        ({"agent": "bob"}, "metadata.agent: must be one of: ada, ann, eve, flo"),
        ({"agent": "nobody"}, "metadata.agent: must be one of: ada, ann, eve, flo"),
        ({"skill": 5}, "metadata.skill: must be a string"),
        ({"skill": "ccswarm.plan"}, "metadata.skill: there is no plan in the message"),
    ):
        fault = wire.fault("SendMessage", message=text_message("x", metadata=metadata))
        assert (fault["code"], fault["message"]) == (-32602, f"Invalid parameters: {reported}")


@pytest.mark.torture
def test_words_and_data_of_several_parts_are_one_text(wire: Wire) -> None:
    several = text_message("", parts=[{"text": "one"}, {"data": {"b": 1, "a": [2**60]}}, {"text": "two"}])
    said = data_of(wire.done(several))["steps"]["do"]["params"]["arguments"]["text"]
    assert said == 'one\n\n{"b": 1, "a": [1152921504606846976]}\n\ntwo'


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


def literal(value: Any) -> Any:
    """As a plan has it, in which a reference would be something else."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: literal(item) for key, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, list) else value


def test_values_come_back_as_they_were(server: Served) -> None:
    numbers = [2**60, -1, 0, 1.0, 1e300, 5e-324, -0.0, True, None]
    comes_back(server, [numbers, "${task.text}", "ü\n\u2028\0", "", [], {}, {"b": 1, "a": [{"ü": [2**60]}]}])


@pytest.mark.torture
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(JSON, min_size=12, max_size=15))
def test_any_json_value_comes_back_as_it_was(server: Served, values: list[Any]) -> None:
    comes_back(server, values)


def comes_back(server: Served, values: list[Any]) -> None:
    """Compared as it is written: the order of keys, the kind of numbers and their digits."""
    steps = [
        {"id": f"s{position}", "tool": "small.echo", "args": {"value": literal(value)}}
        for position, value in enumerate(values)
    ]
    plan = {"tasks": [{"id": "one", "agent": "bob", "steps": steps}]}
    with Wire(server.port) as wire:
        task = wire.done(plan_message(plan))
    found = data_of(task, "one")["steps"]
    back = [found[f"s{position}"]["params"]["arguments"]["value"] for position in range(len(values))]
    assert json.dumps(back) == json.dumps(values)
    assert json.dumps(task["history"][0]["parts"][0]["data"]["plan"]) == json.dumps(plan)


def test_a_person_is_asked_and_the_peer_cannot_answer(wire: Wire, verbs: RunVerbs) -> None:
    task = wire.ask("SendMessage", message=text_message("may I?", metadata={"agent": "eve"}))["task"]
    assert task["status"]["state"] == WAITS
    words, approvals = task["status"]["message"]["parts"]
    (question,) = approvals["data"]["approvals"]
    assert question == {
        "id": question["id"],
        "agent": "eve",
        "tool": "small.echo",
        "command": f"ccswarm approve {question['id']}",
    }
    reported = f"eve asks for small.echo text=may I?; a person answers with: ccswarm approve {question['id']}"
    assert words == {"text": reported}
    old = wire.ask("tasks/get", id=task["id"])
    assert (old["status"]["state"], old["status"]["message"]["role"]) == ("input-required", "agent")

    for extra in ({}, {"contextId": task["contextId"]}):
        fault = wire.fault("SendMessage", message=text_message("yes, you may", taskId=task["id"], **extra))
        assert (fault["code"], fault["data"][0]["reason"]) == (-32004, "UNSUPPORTED_OPERATION")
    fault = wire.fault("message/send", message=old_message("yes", taskId=task["id"], contextId="another"))
    assert (fault["code"], fault["data"][0]["fieldViolations"][0]["field"]) == (-32602, "message.contextId")

    with wire.stream("SubscribeToTask", id=task["id"]) as events:
        assert next(events)["task"]["status"]["state"] == WAITS
        verbs.run("approve", question["id"])
        states = [event["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event]
    assert (states[0], states[-1]) == (WORKING, COMPLETED)


@pytest.mark.torture
def test_what_a_person_rejects_fails(wire: Wire, verbs: RunVerbs) -> None:
    again = wire.ask("message/send", message=old_message("and now?", metadata={"agent": "eve"}))
    number = again["status"]["message"]["parts"][1]["data"]["approvals"][0]["id"]
    with wire.stream("tasks/resubscribe", id=again["id"]) as events:
        next(events)
        verbs.run("reject", number, "--reason", "not today")
        *_, last = events
    assert (last["status"]["state"], last["final"]) == ("failed", True)
    assert "not today" in last["status"]["message"]["parts"][0]["text"]


@pytest.mark.parametrize(
    ("cancel", "state"),
    [
        ("CancelTask", "TASK_STATE_CANCELED"),
        pytest.param("tasks/cancel", "canceled", marks=pytest.mark.torture),
    ],
)
def test_a_task_that_is_cancelled_ends(wire: Wire, verbs: RunVerbs, cancel: str, state: str) -> None:
    task = begun_at_pipe(wire)
    with verbs.held():
        found = wire.ask(cancel, id=task["id"])
    assert found["status"]["state"] == state
    assert verbs.json("runs", "show", task["id"])["status"] == "cancelled"
    fault = wire.fault(cancel, id=task["id"])
    assert (fault["code"], fault["message"]) == (-32002, "Task cannot be canceled: it is canceled")
    assert wire.fault("SendMessage", message=text_message("go on", taskId=task["id"]))["code"] == -32004


def begun_at_pipe(wire: Wire, **more: Any) -> Any:
    """A task that goes on as long as nobody writes to the pipe."""
    message = text_message("read it", metadata={"agent": "ann"}, **more)
    return wire.ask("SendMessage", message=message, configuration={"returnImmediately": True})["task"]


def test_who_leaves_a_stream_stops_nothing_and_finds_it_again(wire: Wire, verbs: RunVerbs) -> None:
    message = old_message("read it", metadata={"agent": "ann"})
    with wire.stream("message/stream", message=message) as events:
        number = next(events)["id"]
    with (
        verbs.held() as pipe,
        wire.stream("SubscribeToTask", id=number) as new,
        wire.stream("tasks/resubscribe", id=number) as old,
    ):
        first, seen = next(new)["task"], next(old)
        assert (first["status"]["state"], seen["status"]["state"]) == (WORKING, "working")
        pipe.write("came late")
        pipe.close()
        both = list(new), list(old)
    times = [event["statusUpdate"]["status"]["timestamp"] for event in both[0] if "statusUpdate" in event]
    assert times == [event["status"]["timestamp"] for event in both[1] if event["kind"] == "status-update"]
    assert both[0][0]["artifactUpdate"]["artifact"]["parts"][1]["data"]["steps"]["do"]["text"] == "came late"
    assert both[0][-1]["statusUpdate"]["status"]["state"] == COMPLETED
    assert wire.fault("SubscribeToTask", id=number)["data"][0]["reason"] == "UNSUPPORTED_OPERATION"
    with wire.stream("tasks/resubscribe", id=number) as events:
        task, last = events
    assert (task["artifacts"][0]["artifactId"], last["final"]) == ("main", True)


@pytest.fixture(scope="module")
def sent(server: Served) -> tuple[dict[str, Any], Any]:
    """A message and its completed task, which came without its history."""
    message = text_message("once only", contextId="our context")
    with Wire(server.port) as wire:
        return message, wire.done(message, historyLength=0)


def test_the_same_message_is_one_task(wire: Wire, sent: tuple[dict[str, Any], Any]) -> None:
    message, first = sent
    assert wire.done(message, historyLength=0) == first
    with wire.stream("SendStreamingMessage", message=message) as events:
        task, last = events
    assert (task["task"]["id"], last["statusUpdate"]["status"]["state"]) == (first["id"], COMPLETED)
    assert wire.done({**message, "parts": [{"text": "once more"}]})["id"] != first["id"]
    assert wire.fault("CancelTask", id=first["id"])["message"] == "Task cannot be canceled: it is completed"


def test_tasks_are_listed_the_last_that_changed_first(wire: Wire, sent: tuple[dict[str, Any], Any]) -> None:
    context = f"context {uuid4()}"
    done = [wire.done(text_message("once only", contextId=context))["id"]]
    assert done[0] != sent[1]["id"], "the words are the same, the message is another"
    failed = wire.ask("SendMessage", message=text_message("x", contextId=context), metadata={"agent": "flo"})["task"]
    assert (failed["status"]["state"], failed["artifacts"][0]["metadata"]) == (
        "TASK_STATE_FAILED",
        {"status": "failed", "agent": "flo"},
    )
    assert "it did not work" in failed["status"]["message"]["parts"][0]["text"]
    done.append(failed["id"])
    whole = wire.ask("ListTasks", contextId=context)
    assert [task["id"] for task in whole["tasks"]] == done[::-1]
    assert (whole["totalSize"], whole["pageSize"], whole["nextPageToken"]) == (2, 50, "")
    assert not any("artifacts" in task for task in whole["tasks"])
    pages, token = list[str](), ""
    while True:
        page = wire.ask("ListTasks", contextId=context, pageSize=1, pageToken=token, includeArtifacts=True)
        pages += [task["id"] for task in page["tasks"]]
        assert all(task["artifacts"] for task in page["tasks"])
        if not (token := page["nextPageToken"]):
            break
    assert pages == done[::-1]
    only = wire.ask("ListTasks", contextId=context, status="TASK_STATE_FAILED", historyLength=0)
    assert [(task["id"], "history" in task) for task in only["tasks"]] == [(done[1], False)]
    since = whole["tasks"][1]["status"]["timestamp"]
    later = wire.ask("ListTasks", contextId=context, statusTimestampAfter=since)["tasks"]
    assert [task["id"] for task in later][-1] == done[0]
    for params, field in (
        ({"pageSize": 101}, "pageSize"),
        ({"pageSize": 0}, "pageSize"),
        ({"historyLength": -5}, "historyLength"),
        ({"status": "TASK_STATE_RUNNING"}, "status"),
        ({"pageToken": "x"}, "pageToken"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
    ):
        fault = wire.fault("ListTasks", **params)
        assert (fault["code"], fault["data"][0]["fieldViolations"][0]["field"]) == (-32602, field)


def test_as_much_history_comes_as_is_wanted(wire: Wire, sent: tuple[dict[str, Any], Any]) -> None:
    assert "history" not in sent[1]
    for method, length, there in (
        ("GetTask", None, True),
        ("GetTask", 1, True),
        ("GetTask", 0, False),
        ("tasks/get", None, True),
        ("tasks/get", 0, True),
        ("tasks/get", 5, True),
    ):
        assert ("history" in wire.ask(method, id=sent[1]["id"], historyLength=length)) is there


def test_contexts_and_tasks_that_are_referred_to(wire: Wire, sent: tuple[dict[str, Any], Any]) -> None:
    first = sent[1]
    assert first["contextId"] == "our context"
    second = wire.done(text_message("y", contextId="our context", referenceTaskIds=[first["id"]]))
    assert (second["contextId"], second["history"][0]["referenceTaskIds"]) == ("our context", [first["id"]])
    fault = wire.fault("SendMessage", message=text_message("y", referenceTaskIds=["nothing"]))
    assert (fault["code"], fault["data"][0]["metadata"]) == (-32001, {"taskId": "nothing"})
    assert wire.fault("SendMessage", message=text_message("y", taskId="nothing"))["code"] == -32001
