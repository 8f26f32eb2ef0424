"""How A2A is written in both versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccswarm.servers.a2a.standard.errors import Fault
from ccswarm.servers.a2a.standard.requests import plan_in
from ccswarm.servers.a2a.standard.wire import (
    check_version,
    event_json,
    message_json,
    parse_list,
    parse_send,
    parse_task_query,
    task_json,
)
from ccswarm.servers.a2a.task_store import State, Task, TaskEvent

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda key: key != "data_part_compat"), JSON, max_size=3
)
PARTS = st.one_of(
    st.builds(lambda text: {"text": text}, st.text(max_size=20)),
    st.builds(lambda data: {"data": data}, JSON),
    st.just({"raw": "AAAA", "filename": "a.toml", "mediaType": "application/toml"}),
    st.just({"url": "https://example.com/a", "mediaType": "image/png"}),
)
MESSAGES = st.builds(
    lambda parts, metadata, more: {
        "messageId": "m",
        **more,
        "role": "ROLE_USER",
        "parts": parts,
        **({"metadata": metadata} if metadata else {}),
    },
    st.lists(PARTS, min_size=1, max_size=4),
    OBJECTS,
    st.sampled_from([{}, {"contextId": "c"}, {"contextId": "c", "taskId": "t"}]),
)


@given(MESSAGES)
def test_a_message_is_the_same_in_both_versions(message: dict[str, Any]) -> None:
    """As it is written, to the last digit."""
    new = parse_send({"message": message}, "1.0").message.to_json()
    assert json.dumps(new) == json.dumps(message)
    old = message_json(new, "0.3")
    assert (old["kind"], old["role"]) == ("message", "user")
    assert all(isinstance(part["data"], dict) for part in old["parts"] if part["kind"] == "data")
    assert json.dumps(parse_send({"message": old}, "0.3").message.to_json()) == json.dumps(message)


@given(JSON)
def test_whatever_is_sent_is_understood_or_refused(params: Any) -> None:
    for read in (parse_send, parse_task_query):
        for version in ("0.3", "1.0"):
            for given_ in (params, {"message": params}, {"message": {"messageId": "m", "parts": params}}):
                with pytest.raises(Fault):
                    read(given_, version)  # pyright: ignore[reportArgumentType]
    if not isinstance(params, dict):
        with pytest.raises(Fault):
            parse_list(params)


def test_null_is_as_good_as_absent() -> None:
    part = {"text": "x", "raw": None, "url": None, "data": None, "metadata": None, "filename": None}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [part], "contextId": None, "referenceTaskIds": None}
    configuration = {"historyLength": None, "returnImmediately": None, "acceptedOutputModes": None}
    found = parse_send({"message": message, "configuration": configuration, "metadata": None}, "1.0")
    assert found.message.to_json() == {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    assert (found.waits, found.pushes, found.configuration.history_length) == (True, False, None)
    null = parse_send({"message": {**message, "parts": [{"data": None}]}}, "1.0").message
    assert null.to_json()["parts"] == [{"data": None}]
    for pushes in ("taskPushNotificationConfig", "pushNotificationConfig"):
        assert parse_send({"message": message, "configuration": {pushes: {"url": "http://x"}}}, "1.0").pushes


@pytest.mark.parametrize(
    ("version", "configuration", "waits"),
    [
        ("1.0", {}, True),
        ("1.0", {"returnImmediately": True}, False),
        ("1.0", {"returnImmediately": False}, True),
        ("0.3", {}, True),
        ("0.3", {"blocking": True}, True),
        ("0.3", {"blocking": False}, False),
    ],
)
def test_who_waits_for_the_end(version: Any, configuration: Any, waits: bool) -> None:
    role = "user" if version == "0.3" else "ROLE_USER"
    message = {"messageId": "m", "role": role, "parts": [{"kind": "text", "text": "x"}]}
    assert parse_send({"message": message, "configuration": configuration}, version).waits is waits


def test_states_and_events_in_both_versions() -> None:
    task = Task("t", "standard", "c", state=State.INPUT_REQUIRED, updated=1.5)
    new, old = task_json(task, "1.0", None), task_json(task, "0.3", None)
    assert new["status"] == {"state": "TASK_STATE_INPUT_REQUIRED", "timestamp": "1970-01-01T00:00:01.500Z"}
    assert (old["status"]["state"], old["kind"], "artifacts" in old) == ("input-required", "task", False)
    for state in State:
        run_event = TaskEvent("status", None, state, 0.0)
        event = event_json(task, run_event, "0.3")
        assert event
        assert (event["final"], event["status"]["state"]) == (state.over, state.value)
        event = event_json(task, run_event, "1.0")
        assert event
        assert event["statusUpdate"]["status"]["state"] == f"TASK_STATE_{state.name}"
    artifact = {"artifactId": "a", "parts": [{"data": [1]}]}
    event = event_json(task, TaskEvent("artifact", artifact, State.WORKING, 0.0), "0.3")
    assert event
    part = event["artifact"]["parts"][0]
    assert part == {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True}}
    assert event_json(task, TaskEvent("message", {}, State.WORKING, 0.0), "1.0") is None


def test_versions() -> None:
    for name in ("", "1.0", "1.0.0", "0.3", "0.3.26", " 1.0 "):
        check_version(name)
    for name in ("1", "1.1", "0.2", "2.0", "x", "1.0; drop"):
        with pytest.raises(Fault):
            check_version(name)


@pytest.mark.parametrize("raw", ["W1t0YXNrc11dCg==", "W1t0YXNrc11dCg"])
def test_files_in_either_alphabet(raw: str) -> None:
    part = {"raw": raw, "filename": "a.toml"}
    found = parse_send({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [part]}}, "1.0")
    assert plan_in(found) == "[[tasks]]\n"
