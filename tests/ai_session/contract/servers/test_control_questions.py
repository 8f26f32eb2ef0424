"""Questions over the control protocol: listed, waited for, answered, and put to an attached terminal as frames."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import ConsentNeeded
from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.consent import Consent
from ai_session.gate.consent.person_check import PersonCheck
from ai_session.gate.consent.terminal_origin import Terminals
from ai_session.models import Answer, Principal, Question
from tests.ai_session.contract.servers.test_control import ControlClient, MemoryGate, MemoryViewer, serving
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


def ignore(name: str, **facts: Any) -> None:
    """What consent tells the audit."""


class HeldViewer(MemoryViewer):
    """Remembers whether its output stands still."""

    held = False

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


class QuestionGate(MemoryGate):
    """With consent, which knows nothing of processes."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        nothing = ProcessAncestry(directory, directory / "nothing")
        person = PersonCheck(directory / "person", event=ignore, terminals=Terminals(nothing))
        self.consent = Consent(directory, event=ignore, ask_seconds=5, process_ancestry=nothing, person=person)

    async def attach(
        self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool
    ) -> HeldViewer:
        viewer = HeldViewer(rows, cols, read_only)
        self.viewers.append(viewer)
        return viewer

    async def approvals(self, principal: Principal) -> Any:
        return [(question, "unsigned") for question in self.consent.pending()], self.consent.grants()

    async def answer(self, principal: Principal, question_id: str, answer: Answer, signature: Any = None) -> str:
        return (await self.consent.answer(question_id, answer, principal, signature)).message

    async def watch(self, principal: Principal) -> Any:
        return await self.consent.watch(principal)


def question(number: int) -> Question:
    asker = Principal(kind="mcp", uid=os.getuid(), client="agent", env={"SECRET": "s3cret"})
    return Question(
        question_id=f"ap_{number}",
        principal=asker,
        tool="echo",
        session="s",
        message=f"question {number}",
        rule="r",
        arguments_sha256=str(number),
        policy_sha256="p",
        asked_at=time.time(),
        expires_at=time.time() + 60,
    )


async def test_questions_are_listed_without_the_clients_environment(tmp_path: Path) -> None:
    gate = QuestionGate(tmp_path)
    with pytest.raises(ConsentNeeded):
        await gate.consent.obtain(question(1), None)
    async with serving(gate) as peer:
        peer.send(1, "approvals")
        (shown,) = (await peer.answer())["result"]["questions"]
        assert (shown["question_id"], shown["client"], shown["message"]) == ("ap_1", "agent", "question 1")
        assert "s3cret" not in json.dumps(shown)
        peer.send(2, "approve", question_id="ap_1", scope="session", reason="fine")
        assert (await peer.answer())["result"] == {"question_id": "ap_1", "about": "question 1"}
        peer.send(3, "approvals")
        listed = (await peer.answer())["result"]
        assert listed["questions"] == []
        assert [(g["scope"], g["what"]) for g in listed["grants"]] == [("session", "agent, echo, r, session s")]
        for wrong in ({}, {"question_id": 5}, {"question_id": "ap_1", "scope": "ever"}):
            peer.send(4, "approve", **wrong)
            assert (await peer.answer())["error"]["code"] == "invalid_arguments"
        peer.send(5, "approve", question_id="ap_9")
        assert (await peer.answer())["error"]["code"] == "question_not_found"
    assert "s3cret" not in "".join(path.read_text() for path in tmp_path.rglob("*.json"))


async def test_who_waits_for_a_question_is_told_at_once_and_answers_the_waiting_call(tmp_path: Path) -> None:
    gate = QuestionGate(tmp_path)
    async with serving(gate) as peer:
        peer.send(1, "approvals", wait=True)
        peer.send(2, "status")
        assert (await peer.answer())["id"] == 2
        call = asyncio.ensure_future(gate.consent.obtain(question(1), None))
        (shown,) = (await peer.answer())["result"]["questions"]
        peer.send(3, "approve", question_id=shown["question_id"])
        await peer.answer()
        async with asyncio.timeout(BOUND_SECONDS):
            answer = await call
        assert isinstance(answer, Answer)
        assert (answer.allowed, answer.scope) == (True, "once")


async def attached(peer: ControlClient, gate: QuestionGate, **params: Any) -> Any:
    peer.send(1, "attach", session="s", **params)
    await peer.answer()
    return gate.viewers[-1]


async def frame(peer: ControlClient) -> tuple[bytes, dict[str, Any]]:
    kind, payload = await peer.next_frame()
    return kind, json.loads(payload)


async def test_an_attached_terminal_is_asked_one_after_the_other_while_its_output_stands_still(tmp_path: Path) -> None:
    gate = QuestionGate(tmp_path)
    async with serving(gate) as peer:
        viewer = await attached(peer, gate, asks=True)
        calls = [asyncio.ensure_future(gate.consent.obtain(question(n), None)) for n in (1, 2)]
        kind, shown = await frame(peer)
        assert (kind, shown["message"], viewer.held) == (b"q", "question 1", True)
        for junk in (b"", b"7", b'{"question_id": "ap_2", "allowed": true}'):
            peer.frame(b"a", junk)
        peer.frame(b"a", json.dumps({"question_id": "ap_1", "allowed": True, "scope": "once"}).encode())
        assert await frame(peer) == (b"w", {"question_id": "ap_1", "note": ""})
        kind, shown = await frame(peer)
        assert (kind, shown["message"]) == (b"q", "question 2")
        peer.frame(b"a", json.dumps({"question_id": "ap_2", "allowed": False}).encode())
        assert (await frame(peer))[0] == b"w"
        async with asyncio.timeout(BOUND_SECONDS):
            first, second = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, Answer)
        assert "said no" in str(second)
        viewer.printed.put_nowait(b"on")
        assert await peer.next_frame() == (b"o", b"on")
        assert not viewer.held


async def test_a_question_answered_elsewhere_goes_and_one_left_comes_no_more(tmp_path: Path) -> None:
    gate = QuestionGate(tmp_path)
    async with serving(gate) as peer:
        viewer = await attached(peer, gate, asks=True)
        call = asyncio.ensure_future(gate.consent.obtain(question(1), None))
        assert (await frame(peer))[0] == b"q"
        await gate.consent.answer("ap_1", Answer(True), Principal(kind="person", uid=os.getuid()))
        assert (await frame(peer))[0] == b"w"
        await call
        call = asyncio.ensure_future(gate.consent.obtain(question(2), None))
        assert (await frame(peer))[1]["question_id"] == "ap_2"
        peer.frame(b"a", b'{"question_id": "ap_2", "later": true}')
        assert (await frame(peer))[0] == b"w"
        viewer.printed.put_nowait(b"on")
        assert await peer.next_frame() == (b"o", b"on")
        assert [q.question_id for q in gate.consent.pending()] == ["ap_2"]
        call.cancel()


@pytest.mark.parametrize("params", [{"asks": True, "read_only": True}, {}])
async def test_a_viewer_that_only_looks_is_not_asked(tmp_path: Path, params: dict[str, bool]) -> None:
    gate = QuestionGate(tmp_path)
    async with serving(gate) as peer:
        viewer = await attached(peer, gate, **params)
        with pytest.raises(ConsentNeeded):
            await gate.consent.obtain(question(1), None)
        viewer.printed.put_nowait(b"on")
        assert await peer.next_frame() == (b"o", b"on")
