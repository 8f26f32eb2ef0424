"""What a run came to, in the words of its last task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ccswarm.models import Json, RunStatus

if TYPE_CHECKING:
    from ccswarm.models import Execution

TEXTS = ("output", "text")
"""Members of a step's result that are what a person wants to read."""


def last_task(run: Execution, tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """The task whose answer is the run's: the last that failed; else of those that no other needs the one that is
    written last, and has begun; else the last that has. Empty where none has."""
    payload: Mapping[str, Any] = run.payload or {}
    planned: Sequence[Mapping[str, Any]] = payload.get("plan", {}).get("tasks") or ()
    needed = {need for task in planned for need in task.get("needs", ())}
    begun = [str(task["id"]) for task in planned if tasks.get(str(task["id"]), {}).get("attempts")]
    ends = [name for name in begun if name not in needed]
    failed = [name for name in begun if tasks[name]["status"] == RunStatus.FAILED]
    return next(reversed(failed or ends or begun), "")


def answer(task: Mapping[str, Any]) -> str:
    """What a task answered, as text: empty where it has no result. ``task`` is what ``facts_of`` says of it."""
    result: Json = task.get("result")
    if isinstance(result, Mapping):
        facts = cast("Mapping[str, Json]", result)
        if list(facts) == ["steps"]:
            return _of_steps(facts["steps"])
        if list(facts) == ["reached"]:  # what a model came to that gave up
            return str(facts["reached"]["last_words"])
        if "summary" in facts:
            rest = {name: value for name, value in facts.items() if name != "summary"}
            more = _text(next(iter(rest.values())) if len(rest) == 1 else rest) if rest else ""
            return "\n\n".join(filter(None, (str(facts["summary"]), more)))
    return _text(result)


def over(task: Mapping[str, Any]) -> bool:
    """Whether it says no more."""
    return RunStatus(task["status"]).over


def _of_steps(steps: Mapping[str, Json]) -> str:
    """Of the last step that said something; where none did, all of the last, if it is not one that could have."""
    said = [text for step in steps.values() if (text := _said(step))]
    last = next(reversed(list(steps.values())), None)
    is_silent = isinstance(last, Mapping) and any(name in last for name in TEXTS)
    return said[-1] if said else "" if is_silent else _text(last)


def _said(step: Json) -> str:
    if isinstance(step, list):
        return "\n".join(filter(None, map(_said, cast("list[Json]", step))))
    facts: Mapping[str, Json] = cast("Mapping[str, Json]", step) if isinstance(step, Mapping) else dict[str, Json]()
    return next((text.rstrip("\n") for name in TEXTS if isinstance(text := facts.get(name), str) and text), "")


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
