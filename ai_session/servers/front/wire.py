"""Calls, results, questions, answers and tools as JSON values between the HTTP server and the daemon, and back. The
sender of a request is passed separately, so principals are not among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ai_session.errors import InvalidArguments
from ai_session.gate.api import ListedTool
from ai_session.models import SCOPES, Answer, Principal, Question, ToolCall, ToolResult

Table = Mapping[str, Any]

CLAIMS = ("agent", "run", "client_call_id", "state")


@dataclass(frozen=True, slots=True)
class Listed:
    """The description of a tool for callers."""

    name: str
    title: str
    description: str
    input_schema: Table
    output_schema: Table
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    always_load: bool


def tool_facts(tool: ListedTool) -> dict[str, Any]:
    """Return a tool of the gate as JSON values."""
    return {field.name: getattr(tool, field.name) for field in fields(Listed)}


def call_facts(call: ToolCall) -> dict[str, Any]:
    """Return a call without its principal; a person's choice of a profile is not sent this way."""
    claims = {name: value for name in CLAIMS if (value := getattr(call, name))}
    return {
        "name": call.name,
        "arguments": call.arguments,
        "call_id": call.call_id,
        "patience_seconds": call.patience_seconds,
        "unlisted": call.unlisted,
        **claims,
        **({"trace": dict(call.trace)} if call.trace else {}),
        **({"answers": {name: answer_facts(word) for name, word in call.answers.items()}} if call.answers else {}),
    }


def call_of(facts: Table, principal: Principal) -> ToolCall:
    """Return the call, made by ``principal``. Raises InvalidArguments."""
    patience: Any = facts.get("patience_seconds")
    if patience is not None and not isinstance(patience, (int, float)):
        raise InvalidArguments("patience_seconds must be a number")
    return ToolCall(
        principal,
        text(facts, "name"),
        table(facts, "arguments"),
        text(facts, "call_id"),
        agent=text(facts, "agent"),
        run=text(facts, "run"),
        client_call_id=text(facts, "client_call_id"),
        state=text(facts, "state"),
        patience_seconds=patience,
        answers={name: answer_of(word) for name, word in table(facts, "answers").items()},
        trace={name: str(value) for name, value in table(facts, "trace").items()},
        unlisted=facts.get("unlisted") is True,
    )


def result_facts(result: ToolResult) -> dict[str, Any]:
    """Return a result as JSON values."""
    return {
        "text": result.text,
        "structured": result.structured,
        "is_error": result.is_error,
        "call_id": result.call_id,
        "meta": result.meta,
        **({"question": question_facts(result.question), "state": result.state} if result.question else {}),
    }


def result_of(facts: Table, principal: Principal) -> ToolResult:
    """Return the result that was sent to ``principal``."""
    question = question_of(facts["question"], principal) if facts.get("question") else None
    return ToolResult(
        facts["text"],
        facts["structured"],
        facts["is_error"],
        facts["call_id"],
        facts["meta"],
        question,
        facts.get("state", ""),
    )


def question_facts(question: Question) -> dict[str, Any]:
    """Return a question without its principal, who has an environment."""
    return {field.name: getattr(question, field.name) for field in fields(question) if field.name != "principal"}


def question_of(facts: Table, principal: Principal) -> Question:
    """Return the question, asked by ``principal``."""
    return Question(principal=principal, **facts)


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Return a person's answer as JSON values."""
    return {field.name: getattr(answer, field.name) for field in fields(answer)}


def answer_of(facts: Any) -> Answer:
    """Return a person's answer. Raises InvalidArguments if it is not valid."""
    word = table({"word": facts}, "word")
    allowed, scope = word.get("allowed"), word.get("scope", "once")
    if not isinstance(allowed, bool) or scope not in SCOPES:
        raise InvalidArguments(f"an answer needs allowed, and a scope of {', '.join(SCOPES)}")
    return Answer(allowed, scope, text(word, "reason"), text(word, "by"))


def text(facts: Table, name: str) -> str:
    """Return a text, empty if missing. Raises InvalidArguments."""
    value = facts.get(name, "")
    if not isinstance(value, str):
        raise InvalidArguments(f"{name} must be a string")
    return value


def table(facts: Table, name: str) -> dict[str, Any]:
    """Return an object, empty if missing. Raises InvalidArguments."""
    value = facts.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArguments(f"{name} must be a JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]
