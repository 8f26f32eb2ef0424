"""Whatever comes over the wire: the server lives, and every request that has an id is answered."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm.servers.visionflow.methods import METHODS, TOOLS
from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import TEXT, Served, Wire, served

SWARM = "swarm-550e8400-e29b-41d4-a716-446655440000"
WORDS = ("mesh", "star", "coder", "researcher", "adaptive", "high", SWARM, "all", "")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({name for method in METHODS.values() for name in method.params})
PARAMS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | JSON, max_size=5)
IDS = st.integers() | st.text(max_size=20)


def request(number: Any, method: Any, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


DIRECT = st.builds(request, IDS, st.sampled_from([*METHODS, "initialize", "authenticate", "ping"]), PARAMS | JSON)
AS_TOOLS = st.builds(
    lambda number, name, arguments: request(number, "tools/call", {"name": name, "arguments": arguments}),
    IDS,
    st.sampled_from(list(TOOLS)) | JSON,
    PARAMS | JSON,
)
UNKNOWN = st.builds(request, IDS, st.text(max_size=20), JSON)
VALID = DIRECT | AS_TOOLS | UNKNOWN
BROKEN = st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode())
CUT = st.builds(lambda message, at: json.dumps(message).encode()[:at], VALID, st.integers(0, 60))


@pytest.fixture(scope="module")
def server(shared_home: Path) -> Iterator[Served]:
    with served(RunVerbs(shared_home, TEXT)) as server:
        yield server


@pytest.mark.parametrize("examples", [8, pytest.param(25, marks=pytest.mark.torture)])
def test_whatever_comes_every_request_with_an_id_is_answered(server: Served, examples: int) -> None:
    @settings(max_examples=examples)
    @given(st.lists(VALID | BROKEN | CUT, min_size=1, max_size=12), st.integers(1, 4000))
    def tried(sent: list[Any], piece: int) -> None:
        last = f"last {uuid.uuid4()}"
        lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in sent]
        data = b"\n".join([*lines, json.dumps(request(last, "ping", {})).encode(), b""])
        with Wire(server.port) as wire:
            wire.ask("ping")
            for start in range(0, len(data), piece):
                wire.send(data[start : start + piece])
            answers: list[Any] = []
            while not answers or answers[-1]["id"] != last:
                answers.append(wire.answer())
                assert answers[-1] is not None, answers
        for answer in answers:
            assert answer["jsonrpc"] == "2.0"
            assert ("result" in answer) is not ("error" in answer)
            if "error" in answer:
                assert isinstance(answer["error"]["code"], int)
                assert isinstance(answer["error"]["message"], str)
                assert answer["error"]["code"] != -32603, answer
        given_ids = [json.dumps(answer["id"]) for answer in answers]
        for one in sent:
            if isinstance(one, dict):
                given_ids.remove(json.dumps(one["id"]))  # each once, with its JSON type
        assert not any("Traceback" in line for line in server.said)

    tried()
