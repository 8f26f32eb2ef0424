"""Open questions, answers that wait for their call, and lasting approvals; on disk.

There is one file for each question and one for all grants, written whole and renamed, so that a killed daemon leaves
the previous state. An unreadable file counts as never asked and never granted.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentwire.visible import visible
from ai_session.errors import ConsentNeeded, Denied, LimitReached
from ai_session.gate import state_files
from ai_session.models import Answer, Principal, Question

MAX_OPEN = 256
MAX_OPEN_OF_ONE = 32
"""The open questions of one client; beyond them, calls that would ask are refused."""

MAX_OPEN_OF_USER = 128
"""The open questions of all clients of one user, whatever names they use."""

MAX_GRANTS = 1000
ONCE_SECONDS = 3600.0
"""How long an answer waits for its call to be repeated."""

SESSION_SECONDS = 7 * 86400.0
UNREADABLE = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
DIGEST = re.compile(r" #[0-9a-f]{64}\Z")
"""The end of a detail, which keeps it exact although secrets are masked."""


@dataclass(frozen=True, slots=True)
class Approval:
    """An open or answered question. ``askers`` are the processes that must not answer it; ``nonce`` is that of the one
    sealed state that a client holds; ``answer`` was given while the call did not wait."""

    question: Question
    binding: str
    askers: frozenset[str]
    expires_at: float
    nonce: str = ""
    nonce_expires_at: float = 0.0
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """An answer that covers more than one call. ``covers`` is the digest of what it is about."""

    grant_id: str
    covers: str
    answer: Answer
    what: str
    at: float
    expires_at: float | None


class Approvals:
    """The contents of ``directory``, which only one process may use."""

    def __init__(self, directory: Path, clock: Callable[[], float]) -> None:
        self._directory = directory / "questions"
        self._grants_path = directory / "grants.json"
        self._clock = clock
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open: dict[str, Approval] = {}
        for path in sorted(self._directory.glob("*.json")):
            approval = _read_approval(path)
            if approval is None or approval.question.question_id != path.stem:
                path.unlink(missing_ok=True)
            else:
                self._open[path.stem] = approval
        self._grants: dict[str, Grant] = {grant.grant_id: grant for grant in _read_grants(self._grants_path)}

    def __iter__(self) -> Iterator[Approval]:
        """Yield those that have not expired, oldest first."""
        now = self._clock()
        for approval in sorted(self._open.values(), key=lambda a: a.question.asked_at):
            if now >= approval.expires_at:
                self.remove(approval.question.question_id)
            else:
                yield approval

    def get(self, question_id: str) -> Approval | None:
        """Return the one with that id, unless it has expired."""
        return next((approval for approval in self if approval.question.question_id == question_id), None)

    def put(self, approval: Approval) -> None:
        """Store it in place of an earlier one of the same question. Raises LimitReached."""
        question = approval.question
        if question.question_id not in self._open:
            asker = client_of(question.principal)
            waiting = [a for a in self if a.answer is None]
            own = sum(client_of(a.question.principal) == asker for a in waiting)
            user = user_of(question.principal)
            of_user = sum(user_of(a.question.principal) == user for a in waiting)
            for count, most, whose in (
                (own, MAX_OPEN_OF_ONE, "of this client "),
                (of_user, MAX_OPEN_OF_USER, "of this user "),
                (len(waiting), MAX_OPEN, ""),
            ):
                if count >= most:
                    raise LimitReached(
                        f"{count} questions {whose}already wait for a person",
                        suggestion="a person answers or rejects them: ai-session approvals",
                    )
        if not NAME.match(question.question_id):
            raise ValueError(f"{question.question_id!r} is not a valid file name")
        self._open[question.question_id] = approval
        state_files.write(self._directory / f"{question.question_id}.json", _json_values(approval))

    def remove(self, question_id: str) -> None:
        """Remove the question with that id, if there is one."""
        if self._open.pop(question_id, None):
            (self._directory / f"{question_id}.json").unlink(missing_ok=True)

    def grant(self, question: Question, answer: Answer) -> None:
        """Store an answer whose scope is wider than one call."""
        now = self._clock()
        session = answer.scope == "session"
        grant = Grant(
            grant_id="gr_" + secrets.token_urlsafe(16),
            covers=covers(question, answer.scope),
            answer=answer,
            what=describe_scope(question, answer.scope),
            at=now,
            expires_at=now + SESSION_SECONDS if session else None,
        )
        others = [g for g in self.grants() if g.covers != grant.covers]
        self._store_grants([*others[-MAX_GRANTS + 1 :], grant])

    def granted(self, question: Question) -> Grant | None:
        """Return the grant that covers ``question``, or None."""
        wanted = {covers(question, scope) for scope in question.scopes}
        if question.folder:
            wanted |= {
                covers(replace(question, folder=str(above)), "folder") for above in Path(question.folder).parents
            }
        return next((grant for grant in self.grants() if grant.covers in wanted), None)

    def grants(self) -> list[Grant]:
        """Return those in force, oldest first."""
        now = self._clock()
        return [g for g in self._grants.values() if g.expires_at is None or now < g.expires_at]

    def revoke(self, grant_id: str) -> Grant | None:
        """Remove a grant and return it; None if there is none with that id."""
        revoked = self._grants.get(grant_id)
        if revoked:
            self._store_grants([grant for grant in self.grants() if grant.grant_id != grant_id])
        return revoked

    def end_session(self, session: str) -> None:
        """Remove the questions of a session that has ended."""
        for approval in list(self):
            if session and approval.question.session == session:
                self.remove(approval.question.question_id)

    def _store_grants(self, grants: list[Grant]) -> None:
        self._grants = {grant.grant_id: grant for grant in grants}
        state_files.write(self._grants_path, [asdict(grant) for grant in grants])


def client_of(principal: Principal) -> str:
    """Return who asks: the same after the client or its relay restarts, and different for each user of a front."""
    subject = [principal.subject] if principal.subject else []
    return json.dumps([principal.kind, principal.uid, principal.client, *subject])


def user_of(principal: Principal) -> tuple[str, int, str]:
    """Return the user for whom a client asks, which the client cannot claim."""
    return principal.kind, principal.uid, principal.subject


def binding(question: Question) -> str:
    """Return the digest of a question's one call: client and directory, session, tool, arguments, policy, rule."""
    return _digest(
        client_of(question.principal),
        question.principal.working_directory,
        question.session,
        question.tool,
        question.arguments_sha256,
        question.policy_sha256,
        question.rule,
    )


def covers(question: Question, scope: str) -> str:
    """Return the digest of what a wider answer covers: this client, tool, rule and detail, or with ``prefix`` or
    ``folder`` these; with ``session``, only in this session and under this policy."""
    about = {"prefix": question.prefix, "folder": question.folder}.get(scope, question.detail)
    wide = [scope, client_of(question.principal), question.tool, question.rule, about]
    return _digest(*wide, *((question.session, question.policy_sha256) if scope == "session" else ()))


def describe_scope(question: Question, scope: str) -> str:
    """Return what ``covers`` is, in words."""
    who = (question.principal.client, question.tool, question.rule)
    about = DIGEST.sub("", question.detail)
    if scope == "prefix":
        about = f"plain {question.prefix} …"
    elif scope == "folder":
        about = f"{visible(question.folder)} and all below"
    where = f"session {question.session}" if scope == "session" else ""
    return ", ".join(filter(None, (*who, about, where)))


def require_yes(question: Question, answer: Answer) -> Answer:
    """Return a yes, or raise Denied for a no."""
    if answer.allowed:
        return answer
    raise Denied(
        f"a person said no to {question.tool}" + (f": {answer.reason}" if answer.reason else ""),
        suggestion="do not try another way; ask the person what they would prefer",
    )


def dismissed(question: Question, answer: Answer) -> Denied:
    """Return the error if the client's form was not filled in; others may still answer."""
    return Denied(
        f"{question.tool} was not allowed: {answer.reason}",
        suggestion=f"do not repeat it; a person can still allow it with: ai-session approve {question.question_id}",
    )


def overtaken(tool: str, what: str) -> Denied:
    """Return the error if what was judged or asked about has changed meanwhile."""
    return Denied(
        f"{what} was changed while the question about {tool} was open",
        suggestion="make the call again if it is needed",
    )


def needed(question: Question) -> ConsentNeeded:
    """Return the error if no person could be asked or none has answered."""
    return ConsentNeeded(
        f"{question.tool} needs a person's consent ({question.rule}), and nobody has answered yet; the question is "
        f"{question.question_id}",
        suggestion=f"a person can allow it with: ai-session approve {question.question_id}; then call again with the "
        "same arguments",
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _json_values(approval: Approval) -> dict[str, Any]:
    """Return JSON values, without the client's environment and what its token allowed."""
    bare = replace(approval.question, principal=replace(approval.question.principal, env={}, scopes=None))
    return {**asdict(replace(approval, question=bare)), "askers": sorted(approval.askers)}


def _read_approval(path: Path) -> Approval | None:
    try:
        stored: dict[str, Any] = json.loads(path.read_bytes())
        question = stored.pop("question")
        principal = Principal(**question.pop("principal"))
        answer = stored.pop("answer")
        return Approval(
            question=Question(principal=principal, **question),
            askers=frozenset(stored.pop("askers")),
            answer=_answer(answer) if answer else None,
            **stored,
        )
    except UNREADABLE:
        return None


def _read_grants(path: Path) -> list[Grant]:
    try:
        stored: list[dict[str, Any]] = json.loads(path.read_bytes())
        return [Grant(answer=_answer(grant.pop("answer")), **grant) for grant in stored]
    except UNREADABLE:
        return []


def _answer(stored: Mapping[str, Any]) -> Answer:
    answer = Answer(**stored)
    if not isinstance(answer.allowed, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # a file may say anything
        raise TypeError("allowed must be a bool")
    return answer
