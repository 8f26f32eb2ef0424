"""The answer of a run, which is that of its last task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ccswarm.models import Json, RunStatus

if TYPE_CHECKING:
    from ccswarm.models import Execution

TEXTS = ("output", "text")
"""The members of a step's result that a person wants to read."""


def last_task(run: Execution, tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the task whose answer is the run's: the last that failed; else the last in the plan that has begun and
    that no other task needs; else the last that has begun. Return ``""`` if none has begun."""
    payload: Mapping[str, Any] = run.payload or {}
    planned: Sequence[Mapping[str, Any]] = payload.get("plan", {}).get("tasks") or ()
    needed = {need for task in planned for need in task.get("needs", ())}
    begun = [str(task["id"]) for task in planned if tasks.get(str(task["id"]), {}).get("attempts")]
    ends = [name for name in begun if name not in needed]
    failed = [name for name in begun if tasks[name]["status"] == RunStatus.FAILED]
    return next(reversed(failed or ends or begun), "")


def answer(task: Mapping[str, Any]) -> str:
    """Return a task's answer as text, empty without a result. ``task`` is its entry in ``facts_of``."""
    result: Json = task.get("result")
    if isinstance(result, Mapping):
        facts = cast("Mapping[str, Json]", result)
        if list(facts) == ["steps"]:
            return _text_of_steps(facts["steps"])
        if list(facts) == ["reached"]:  # what a model had reached when it gave up
            return str(facts["reached"]["last_words"])
        if "summary" in facts:
            rest = {name: value for name, value in facts.items() if name != "summary"}
            more = _text(next(iter(rest.values())) if len(rest) == 1 else rest) if rest else ""
            return "\n\n".join(filter(None, (str(facts["summary"]), more)))
    return _text(result)


def is_over(task: Mapping[str, Any]) -> bool:
    """Report whether the task is over."""
    return RunStatus(task["status"]).over


def _text_of_steps(steps: Mapping[str, Json]) -> str:
    """Return the text of the last step that has any. If none has, return the last step as JSON, unless it is one that
    could have had text."""
    texts = [text for step in steps.values() if (text := _step_text(step))]
    last = next(reversed(list(steps.values())), None)
    is_silent = isinstance(last, Mapping) and any(name in last for name in TEXTS)
    return texts[-1] if texts else "" if is_silent else _text(last)


def _step_text(step: Json) -> str:
    if isinstance(step, list):
        return "\n".join(filter(None, map(_step_text, cast("list[Json]", step))))
    facts: Mapping[str, Json] = cast("Mapping[str, Json]", step) if isinstance(step, Mapping) else dict[str, Json]()
    return next((text.rstrip("\n") for name in TEXTS if isinstance(text := facts.get(name), str) and text), "")


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
