"""Reads the JSON events that programs print: their text, usage and end.

One reader serves all programs, because their events have different names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ccswarm.models import Json

SAID_CHARS = 4000
TEXT_CHARS = 20_000
STRAY_CHARS = 2000
"""The length stored of lines that are no events, which are mostly error messages."""


@dataclass(slots=True)
class EventReader:
    """The state of one start, read from its events. ``session`` identifies it for resuming. ``result`` is its last
    text, None before the end; ``error`` the program's own message. ``toolless``: it would continue without the tools.
    ``before`` is the session's ``totals`` when this start resumed it: some programs add up the usage of all starts."""

    before: Mapping[str, float] = field(default_factory=dict[str, float])
    session: str = ""
    result: str | None = None
    error: str = ""
    stray: str = ""
    dollars: float = 0.0
    tokens: int = 0
    events: int = 0
    toolless: bool = False
    totals: dict[str, float] = field(default_factory=dict[str, float])
    _reported: int = 0
    _counted: int = 0
    _seen: dict[str, int] = field(default_factory=dict[str, int])
    _said: list[str] = field(default_factory=list[str])
    _text: str = ""

    def read_line(self, line: str) -> None:
        """Read one line of standard output. A line that is not an event is stored as stray text."""
        try:
            event: Any = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict) or not isinstance(kind := cast("dict[str, Any]", event).get("type"), str):
            self.stray = f"{self.stray}\n{line}"[-STRAY_CHARS:]
            return
        self.events += 1
        facts = cast("dict[str, Any]", event)
        session = facts.get("session_id") or facts.get("thread_id")
        if isinstance(session, str):
            self.session = session
        match kind:
            case "system" if facts.get("subtype") == "init":
                servers = [*_tables(facts.get("mcp_servers"))]
                self.toolless = any(server.get("status") not in ("connected", "pending") for server in servers)
            case "assistant":
                self._message(_table(facts.get("message")))
            case "message" if facts.get("role") == "assistant":
                self._add_text(str(facts.get("content") or ""), bool(facts.get("delta")))
            case "item.completed" if _table(facts.get("item")).get("type") == "agent_message":
                self._add_text(str(_table(facts.get("item")).get("text") or ""), False)
            case "turn.completed":
                self.result = self._text
                self.error = ""
                total = sum(_numbers(_table(facts.get("usage")), ("input_tokens", "output_tokens")))
                self.totals["tokens"] = total
                self.tokens = max(0, total - int(self.before.get("tokens", 0)))
            case "turn.failed" | "error":
                self.error = _error_message(facts.get("error") or facts.get("message"))
            case "result":
                self._result(facts)
            case _:
                pass

    def take_new(self) -> dict[str, Json]:
        """Return what is new since the last call, without empty values: ``said``, ``session``, ``usage``."""
        said, used = self._said[self._reported :], max(0, self.tokens - self._counted)
        self.skip(len(self._said), self.tokens)
        facts: dict[str, Any] = {"said": said, "session": self.session, "usage": {"tokens": used} if used else {}}
        return {name: value for name, value in facts.items() if value}

    def skip(self, said: int, tokens: int) -> None:
        """Skip events that were reported before, perhaps by another worker."""
        self._reported = max(self._reported, said)
        self._counted = max(self._counted, tokens)

    def facts(self) -> dict[str, Json]:
        """Return the facts of the end: ``result``, ``error``, ``stray``, and what is new."""
        facts = self.take_new()
        usage: dict[str, Any] = {**cast("dict[str, Any]", facts.get("usage") or {}), "dollars": self.dollars}
        result = None if self.result is None else self.result[:TEXT_CHARS]
        ended = {"result": result, "error": self.error[:TEXT_CHARS], "stray": self.stray, "totals": dict(self.totals)}
        return {**facts, "usage": usage, **ended}

    def _message(self, message: Mapping[str, Any]) -> None:
        """Read a message of claude. Its parts come in events of the same id, each with the usage so far."""
        used = sum(_numbers(_table(message.get("usage")), CLAUDE_TOKENS))
        number = str(message.get("id"))
        self.tokens += max(0, used - self._seen.get(number, 0))
        self._seen[number] = max(used, self._seen.get(number, 0))
        for part in _tables(message.get("content")):
            if part.get("type") == "text":
                self._add_text(str(part.get("text") or ""), False)

    def _add_text(self, text: str, more: bool) -> None:
        """Add text. Gemini sends one text in several pieces."""
        if more and len(self._said) > self._reported:
            self._said[-1] = (self._said[-1] + text)[:SAID_CHARS]
        elif text.strip():
            self._said.append(text[:SAID_CHARS])
        self._text = self._text + text if more else text

    def _result(self, facts: Mapping[str, Any]) -> None:
        stats = _table(facts.get("stats"))
        usage = sum(_numbers(_table(facts.get("usage")), CLAUDE_TOKENS)) or sum(_numbers(stats, ("total_tokens",)))
        self.tokens = max(self.tokens, int(usage))
        if isinstance(cost := facts.get("total_cost_usd"), int | float):
            self.totals["dollars"] = cost
            self.dollars = max(0.0, cost - self.before.get("dollars", 0))
        words = facts.get("result")
        text = words if isinstance(words, str) else self._text
        if facts.get("is_error") or facts.get("status") == "error":
            messages = [_error_message(facts.get("error")), *map(_error_message, facts.get("errors") or ()), text]
            self.error = "; ".join(filter(None, messages)) or str(facts.get("subtype") or "error")
        else:
            self.result = text
            self.error = ""


CLAUDE_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    return (_table(one) for one in cast("Sequence[object]", value)) if isinstance(value, list) else iter(())


def _numbers(table: Mapping[str, Any], names: Sequence[str]) -> Iterator[int]:
    return (value for name in names if isinstance(value := table.get(name), int))


def _error_message(value: object) -> str:
    """Return an error's message, however it is nested."""
    table = _table(value)
    return (
        _error_message(table.get("message") or table.get("error") or table.get("type")) if table else str(value or "")
    )
