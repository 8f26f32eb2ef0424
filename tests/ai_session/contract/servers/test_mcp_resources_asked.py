"""A resource that a person must agree to: asked as a call of the tool behind it is, in both eras."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import FORMS, client, decide, fill, form, greet, modern
from tests.ai_session.support.mcp_client import Message, stop_daemons
from tests.conftest import UNBOXED, new_home

RULE = '[[policy.rules]]\nid = "screens"\ndecision = "ask"\ntools = ["read_screen"]\n'
SCREEN = {"uri": "session://main/screen"}


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED + RULE)
    with client(home) as peer:
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
    yield home
    stop_daemons(home)


def read(**params: object) -> Message:
    return {**SCREEN, "_meta": modern({})["_meta"], **params}


def test_since_2026_the_question_is_the_result_and_the_answer_comes_with_the_next_request(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        for decision, agreed in (("once", True), ("deny", False)):
            asked = peer.result("resources/read", read())
            assert asked["resultType"] == "input_required"
            ((key, request),) = asked["inputRequests"].items()
            assert "wants read_screen" in request["params"]["message"]
            given = {"requestState": asked["requestState"], "inputResponses": {key: decide(decision)}}
            answer = peer.ask("resources/read", read(**given))
            assert ("result" in answer) == agreed, answer
            if agreed:
                assert answer["result"]["contents"][0]["uri"] == SCREEN["uri"]
            else:
                assert answer["error"]["data"]["code"] == "denied"
        broken = peer.ask("resources/read", read(requestState="s1.x.y", inputResponses={key: decide("once")}))
        assert broken["error"]["code"] == -32602


def test_in_the_handshake_era_the_form_comes_while_the_request_waits(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS)
        wanted = peer.request("resources/read", SCREEN)
        fill(peer, form(peer), decide("once"))
        answer = peer.read()
        assert (answer["id"], answer["result"]["contents"][0]["mimeType"]) == (wanted, "text/plain")


def test_who_cannot_ask_is_told_how_a_person_agrees(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        error = peer.ask("resources/read", SCREEN)["error"]
        assert (error["code"], error["data"]["code"]) == (-32600, "consent_needed")
        assert "ai-session approve ap_" in error["message"]
        prompt = {"name": "hand_over", "arguments": {"session": "main"}}
        assert peer.ask("prompts/get", prompt)["error"]["data"]["code"] == "consent_needed"
        for question in asking.approvals(daemon_home)["questions"]:
            asking.typed(daemon_home, "reject", question_id=question["question_id"])
