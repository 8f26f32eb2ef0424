"""Whatever is posted: the server lives, and every request that has an id is answered with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_session.servers.rpc_methods import METHODS
from tests.ai_session.contract.command_line import CommandLine
from tests.ai_session.contract.rpc_world import new_house
from tests.ai_session.contract.wire import stop_daemons

TEXT = st.text(max_size=20) | st.sampled_from(["", ".", "..", "a", "a/b", "/data", "/etc/passwd", "utf-8", "\ud800"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({name for method in METHODS.values() for name in method.params} | {"session_id", "name", "keys"})
PARAMS = st.dictionaries(st.sampled_from(NAMES), TEXT | JSON, max_size=4)
IDS = st.integers() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False) | st.none()
TOOLS = ("list_sessions", "get_session_info", "read_output", "send_input", "close_session", "no_such")
QUICK = (*(name for name in METHODS if name != "code.runPython"), "tools/list", *(f"session.{name}" for name in TOOLS))


def request(number: Any, method: Any, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


VALID = st.builds(request, IDS, st.sampled_from(QUICK) | st.text(max_size=20), PARAMS | PARAMS | JSON)
SENT = VALID | JSON | st.lists(VALID | JSON, max_size=5)
CUT = st.builds(lambda message, at: json.dumps(message).encode()[:at], SENT, st.integers(0, 80))


@pytest.fixture(scope="module")
def server(world: Path) -> Iterator[tuple[httpx2.Client, str]]:
    house = new_house(world)
    words = ("serve", "--rpc", "--port", "0", "--no-auth", "--workspace", str(house.workspace), "--json")
    with CommandLine(house.home).start(*words) as process:
        assert process.stdout
        with httpx2.Client(timeout=20, verify=False) as http:
            yield http, json.loads(process.stdout.readline())["url"]
    stop_daemons(house.home)


def is_id(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))


def is_answer(answer: Any) -> bool:
    """Whether it is one answer, and no failure of the server's own."""
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) is not ("error" in answer)
    return answer.get("error", {}).get("code") != -32603


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(SENT | CUT | st.binary(max_size=60), min_size=1, max_size=4))
def test_whatever_comes_every_request_with_an_id_is_answered(
    server: tuple[httpx2.Client, str], sent: list[Any]
) -> None:
    http, url = server
    for each in sent:
        answer = http.post(url, content=each if isinstance(each, bytes) else json.dumps(each).encode())
        assert answer.status_code in (200, 204, 400, 404), (each, answer.text)
        told = answer.json() if answer.content else []
        answers: list[Any] = told if isinstance(told, list) else [told]
        assert all(is_answer(one) for one in answers), (each, answer.text)
        numbers = [json.dumps(one["id"]) for one in answers]
        for one in each if isinstance(each, list) else [each]:
            if isinstance(one, dict) and "id" in one and one.get("jsonrpc") == "2.0" and is_id(one["id"]):
                numbers.remove(json.dumps(one["id"]))  # each once, with its JSON type
