"""Verbs about questions that wait for a person: approvals, approve, reject."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from agentwire.cli.options import Argument, Json, Option
from agentwire.cli.output import remark, say, show_json, show_rows
from agentwire.visible import visible
from ai_session.cli.output import write_text
from ai_session.cli.signing import Act, request
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, InvalidArguments, QuestionNotFound

MAX_REASON_CHARS = 500
HOW = {"unsigned": "", "signed": ", yours to sign", "no": ", not to be answered from here"}


def complete_questions(incomplete: str) -> list[tuple[str, str]]:
    """Ids of the open questions and what they are about, for the shell's completion."""
    try:
        with connect(start=False) as client:
            found = client.request("approvals")["questions"]
    except AiSessionError:
        return []
    return [(q["question_id"], q["tool"]) for q in found if q["question_id"].startswith(incomplete)]


QuestionId = Annotated[str, Argument(metavar="ID", help="The ID that approvals shows.", complete=complete_questions)]


def approvals(
    as_json: Json = False,
    wait: Annotated[bool, Option("--wait", help="Wait until there is a question.")] = False,
) -> None:
    """Show what waits for your answer, whole, and what you allowed for longer."""
    with connect() as client:
        found = client.request("approvals", wait=wait)
    if as_json:
        show_json(found)
        return
    for question in found["questions"]:
        write_text(format_question(question))
    if any(way(question) != "unsigned" for question in found["questions"]):
        say("ai-session person show says why a yes from here does not count as it is, and what to do.")
    if found["grants"]:
        show_rows([{**g, "id": g["grant_id"]} for g in found["grants"]], ("id", "scope", "what"))
        say("ai-session reject ID ends one.")
    if not found["questions"] and not found["grants"]:
        remark("Nothing waits for an answer: ai-session approvals --wait returns when something does.")


def approve(
    question_id: QuestionId,
    session: Annotated[bool, Option("--session", help="The same in this session as well.")] = False,
    always: Annotated[bool, Option("--always", help="The same from now on, until rejected.")] = False,
    prefix: Annotated[bool, Option("--prefix", help="From now on everything that begins like it, if offered.")] = False,
    folder: Annotated[bool, Option("--folder", help="From now on in this folder and all below, if offered.")] = False,
    reason: Annotated[str, Option("--reason", help="Recorded.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """Allow what a client asked for: this call only, if not said otherwise."""
    given = (("session", session), ("always", always), ("prefix", prefix), ("folder", folder))
    wider = [scope for scope, wanted in given if wanted]
    if len(wider) > 1:
        raise InvalidArguments(f"--{' and --'.join(wider)} exclude each other")
    answer("approve", question_id, "".join(wider) or "once", reason, as_json)


def reject(
    question_id: QuestionId,
    reason: Annotated[
        str, Option("--reason", help="Reason, which the client receives; recorded.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Deny what a client asked for, or end what was allowed for longer."""
    answer("reject", question_id, "once", reason, as_json)


def answer(method: Literal["approve", "reject"], question_id: str, scope: str, reason: str, as_json: bool) -> None:
    """Pass it on, and say what it was about."""
    reason = reason[:MAX_REASON_CHARS]
    with connect() as client:

        def act() -> Act:
            return signed(client, question_id, allowed=method == "approve", scope=scope, reason=reason)

        done = request(client, method, act, question_id=question_id, scope=scope, reason=reason)
    if as_json:
        show_json({"question_id": question_id, "allowed": method == "approve", "scope": scope})
    else:
        remark(f"{'Allowed' if method == 'approve' else 'Denied'} ({scope}):")
        remark(plain(done["about"]))


def signed(client: ControlClient, question_id: str, *, allowed: bool, scope: str, reason: str) -> Act:
    """What a signature under this answer is about, and what the person is shown of it."""
    from ai_session.gate.consent.person_signature import about_answer

    for question in client.request("approvals")["questions"]:
        if question["question_id"] == question_id:
            about = about_answer(
                question_id, question["binding"], question["message"], allowed=allowed, scope=scope, reason=reason
            )
            return Act(
                "answer", about, f"{format_question(question)}Your answer: {'yes' if allowed else 'no'} ({scope})."
            )
    raise QuestionNotFound(f"no question {question_id!r} waits for an answer", suggestion="ai-session approvals")


def format_question(question: dict[str, Any]) -> str:
    """A question as a block of text."""
    left = max(0, round(question["expires_at"] - time.time()))
    head = f"{question['question_id']}  (rule {question['rule']}, {left} s left{HOW[way(question)]})"
    return plain("\n".join([head, *(f"  {line}" for line in question["message"].split("\n"))])) + "\n\n"


def way(question: dict[str, Any]) -> str:
    """How a yes from here is taken; a daemon of an earlier version does not say, and takes it as it is."""
    return question.get("answer", "unsigned")


def plain(text: str) -> str:
    """Without what could steer a terminal or hide from a reader."""
    return visible(text, lines=True)
