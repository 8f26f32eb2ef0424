"""Whatever comes over the wire: the server lives, and every request that has an id is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccswarm.servers.a2a.standard.wire import METHODS
from tests.ccswarm.support.a2a_standard_server import TEXT, Served, Wire, served
from tests.ccswarm.support.runs import RunVerbs

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("id", "message", "configuration", "metadata", "historyLength", "pageSize", "pageToken", "contextId", "status")
PARTS = st.dictionaries(
    st.sampled_from(["text", "data", "raw", "url", "kind", "file", "filename", "mediaType", "metadata"]),
    st.sampled_from(["text", "data", "file", "a.toml", "AAAA", {"plan": {}}, {"plan": "x"}]) | JSON,
    max_size=4,
)
ENOUGH: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER"}
MESSAGES = st.builds(
    lambda parts, more: {**ENOUGH, "parts": parts, **more},
    st.lists(PARTS, max_size=3) | JSON,
    st.dictionaries(
        st.sampled_from(["messageId", "role", "taskId", "contextId", "referenceTaskIds", "metadata"]),
        st.sampled_from(["user", "x", {"agent": "bob"}, ["x"]]) | JSON,
        # A message that is well in every way would begin a run, which is not what is tried here.
        min_size=1,
        max_size=3,
    ),
)
PARAMS = st.dictionaries(st.sampled_from(NAMES), JSON | MESSAGES, max_size=4) | st.builds(
    lambda message: {"message": message, "metadata": {"agent": "nobody"}}, MESSAGES
)
IDS = st.integers() | st.text(max_size=20)


def request(number: Any, method: Any, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


VALID = st.builds(request, IDS, st.sampled_from(list(METHODS)), PARAMS | JSON) | st.builds(
    request, IDS, st.text(max_size=20), JSON
)
BROKEN = st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode())
CUT = st.builds(lambda message, at: json.dumps(message).encode()[:at], VALID, st.integers(0, 60))


@pytest.fixture(scope="module")
def server(shared_home: Path) -> Iterator[Served]:
    with served(RunVerbs(shared_home, TEXT)) as server:
        yield server


@pytest.mark.torture
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALID | BROKEN | CUT, min_size=1, max_size=8))
def test_whatever_comes_every_request_with_an_id_is_answered(server: Served, sent: list[Any]) -> None:
    with Wire(server.port) as wire:
        for one in sent:
            answer = wire.post(one)
            assert answer["jsonrpc"] == "2.0"
            assert ("result" in answer) is not ("error" in answer)
            if "error" in answer:
                assert isinstance(answer["error"]["code"], int)
                assert answer["error"]["code"] != -32603, (one, answer)
            if isinstance(one, dict) and answer.get("error", {}).get("code") != -32700:
                assert json.dumps(answer["id"]) == json.dumps(one["id"])  # with its JSON type
    assert not any("Traceback" in line for line in server.said)
