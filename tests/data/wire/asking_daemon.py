"""A daemon that asks a person about each call: real socket, servers and consent around a gate made for tests.

Its clock is the machine's plus the seconds in the file ``clock``; what consent tells the audit goes to ``events``.
Renaming a session makes it forget all questions and answers.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import double_daemon

from ai_session.daemon import host
from ai_session.errors import AiSessionError
from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.consent import Consent, Deferred
from ai_session.gate.consent.person_check import PersonCheck
from ai_session.gate.consent.terminal_origin import Terminals
from ai_session.models import Answer, Principal, Question, ToolCall, ToolResult

ASKED_ABOUT = ("echo", "execute_command")
OPEN_SECONDS = 3600.0


def clock() -> float:
    shift = Path("clock")
    return time.time() + (float(shift.read_text()) if shift.exists() else 0.0)


def note(name: str, **facts: Any) -> None:
    with Path("events").open("a") as file:
        file.write(json.dumps({"event": name, **facts}) + "\n")


class AskingGate:
    """``inner`` behind a question about every call of a client that does something."""

    def __init__(self, inner: Any, directory: Path) -> None:
        self._inner = inner
        self._directory = directory
        self._consent = consent(directory, 20.0)
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner if hasattr(self._inner, name) else self._inner.person, name)

    async def call(self, call: ToolCall, asker: Any = None) -> ToolResult:
        if call.principal.kind == "mcp" and call.name in ASKED_ABOUT:
            try:
                answer = await self._consent.obtain(self._question(call), asker, call.state, call.answers)
            except AiSessionError as error:
                facts = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
                return ToolResult(f"error {error.code}: {error.message}", {"error": facts}, is_error=True)
            if isinstance(answer, Deferred):
                return ToolResult("", {}, question=answer.question, state=answer.state, meta={"ai-session/audit": "h"})
        result = await self._inner.call(call)
        claims = {"agent": call.agent, "client_call_id": call.client_call_id, "profile": call.profile}
        return ToolResult(result.text, {**result.structured, **claims}, result.is_error, call.call_id)

    def _question(self, call: ToolCall) -> Question:
        self._asked += 1
        digest = hashlib.sha256(json.dumps(call.arguments, sort_keys=True).encode()).hexdigest()
        about = call.arguments.get("command", call.arguments.get("text", ""))
        return Question(
            question_id=f"ap_{self._asked}_{time.time_ns()}",
            principal=call.principal,
            tool=call.name,
            session=str(call.arguments.get("session_id", "")),
            message=f"{call.principal.client} wants {call.name}:\n    {about}\nAsked because a test wants it.",
            rule="test-asks",
            arguments_sha256=digest,
            policy_sha256="0" * 64,
            asked_at=clock(),
            expires_at=clock() + OPEN_SECONDS,
        )

    async def approvals(self, principal: Principal) -> Any:
        standing = await self._consent.person.standing(principal)
        asked = [(q, self._consent.way(q, principal, standing)) for q in self._consent.pending()]
        return asked, self._consent.grants()

    async def answer(self, principal: Principal, question_id: str, answer: Answer, signature: Any = None) -> str:
        if question_id.startswith("gr_"):
            return self._consent.revoke(question_id, principal).what
        return (await self._consent.answer(question_id, answer, principal, signature)).message

    async def watch(self, principal: Principal) -> Any:
        return await self._consent.watch(principal)

    @property
    def person(self) -> AskingGate:
        return self

    async def facts(self, principal: Principal) -> Any:
        return await self._consent.person.facts(principal)

    async def enrol(self, principal: Principal, line: str, signature: Any) -> Any:
        return await self._consent.person.enrol(principal, line, signature)

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """Begins anew in the folder ``name``; an answer is waited for as many seconds as ``reference`` says."""
        self._consent = consent(self._directory / name, float(reference))


def consent(directory: Path, seconds: float) -> Consent:
    process_ancestry = ProcessAncestry(Path.home())
    person = PersonCheck(directory / "person", event=note, terminals=Terminals(process_ancestry, [sys.executable]))
    return Consent(
        directory, event=note, process_ancestry=process_ancestry, clock=clock, ask_seconds=seconds, person=person
    )


def make(directory: Path) -> tuple[Any, float]:
    app: Any = double_daemon.App()
    if "--sessions" in sys.argv:
        from ai_session.config import config
        from ai_session.daemon.app import App

        app = App(config.load(), directory)
    app.gate = AskingGate(app.gate, directory / "consent")
    return app, 0.0


if __name__ == "__main__":
    folder, listener = host.listen()
    print("ready", flush=True)
    host.run_and_leave(host.Daemon(folder, listener, make).run())
