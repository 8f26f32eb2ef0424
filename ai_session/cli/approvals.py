"""Verbs about questions for a person: approvals, approve, reject."""

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
    """Return ids and tools of the open questions, for the shell's completion."""
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
    """Show the questions that wait for your answer, in full, and your lasting approvals."""
    with connect() as client:
        found = client.request("approvals", wait=wait)
    if as_json:
        show_json(found)
        return
    for question in found["questions"]:
        write_text(format_question(question))
    if any(answer_kind(question) != "unsigned" for question in found["questions"]):
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
    """Allow what a client asked for: this call only, unless an option says otherwise."""
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
    """Deny what a client asked for, or end a lasting approval."""
    answer("reject", question_id, "once", reason, as_json)


def answer(method: Literal["approve", "reject"], question_id: str, scope: str, reason: str, as_json: bool) -> None:
    """Send the answer, and show what it was about."""
    reason = reason[:MAX_REASON_CHARS]
    with connect() as client:

        def act() -> Act:
            return signed_answer(client, question_id, allowed=method == "approve", scope=scope, reason=reason)

        done = request(client, method, act, question_id=question_id, scope=scope, reason=reason)
    if as_json:
        show_json({"question_id": question_id, "allowed": method == "approve", "scope": scope})
    else:
        remark(f"{'Allowed' if method == 'approve' else 'Denied'} ({scope}):")
        remark(plain(done["about"]))


def signed_answer(client: ControlClient, question_id: str, *, allowed: bool, scope: str, reason: str) -> Act:
    """Return what a signature of this answer is about, and what the person is shown of it."""
    from ai_session.gate.consent.person_signature import about_answer

    for question in client.request("approvals")["questions"]:
        if question["question_id"] == question_id:
            about = about_answer(
                question_id, question["binding"], question["message"], allowed=allowed, scope=scope, reason=reason
            )
            shown = f"{format_question(question)}Your answer: {'yes' if allowed else 'no'} ({scope})."
            return Act("answer", about, shown)
    raise QuestionNotFound(f"no question {question_id!r} waits for an answer", suggestion="ai-session approvals")


def format_question(question: dict[str, Any]) -> str:
    """Return a question as a block of text."""
    left = max(0, round(question["expires_at"] - time.time()))
    head = f"{question['question_id']}  (rule {question['rule']}, {left} s left{HOW[answer_kind(question)]})"
    return plain("\n".join([head, *(f"  {line}" for line in question["message"].split("\n"))])) + "\n\n"


def answer_kind(question: dict[str, Any]) -> str:
    """Return how a yes from here counts; earlier versions of the daemon omit this, and accept it as it is."""
    return question.get("answer", "unsigned")


def plain(text: str) -> str:
    """Return the text without characters that could control a terminal or hide text."""
    return visible(text, lines=True)
