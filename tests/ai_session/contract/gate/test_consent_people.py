"""People answer from another window: by verb, on an attached terminal, after a restart; the asking side never does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from mcp import Client as SdkClient
from mcp import StdioServerParameters
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from agentwire import plugins
from tests.ai_session.support import asking
from tests.ai_session.support.asking import FORMS, client, error_of, form, greet, person
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import SERVER, stop_daemons
from tests.conftest import new_home
from tests.support.forked import Person


def call(peer: asking.Client, text: str) -> int:
    return peer.request("tools/call", {"name": "echo", "arguments": {"text": text}})


def test_verbs_show_allow_and_deny_also_after_a_restart(home: Path) -> None:
    with asking.asking(home) as daemon, client(home) as peer:
        greet(peer, {})
        for text in ("one", "two", "three"):
            assert error_of(peer.call("echo", text=text))["code"] == "consent_needed"
        asking.killed(daemon)
    with asking.asking(home), client(home) as peer:
        greet(peer, {})
        shown = person(home, "approvals")
        one, two, three = (q["question_id"] for q in json.loads(person(home, "approvals", "--json"))["questions"])
        assert all(part in shown for part in (one, two, three, "wire wants echo:", "    two", "rule test-asks"))
        assert "    two" in person(home, "approve", two)
        assert "Denied" in person(home, "reject", one, "--reason", "not now")
        assert peer.call("echo", text="two")["structuredContent"]["text"] == "two"
        assert "not now" in error_of(peer.call("echo", text="one"))["message"]
        person(home, "approve", three, "--session", "--always", code=2)
        person(home, "approve", three, "--always")
        assert peer.call("echo", text="anything")["structuredContent"]["text"] == "anything"
        (grant,) = asking.approvals(home)["grants"]
        assert grant["grant_id"] in person(home, "approvals")
        person(home, "reject", grant["grant_id"])
        assert error_of(peer.call("echo", text="anything"))["code"] == "consent_needed"
        assert "no question" in person(home, "approve", "ap_none", code=3)


def test_an_answer_from_another_window_overtakes_the_form(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        wanted = call(peer, "hello")
        asked = form(peer)
        (question,) = asking.approvals(daemon_home)["questions"]
        asking.approve(daemon_home, question)
        assert peer.read()["params"]["requestId"] == asked["id"]
        answer = peer.read()
        assert (answer["id"], answer["result"]["structuredContent"]["text"]) == (wanted, "hello")


def test_neither_the_asking_client_nor_a_session_answers(daemon_home: Path) -> None:
    with client(daemon_home, far=False) as near, client(daemon_home) as far:
        for peer in (near, far):
            greet(peer, {}, name="near" if peer is near else "far")
            assert error_of(peer.call("echo", text="hello"))["code"] == "consent_needed"
        near_id, far_id = (q["question_id"] for q in asking.approvals(daemon_home)["questions"])
        assert "cannot answer itself" in person(daemon_home, "approve", near_id, "--always", code=1, descends=True)
        assert "inside a session" in asking.insider(daemon_home, "approve", far_id, code=1)
        assert len(asking.approvals(daemon_home)["questions"]) == 2
        assert asking.control(daemon_home, "reject", question_id=near_id)["code"] == "signature_needed"


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.torture), "2026-07-28"])
async def test_the_official_client_asks_its_person(daemon_home: Path, mode: str) -> None:
    seen: list[str] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content={"decision": "once"}) if "yes" in params.message else DECLINED

    server = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env={"HOME": str(daemon_home)})
    async with SdkClient(server, mode=mode, elicitation_callback=answer) as sdk:
        allowed = await sdk.call_tool("echo", {"text": "yes"})
        denied = await sdk.call_tool("echo", {"text": "no"})
    async with SdkClient(server, mode=mode) as sdk:
        unasked = await sdk.call_tool("echo", {"text": "yes"})
    assert (allowed.structured_content or {})["text"] == "yes"
    assert [(result.meta or {})["ai-session/error"]["code"] for result in (denied, unasked)] == [
        "denied",
        "consent_needed",
    ]
    assert len(seen) == 2


DECLINED = ElicitResult(action="decline")


def attached(home: Path, *options: str) -> Person:
    found = CommandLine(home).spawn("attach", "main", *options)
    found.expect_exact("ready> ")
    return found


def execute(peer: asking.Client, command: str) -> int:
    return peer.request(
        "tools/call", {"name": "execute_command", "arguments": {"session_id": "main", "command": command}}
    )


@pytest.fixture(scope="module")
def terminals_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes)
    with asking.asking(home, "--sessions"):
        yield home


@pytest.fixture
def terminals(terminals_home: Path) -> Iterator[Path]:
    """The home of a daemon that asks and has sessions."""
    asking.anew(terminals_home)
    yield terminals_home
    asking.as_before(terminals_home)


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
def test_an_attached_terminal_is_asked_and_one_key_answers(terminals: Path, backend: str) -> None:
    with client(terminals) as peer:
        asking.opened(terminals, backend)
        greet(peer, {})
        window = attached(terminals)
        execute(peer, "echo done-$((40+2))")
        window.expect_exact("ai-session asks")
        window.expect_exact("echo done-$((40+2))")
        window.expect_exact("y once")
        window.send(b"y")
        window.expect_exact("done-42")  # drawn anew after a question, or printed
        assert peer.answered()["structuredContent"]["exit_code"] == 0
        execute(peer, "touch forbidden")
        window.expect_exact("y once")
        window.send(b"n")
        assert error_of(peer.answered())["code"] == "denied"
        window.expect_exact("ready> ")
        window.send(b"echo typed-$((1+1))\r")
        window.expect_exact("typed-2")
        window.send(b"\x1d")
        window.expect(pexpect.EOF)
        window.close()
        assert not (terminals / "forbidden").exists()


def test_who_only_watches_is_not_asked(terminals: Path) -> None:
    with client(terminals) as peer:
        asking.opened(terminals, "pty")
        greet(peer, {})
        window = attached(terminals, "--read-only")
        execute(peer, "echo no")
        assert error_of(peer.answered())["code"] == "consent_needed"
        window.send(b"\x1d")
        window.expect(pexpect.EOF)
        window.close()
        assert b"ai-session asks" not in (window.before or b"")


def test_the_real_gate_asks_before_every_effect_where_it_is_told_to(home: Path) -> None:
    settings = home / ".config/ai-session/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[policy]\nmode = "ask-all"\n')
    with client(home) as peer:
        greet(peer, FORMS)
        peer.request("tools/call", {"name": "create_session", "arguments": {"name": "main", "backend": "pty"}})
        asking.fill(peer, form(peer), asking.decide("once"))
        assert not peer.answered()["isError"]
        execute(peer, "echo $((6*7))")
        asked = form(peer)
        assert "echo $((6*7))" in asked["params"]["message"]
        asking.fill(peer, asked, asking.decide("once"))
        assert peer.answered()["structuredContent"]["output"].strip() == "42"
        execute(peer, "touch forbidden")
        asking.fill(peer, form(peer), asking.decide("deny"))
        assert error_of(peer.answered())["code"] == "denied"
        state = peer.result("tools/call", modern_execute("touch forbidden"))["requestState"]
        answers = {"decision": asking.decide("once")}
        changed = modern_execute("touch other", requestState=state, inputResponses=answers)
        assert peer.result("tools/call", changed)["resultType"] == "input_required"
        forged = peer.ask(
            "tools/call", modern_execute("touch forbidden", requestState="s1.x.y", inputResponses=answers)
        )
        assert forged["error"]["code"] == -32602
    stop_daemons(home)


def modern_execute(command: str, **params: Any) -> asking.Message:
    return {**asking.modern({"session_id": "main", "command": command}, **params), "name": "execute_command"}
