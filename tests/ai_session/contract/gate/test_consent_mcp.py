"""Questions to the person behind an MCP client: forms of both eras, sealed answers, and all that is no yes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import FORMS, client, decide, error_of, events, fill, form, greet, modern
from tests.ai_session.support.mcp_client import Client, Message

WHO = "wire wants echo:\n    hello\nAsked because a test wants it."


NO_CHOICE: list[Message] = [
    {"action": "decline"},
    {"action": "cancel"},
    {"action": "accept"},
    {"action": "accept", "content": {}},
    {"action": "accept", "content": {"decision": "yes"}},
    {"action": "accept", "content": {"decision": True}},
]


def call(peer: Client, text: str) -> int:
    return peer.request("tools/call", {"name": "echo", "arguments": {"text": text}})


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_a_handshake_client_is_asked_and_its_yes_lets_the_call_go_on(daemon_home: Path, version: str) -> None:
    for capability in ({}, {"form": {}}, {"form": {}, "url": {}}):
        with client(daemon_home) as peer:
            greet(peer, {"elicitation": capability}, version)
            wanted = call(peer, "hello")
            asked = form(peer)
            assert asked["params"]["message"] == WHO
            schema = asked["params"]["requestedSchema"]
            assert list(schema["properties"]) == schema["required"] == ["decision"]
            assert schema["properties"]["decision"]["enum"] == ["once", "always", "deny"]
            fill(peer, asked, decide("once"))
            answer = peer.read()
            assert (answer["id"], answer["result"]["structuredContent"]["text"]) == (wanted, "hello")
            again = call(peer, "hello")
            fill(peer, form(peer), decide("deny"))
            assert peer.read()["id"] == again
        assert asking.approvals(daemon_home) == {"questions": [], "grants": []}


@pytest.mark.parametrize(
    ("capabilities", "version"),
    [({}, "2025-11-25"), ({"elicitation": {"url": {}}}, "2025-11-25"), (FORMS, "2025-03-26"), (FORMS, "2024-11-05")],
)
def test_who_shows_no_forms_is_never_asked_and_told_the_other_way(
    daemon_home: Path, capabilities: Message, version: str
) -> None:
    with client(daemon_home) as peer:
        greet(peer, capabilities, version)
        error = error_of(peer.call("echo", text="hello"))
        (question,) = asking.approvals(daemon_home)["questions"]
        assert error["code"] == "consent_needed"
        assert f"ai-session approve {question['question_id']}; then call again" in error["suggestion"]
        asking.approve(daemon_home, question)
        assert peer.call("echo", text="hello")["structuredContent"]["text"] == "hello"
        assert error_of(peer.call("echo", text="hello"))["code"] == "consent_needed"


def test_what_is_no_choice_is_no_for_now(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        for number, filled in enumerate([*NO_CHOICE, decide("deny")]):
            call(peer, f"handshake {number}")
            fill(peer, form(peer), filled)
            results = [peer.answered()]
            state = peer.result("tools/call", modern({"text": f"{number}"}))["requestState"]
            answered = {"decision": filled}
            again = modern({"text": f"{number}"}, requestState=state, inputResponses=answered)
            results.append(peer.result("tools/call", again))
            left = {question["question_id"] for question in asking.approvals(daemon_home)["questions"]}
            assert len(left) == 2 * min(number + 1, len(NO_CHOICE))
            for error in map(error_of, results):
                assert error["code"] == "denied"
                named = [question_id for question_id in left if question_id in error["suggestion"]]
                assert len(named) == (filled in NO_CHOICE)  # nobody chose, so somebody else still may


def test_a_client_that_cannot_ask_after_all_is_as_one_that_shows_no_forms(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        for broken in ({"error": {"code": -32601, "message": "no"}}, {"result": {"action": 5}}, {"error": 7}):
            call(peer, "hello")
            peer.write({"jsonrpc": "2.0", "id": form(peer)["id"], **broken})
            assert error_of(peer.answered())["code"] == "consent_needed"


def test_answers_to_nothing_and_twice_say_nothing(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        peer.write({"jsonrpc": "2.0", "id": 1, "result": decide("always")})
        greet(peer, FORMS)
        call(peer, "hello")
        asked = form(peer)
        for wrong in (str(asked["id"]), asked["id"] + 1, True, None, 1.0):
            peer.write({"jsonrpc": "2.0", "id": wrong, "result": decide("once")})
        assert len(asking.approvals(daemon_home)["questions"]) == 1
        fill(peer, asked, decide("once"))
        fill(peer, asked, decide("always"))
        assert peer.answered()["structuredContent"]["text"] == "hello"
        assert asking.approvals(daemon_home) == {"questions": [], "grants": []}


def test_giving_a_call_up_withdraws_its_form_and_leaves_the_question(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        wanted = call(peer, "hello")
        asked = form(peer)
        peer.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": wanted}})
        withdrawn = peer.read()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        fill(peer, asked, decide("always"))
        assert peer.result("ping") == {}
        assert len(asking.approvals(daemon_home)["questions"]) == 1
        assert asking.approvals(daemon_home)["grants"] == []


def test_nobody_answers_within_the_bound(daemon_home: Path) -> None:
    asking.anew(daemon_home, ask_seconds=0.2)
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        call(peer, "hello")
        asked, withdrawn, answer = form(peer), peer.read(), peer.read()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert error_of(answer["result"])["code"] == "consent_needed"
        assert len(asking.approvals(daemon_home)["questions"]) == 1


def test_the_call_is_made_again_with_the_answer(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        asked = peer.result("tools/call", modern({"text": "hello"}))
        assert asked["resultType"] == "input_required"
        assert asked["_meta"]["ai-session/audit"] == "h"
        (request,) = asked["inputRequests"].values()
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", WHO)
        answered = {"decision": decide("once")}
        params = modern({"text": "hello"}, requestState=asked["requestState"], inputResponses=answered)
        assert peer.result("tools/call", params)["structuredContent"]["text"] == "hello"
        refused = peer.ask("tools/call", params)["error"]
        assert (refused["code"], "used before" in refused["message"]) == (-32602, True)


def test_a_modern_client_without_forms_is_told_the_other_way(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        result = peer.result("tools/call", modern({"text": "hello"}, forms=False))
        assert error_of(result)["code"] == "consent_needed"


def returned(peer: Client, state: str, text: str = "hello", name: str = "wire") -> Message:
    """What a call with a state and a yes gets."""
    answered = {"decision": decide("once")}
    return peer.ask("tools/call", modern({"text": text}, name=name, requestState=state, inputResponses=answered))


def test_a_state_is_of_use_for_its_own_call_only(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        state = peer.result("tools/call", modern({"text": "hello"}))["requestState"]
        for changed in ({"text": "other"}, {"name": "another"}):
            asked = returned(peer, state, **changed)["result"]
            assert asked["resultType"] == "input_required"
        half = len(state) // 2
        edits = [state[:-1], state + "A", "A" + state, state[:half] + ("B" if state[half] == "A" else "A")]
        edits[-1] += state[half + 1 :]
        for edited in [*edits, "", "s1..", "s1." + "é" * 9, "x" * 5000]:
            refused = returned(peer, edited)
            assert refused.get("error", {}).get("code") == -32602 or not edited, (edited, refused)
        greet(peer, {})
        legacy = {"name": "echo", "arguments": {"text": "hello"}, "requestState": state}
        legacy["inputResponses"] = {"decision": decide("always")}
        assert error_of(peer.result("tools/call", legacy))["code"] == "consent_needed"
        assert returned(peer, state)["result"]["structuredContent"]["text"] == "hello"


def test_a_form_that_was_dismissed_cannot_be_filled_in_later(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        state = peer.result("tools/call", modern({"text": "hello"}))["requestState"]
        dismissed: dict[str, Any] = {"requestState": state, "inputResponses": {"decision": {"action": "cancel"}}}
        assert error_of(peer.result("tools/call", modern({"text": "hello"}, **dismissed)))["code"] == "denied"
        assert returned(peer, state)["error"]["code"] == -32602


def test_a_state_grows_old_and_survives_the_daemon(home: Path) -> None:
    with asking.asking(home) as daemon, client(home) as peer:
        old = peer.result("tools/call", modern({"text": "old"}))["requestState"]
        (home / "clock").write_text("301")
        refused = returned(peer, old, "old")["error"]
        assert (refused["code"], "too old" in refused["message"]) == (-32602, True)
        state = peer.result("tools/call", modern({"text": "hello"}))["requestState"]
        asking.killed(daemon)
    with asking.asking(home), client(home) as peer:
        assert returned(peer, state)["result"]["structuredContent"]["text"] == "hello"
        assert returned(peer, state)["error"]["code"] == -32602


def test_every_question_and_answer_is_recorded_in_the_audit_log(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        call(peer, "hello")
        fill(peer, form(peer), decide("always"))
        peer.read()
        peer.call("echo", text="something else")
        asked, answered, use = events(daemon_home)
        assert (asked["event"], asked["tool"], asked["rule"]) == ("consent.ask", "echo", "test-asks")
        assert (answered["event"], answered["question_id"]) == ("consent.answer", asked["question_id"])
        assert (answered["allowed"], answered["scope"], answered["by"]) == (True, "always", "client wire")
        assert (use["event"], use["scope"]) == ("consent.use", "always")
        assert "hello" not in json.dumps(events(daemon_home))


def test_claims_of_the_client_reach_the_gate_when_they_are_short_texts(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)

        def said(meta: Message) -> tuple[str, str]:
            peer.request("tools/call", {"name": "wait", "arguments": {}, "_meta": meta})
            peer.call("release")
            result = peer.answered()["structuredContent"]
            return result["agent"], result["client_call_id"]

        assert said({"ai-session/agent": "a1", "ai-session/client_call_id": "c1"}) == ("a1", "c1")
        assert said({"ai-session/agent": "x" * 201, "ai-session/client_call_id": 5}) == ("", "")
