"""Questions for the person at a command line: listed, answered, and shown in an attached terminal."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError, InvalidArguments
from ai_session.gate.consent.person_check import Way, parse_signature
from ai_session.gate.consent.store import binding
from ai_session.models import SCOPES, Answer, Principal, Question

if TYPE_CHECKING:
    from ai_session.gate.person import PersonActions
    from ai_session.sessions.viewer import Viewer

MAX_REASON_CHARS = 500
Send = Callable[[bytes, bytes], Awaitable[None]]


async def approvals(person: PersonActions, principal: Principal, *, wait: bool) -> dict[str, Any]:
    """Return the open ``questions`` and the ``grants``; with ``wait``, once this person may answer a question."""
    if wait:
        with await person.watch(principal) as watch:
            while not watch.questions():
                await watch.changed()
    questions, grants = await person.approvals(principal)
    return {
        "questions": [question_facts(question, way) for question, way in questions],
        "grants": [{**asdict(g), "answer": None, "scope": g.answer.scope, "by": g.answer.by} for g in grants],
    }


async def answer(
    person: PersonActions, principal: Principal, params: Mapping[str, Any], *, allowed: bool
) -> dict[str, Any]:
    """Pass a person's answer on. Raises InvalidArguments, SignatureNeeded, SignatureRefused, Denied."""
    question_id = params.get("question_id")
    scope = params.get("scope", "once")
    reason = params.get("reason", "")
    if not isinstance(question_id, str) or not isinstance(reason, str) or scope not in SCOPES:
        raise InvalidArguments(f"question_id and reason must be strings, scope one of {', '.join(SCOPES)}")
    given = Answer(allowed, scope=scope, reason=reason[:MAX_REASON_CHARS])
    signature = parse_signature(params.get("signature"))
    return {"question_id": question_id, "about": await person.answer(principal, question_id, given, signature)}


def question_facts(question: Question, way: Way) -> dict[str, Any]:
    """Return a question as JSON values, without the client's environment; ``answer`` is how a yes would be accepted."""
    asker = question.principal
    who = {"client": asker.client, "directory": asker.working_directory}
    facts = {**asdict(question), **who, "scopes": question.scopes, "binding": binding(question), "answer": way}
    del facts["principal"]
    return facts


class TerminalQuestions:
    """Shows one question after the other in an attached terminal, whose output is held meanwhile."""

    def __init__(self, person: PersonActions, principal: Principal, viewer: Viewer, send: Send) -> None:
        self._person = person
        self._principal = principal
        self._viewer = viewer
        self._send = send
        self._dismissed: set[str] = set()
        self._current = ""
        self._note = ""
        self._wake: Callable[[], None] | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Run until cancelled; return at once if nothing is ever asked. ``ready`` is called when calls wait for it."""
        try:
            watching = await self._person.watch(self._principal)
        except AiSessionError:
            return
        finally:
            ready()
        with watching as watch:
            self._wake = watch.wake
            while True:
                question = next((q for q in watch.questions() if q.question_id not in self._dismissed), None)
                if question is None:
                    await watch.changed()
                    continue
                self._current = question.question_id
                self._note = ""
                self._viewer.hold()
                try:
                    await self._send(b"q", json.dumps(question_facts(question, watch.way(question))).encode())
                    while self._current not in self._dismissed and any(
                        q.question_id == self._current for q in watch.questions()
                    ):
                        await watch.changed()
                    facts = {"question_id": self._current, "note": self._note}
                    self._current = ""
                    await self._send(b"w", json.dumps(facts).encode())
                finally:
                    self._viewer.release()

    async def take(self, payload: bytes) -> None:
        """Process what the person pressed; ignored unless it is about the question on the screen."""
        try:
            facts: dict[str, Any] = dict(json.loads(payload))
        except (ValueError, TypeError):
            return
        if not self._current or facts.get("question_id") != self._current:
            return
        self._dismissed.add(self._current)
        if not facts.get("later"):
            try:
                await answer(self._person, self._principal, facts, allowed=facts.get("allowed") is True)
            except AiSessionError as error:
                self._note = error.message
        if self._wake:
            self._wake()
