"""A2A over a server's life: what is refused, whose tasks are whose, and what a restart leaves."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import TEXT, Served, Wire, old_message, served, text_message
from tests.ccswarm.support.a2a_vault_server import JSON
from tests.ccswarm.support.runs import RunVerbs
from tests.conftest import client_environment, environment

BOTH = {"A2A_AUTH_TOKEN": "first-secret second-secret"}
SEND = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": {"message": text_message("x")}}


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, TEXT)


@pytest.fixture(scope="module")
def server(verbs: RunVerbs) -> Iterator[Served]:
    with served(verbs) as server:
        yield server


@pytest.fixture
def wire(server: Served) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        yield wire


def deep(count: int) -> Any:
    value: Any = 1
    for _ in range(count):
        value = [value]
    return value


def test_a_message_that_is_not_a_request_is_reported(wire: Wire) -> None:
    for body, number, code in (
        (b"", None, -32700),
        (b"{nonsense}", None, -32700),
        (b"\xff\xfe", None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":1e999}}', None, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\\ud800"}}', None, -32700),
        (b"[" * 100_000, None, -32700),
        (b"5", None, -32600),
        (b"[]", None, -32600),
        (json.dumps([SEND]).encode(), None, -32600),
        (json.dumps({**SEND, "jsonrpc": "1.0"}).encode(), 7, -32600),
        (json.dumps({**SEND, "id": None}).encode(), None, -32600),
        (json.dumps({**SEND, "id": True}).encode(), None, -32600),
        (json.dumps({**SEND, "method": 5}).encode(), 7, -32600),
        (json.dumps({**SEND, "more": deep(200)}).encode(), None, -32700),
        (json.dumps({**SEND, "method": "sendMessage"}).encode(), 7, -32601),
        (json.dumps({**SEND, "method": "tasks/send"}).encode(), 7, -32601),
        (json.dumps({**SEND, "params": []}).encode(), 7, -32602),
        (json.dumps({**SEND, "params": [1]}).encode(), 7, -32602),
    ):
        answer = wire.post(body)
        assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", number, code), (body[:90], answer)
    assert wire.http.get("/").status_code == 405
    big = wire.http.post("/", content=b" " * (2 << 20), headers=JSON)
    assert (big.status_code, big.json()["error"]["code"]) == (413, -32600)


def test_ids_come_back_as_they_were(wire: Wire) -> None:
    for number in ("1", 1, 0, -7, "", 2**64 - 1, "ü\n\u2028", "550e8400-e29b-41d4-a716-446655440000"):
        answer = wire.post({"jsonrpc": "2.0", "id": number, "method": "GetTask", "params": {"id": "x"}})
        assert (answer["id"], type(answer["id"])) == (number, type(number))
        assert answer["error"]["code"] == -32001


def test_versions_that_are_not_spoken_are_refused(wire: Wire) -> None:
    for named, spoken in (("1.0", True), ("1.0.3", True), ("0.3", True), ("", True), ("0.5", False), ("2.0", False)):
        answer = wire.post({**SEND, "method": "GetTask", "params": {"id": "x"}}, **{"A2A-Version": named})
        assert answer["error"]["code"] == (-32001 if spoken else -32009), named
    detail = answer["error"]["data"][0]
    assert detail["reason"] == "VERSION_NOT_SUPPORTED"
    assert detail["metadata"] == {"requested": "2.0", "supported": "0.3, 1.0"}
    answer = wire.http.post("/?A2A-Version=0.5", json=SEND).json()
    assert answer["error"]["code"] == -32009


def test_what_does_not_fit_is_named(wire: Wire) -> None:
    def sent(**more: Any) -> Any:
        return {"message": {**text_message("x"), **more}}

    link = {"url": "https://example.com/plan.toml", "filename": "plan.toml"}
    for method, params, code, reported in (
        ("SendMessage", {}, -32602, "message: is missing"),
        ("SendMessage", {"message": {}}, -32602, "message.messageId: is missing; message.role: is missing; message"),
        ("SendMessage", sent(role="user"), -32602, "message.role: must be one of: ROLE_USER, ROLE_AGENT"),
        ("message/send", sent(role="ROLE_X"), -32602, "message.role: must be one of: user, agent"),
        ("SendMessage", sent(parts=[]), -32602, "message.parts: "),
        ("SendMessage", sent(parts=[{}]), -32602, "message.parts[0]: must have exactly one of: text, raw, url, data"),
        ("SendMessage", sent(parts=[{"text": "a", "data": 1}]), -32602, "message.parts[0]: must have exactly one"),
        ("SendMessage", sent(parts=[{"text": 5}]), -32602, "message.parts[0].text: should be a text"),
        ("SendMessage", sent(parts=[{"text": " "}]), -32602, "message.parts: give the text of the task"),
        ("SendMessage", sent(parts=[{"text": "x" * 100_001}]), -32602, "message.parts: must have at most 100000"),
        ("message/send", sent(role="user", parts=[{"kind": "video"}]), -32602, "message.parts[0]: must have exactly"),
        ("SendMessage", sent(parts=[{"raw": "!", "filename": "a.toml"}]), -32602, "message.parts[0]: must be UTF-8 in"),
        ("SendMessage", sent(parts=[link]), -32005, "URLs are not fetched"),
        ("SendMessage", sent(parts=[{"raw": "AAAA", "mediaType": "image/png"}]), -32005, "image/png is not supported"),
        ("SendMessage", {**sent(), "configuration": {"acceptedOutputModes": ["image/png"]}}, -32005, "is available"),
        (
            "SendMessage",
            {**sent(), "configuration": {"taskPushNotificationConfig": {"url": "http://x"}}},
            -32003,
            "follow the task with a stream",
        ),
        ("GetTask", {}, -32602, "id: is missing"),
        ("CancelTask", {"id": "x"}, -32001, "there is no task 'x'"),
        ("SubscribeToTask", {"id": "x"}, -32001, "there is no task 'x'"),
        ("CreateTaskPushNotificationConfig", {"taskId": "x", "url": "http://x"}, -32003, ""),
        ("tasks/pushNotificationConfig/set", {"taskId": "x"}, -32003, ""),
        ("tasks/pushNotificationConfig/get", {"id": "x"}, -32003, ""),
        ("GetExtendedAgentCard", {}, -32004, "there is only this card"),
        ("agent/getAuthenticatedExtendedCard", {}, -32007, "there is only this card"),
    ):
        fault = wire.fault(method, **params)
        assert fault["code"] == code, (method, params, fault)
        assert reported in fault["message"], fault
    assert wire.ask("ListTasks", pageSize=1)["totalSize"] == 0


def test_nobody_finds_what_others_began(home: Path) -> None:
    with served(RunVerbs(home, TEXT), **BOTH) as server:
        for wrong in ("", "third-secret"):
            with Wire(server.port, wrong) as stranger:
                answer = stranger.http.post("/", json=SEND)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                card = stranger.http.get("/.well-known/agent-card.json").json()
        assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"] == {"scheme": "Bearer"}
        assert card["securitySchemes"]["key"]["type"] == "apiKey"
        assert card["securityRequirements"] == [{"schemes": {name: {"list": []}}} for name in ("bearer", "key")]
        with Wire(server.port, "first-secret") as one, Wire(server.port, "second-secret") as other:
            message = text_message("mine")
            task = one.done(message)
            assert one.ask("GetTask", id=task["id"])["id"] == task["id"]
            for method in ("GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel"):
                assert other.fault(method, id=task["id"])["code"] == -32001, method
            assert other.fault("SendMessage", message=text_message("x", taskId=task["id"]))["code"] == -32001
            assert (
                other.fault("SendMessage", message=text_message("x", referenceTaskIds=[task["id"]]))["code"] == -32001
            )
            assert (one.ask("ListTasks")["totalSize"], other.ask("ListTasks")["totalSize"]) == (1, 0)
            assert other.done(message)["id"] != task["id"]
            key = {"X-Api-Key": "first-secret"}
            with Wire(server.port) as third:
                get = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task["id"]}}
                assert third.post(get, **key)["result"]["id"] == task["id"]


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.torture), signal.SIGKILL])
def test_tasks_outlive_the_server_and_go_on(home: Path, how: signal.Signals) -> None:
    verbs = RunVerbs(home, TEXT)
    message = text_message("read it", metadata={"agent": "ann"})
    with served(verbs) as first, Wire(first.port) as wire:
        asked = old_message("may I?", metadata={"agent": "eve"})
        waits = wire.ask("message/send", message=asked)
        over = wire.done(text_message("before"))
        with wire.stream("SendStreamingMessage", message=message) as events:
            number = next(events)["task"]["id"]
            with verbs.held():
                assert first.end(how) == (0 if how == signal.SIGTERM else -9)
    with served(verbs) as second, Wire(second.port) as wire:
        assert wire.ask("GetTask", id=over["id"]) == over
        assert (
            wire.ask("SendMessage", message=message, configuration={"returnImmediately": True})["task"]["id"] == number
        )
        with wire.stream("SubscribeToTask", id=number) as events:
            assert next(events)["task"]["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED")
            with verbs.answering("went on"):
                *_, last = events
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        (artifact,) = wire.ask("GetTask", id=number)["artifacts"]
        assert artifact["parts"][1]["data"]["steps"]["do"]["text"] == "went on"
        assert wire.ask("tasks/get", id=waits["id"])["status"]["state"] == "input-required"
        assert wire.ask("tasks/cancel", id=waits["id"])["status"]["state"] == "canceled"


def test_a_person_may_pause_what_a_peer_began(shared_home: Path, verbs: RunVerbs, wire: Wire) -> None:
    message = text_message("read it", metadata={"agent": "ann"})
    number = wire.ask("SendMessage", message=message, configuration={"returnImmediately": True})["task"]["id"]
    with verbs.held():
        with environment(client_environment(shared_home)):
            verbs.run("pause", number)
        task = wire.ask("GetTask", id=number)
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert f"ccswarm resume {number}" in task["status"]["message"]["parts"][0]["text"]
    assert wire.ask("tasks/cancel", id=number)["status"]["state"] == "canceled"


def test_the_same_over_plain_http(wire: Wire, verbs: RunVerbs) -> None:
    http = wire.http
    sent = http.post("/message:send", json={"message": text_message("over http")})
    assert (sent.status_code, sent.headers["content-type"]) == (200, "application/a2a+json")
    task = sent.json()["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert http.get(f"/tasks/{task['id']}").json() == task == wire.ask("GetTask", id=task["id"])
    assert "history" not in http.get(f"/tasks/{task['id']}?historyLength=0").json()
    query = {"contextId": task["contextId"], "pageSize": "1", "includeArtifacts": "true"}
    listed = http.get("/tasks", params=query).json()
    assert (listed["tasks"], listed["nextPageToken"], listed["totalSize"]) == ([task], "", 1)

    asked = {"message": text_message("wait", metadata={"agent": "ann"})}
    with http.stream("POST", "/message:stream", json=asked) as answer:
        number = json.loads(next(answer.iter_lines()).removeprefix("data: "))["task"]["id"]
    with verbs.held(), http.stream("POST", f"/tasks/{number}:subscribe") as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines).removeprefix("data: "))["task"]["id"] == number
        assert http.post(f"/tasks/{number}:cancel", json={"id": number}).json()["status"]["state"].endswith("CANCELED")
        assert "TASK_STATE_CANCELED" in [line for line in lines if line][-1]

    for method, path, body, status, name, reason in (
        ("GET", "/tasks/nothing", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", "/tasks/nothing:cancel", None, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        ("POST", f"/tasks/{number}:cancel", None, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        ("POST", f"/tasks/{number}:subscribe", None, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("POST", f"/tasks/{number}/pushNotificationConfigs", {}, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_S"),
        ("GET", "/extendedAgentCard", None, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
        ("GET", "/tasks?pageSize=150&historyLength=-5", None, 400, "INVALID_ARGUMENT", "pageSize"),
        ("POST", "/message:send", {"message": {}}, 400, "INVALID_ARGUMENT", "message.messageId"),
        ("POST", "/message:send", [], 400, "INVALID_ARGUMENT", "the body must be an object"),
        ("GET", "/tasks?A2A-Version=0.3", None, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
    ):
        answer = http.request(method, path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["status"]) == (status, status, name), (path, error)
        assert reason in json.dumps(error), (path, error)
    assert http.post("/message:send", content=b"{", headers=JSON).status_code == 400


JOKE: dict[str, Any] = {
    "role": "user",
    "parts": [{"kind": "text", "text": "tell me a joke"}],
    "messageId": "9229e770-767c-417b-a0b0-f0741243c589",
}
PICTURE = {"kind": "file", "file": {"mimeType": "image/png", "bytes": "iVBORw0KGgo="}}


@pytest.mark.torture
def test_the_messages_of_the_documents_get_answers_of_their_form(wire: Wire) -> None:
    """Of the specifications of 0.3 (9.2 to 9.4) and 1.0 (6 and 9), what an agent of this kind can be asked."""

    def replayed(number: Any, method: str, params: Any, **headers: str) -> Any:
        answer = wire.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, **headers)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", number)
        return answer

    task = replayed(1, "message/send", {"message": JOKE, "metadata": {}})["result"]
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["history"] == [{**JOKE, "taskId": task["id"], "contextId": task["contextId"], "kind": "message"}]
    assert set(task["artifacts"][0]) >= {"artifactId", "name", "parts"}
    paper = {"role": "user", "parts": [{"kind": "text", "text": "describe the attached pictures"}, PICTURE]}
    picture = replayed(1, "message/stream", {"message": {**paper, "messageId": "bbb7dee1"}, "metadata": {}})
    assert picture["error"]["code"] == -32005
    more = {"blocking": True}
    first = {**JOKE, "messageId": "c53ba666", "metadata": {"agent": "eve"}}
    waits = replayed("req-003", "message/send", {"message": first})["result"]
    assert set(waits["status"]) == {"state", "message", "timestamp"}
    assert (waits["status"]["state"], waits["status"]["message"]["kind"]) == ("input-required", "message")
    answer = {**JOKE, "contextId": waits["contextId"], "taskId": waits["id"], "messageId": "0db1d6c4"}
    assert replayed("req-004", "message/send", {"message": answer, "configuration": more})["error"]["code"] == -32004
    assert replayed(5, "tasks/cancel", {"id": waits["id"]})["result"]["status"]["state"] == "canceled"

    hello = {"message": {"messageId": "uuid", "role": "ROLE_USER", "parts": [{"text": "Hello"}]}}
    configured = {**hello, "configuration": {"acceptedOutputModes": ["text/plain"]}}
    sent = replayed(1, "SendMessage", configured, **{"A2A-Version": "0.3", "A2A-Extensions": "https://x/y/v1"})
    assert set(sent["result"]) == {"task"}
    number = sent["result"]["task"]["id"]
    assert replayed(2, "GetTask", {"id": number, "historyLength": 10})["result"]["id"] == number
    query = {"contextId": "context-uuid", "status": "TASK_STATE_WORKING", "pageSize": 50, "pageToken": "0:cursor-token"}
    assert replayed(3, "ListTasks", query)["result"] == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 50,
        "totalSize": 0,
    }
    assert replayed(4, "CancelTask", {"id": number})["error"]["code"] == -32002
    assert replayed(6, "GetExtendedAgentCard", {})["error"]["code"] == -32004
    detail = {"reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org", "metadata": {"taskId": "nonexistent-task-id"}}
    unknown = replayed(2, "GetTask", {"id": "nonexistent-task-id"})["error"]
    assert unknown["code"] == -32001
    assert unknown["message"].startswith("Task not found")
    assert unknown["data"] == [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **detail}]
    empty = replayed(1, "SendMessage", {"message": {**hello["message"], "parts": []}})["error"]
    assert (empty["code"], empty["data"][0]["fieldViolations"][0]["field"]) == (-32602, "message.parts")


def test_a_configuration_that_nobody_agreed_to_begins_nothing_and_is_not_shown(
    shared_home: Path, verbs: RunVerbs, wire: Wire
) -> None:
    evil = '[mcp]\nservers = [{ name = "e", command = "sh -c \'touch PWNED\'" }]\n[[agents]]\nname = "mallory"\n'
    card = wire.http.get("/.well-known/agent-card.json").json()
    task = wire.done(text_message("before"))
    verbs.file.write_text(f'{evil}grants = ["e.*"]\n')
    error = wire.whole("SendMessage", message=text_message("x"))["error"]
    assert "has changed since it was last used" in error["message"]
    assert wire.http.get("/.well-known/agent-card.json").json() == card
    assert wire.ask("GetTask", id=task["id"])["status"]["state"] == "TASK_STATE_COMPLETED"
    verbs.rewrite(TEXT)
    wire.done(text_message("after"))
    assert not (shared_home / "PWNED").exists()
