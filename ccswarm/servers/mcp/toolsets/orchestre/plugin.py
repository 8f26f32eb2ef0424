"""Orchestre's tools next to the swarm's own: arguments are checked as its document describes, calls are limited, and
answers get its envelope."""

from __future__ import annotations

import json
import math
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ccswarm import __version__
from ccswarm.config import config
from ccswarm.errors import SwarmError
from ccswarm.servers.mcp.toolsets.base import PARTIAL, Answer, Facts, Failure, Given, MissingFields, Tool
from ccswarm.servers.mcp.toolsets.orchestre import context, model_tools, project
from ccswarm.servers.mcp.toolsets.orchestre.base import OrchestreTool, Refusal
from ccswarm.servers.mcp.toolsets.orchestre.redaction import Redaction
from ccswarm.servers.mcp.workbench import Workbench

ALL = (*context.TOOLS, *project.TOOLS, *model_tools.TOOLS)
BY_NAME: dict[str, OrchestreTool] = {tool.name: tool for tool in sorted(ALL, key=lambda tool: tool.name)}

MAIN = ("analysis", "plan", "project", "consensus")
"""The member of a tool's answer that becomes ``data``, if there is one."""
FREE = frozenset(tool.name for tool in context.TOOLS)
"""Tools whose calls cost nothing, and are not limited."""

MOST_CALLS = 10
PERIOD_SECONDS = 60.0
SHOWN_NAMES = 20


class Limits:
    """The limit of a connection's calls of each operation, MOST_CALLS in PERIOD_SECONDS. ``clock`` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[str, deque[float]] = {}

    def count(self, operation: str) -> None:
        """Count a call. Raises Refusal if there are too many; then it is not counted."""
        now, calls = self._clock(), self._calls.setdefault(operation, deque())
        while calls and now - calls[0] >= PERIOD_SECONDS:
            calls.popleft()
        if len(calls) >= MOST_CALLS:
            wait = math.ceil(calls[0] + PERIOD_SECONDS - now)
            raise Refusal(
                f"{operation} was called {MOST_CALLS} times within {PERIOD_SECONDS:g} seconds",
                "RATE_LIMIT_EXCEEDED",
                f"Call it again in {wait} seconds",
                {"retryAfterSeconds": wait},
            )
        calls.append(now)


async def call(workbench: Workbench, name: str, arguments: Given) -> Answer | Failure:
    """Call a tool in ``BY_NAME``; its errors are answers too. Raises MissingFields."""
    tool = BY_NAME[name]
    kinds = tool.input_schema["properties"]
    # Programs write null for absent values; it is removed unless it is a valid value.
    given = {
        key: value
        for key, value in arguments.items()
        if value is not None or "type" not in kinds.get(key, {"type": ""})
    }
    redacted = Redaction(config.server_environment())
    report = PARTIAL.get()
    PARTIAL.set(lambda message: report(str(redacted(message))))
    try:
        given = validate(tool, given)
        if name not in FREE:
            workbench.own(Limits).count(name)
        with workbench.in_use():
            answer = await tool.run(workbench, given)
    except Refusal as refusal:
        return _failure(redacted, refusal.error, refusal.code, refusal.suggestion, refusal.more)
    except SwarmError as problem:
        return _failure(redacted, problem.message, problem.code.upper(), problem.suggestion, {})
    metadata: Facts = {"timestamp": _now(), "version": __version__}
    if ignored := sorted(set(given) - set(kinds)):
        metadata["ignored"] = ignored[:SHOWN_NAMES]
    # What is in progress has not succeeded.
    head = {} if answer.get("status") == "in_progress" else {"success": True}
    facts = redacted({**head, **answer, **as_documented(answer), "metadata": metadata})
    return Answer(json.dumps(facts, indent=2, ensure_ascii=False), facts)


def as_documented(answer: Given) -> Facts:
    """Return the answer under the document's names: ``data``, and ``phases`` of a plan, without repetition."""
    main = next((name for name in MAIN if isinstance(answer.get(name), dict)), "")
    if not main:
        return {"data": {name: value for name, value in answer.items() if name not in ("status", "message")}}
    data: Facts = dict(answer[main])
    return {"phases": data.pop("phases", []), "data": data} if main == "plan" else {"data": data}


def validate(tool: OrchestreTool, given: Given) -> Facts:
    """Return the arguments for the tool. Raises MissingFields, and Refusal, with every problem, for wrong ones."""
    required = tool.input_schema.get("required", ())
    if missing := [name for name in required if name not in given]:
        raise MissingFields("; ".join(f"Missing required field: {name}" for name in missing))
    valid = dict(given)
    if isinstance(text := given.get("requirements"), str):
        valid["requirements"] = text.strip()
    empty = [name for name in required if valid[name] == ""]
    # An empty text is reported once, not also as too short.
    problems = tool.arguments.problem({name: value for name, value in valid.items() if name not in empty}).split("; ")
    absent = {f"$: {name!r} is a required property" for name in empty}
    words = [f"{_words(name).capitalize()} {'are' if name.endswith('s') else 'is'} required" for name in empty]
    words += [re.sub(r"^\$\.?(?=\w)", "", one) for one in problems if one and one not in absent]
    if empty:
        raise Refusal("; ".join(words), f"MISSING_{_words(empty[0]).upper().replace(' ', '_')}", _provide(tool, empty))
    if words:
        raise Refusal("; ".join(words), "INVALID_ARGUMENTS", f"See the input schema of {tool.name}")
    return valid


def _failure(redacted: Redaction, error: str, code: str, suggestion: str, more: Mapping[str, Any]) -> Failure:
    facts: Facts = {"error": error, "code": code, **more, "suggestion": suggestion}
    return Failure(json.dumps(redacted(facts), indent=2, ensure_ascii=False))


def _provide(tool: OrchestreTool, names: list[str]) -> str:
    kinds = [f"{_words(name)} as a {tool.input_schema['properties'][name].get('type', 'value')}" for name in names]
    return f"Provide {'project ' if names[0] == 'requirements' else ''}{', '.join(kinds)}"


def _words(name: str) -> str:
    """Return ``project name`` for ``projectName``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Orchestre:
    """Orchestre's tools. Implements ``Toolset``."""

    tools: Mapping[str, Tool] = BY_NAME
    changes_runs: frozenset[str] = frozenset()

    async def call(self, workbench: Workbench, name: str, arguments: Given) -> Answer | Failure:
        """Call a tool, in the words of its document."""
        return await call(workbench, name, arguments)


PLUGIN = Orchestre()
