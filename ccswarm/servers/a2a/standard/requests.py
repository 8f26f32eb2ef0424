"""What a message asks for: a task in words for one agent, or a plan."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ccswarm.config.settings import AgentSettings, Settings
from ccswarm.errors import ConfigInvalid, PlanInvalid
from ccswarm.plan.check import plan_problems, split_location
from ccswarm.runs import service
from ccswarm.servers.a2a.standard.card import INPUTS, OUTPUTS, PLAN
from ccswarm.servers.a2a.standard.errors import CONTENT_TYPE, INTERNAL_ERROR, INVALID_PARAMS, Fault
from ccswarm.servers.a2a.standard.wire import Part, Sent
from ccswarm.servers.a2a.task_store import Task

MOST_WORDS = 100_000
MOST_REFERRED_CHARS = 8_000
"""The maximal length of the result of each earlier task that a message refers to."""
CHOICES = ("agent", "skill", "skillId")
"""The keys in the metadata of a message or its request that name the agent."""
FILE = re.compile(r"\.(toml|json)\Z", re.IGNORECASE)
PLAN_TYPES = ("application/toml", "text/toml", "application/x-toml")
WHERE = "the plan"


def plan_in(sent: Sent) -> str:
    """Return the plan in a message, as TOML or JSON; empty for a task in words. Raises Fault."""
    found: list[str] = []
    for index, part in enumerate(sent.message.parts):
        if part.url is not None:
            problem = "URLs are not fetched: send the contents"
            raise Fault(CONTENT_TYPE, problem, [(f"message.parts[{index}]", problem)])
        if part.raw is not None:
            found.append(_file(part, index))
        elif "plan" in (data := _object(part.data)):
            plan = data["plan"]
            if unknown := next((key for key in data if key != "plan"), None):
                raise _wrong(f"message.parts[{index}].data.{unknown}", "is unknown: only plan is known")
            if not isinstance(plan, (dict, str)):
                raise _wrong(f"message.parts[{index}].data.plan", "must be an object or a TOML string")
            found.append(plan if isinstance(plan, str) else json.dumps(plan, ensure_ascii=False))
    if len(found) > 1:
        raise _wrong("message.parts", "has more than one plan")
    if found and not found[0].strip():
        raise _wrong("message.parts", "has an empty plan")
    return found[0] if found else ""


def _file(part: Part, index: int) -> str:
    kind = part.media_type.partition(";")[0].strip().lower()
    if kind not in PLAN_TYPES and not FILE.search(part.filename):
        problem = f"{kind or part.filename or 'the file'} is not supported, only {', '.join(INPUTS)}"
        raise Fault(CONTENT_TYPE, problem, [(f"message.parts[{index}]", "a file has to be a plan: TOML or JSON")])
    try:
        # Both alphabets, with or without padding, as in the protocol's JSON.
        text = (part.raw or "").translate(str.maketrans("-_", "+/")).rstrip("=")
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        raise _wrong(f"message.parts[{index}]", "must be UTF-8 in base64") from None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def require_output_type(sent: Sent) -> None:
    """Raise Fault if the client accepts none of the output types that exist."""
    modes = [mode.partition(";")[0].strip().lower() for mode in sent.configuration.accepted_output_modes]
    if modes and not any(mode in ("*/*", "application/*", *OUTPUTS) or mode.startswith("text") for mode in modes):
        raise Fault(CONTENT_TYPE, f"only {' or '.join(OUTPUTS)} is available")


def agent_in(sent: Sent) -> str:
    """Return the agent that the client names, else ``""``. Raises Fault."""
    for metadata in (sent.message.metadata, sent.metadata):
        for name in CHOICES:
            if name in metadata:
                if not isinstance(metadata[name], str):
                    raise _wrong(f"metadata.{name}", "must be a string")
                return str(metadata[name])
    return ""


def with_plan(plan: str, named: str, settings: Settings) -> Settings:
    """Return the configuration with the tasks of a client's plan. Raises Fault, with every problem and its position."""
    if named not in ("", PLAN):
        raise _wrong("metadata.agent", "a plan itself assigns its agents")
    try:
        found = service.with_client_plan(plan, settings, WHERE)
    except (ConfigInvalid, PlanInvalid) as error:
        raise plan_fault(error) from None
    if problems := plan_problems(found, None):
        raise Fault(INVALID_PARAMS, violations=[_violation(problem) for problem in problems])
    return found


def plan_fault(error: ConfigInvalid | PlanInvalid) -> Fault:
    """Return a plan's problems as the client's error."""
    problems = error.message.removeprefix(f"{WHERE}: ").split("; ")
    return Fault(INVALID_PARAMS, violations=[_violation(problem.removeprefix(f"{WHERE}: ")) for problem in problems])


def _violation(problem: str) -> tuple[str, str]:
    location, what = split_location(problem)
    return (f"plan: {location}" if location else "plan"), what


def with_text(sent: Sent, named: str, settings: Settings, referred: Sequence[Task]) -> Settings:
    """Return the configuration with one task: the message's text, for the named agent, else for the first that takes
    tasks in words. Raises Fault."""
    candidates = [agent for agent in settings.agents if agent.takes_words]
    names = ", ".join(agent.name for agent in candidates)
    if named == PLAN:
        raise _wrong("metadata.skill", "there is no plan in the message")
    if not candidates:
        raise _wrong("message.parts", 'no agent here takes tasks in words: send a data part {"plan": …}')
    if named and named not in [agent.name for agent in candidates]:
        raise _wrong("metadata.agent", f"must be one of: {names}")
    text = _words(sent)
    ours = settings.model_copy(update={"agents": tuple(agent for agent in candidates if named in ("", agent.name))})
    doer = next(agent for agent in settings.agents if agent.name == service.with_task(text, ours).tasks[0].agent)
    if doer.brain != service.PLAYBOOK:
        text += "".join(_text_of_earlier(task) for task in referred)
    task = _task(text, doer)
    return settings.model_copy(update={"tasks": (task,), "steps": ()})


def _task(text: str, doer: AgentSettings) -> Any:
    try:
        return service.task_in_words(service.MAIN, text, doer)
    except ConfigInvalid as error:
        raise Fault(INTERNAL_ERROR, error.message) from None


def _words(sent: Sent) -> str:
    """Return the message's texts, and its data as JSON. Raises Fault."""
    texts = [
        part.text if part.text is not None else json.dumps(part.data, ensure_ascii=False) for part in sent.message.parts
    ]
    text = "\n\n".join(texts)
    if not text.strip():
        raise _wrong("message.parts", "give the text of the task")
    if len(text) > MOST_WORDS:
        raise _wrong("message.parts", f"must have at most {MOST_WORDS} characters")
    return text


def _text_of_earlier(task: Task) -> str:
    """Return the result of an earlier task, as text for a model."""
    texts: list[str] = []
    for artifact in cast("list[Mapping[str, Any]]", task.artifacts):
        texts += [
            part["text"] if "text" in part else json.dumps(part["data"], ensure_ascii=False)
            for part in artifact["parts"]
        ]
    result = "\n".join(texts)
    cut = result if len(result) <= MOST_REFERRED_CHARS else f"{result[:MOST_REFERRED_CHARS]}…"
    return f"\n\n(Earlier task {task.id}, {task.state.value}:\n{cut})"


def _wrong(field: str, what: str) -> Fault:
    return Fault(INVALID_PARAMS, violations=[(field, what)])
