"""Asks a person before something is done, in every available way, and accepts no answer from the side that asks.

In this order: earlier approvals; the answer in a client's sealed state; the client's own form, while an answer from a
command line or attached terminal is accepted too; otherwise the question stays on disk, and an answer before it expires
applies when the same call is repeated. No answer never counts as permission.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ai_session.errors import Denied, InvalidArguments, QuestionNotFound, SignatureNeeded
from ai_session.gate.api import Asker
from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.person_check import PersonCheck, Signature, Standing, Way, who
from ai_session.gate.consent.person_signature import about_answer
from ai_session.gate.consent.sealed_state import MAX_SECONDS, Seal, Sealed, already_used, new_nonce
from ai_session.gate.consent.store import (
    ONCE_SECONDS,
    Approval,
    Approvals,
    Grant,
    binding,
    client_of,
    dismissed,
    needed,
    overtaken,
    require_yes,
)
from ai_session.models import Answer, Principal, Question

DECISION = "decision"
"""The name under which a client's answer is returned with a sealed state, as an Answer."""

WITHDRAW_SECONDS = 1.0
NOT_TAKEN = "the answer was not accepted"
ITSELF = "the client that asks cannot answer itself"


@dataclass(frozen=True, slots=True)
class Deferred:
    """``question`` must be put to the person; the call is repeated with ``state`` and the answer."""

    state: str
    question: Question


class Consent:
    """Decides who may answer, stores answers, and waits for them. One per daemon; ``directory`` is its own, mode 0700.

    ``event(name, **facts)`` is called for each question ("consent.ask"), each answer ("consent.answer"), each call that
    an earlier answer allowed or stopped ("consent.use"), each grant that was ended ("consent.revoke") and each answer
    that was not accepted because it is not proven to be a person's ("consent.refused").
    """

    def __init__(
        self,
        directory: Path,
        *,
        event: Callable[..., None],
        process_ancestry: ProcessAncestry,
        person: PersonCheck,
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
        self._process_ancestry = process_ancestry
        self.person = person
        self._admit = admit
        self._calls: dict[str, asyncio.Future[Answer]] = {}
        self._watches: set[Watch] = set()
        self.changed: Callable[[], None] = lambda: None
        """Called when a question has opened or closed, but not when one expires."""
        self.asked: Callable[[Question], None] = lambda question: None
        """Called with each new question."""

    async def obtain(
        self,
        question: Question,
        asker: Asker | None,
        state: str = "",
        answers: Mapping[str, Any] | None = None,
    ) -> Answer | Deferred:
        """Return a person's yes, or the state of a question that the caller must put to its person.

        Raises Denied (a person said no), ConsentNeeded (no answer; names the question), InvalidArguments (the state is
        not ours, was changed, used before or is too old), LimitReached (too many open questions). Takes up to
        ``ask_seconds``; a call that is cancelled meanwhile leaves its question open.
        """
        if answer := self._earlier_answer(question):
            return answer
        approval = None
        if state:
            approval, answer = self._answer_in_state(question, self._seal.open(state, self._clock()), answers or {})
            if approval and answer:
                return self._accept_form(approval, answer)
        self._admit(question)
        approval = approval or self._open(question)
        if asker is not None and asker.deferred:
            return self._defer(approval)
        return await self._wait(approval, asker)

    def pending(self) -> list[Question]:
        """Return the unanswered questions, oldest first."""
        return [approval.question for approval in self._approvals if approval.answer is None]

    def grants(self) -> list[Grant]:
        """Return the approvals for more than one call."""
        return self._approvals.grants()

    async def answer(
        self, question_id: str, answer: Answer, principal: Principal, signature: Signature | None = None
    ) -> Question:
        """Accept a person's answer to an open question, signed or not, and return the question.

        Raises QuestionNotFound, InvalidArguments for a scope that the question does not offer, SignatureNeeded without
        evidence of a person, SignatureRefused for a signature that does not count, and Denied for another user.
        """
        approval = self._waiting(question_id)
        scopes = approval.question.scopes
        if answer.allowed and answer.scope not in scopes:
            raise InvalidArguments(
                f"this cannot be allowed for {answer.scope!r}", suggestion=f"allowed scopes: {', '.join(scopes)}"
            )
        by = await self._identify(approval, answer, principal, signature)
        approval = self._waiting(question_id)  # it may have been answered or withdrawn meanwhile
        self._settle(approval, replace(answer, by=by))
        return approval.question

    def _waiting(self, question_id: str) -> Approval:
        approval = self._approvals.get(question_id)
        if approval is None:
            raise QuestionNotFound(
                f"no question {question_id[:80]!r} waits for an answer", suggestion="ai-session approvals lists them"
            )
        return approval

    async def _identify(
        self, approval: Approval, answer: Answer, principal: Principal, signature: Signature | None
    ) -> str:
        """Return who answered, for the record."""
        question = approval.question
        if principal.kind != "person" or principal.uid != question.principal.uid:
            raise Denied("only the person may answer", suggestion="ask the person to do it")
        about = about_answer(
            question.question_id,
            approval.binding,
            question.message,
            allowed=answer.allowed,
            scope=answer.scope,
            reason=answer.reason,
        )
        again = f"ai-session {'approve' if answer.allowed else 'reject'} {question.question_id}"
        standing = await self.person.standing(principal)
        asks_itself = bool(approval.askers & standing.finding.ancestors)
        try:
            if signature is None and asks_itself:
                raise SignatureNeeded(f"{NOT_TAKEN}: {ITSELF}", suggestion=self.person.advice(standing, again))
            if signature is None and not answer.allowed and standing.denies:
                return f"{who(principal)}, {standing.finding.why}"
            return await self.person.require(
                principal, "answer", about, signature, refused=NOT_TAKEN, again=again, standing=standing
            )
        except SignatureNeeded as refused:
            self._event("consent.refused", question_id=question.question_id, why=refused.message, by=who(principal))
            raise

    def revoke(self, grant_id: str, principal: Principal) -> Grant:
        """End a grant. Raises InvalidArguments."""
        if (grant := self._approvals.revoke(grant_id)) is None:
            raise InvalidArguments(
                f"there is no grant with the ID {grant_id[:80]!r}", suggestion="ai-session approvals"
            )
        self._event("consent.revoke", grant_id=grant_id, what=grant.what, by=f"{principal.kind} uid {principal.uid}")
        return grant

    def way(self, question: Question, principal: Principal, standing: Standing) -> Way:
        """Return how a yes of ``principal`` would be accepted."""
        approval = self._approvals.get(question.question_id)
        if approval is None or principal.kind != "person" or principal.uid != question.principal.uid:
            return "no"
        return self.person.way(standing, asks_itself=bool(approval.askers & standing.finding.ancestors))

    async def watch(self, principal: Principal) -> Watch:
        """Return a watch of the questions ``principal`` may answer; while it is entered, calls wait for answers."""
        return Watch(self, principal, await self.person.standing(principal), self._watches)

    def end_session(self, session: str) -> None:
        """Remove the questions of a session that has ended."""
        self._approvals.end_session(session)
        self._changed()

    def policy_changed(self, digest: str) -> None:
        """Withdraw the questions of another policy; calls that wait for them fail and are to be repeated."""
        for approval in list(self._approvals):
            question = approval.question
            if question.policy_sha256 == digest:
                continue
            self._approvals.remove(question.question_id)
            waiting = self._calls.get(question.question_id)
            if waiting and not waiting.done():
                waiting.set_exception(overtaken(question.tool, "the policy"))
        self._changed()

    def next_expiry_seconds(self) -> float | None:
        """Return the time until the next open question expires; None if none is open."""
        now = self._clock()
        return min((approval.expires_at - now for approval in self._approvals if approval.answer is None), default=None)

    def _earlier_answer(self, question: Question) -> Answer | None:
        if grant := self._approvals.granted(question):
            self._event("consent.use", id=grant.grant_id, scope=grant.answer.scope, by=grant.answer.by)
            return grant.answer
        wanted = binding(question)
        for approval in self._approvals:
            if (answer := approval.answer) and approval.binding == wanted:
                self._approvals.remove(approval.question.question_id)
                self._event("consent.use", id=approval.question.question_id, scope=answer.scope, by=answer.by)
                return require_yes(question, answer)
        return None

    def _answer_in_state(
        self, question: Question, sealed: Sealed, answers: Mapping[str, Any]
    ) -> tuple[Approval | None, Answer | None]:
        """Return the question and the answer of a state, or nothing for a state of another call."""
        if sealed.binding != binding(question):
            return None, None
        approval = self._approvals.get(sealed.question_id)
        if approval is None or approval.nonce != sealed.nonce or approval.binding != sealed.binding:
            raise already_used()
        answer = answers.get(DECISION)
        return approval, answer if isinstance(answer, Answer) else None

    def _accept_form(self, approval: Approval, answer: Answer) -> Answer:
        """Accept the answer in a client's form, which counts only during its call; an unoffered scope counts as no."""
        if answer.allowed and answer.scope not in approval.question.scopes:
            answer = Answer(False, reason="the client's form came back empty", by=answer.by)
        self._record_answer(approval, answer)
        if not answer.allowed and answer.reason:
            self._approvals.put(replace(approval, nonce="", nonce_expires_at=0.0))
            raise dismissed(approval.question, answer)
        self._close(approval, answer)
        return require_yes(approval.question, answer)

    def _open(self, question: Question) -> Approval:
        """Return the stored question: the open one for this very call, or a new one."""
        wanted, now = binding(question), self._clock()
        askers = frozenset[str]()
        if question.principal.kind == "mcp":
            askers = self._process_ancestry.asking(question.principal.pid) or self._process_ancestry.clients()
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
        self.changed()
        self.asked(question)
        return approval

    def _defer(self, approval: Approval) -> Deferred:
        nonce = new_nonce()
        expires_at = min(self._clock() + MAX_SECONDS, approval.expires_at)
        self._approvals.put(replace(approval, nonce=nonce, nonce_expires_at=expires_at))
        self._changed()
        sealed = Sealed(approval.question.question_id, nonce, approval.binding, expires_at)
        return Deferred(self._seal.close(sealed), approval.question)

    async def _wait(self, approval: Approval, asker: Asker | None) -> Answer:
        question = approval.question
        if asker is None and not self._is_watched(question):
            raise needed(question)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._ask_seconds
        answered = self._calls[question.question_id] = loop.create_future()
        asking = asyncio.ensure_future(asker.ask(question)) if asker else None
        self._changed()
        try:
            while True:
                futures: set[asyncio.Future[Any]] = {answered} | ({asking} if asking else set())
                await asyncio.wait(futures, timeout=deadline - loop.time(), return_when=asyncio.FIRST_COMPLETED)
                if answered.done():
                    return require_yes(question, answered.result())
                if asking is None or not asking.done():
                    raise needed(question)
                answer = None if asking.cancelled() or asking.exception() else asking.result()
                if answer:
                    return self._accept_form(approval, answer)
                asking = None
                if not self._is_watched(question):
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
        self._record_answer(approval, answer)
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
                if other.answer or not self._approvals.granted(other.question):
                    continue
                waiting = self._calls.get(other.question.question_id)
                if waiting and not waiting.done():
                    waiting.set_result(answer)
                self._approvals.remove(other.question.question_id)
        self._changed()

    def _record_answer(self, approval: Approval, answer: Answer) -> None:
        self._event(
            "consent.answer",
            question_id=approval.question.question_id,
            allowed=answer.allowed,
            scope=answer.scope,
            by=answer.by,
            reason=answer.reason,
            seconds=round(self._clock() - approval.question.asked_at, 3),
        )

    def _is_watched(self, question: Question) -> bool:
        return any(watch.way(question) != "no" for watch in self._watches)

    def _changed(self) -> None:
        self.changed()
        for watch in self._watches:
            watch.wake()


class Watch:
    """Made by ``Consent.watch``; counts as a person who can be asked while it is entered."""

    def __init__(self, consent: Consent, principal: Principal, standing: Standing, watches: set[Watch]) -> None:
        self.principal = principal
        self._standing = standing
        self._consent = consent
        self._watches = watches
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        self._watches.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._watches.discard(self)

    def questions(self) -> list[Question]:
        """Return the open questions that this person may answer, oldest first."""
        return [question for question in self._consent.pending() if self.way(question) != "no"]

    def way(self, question: Question) -> Way:
        """Return how this person's yes would be accepted."""
        return self._consent.way(question, self.principal, self._standing)

    async def changed(self) -> None:
        """Return when a question may have opened, closed or expired since the last return."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._consent.next_expiry_seconds()):
                await self._changed.wait()
        self._changed.clear()

    def wake(self) -> None:
        """Wake ``changed``."""
        self._changed.set()
