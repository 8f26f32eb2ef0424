"""Asks a person before something goes on, by whatever way there is, and takes no answer from the side that asks.

In this order: what was granted before; the answer that came back in a client's sealed state; the client's own form,
while an answer by command line or attached terminal is taken as well; else the question stays on disk, and whoever
answers it before it expires lets the same call through when it is made again. Nothing is ever allowed by silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from ai_session.approvals import (
    ONCE_SECONDS,
    Approval,
    Approvals,
    Grant,
    binding,
    client_of,
    dismissed,
    needed,
    overtaken,
    said,
)
from ai_session.consent_state import MAX_SECONDS, Seal, Sealed, new_nonce, used
from ai_session.errors import Denied, InvalidArguments
from ai_session.lineage import Lineage
from ai_session.models import Answer, Principal, Question

DECISION = "decision"
"""The name under which a client's answer comes back with a sealed state, as an Answer."""

SESSION_VARIABLE = "AI_SESSION_ID"
WITHDRAW_SECONDS = 1.0
ELSEWHERE = "answer from a terminal of your own: neither one the client started, nor one inside a session"


class Asker(Protocol):
    """A client's own way to put a question to its person."""

    deferred: bool
    """The question is answered by calling again: it is returned, not awaited."""

    async def ask(self, question: Question) -> Answer | None:
        """The person's word; None when none could be had. A denial with a ``reason`` is a form that nobody filled in:
        it is a denial, but others may still answer the question."""
        ...


@dataclass(frozen=True, slots=True)
class Deferred:
    """``question`` has to be put to the person; the call comes back with ``state`` and the answer."""

    state: str
    question: Question


class Consent:
    """Judges who may answer, remembers, and waits. One for each daemon; ``directory`` is its own, mode 0700.

    ``event(name, **facts)`` is told of each question ("consent.ask"), each answer ("consent.answer"), each call that an
    earlier answer let through or stopped ("consent.use") and each grant that was ended ("consent.revoke").
    """

    def __init__(
        self,
        directory: Path,
        *,
        event: Callable[..., None],
        lineage: Lineage,
        clock: Callable[[], float] = time.time,
        ask_seconds: float = 45.0,
        admit: Callable[[Question], None] = lambda question: None,
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._approvals = Approvals(directory, clock)
        self._seal = Seal(directory / "key")
        self._event = event
        self._clock = clock
        self._ask_seconds = ask_seconds
        self._lineage = lineage
        self._admit = admit
        self._calls: dict[str, asyncio.Future[Answer]] = {}
        self._watches: set[Watch] = set()

    async def obtain(
        self,
        question: Question,
        asker: Asker | None,
        state: str = "",
        answers: Mapping[str, Any] | None = None,
    ) -> Answer | Deferred:
        """A person's yes, or the state of a question that the caller has to put to its person.

        Raises Denied (a person said no), ConsentNeeded (nobody answered; names the question), InvalidArguments (the
        state is not ours, was edited, used before or is too old), LimitReached (too many questions wait). Takes up to
        ``ask_seconds``; a call that is cancelled meanwhile leaves its question open.
        """
        if answer := self._remembered(question):
            return answer
        approval = None
        if state:
            approval, answer = self._returned(question, self._seal.open(state, self._clock()), answers or {})
            if approval and answer:
                return self._told_by_client(approval, answer)
        self._admit(question)
        approval = approval or self._open(question)
        if asker is not None and asker.deferred:
            return self._defer(approval)
        return await self._wait(approval, asker)

    def pending(self) -> list[Question]:
        """The questions nobody has answered, oldest first."""
        return [approval.question for approval in self._approvals if approval.answer is None]

    def grants(self) -> list[Grant]:
        """What was allowed for longer than one call."""
        return self._approvals.grants()

    def answer(self, question_id: str, answer: Answer, principal: Principal) -> Question:
        """A person's word on an open question. Returns the question.

        Raises InvalidArguments when no question has that id or its answers do not reach that far, Denied when the one
        who answers may be the one who asks.
        """
        approval = self._approvals.get(question_id)
        if approval is None:
            raise InvalidArguments(
                f"no question {question_id[:80]!r} waits for an answer", suggestion="ai-session approvals lists them"
            )
        self._refuse_asking_side(approval, principal)
        scopes = approval.question.scopes
        if answer.allowed and answer.scope not in scopes:
            raise InvalidArguments(
                f"this cannot be allowed for {answer.scope!r}", suggestion=f"how far it may be: {', '.join(scopes)}"
            )
        by = f"person uid {principal.uid}" + (f" pid {principal.pid}" if principal.pid else "")
        self._settle(approval, replace(answer, by=by))
        return approval.question

    def revoke(self, grant_id: str, principal: Principal) -> Grant:
        """End a grant. Raises InvalidArguments."""
        if (grant := self._approvals.revoke(grant_id)) is None:
            raise InvalidArguments(f"nothing is granted as {grant_id[:80]!r}", suggestion="ai-session approvals")
        self._event("consent.revoke", grant_id=grant_id, what=grant.what, by=f"{principal.kind} uid {principal.uid}")
        return grant

    def may_answer(self, question: Question, principal: Principal) -> bool:
        """Whether an answer of ``principal`` would be taken."""
        approval = self._approvals.get(question.question_id)
        try:
            if approval:
                self._refuse_asking_side(approval, principal)
        except Denied:
            return False
        return approval is not None

    async def is_person(self, principal: Principal) -> bool:
        """Whether this is a person's own word: nothing that runs in a session, and no process of any client."""
        if principal.kind != "person":
            return False
        clients = await asyncio.to_thread(self._lineage.clients)
        try:
            self._refuse_others(principal, clients)
        except Denied:
            return False
        return True

    def watch(self, principal: Principal) -> Watch:
        """The open questions that ``principal`` may answer, as they come and go; calls wait while somebody watches."""
        return Watch(self, principal, self._watches)

    def end_session(self, session: str) -> None:
        """A session has gone, and with it whatever it was asked for."""
        self._approvals.end_session(session)
        self._changed()

    def policy_changed(self, digest: str) -> None:
        """Questions of another policy are withdrawn; calls that still wait are to be made again."""
        for approval in list(self._approvals):
            question = approval.question
            if question.policy_sha256 == digest:
                continue
            self._approvals.remove(question.question_id)
            waiting = self._calls.get(question.question_id)
            if waiting and not waiting.done():
                waiting.set_exception(overtaken(question))
        self._changed()

    def next_expiry_seconds(self) -> float | None:
        """Until the next open question expires; None while none is open."""
        now = self._clock()
        return min((approval.expires_at - now for approval in self._approvals if approval.answer is None), default=None)

    def _remembered(self, question: Question) -> Answer | None:
        if grant := self._approvals.granted(question):
            self._event("consent.use", id=grant.grant_id, scope=grant.answer.scope, by=grant.answer.by)
            return grant.answer
        wanted = binding(question)
        for approval in self._approvals:
            if (answer := approval.answer) and approval.binding == wanted:
                self._approvals.remove(approval.question.question_id)
                self._event("consent.use", id=approval.question.question_id, scope=answer.scope, by=answer.by)
                return said(question, answer)
        return None

    def _returned(
        self, question: Question, sealed: Sealed, answers: Mapping[str, Any]
    ) -> tuple[Approval | None, Answer | None]:
        """The question a state is about, where that is this call's, and its answer. A state of another call says
        nothing about this one."""
        if sealed.binding != binding(question):
            return None, None
        approval = self._approvals.get(sealed.question_id)
        if approval is None or approval.nonce != sealed.nonce or approval.binding != sealed.binding:
            raise used()
        answer = answers.get(DECISION)
        return approval, answer if isinstance(answer, Answer) else None

    def _told_by_client(self, approval: Approval, answer: Answer) -> Answer:
        """What the form of a client says, which counts only while its call is there; no choice of it is no."""
        if answer.allowed and answer.scope not in approval.question.scopes:
            answer = Answer(False, reason="the client's form came back without a choice", by=answer.by)
        self._note(approval, answer)
        if not answer.allowed and answer.reason:
            self._approvals.put(replace(approval, nonce="", nonce_expires_at=0.0))
            raise dismissed(approval.question, answer)
        self._close(approval, answer)
        return said(approval.question, answer)

    def _open(self, question: Question) -> Approval:
        """The question on disk: the one that waits already for this very call, else a new one."""
        wanted, now = binding(question), self._clock()
        askers = frozenset[str]()
        if question.principal.kind == "mcp":
            askers = self._lineage.asking(question.principal.pid) or self._lineage.clients()
        expires_at = max(question.expires_at, now + self._ask_seconds)
        for known in self._approvals:
            free = known.question.question_id not in self._calls and now >= known.nonce_expires_at
            if known.binding == wanted and known.answer is None and free:
                known = replace(known, askers=known.askers | askers, expires_at=max(known.expires_at, expires_at))
                self._approvals.put(known)
                return known
        approval = Approval(question, wanted, askers, expires_at)
        self._approvals.put(approval)
        self._event(
            "consent.ask",
            question_id=question.question_id,
            client=client_of(question.principal),
            tool=question.tool,
            session=question.session,
            rule=question.rule,
        )
        return approval

    def _defer(self, approval: Approval) -> Deferred:
        nonce, expires_at = new_nonce(), min(self._clock() + MAX_SECONDS, approval.expires_at)
        self._approvals.put(replace(approval, nonce=nonce, nonce_expires_at=expires_at))
        self._changed()
        sealed = Sealed(approval.question.question_id, nonce, approval.binding, expires_at)
        return Deferred(self._seal.close(sealed), approval.question)

    async def _wait(self, approval: Approval, asker: Asker | None) -> Answer:
        question = approval.question
        if asker is None and not self._somebody_watches(question):
            raise needed(question)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._ask_seconds
        told = self._calls[question.question_id] = loop.create_future()
        asking = asyncio.ensure_future(asker.ask(question)) if asker else None
        self._changed()
        try:
            while True:
                both: set[asyncio.Future[Any]] = {told} | ({asking} if asking else set())
                await asyncio.wait(both, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
                if told.done():
                    return said(question, told.result())
                if asking is None or not asking.done():
                    raise needed(question)
                answer = None if asking.cancelled() or asking.exception() else asking.result()
                if answer:
                    return self._told_by_client(approval, answer)
                asking = None
                if not self._somebody_watches(question):
                    raise needed(question)
        finally:
            del self._calls[question.question_id]
            self._changed()
            if asking:
                asking.cancel()
                await asyncio.wait((asking,), timeout=WITHDRAW_SECONDS)

    def _settle(self, approval: Approval, answer: Answer) -> None:
        question_id = approval.question.question_id
        waiting = self._calls.get(question_id)
        self._note(approval, answer)
        if waiting and not waiting.done():
            waiting.set_result(answer)
        elif not answer.allowed or answer.scope == "once":
            expires_at = max(approval.expires_at, self._clock() + ONCE_SECONDS)
            self._approvals.put(replace(approval, answer=answer, nonce="", expires_at=expires_at))
            self._changed()
            return
        self._close(approval, answer)

    def _close(self, approval: Approval, answer: Answer) -> None:
        self._approvals.remove(approval.question.question_id)
        if answer.allowed and answer.scope != "once":
            self._approvals.grant(approval.question, answer)
            for other in self._approvals:
                waiting = self._calls.get(other.question.question_id)
                if waiting and not waiting.done() and self._approvals.granted(other.question):
                    waiting.set_result(answer)
                    self._approvals.remove(other.question.question_id)
        self._changed()

    def _note(self, approval: Approval, answer: Answer) -> None:
        self._event(
            "consent.answer",
            question_id=approval.question.question_id,
            allowed=answer.allowed,
            scope=answer.scope,
            by=answer.by,
            reason=answer.reason,
            seconds=round(self._clock() - approval.question.asked_at, 3),
        )

    def _refuse_asking_side(self, approval: Approval, principal: Principal) -> None:
        if principal.kind != "person" or principal.uid != approval.question.principal.uid:
            raise Denied("only the person may answer", suggestion=ELSEWHERE)
        self._refuse_others(principal, approval.askers)

    def _refuse_others(self, principal: Principal, clients: frozenset[str]) -> None:
        if SESSION_VARIABLE in principal.env or self._lineage.in_session(principal.pid):
            raise Denied("what runs inside a session cannot answer for the person", suggestion=ELSEWHERE)
        answering = self._lineage.answering(principal.pid)
        if self._lineage.known and not answering:
            raise Denied("nothing is known of the process that answers", suggestion=ELSEWHERE)
        if answering & clients:
            raise Denied("the client that asks cannot answer itself", suggestion=ELSEWHERE)

    def _somebody_watches(self, question: Question) -> bool:
        return any(self.may_answer(question, watch.principal) for watch in self._watches)

    def _changed(self) -> None:
        for watch in self._watches:
            watch.wake()


class Watch:
    """Made by ``Consent.watch``; counts as a person who can be asked while it is entered."""

    def __init__(self, consent: Consent, principal: Principal, watches: set[Watch]) -> None:
        self.principal = principal
        self._consent = consent
        self._watches = watches
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._watches.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.discard(self)

    def questions(self) -> list[Question]:
        """Those that are open and that this person may answer, oldest first."""
        return [q for q in self._consent.pending() if self._consent.may_answer(q, self.principal)]

    async def changed(self) -> None:
        """Returns when a question may have come, gone or expired since the last return."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._consent.next_expiry_seconds()):
                await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Something changed."""
        self._changed.set()
