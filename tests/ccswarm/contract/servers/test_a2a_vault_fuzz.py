"""Whatever comes over AgentVault's wire: the server lives, and every request that has an id is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ccswarm.support.a2a_standard_server import Served, served
from tests.ccswarm.support.a2a_vault_server import TEXT, Vault
from tests.ccswarm.support.runs import RunVerbs

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(["tasks/send", "tasks/get", "tasks/cancel", "tasks/sendSubscribe", "message/send"])
CONTENT = st.fixed_dictionaries(
    {
        "target_mcp_server_id": st.sampled_from(["small", "nowhere", "pipe", ""]) | JSON,
        "tool_name": st.sampled_from(["echo", "small.echo", "fail", "nothing", ""]) | JSON,
        "arguments": st.fixed_dictionaries({}, optional={"text": JSON, "call_key": JSON, "x": JSON}) | JSON,
    }
)
PARTS = st.fixed_dictionaries({"type": st.sampled_from(["data", "text", "file"]) | JSON, "content": CONTENT | JSON})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]) | JSON, "parts": st.lists(PARTS, max_size=3) | JSON},
    optional={"metadata": JSON},
)
PARAMS = st.fixed_dictionaries({}, optional={"message": MESSAGES | JSON, "id": st.just("x") | JSON}) | JSON
IDS = st.integers() | st.text(max_size=20)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": IDS, "method": METHODS | st.text(max_size=10), "params": PARAMS}
)
BROKEN = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode())
CUT = st.builds(lambda message, at: json.dumps(message).encode()[:at], REQUESTS, st.integers(0, 80))


@pytest.fixture(scope="module")
def server(shared_home: Path) -> Iterator[Served]:
    with served(RunVerbs(shared_home, TEXT)) as server:
        yield server


@pytest.mark.torture
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(REQUESTS | BROKEN | CUT, min_size=1, max_size=8))
def test_whatever_comes_every_request_with_an_id_is_answered(server: Served, sent: list[Any]) -> None:
    with Vault(server.port) as vault:
        for one in sent:
            answer = vault.post(one)
            assert answer["jsonrpc"] == "2.0"
            assert ("result" in answer) != ("error" in answer)
            if isinstance(one, dict):
                assert answer["id"] == one["id"]
            if "error" in answer:
                assert answer["error"]["code"] in (-32700, -32600, -32601, -32602, -32000, -32001)
            elif isinstance(one, dict) and one["method"] == "tasks/send":
                assert reported(vault, answer["result"]["id"])


def reported(vault: Vault, task: str) -> bool:
    """Whatever was asked, it is over, and its result or its error is there."""
    found = vault.over(task)
    content = found["messages"][-1]["parts"][0]["content"]
    return content["success"] == (found["state"] == "COMPLETED") and ("mcp_result" in content) == content["success"]
