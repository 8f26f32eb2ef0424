"""A model that gives recorded answers: for demonstrations, evaluation and tests. Needs no key and no network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from agentwire.counts import counted
from agentwire.validation import requirements
from ccswarm.brains.llm.conversation import Conversation
from ccswarm.brains.llm.settings import RECORDED, Model, RecordedReply, Replies
from ccswarm.models import Json

REFERENCE = re.compile(r"\$(\d+)((?:\.[A-Za-z0-9_-]+)+)\Z")
"""An argument that is only a reference to a field of an earlier call's result."""

_FILE = TypeAdapter[dict[str, tuple[RecordedReply, ...]]](Replies)


def ask(model: Model, conversation: Conversation, task_id: str, attempt: int, workspace: str) -> dict[str, Any]:
    """Return the next recorded reply for the task, or for that attempt at it (``TASK~2``), in the form of ``api.ask``.
    A relative file name is relative to the working directory. After the last reply, the answer is an error."""
    try:
        replies = _replies(model, task_id, attempt, workspace)
    except (OSError, ValidationError) as error:
        what = requirements(error.errors()) if isinstance(error, ValidationError) else error
        return _failure(f"{model.name}: {what}")
    at = len(conversation.turns)
    if at >= len(replies):
        return _failure(f"it has {counted(len(replies), 'recorded answer')} for task {task_id}, and was asked again")
    reply = replies[at]
    if conversation.question:
        return _answer(reply.notes, [], _usage(model, reply)) if reply.notes else _failure("it has no notes")
    calls: list[dict[str, Any]] = []
    for number, call in enumerate(reply.calls, 1):
        try:
            arguments = _resolve(call.arguments, conversation)
        except LookupError as error:
            return _failure(f"reply {at + 1} refers to {error.args[0]}, which does not exist")
        calls.append({"id": f"recorded_{at + 1}_{number}", "name": call.tool, "arguments": arguments})
    return _answer(reply.text, calls, _usage(model, reply))


def _answer(text: str, calls: list[dict[str, Any]], usage: Mapping[str, Json]) -> dict[str, Any]:
    finish = "tool_call" if calls else "stop"
    fields = {"text": text, "calls": calls, "finish": finish, "usage": usage, "model": RECORDED}
    return {"response": _response(text, calls), **fields}


def _usage(model: Model, reply: RecordedReply) -> dict[str, Json]:
    tokens = {"input_tokens": reply.input_tokens, "output_tokens": reply.output_tokens}
    usage: dict[str, Json] = {"tokens": sum(tokens.values()), **tokens, "dollars": 0.0}
    if model.price:
        usage["dollars"] = (reply.input_tokens * model.price.input + reply.output_tokens * model.price.output) / 1e6
    return usage


def _replies(model: Model, task_id: str, attempt: int, workspace: str) -> Sequence[RecordedReply]:
    by_task = model.replies or _FILE.validate_json((Path(workspace) / model.name).read_bytes())
    names = (f"{task_id}~{attempt}", task_id, "")
    return next((by_task[name] for name in names if name in by_task), ())


def _resolve(value: Any, conversation: Conversation) -> Any:
    """Replace references by their values. Raises LookupError naming one without a value."""
    if isinstance(value, str) and (found := REFERENCE.match(value)):
        return _lookup(value, int(found[1]), found[2][1:].split("."), conversation)
    if isinstance(value, Mapping):
        return {name: _resolve(one, conversation) for name, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_resolve(one, conversation) for one in cast("Sequence[Any]", value)]
    return value


def _lookup(written: str, number: int, path: Sequence[str], conversation: Conversation) -> Json:
    call = conversation.call(number)
    node: Any = call.structured if call else None
    for part in path:
        try:
            node = cast("list[Any]", node)[int(part)] if isinstance(node, list) else node[part]
        except (LookupError, TypeError, ValueError):
            raise LookupError(written) from None
    return node


def _response(text: str, calls: Sequence[Mapping[str, Any]]) -> Json:
    """Return the reply in pydantic-ai's form, so that another model may continue."""
    parts: list[Json] = [{"part_kind": "text", "content": text}] if text else []
    parts += [
        {
            "part_kind": "tool-call",
            "tool_name": call["name"].replace(".", "__"),
            "args": call["arguments"],
            "tool_call_id": call["id"],
        }
        for call in calls
    ]
    return {"kind": "response", "parts": parts, "model_name": "recorded"}


def _failure(message: str) -> dict[str, Any]:
    return {"error": {"kind": "not_recorded", "message": message}}
