"""`ai-session serve --rpc` as a process: where it listens, what it says, how it ends; its page; hostile requests."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_session.http.endpoints.rpc_methods import METHODS
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import stop_daemons
from tests.ai_session.support.rpc_servers import RpcHome, new_rpc_home
from tests.conftest import BY_CHANCE
from tests.support.bounds import BOUND_SECONDS

PAGE = Path(__file__).parents[4] / "docs/protocols/agentvault.md"
TYPED = {"Content-Type": "application/json"}
WORKSPACE = "/home/ann/project"
PLACED = (
    (re.compile(r'"ai-session/call_id":"call_[\w-]{22}"'), '"ai-session/call_id":"call_1vY0MPGgVvBZs6tjSf1sVQ"'),
    (re.compile(r'"seq":\d+,"head":"[0-9a-f]{64}"'), f'"seq":7,"head":"{"5e" * 32}"'),
    (re.compile(r"ses_[\w-]{22}"), "ses_9rWzFnA3kq0cV2mXyTbL7g"),
    (re.compile(r"cmd_[\w-]{22}"), "cmd_Jw4uYhQe8sDf5gKz1nRtPc"),
    (re.compile(r'"duration_seconds":[\d.e-]+'), '"duration_seconds":0.004'),
    (re.compile(r"finished, [\d.e-]+ s"), "finished, 0.004 s"),
    (re.compile(r"workspace \((?:bwrap-noproc|bwrap|landlock)"), "workspace (bwrap"),
)


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
def rpc_home(homes: Path) -> Iterator[RpcHome]:
    rpc_home = new_rpc_home(homes)
    yield rpc_home
    stop_daemons(rpc_home.home)


@dataclass
class Served:
    """A server that runs as a process of its own, and what it said when it began."""

    announced: dict[str, Any]
    workspace: Path
    http: httpx2.Client


@pytest.fixture(scope="module")
def served(rpc_home: RpcHome) -> Iterator[Served]:
    workspace = rpc_home.home / "project"
    workspace.mkdir()
    words = ("serve", "--rpc", "--port", "0", "--no-auth", "--workspace", str(workspace), "--json")
    with (
        CommandLine(rpc_home.home).start(*words) as process,
        httpx2.Client(timeout=BOUND_SECONDS, verify=False) as http,
    ):
        assert process.stdout
        yield Served(json.loads(process.stdout.readline()), workspace, http)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_SECONDS) == 0


def test_a_person_is_told_what_to_do(rpc_home: RpcHome) -> None:
    line = CommandLine(rpc_home.home)
    with line.start("serve", "--rpc", "--port", "0", "-w", str(rpc_home.workspace)) as process:
        assert process.stdout
        reported = [process.stdout.readline().decode() for _ in range(6)]
        base = reported[0].removeprefix("Serving AgentVault's tools at ").removesuffix("/rpc\n")
        assert reported[1:5] == [
            "Your own programs need no token, all others do: ai-session token shows it.\n",
            "Ctrl-C ends it; sessions keep running.\n",
            f"Files and code: {rpc_home.workspace}\n",
            "\n",
        ]
        assert f'"filesystem": "{base}"' in reported[5]
        assert httpx2.post(f"{base}/rpc", json={}, verify=False).status_code == 400
        assert httpx2.post(f"{base}/rpc", json={}, headers={"Via": "1.1 proxy"}, verify=False).status_code == 401
        document = httpx2.get(f"{base}/.well-known/oauth-protected-resource/rpc", verify=False).json()
        assert document["resource"] == f"{base}/rpc"
        process.terminate()
        assert process.wait(BOUND_SECONDS) == 0


def test_what_cannot_be_served(rpc_home: RpcHome) -> None:
    line, ws = CommandLine(rpc_home.home), str(rpc_home.workspace)
    for words, code, said in (
        ((), 2, "ai-session serve --rpc"),
        (("--rpc", "--no-auth", "--host", "0.0.0.0", "--port", "0"), 1, "would let anybody"),
        (("--rpc", "--host", "0.0.0.0", "--port", "0"), 1, "in the clear"),
        (("--rpc", "--no-auth", "--port", "0", "-w", f"{ws}/missing"), 2, "cannot be used"),
        (("--rpc", "--no-auth", "--port", "0", "-w", "/"), 1, "cannot be a workspace"),
        (("--rpc", "--no-auth", "--port", "0", "-w", str(rpc_home.home)), 1, "cannot be a workspace"),
        (("--rpc", "--port", "70000"), 2, "70000"),
    ):
        assert said in line.run("serve", *words, code=code).stderr, words


@pytest.mark.torture
def test_the_page_shows_what_happens(served: Served) -> None:
    conversations = re.findall(r"^```json-lines\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert conversations
    assert served.announced == {**served.announced, "workspace": str(served.workspace), "authenticated": False}
    assert served.http.get(served.announced["health"]).json() == {"status": "ok"}
    shown = [each for conversation in conversations for each in conversation.splitlines()]
    for sent, reported in zip(shown[::2], shown[1::2], strict=True):
        assert (sent[:2], reported[:2]) == ("> ", "< ")
        answer = served.http.post(served.announced["url"], content=sent[2:], headers=TYPED)
        assert f"< {answer.status_code} {placed(answer.text, str(served.workspace))}" == reported


def placed(text: str, workspace: str) -> str:
    """An answer with the page's ids, times and directory."""
    for pattern, instead in PLACED:
        text = pattern.sub(instead, text)
    return text.replace(workspace, WORKSPACE)


def is_id(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))


def is_answer(answer: Any) -> bool:
    """Whether it is one answer, and no failure of the server's own."""
    assert answer["jsonrpc"] == "2.0"
    assert ("result" in answer) is not ("error" in answer)
    return answer.get("error", {}).get("code") != -32603


@pytest.mark.parametrize("turn", [1, *(pytest.param(turn, marks=pytest.mark.torture) for turn in (2, 3))])
@settings(max_examples=8, suppress_health_check=[*BY_CHANCE, HealthCheck.function_scoped_fixture])
@given(st.lists(SENT | CUT | st.binary(max_size=60), min_size=1, max_size=4))
def test_whatever_comes_every_request_with_an_id_is_answered(turn: int, served: Served, sent: list[Any]) -> None:
    http, url = served.http, served.announced["url"]
    for each in sent:
        data = each if isinstance(each, bytes) else json.dumps(each).encode()
        answer = http.post(url, content=data, headers=TYPED)
        assert answer.status_code in (200, 204, 400, 404), (each, answer.text)
        reported = answer.json() if answer.content else []
        answers: list[Any] = reported if isinstance(reported, list) else [reported]
        assert all(is_answer(one) for one in answers), (each, answer.text)
        numbers = [json.dumps(one["id"]) for one in answers]
        for one in each if isinstance(each, list) else [each]:
            if isinstance(one, dict) and "id" in one and one.get("jsonrpc") == "2.0" and is_id(one["id"]):
                numbers.remove(json.dumps(one["id"]))  # each once, with its JSON type
