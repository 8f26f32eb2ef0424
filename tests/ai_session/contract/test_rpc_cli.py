"""`ai-session serve --rpc` as a person starts it: where it may listen, what it says, how it ends; its page."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.ai_session.contract.command_line import CommandLine
from tests.ai_session.contract.rpc_world import House, new_house
from tests.ai_session.contract.wire import BOUND_SECONDS, stop_daemons

PAGE = Path(__file__).parents[3] / "docs/protocols/agentvault.md"
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


@pytest.fixture(scope="module")
def house(world: Path) -> Iterator[House]:
    house = new_house(world)
    yield house
    stop_daemons(house.home)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_when_told_to(house: House, number: int) -> None:
    line = CommandLine(house.home)
    words = ("serve", "--rpc", "--port", "0", "--no-auth", "--workspace", str(house.workspace), "--json")
    with line.start(*words) as process:
        assert process.stdout
        told = json.loads(process.stdout.readline())
        assert told["workspace"] == str(house.workspace)
        assert told["authenticated"] is False
        assert httpx2.get(told["health"]).json() == {"status": "ok"}
        (house.workspace / "a").write_text("here")
        message = {"jsonrpc": "2.0", "id": 1, "method": "filesystem.readFile", "params": {"path": "a"}}
        assert httpx2.post(told["url"], json=message).json()["result"]["content"][0]["text"] == "here"
        process.send_signal(number)
        assert process.wait(BOUND_SECONDS) == 0


def test_a_person_is_told_what_to_do(house: House) -> None:
    line = CommandLine(house.home)
    with line.start("serve", "--rpc", "--port", "0", "-w", str(house.workspace)) as process:
        assert process.stdout
        told = [process.stdout.readline().decode() for _ in range(5)]
        base = told[0].removeprefix("Serving AgentVault's tools at ").removesuffix("/rpc\n")
        assert told[1:4] == [
            "Clients need a token (docs/oauth.md). Ctrl-C ends it; sessions go on.\n",
            f"Files and code: {house.workspace}\n",
            "\n",
        ]
        assert f'"filesystem": "{base}"' in told[4]
        assert httpx2.post(f"{base}/rpc", json={}).status_code == 401
        document = httpx2.get(f"{base}/.well-known/oauth-protected-resource/rpc").json()
        assert document["resource"] == f"{base}/rpc"
        process.terminate()
        assert process.wait(BOUND_SECONDS) == 0


def test_what_cannot_be_served(house: House) -> None:
    line, ws = CommandLine(house.home), str(house.workspace)
    for words, code, said in (
        ((), 2, "ai-session serve --rpc"),
        (("--rpc", "--no-auth", "--host", "0.0.0.0", "--port", "0"), 1, "would let everybody"),
        (("--rpc", "--host", "0.0.0.0", "--port", "0"), 1, "in the clear"),
        (("--rpc", "--no-auth", "--port", "0", "-w", f"{ws}/missing"), 2, "cannot be used"),
        (("--rpc", "--no-auth", "--port", "0", "-w", "/"), 1, "cannot be a workspace"),
        (("--rpc", "--no-auth", "--port", "0", "-w", str(house.home)), 1, "cannot be a workspace"),
        (("--rpc", "--port", "70000"), 2, "70000"),
    ):
        assert said in line.run("serve", *words, code=code).stderr, words


def test_the_page_shows_what_happens(house: House) -> None:
    conversations = re.findall(r"^```json-lines\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert conversations
    workspace = house.home / "project"
    workspace.mkdir()
    line = CommandLine(house.home)
    words = ("serve", "--rpc", "--port", "0", "--no-auth", "--workspace", str(workspace), "--json")
    with line.start(*words) as process, httpx2.Client() as http:
        assert process.stdout
        url = json.loads(process.stdout.readline())["url"]
        shown = [each for conversation in conversations for each in conversation.splitlines()]
        for sent, told in zip(shown[::2], shown[1::2], strict=True):
            assert (sent[:2], told[:2]) == ("> ", "< ")
            answer = http.post(url, content=sent[2:])
            assert f"< {answer.status_code} {placed(answer.text, str(workspace))}" == told
        process.terminate()
        assert process.wait(BOUND_SECONDS) == 0


def placed(text: str, workspace: str) -> str:
    """An answer with the page's ids, times and directory."""
    for pattern, instead in PLACED:
        text = pattern.sub(instead, text)
    return text.replace(workspace, WORKSPACE)
