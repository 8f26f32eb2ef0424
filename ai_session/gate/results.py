"""Calls at the gate's edges: checked arguments on the way in; errors, notes and masked texts on the way out."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from agentwire.validation import requirement, requirements
from ai_session.errors import InvalidArguments, StorageFull, TerminalsExhausted, UnknownTool
from ai_session.models import ToolResult
from ai_session.sandbox.workspace.notices import Notice
from ai_session.sandbox.workspace.words import sentence
from ai_session.system.turns import Steps
from ai_session.tools.base import Arguments, Tool

MOST_NOTICES = 50
"""The most notices in one result."""
MOST_NAMED = 8
"""The most unknown arguments and the most problems that one result names."""
NAME_CHARS = 60
"""How much of an unknown name is shown, and compared with known ones: of long ones that takes seconds."""
REFUSED = ("system_error", "run: ai-session doctor")
OUT_OF = (TerminalsExhausted.code, "close sessions, or raise the limits: ulimit -n (files), ulimit -u (processes)")
FULL = (StorageFull.code, "free space on the disk of the runtime directory")
REFUSALS = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), OUT_OF) | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL
)
"""The code and suggestion for errors of the system, by number."""

_ID, _WORD = re.compile(r"(?:ses|cmd)_[A-Za-z0-9_-]{22}"), re.compile(r"[a-z_-]+")
OWN = {
    **dict.fromkeys(("session_id", "command_id"), _ID),
    **dict.fromkeys(("status", "state", "code", "backend", "waited", "input_mode"), _WORD),
    "sandbox": re.compile(r"[a-z-]+(?: \([a-z-]+, network [a-z-]+\))?"),
}
"""Facts in this program's own words, which no secret is in: programs act on them, so a client whose variable or command
has such a word as the value of a password must not change them, for itself or for others."""


def validate(tool: Tool, given: Mapping[str, Any]) -> tuple[Arguments, str]:
    """Return checked arguments and a note on ignored ones. Raises InvalidArguments with the problems but no values."""
    known = tool.arguments.model_fields
    unknown = [str(name)[:NAME_CHARS] for name in given if name not in known]
    ignored: list[str] = []
    for name in unknown[:MOST_NAMED]:
        near = difflib.get_close_matches(name, known, n=1)
        ignored.append(f"{name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
    note = f"unknown arguments ignored: {', '.join(ignored)}{_and_more(unknown)}" if unknown else ""
    try:
        return tool.arguments.model_validate({k: v for k, v in given.items() if v is not None}), note
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        problems = found[:MOST_NAMED]
        wanted = ", ".join(n + ("" if f.is_required() else "?") for n, f in known.items())
        raise InvalidArguments(
            f"{tool.name}: {requirements(problems, 'arguments')}{_and_more(found)}" + (f"; {note}" if note else ""),
            suggestion=f"arguments: {wanted}",
            fields={str(one["loc"][0]): requirement(one) for one in problems if one["loc"]},
        ) from None


def known_first(given: Mapping[str, Any], tool: Tool | None) -> Mapping[str, Any]:
    """Return the arguments of a call, before all others those that the tool takes: only so many are recorded."""
    known = tool.arguments.model_fields if tool else ()
    return {**{name: given[name] for name in known if name in given}, **given}


def unknown_tool(name: str, tools: Collection[str]) -> UnknownTool:
    """Return the error for a tool that does not exist, with what may have been meant."""
    name = name[:NAME_CHARS]
    near = difflib.get_close_matches(name, tools, n=1)
    return UnknownTool(
        f"unknown tool {name!r}", suggestion=f"did you mean {near[0]!r}?" if near else f"tools: {', '.join(tools)}"
    )


def refusal(error: OSError) -> tuple[str, str]:
    """Return the code and suggestion for an error of the system."""
    return REFUSALS.get(error.errno or 0, REFUSED)


def with_note(result: ToolResult, note: str) -> ToolResult:
    """Return the result with one more note, in both forms."""
    if not note:
        return result
    structured = dict(result.structured)
    structured["note"] = f"{structured['note']}; {note}" if structured.get("note") else note
    return replace(result, text=f"[{note}]\n{result.text}", structured=structured)


def with_notices(result: ToolResult, notices: Sequence[Notice]) -> ToolResult:
    """Return the result with what appeared in the workspace, in both forms."""
    if not notices:
        return result
    rows = [notice.facts() for notice in notices[:MOST_NOTICES]]
    structured = {**result.structured, "notices": rows}
    return replace(result, text=f"[{sentence(rows)}]\n{result.text}", structured=structured)


def masked(
    result: ToolResult, mask: Callable[[str], Steps[tuple[str, int]]], clean: Callable[[str], bool] = lambda _: False
) -> Steps[tuple[ToolResult, int]]:
    """Return the result with ``mask`` applied to texts not known to be ``clean``, and the count for the main one."""
    text, count = yield from mask(result.text)
    structured = yield from _masked(result.structured, mask, clean)
    # Every call passes here; replace() would take three times as long.
    masked_result = ToolResult(
        text, structured, result.is_error, result.call_id, result.meta, result.question, result.state
    )
    return masked_result, count


def _masked(value: Any, mask: Callable[[str], Steps[tuple[str, int]]], clean: Callable[[str], bool]) -> Steps[Any]:
    if isinstance(value, str):
        masked_result, _ = yield from mask(value)
        return masked_result
    if value is None or isinstance(value, (int, float)):
        return value
    if isinstance(value, Mapping):
        pairs: dict[Any, Any] = {}
        for name, item in value.items():  # pyright: ignore[reportUnknownVariableType]
            kind: type = item.__class__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            plain = item is None or kind is int or kind is float or (kind is str and clean(item))  # pyright: ignore[reportUnknownArgumentType]
            pairs[name] = item if plain or _is_own(name, item) else (yield from _masked(item, mask, clean))
        return pairs
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            items.append((yield from _masked(item, mask, clean)))
            yield
        return items
    return value


def _and_more(what: Sequence[object]) -> str:
    return f" and {len(what) - MOST_NAMED} more" if len(what) > MOST_NAMED else ""


def _is_own(name: Any, value: Any) -> bool:
    form = OWN.get(name)
    return form is not None and isinstance(value, str) and form.fullmatch(value) is not None
