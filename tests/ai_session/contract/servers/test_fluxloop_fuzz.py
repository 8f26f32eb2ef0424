"""Whatever comes over the wire: the server lives, and every request that has an id is answered."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.ai_session.support.fluxloop_client import TOOLS, connected
from tests.ai_session.support.mcp_client import Client, living_in, runtime, stop_daemons
from tests.conftest import BY_CHANCE, UNBOXED, new_home

WORDS = ("fastapi", "express", ".", "/nowhere", "how is a terminal shared?", "")
NAMES = ("query", "topK", "context", "root", "globs", "framework", "repository_profile", "plan", "question", "id")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARAMS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(WORDS) | st.integers(0, 30) | JSON, max_size=4)
IDS = st.integers() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False)


def request(number: Any, **more: Any) -> dict[str, Any]:
    return {"type": "request", "id": number, **more}


KNOWN = st.builds(lambda n, tool, params: request(n, tool=tool, params=params), IDS, st.sampled_from(TOOLS), PARAMS)
BESIDE = st.builds(lambda n, tool, params: {**params, "id": n, "tool": tool}, IDS, st.sampled_from(TOOLS), PARAMS)
STRANGE = st.builds(
    lambda n, kind, tool, params: {"type": kind, "id": n, "tool": tool, "params": params},
    IDS,
    st.sampled_from(("handshake", "request", "response", "error", 7, None)) | st.text(max_size=8),
    st.sampled_from(TOOLS) | JSON,
    PARAMS | JSON,
)
VALID = KNOWN | BESIDE | STRANGE
BROKEN = st.binary(max_size=80) | JSON.map(lambda value: json.dumps(value).encode())
CUT = st.builds(lambda message, at: json.dumps(message).encode()[:at], VALID, st.integers(0, 60))


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """A HOME with a daemon whose rates never end."""
    home = new_home(homes, f"{UNBOXED}\n[rates]\nread_per_minute = 1000000000\n")
    with Client(env=living_in(home)) as client:
        client.initialize()
    yield home
    stop_daemons(home)


@pytest.mark.parametrize("turn", [1, *(pytest.param(turn, marks=pytest.mark.torture) for turn in (2, 3))])
@settings(max_examples=8, suppress_health_check=[*BY_CHANCE, HealthCheck.function_scoped_fixture])
@given(st.lists(VALID | BROKEN | CUT, min_size=1, max_size=12), st.integers(1, 4000), st.booleans())
def test_whatever_comes_every_request_with_an_id_is_answered(
    turn: int, daemon_home: Path, sent: list[Any], piece: int, detected: bool
) -> None:
    first, last = f"first {uuid.uuid4()}", f"last {uuid.uuid4()}"
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in sent]
    greeting = json.dumps({"type": "handshake", "id": first}).encode()
    data = b"\n".join([greeting, *lines, json.dumps(request(last, tool="handshake")).encode()])
    with connected(daemon_home, "mcp" if detected else "fluxloop") as link:
        for start in range(0, len(data), piece):
            link.send(data[start : start + piece])
        answers = link.rest()
    assert [answers[0]["id"], answers[-1]["id"]] == [first, last]
    for answer in answers:
        assert answer.keys() == {"type", "id", {"response": "result", "error": "error"}[answer["type"]]}
        if answer["type"] == "error":
            assert isinstance(answer["error"]["message"], str)
            assert answer["error"]["code"] in ("invalid_payload", "tool_not_found", "tool_error")
    said = b"\n".join(lines).split(b"\n")
    assert len(answers) == 2 + sum(bool(line.strip()) for line in said)  # a line each, whatever it is
    given_ids = [json.dumps(answer["id"]) for answer in answers]
    for one in sent:
        if isinstance(one, dict):
            given_ids.remove(json.dumps(one["id"]))  # each once, with its JSON type
    log = (runtime(daemon_home) / "daemon.log").read_text()
    assert "Traceback" not in log, log
