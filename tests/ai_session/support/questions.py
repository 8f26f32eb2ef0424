"""Consent in a folder of its own, with a clock, a process table and clients that the test controls."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import ConsentNeeded
from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.consent import Asker, Consent, Deferred
from ai_session.gate.consent.person_check import PersonCheck
from ai_session.gate.consent.terminal_origin import Finding, Origin, Terminals
from ai_session.models import Answer, Principal, Question
from tests.support.bounds import BOUND_SECONDS

UID = os.getuid()
PERSON = Principal(kind="person", uid=UID, pid=900)
YES, NO = Answer(True), Answer(False)


class Family(ProcessAncestry):
    """A process table in which relay 10 belongs to client 11."""

    known = True

    def __init__(self) -> None:
        pass

    def asking(self, pid: int | None) -> frozenset[str]:
        return frozenset({f"{pid}:0", f"{pid + 1}:0"} if pid else ())

    def clients(self) -> frozenset[str]:
        return frozenset({"11:0"})


class Windows(Terminals):
    """Terminals in which every process has a window of this machine, with exceptions.

    12 is a tool of client 11, 13 runs in a session, 20 came by ssh, and the parents of 21 have ended.
    """

    def __init__(self) -> None:
        self.client_runs = False

    @property
    def known(self) -> bool:
        return True

    def has_clients(self) -> bool:
        return self.client_runs

    def find(self, pid: int | None, identity: str = "") -> Finding:
        if pid is None:
            return Finding(Origin.NONE, "nothing is known about the process that answers")
        above = {12: {"12:0", "11:0"}}.get(pid, {f"{pid}:0", "1:0"})
        origin, why = ORIGINS.get(pid, (Origin.LOCAL, "/dev/pts/1 is a window of xterm (pid 3)"))
        return Finding(origin, why, ancestors=frozenset(above))


ORIGINS = {
    13: (Origin.AGENT, "sh (pid 13) runs inside a session"),
    20: (Origin.REMOTE, "/dev/pts/1 came in through sshd (pid 4)"),
    21: (Origin.DETACHED, "its parents are gone"),
}


class Form:
    """A client that answers at once, or with ``waits`` when ``go`` is set."""

    deferred = False

    def __init__(self, answer: Answer | None = None, *, waits: bool = False) -> None:
        self._answer = answer
        self.asked: list[Question] = []
        self.given_up = False
        self.go = asyncio.Event()
        if not waits:
            self.go.set()

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        return self._answer


class Broken(Form):
    """A client that fails when it is asked."""

    async def ask(self, question: Question) -> Answer | None:
        raise ValueError("no form here")


class Later(Form):
    """A client that calls again."""

    deferred = True


class Asking:
    """Consent in a folder, with a clock that the test moves."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = 1000.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.admit: Callable[[Question], None] = lambda question: None
        self._numbers = itertools.count(1)
        self.windows = Windows()
        directory.mkdir(mode=0o700, exist_ok=True)
        self.restart()

    def restart(self, **settings: Any) -> None:
        self.person = PersonCheck(
            self.directory / "person", event=self._event, terminals=self.windows, clock=lambda: self.now, **settings
        )
        self.consent = Consent(
            self.directory,
            event=self._event,
            clock=lambda: self.now,
            ask_seconds=5.0,
            process_ancestry=Family(),
            person=self.person,
            admit=lambda question: self.admit(question),
        )

    def _event(self, name: str, **facts: Any) -> None:
        self.events.append((name, facts))

    def question(self, **changes: Any) -> Question:
        facts: dict[str, Any] = {
            "question_id": f"ap_{next(self._numbers)}",
            "principal": Principal(kind="mcp", uid=UID, pid=10, client="agent", env={"SECRET": "s3cret"}),
            "tool": "execute_command",
            "session": "ses_1",
            "message": "agent wants …",
            "rule": "leave-box",
            "arguments_sha256": "a" * 64,
            "policy_sha256": "p" * 64,
            "asked_at": self.now,
            "expires_at": self.now + 600,
            **changes,
        }
        return Question(**facts)

    async def obtain(
        self, asker: Asker | None = None, state: str = "", answers: Mapping[str, Any] | None = None, **changes: Any
    ) -> Answer | Deferred:
        async with asyncio.timeout(BOUND_SECONDS):
            return await self.consent.obtain(self.question(**changes), asker, state, answers)

    async def state(self, **changes: Any) -> str:
        deferred = await self.obtain(Later(), **changes)
        assert isinstance(deferred, Deferred)
        return deferred.state

    async def open(self, **changes: Any) -> str:
        """Ask a question that stays open and return its id."""
        before = {q.question_id for q in self.consent.pending()}
        with pytest.raises(ConsentNeeded):
            await self.obtain(**changes)
        (new,) = {q.question_id for q in self.consent.pending()} - before
        return new
