"""The brain that is a model with an API like OpenAI's, Anthropic's or Gemini's. Loads network libraries when needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ccswarm.brains.base import Assignment, Thinking, WorkerContext
from ccswarm.brains.llm import prompts, recorded
from ccswarm.brains.llm.conversation import Conversation
from ccswarm.brains.llm.loop import LlmThinking, where
from ccswarm.brains.llm.retries import explain
from ccswarm.brains.llm.settings import ENV, GEMINI, RECORDED, VENDORS, LlmSettings, Model, read
from ccswarm.brains.llm.terminal import Terminal, make_terminal
from ccswarm.brains.llm.tools import (
    FINISH,
    IN_TERMINAL,
    OWN,
    RECALL,
    TODO,
    OfferedTool,
    offer_tools,
    other_tools,
    size_problem,
)
from ccswarm.config.config import server_environment
from ccswarm.config.settings import AgentSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import Json

if TYPE_CHECKING:
    from types import ModuleType

    from ccswarm.brains.llm.wire import Connections


UNPRICED = (
    "{model}: its price is unknown, so a budget in dollars cannot be enforced: set the dollars for a million tokens in "
    "the agent's settings, price = {{ input = 1.0, output = 5.0 }}, or limit tokens instead: "
    "budget = {{ tokens = 2_000_000 }}"
)


class LlmBrain:
    """The brain that needs a model, and a task with a text."""

    name = "llm"
    wants_tools = True
    hears = True
    rounds = 3

    def problems(self, agent: AgentSettings, secret: Callable[[str], str], *, priced: bool) -> Sequence[str]:
        """Return wrong settings, and for each model a missing package or key, or an unknown price."""
        try:
            settings = read(agent.settings)
        except PlanInvalid as error:
            return (error.message,)
        return tuple(_problems(settings.models(server_environment()), secret, priced))

    def begin(
        self, assignment: Assignment, worker_context: WorkerContext, before: Thinking | None = None
    ) -> LlmThinking:
        """Begin a task. Raises PlanInvalid if ``problems`` finds any, or if the task has no text."""
        settings = read(assignment.settings)
        budget: Mapping[str, Any] = assignment.task.get("budget") or {}
        priced = bool(budget.get("dollars"))
        models = settings.models(worker_context.variables)
        if wrong := list(_problems(models, worker_context.secret, priced)):
            raise PlanInvalid("; ".join(wrong), suggestion="ai-session docs brains-llm")
        terminal = _terminal(assignment, settings)
        granted = other_tools(assignment.tools, assignment.shell, assignment.grants) if terminal else assignment.tools
        own = (*OWN, *IN_TERMINAL) if terminal else OWN
        tools = offer_tools(granted, own)
        if wrong := size_problem(tools, settings.tools_chars):
            raise PlanInvalid(wrong, suggestion="grant fewer: grants = ['SERVER.TOOL', …]")
        if isinstance(before, LlmThinking) and before.conversation.turns:
            conversation = before.conversation
            note = prompts.GIVEN_BACK.format(feedback=assignment.feedback, finish=FINISH)
            conversation.turns[-1].note = note
            terminal = terminal and before.terminal
        else:
            names = [one.name for one in tools if one not in OWN]
            system = prompts.system(assignment, names, FINISH, RECALL, TODO, terminal=bool(terminal))
            task = prompts.task(assignment)
            bounds = settings.answer_chars, settings.context_chars, settings.keep_outputs
            conversation = Conversation(system, task, *bounds)
        opened: list[Connections] = []
        ask = partial(_ask, worker_context, assignment, settings, tools, opened)
        thinking = LlmThinking(
            assignment, settings, models, tools, conversation, ask, terminal, partial(_close_all, opened)
        )
        if isinstance(before, LlmThinking):
            thinking.todo = before.todo
        return thinking


async def _close_all(opened: list[Connections]) -> None:
    while opened:
        await opened.pop().close()


def _terminal(assignment: Assignment, settings: LlmSettings) -> Terminal | None:
    if not settings.terminal:
        return None
    of = assignment.shell, assignment.tools, assignment.agent, assignment.workspace
    return make_terminal(*of, settings.answer_chars)


def _problems(models: Sequence[Model], secret: Callable[[str], str], priced: bool) -> Iterator[str]:
    for model in models:
        if model.kind == RECORDED:
            continue
        needed = ("pydantic_ai", VENDORS[model.kind].package) if model.kind != GEMINI else ("httpx2", "genai_prices")
        if missing := [name for name in needed if find_spec(name) is None]:
            yield explain("not_installed", ", ".join(missing), model)
        elif model.unsafe:
            yield model.unsafe
        elif model.key_name and not secret(model.key_name):
            yield explain("no_key", "", model)
        elif priced and not model.price and not _has_price(model):
            yield UNPRICED.format(model=model.model)


def _has_price(model: Model) -> bool:
    from ccswarm.brains.llm import prices

    return prices.priced(model)


def _load(model: Model) -> ModuleType:
    if model.kind == GEMINI:
        from ccswarm.brains.llm import gemini

        return gemini
    from ccswarm.brains.llm import api as llm_api

    llm_api.prepare(model)
    return llm_api


async def _ask(
    worker_context: WorkerContext,
    assignment: Assignment,
    settings: LlmSettings,
    tools: Sequence[OfferedTool],
    opened: list[Connections],
    model: Model,
    conversation: Conversation,
) -> Mapping[str, Json]:
    if model.kind == RECORDED:
        attempt = int(assignment.settings.get("attempt", 1))
        return recorded.ask(model, conversation, assignment.task_id, attempt, assignment.workspace)
    try:
        api = await asyncio.to_thread(_load, model)
    except ImportError as error:
        return {"error": {"kind": "not_installed", "message": str(error)}}
    key = await asyncio.to_thread(worker_context.secret, model.key_name) if model.key_name else ""
    if model.key_name and not key:
        return {"error": {"kind": "no_key", "message": ""}}
    from ccswarm.brains.llm.wire import Access, Bounds, Connections

    headers = {
        name: await asyncio.to_thread(worker_context.secret, value.removeprefix(ENV))
        if value.startswith(ENV)
        else value
        for name, value in model.headers.items()
    }
    if not opened:
        opened.append(Connections())
    bounds = Bounds(settings.request_timeout_seconds, settings.idle_seconds)
    answer = await api.ask(model, Access(key, headers), conversation, tools, bounds, opened[0])
    return {**answer, **where(model)}


PLUGIN = LlmBrain()
