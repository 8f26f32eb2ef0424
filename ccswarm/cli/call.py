"""The verb call: calls one tool through the toolbox, as agents do, and records it like their calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from agentwire.cli.output import EXIT_ERROR, EXIT_USAGE, leave, remark, show_json, to_person
from agentwire.system.user import user_name
from agentwire.visible import visible
from ccswarm.cli.output import Json, show_text
from ccswarm.cli.parameters import Config, check_person, load
from ccswarm.errors import SwarmError, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded
    from ccswarm.config.settings import AgentSettings
    from ccswarm.models import CallOutcome
    from ccswarm.toolbox.toolbox import Toolbox

PERSON = "person"
"""The caller if no agent is named, which may use everything."""


def call(
    tool: Annotated[str, typer.Argument(metavar="SERVER.TOOL", help="Name of the tool, as ccswarm tools lists it.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JSON | NAME=VALUE…]", help="The arguments: one JSON object, or each as NAME=VALUE."),
    ] = None,
    agent: Annotated[
        str, typer.Option("--agent", "-a", help="Call as this agent, with its grants and approvals.")
    ] = "",
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0.001, help="Seconds to wait, instead of the server's setting.", show_default=False
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Agree to the call yourself if it needs a person's approval.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Call one tool and show its answer. Calls are recorded in the journal.

    VALUE is JSON if it is valid JSON and the tool takes no text there; else it is text. Exit codes: 0 answered, 1 the
    tool reports an error, does not answer, or may not be called, 2 no such tool, or arguments that do not fit, 5 the
    configuration changed since a person used it and nobody agreed.
    """
    if yes:
        check_person()
    loaded = load(config)
    outcome = asyncio.run(_call(loaded, tool, arguments or [], agent, timeout, yes))
    if outcome.code == "approval_needed":
        outcome = replace(outcome, suggestion="agree to it yourself: --yes")
    code = 0 if outcome.ok else EXIT_USAGE if outcome.status == "invalid" else EXIT_ERROR
    if as_json:
        show_json({"tool": tool, **outcome.to_json()})
    else:
        _show(outcome)
    leave(code)


def _show(outcome: CallOutcome) -> None:
    text = outcome.text
    if not text and outcome.structured is not None:
        text = json.dumps(outcome.structured, indent=2 if to_person() else None, ensure_ascii=False)
    if text:
        show_text(_safe(text) + ("" if text.endswith("\n") else "\n"))
    if outcome.ok:
        if outcome.message:
            remark(f"note: {visible(outcome.message)}")
        return
    remark(f"error {outcome.code or outcome.status}: {visible(outcome.message or 'the tool reports an error')}")
    if outcome.suggestion:
        remark(f"next: {visible(outcome.suggestion)}")


def _safe(text: str) -> str:
    """Escape what could control a terminal; a pipe gets the text unchanged."""
    if not to_person():
        return text
    return "\t".join(visible(part, lines=True) for part in text.split("\t"))


async def _call(
    loaded: Loaded, tool: str, words: Sequence[str], agent: str, timeout_seconds: float | None, yes: bool
) -> CallOutcome:
    from ccswarm.cli.configured_servers import servers_of, unknown, workspace_of
    from ccswarm.config import config
    from ccswarm.models import CallRequest
    from ccswarm.plan.check import OWN_SERVER
    from ccswarm.toolbox.scope import ToolScope
    from ccswarm.toolbox.toolboxes import Toolboxes

    server, dot, _ = tool.partition(".")
    if not dot:
        raise UsageInvalid(f"{tool!r} is not SERVER.TOOL", suggestion="ccswarm tools lists them")
    if server == OWN_SERVER:
        raise UsageInvalid("messages between agents belong to a run", suggestion=f"call {tool} in a step of a plan")
    agents = _agents(loaded, agent)
    if agent and agent not in agents:
        raise unknown("agent", agent, list(agents))
    servers = servers_of(loaded.settings, [server])
    toolboxes = Toolboxes(servers, config.state_directory(), config.server_environment())
    try:
        toolbox = toolboxes.toolbox(ToolScope(agents, workspace_of(loaded)))
        given = _object(words) if _is_object(words) else _members(words, await _schema(toolbox, tool))
        agreed = f"by {user_name()}" if yes else ""
        request = CallRequest(
            "",
            "",
            "",
            agent or PERSON,
            tool,
            given,
            timeout_seconds=timeout_seconds,
            approval=agreed,
            for_user=not agent,
        )
        return await toolbox.call(request, budget=None, approved=lambda one: bool(one.approval))
    finally:
        await toolboxes.close()


async def _schema(toolbox: Toolbox, tool: str) -> Mapping[str, Any]:
    try:
        return (await toolbox.find(tool)).input_schema
    except SwarmError:  # the call itself reports and records it
        return {}


def _agents(loaded: Loaded, agent: str) -> dict[str, AgentSettings]:
    from ccswarm.config.settings import AgentSettings

    configured = {one.name: one for one in loaded.settings.agents}
    return configured if agent else {PERSON: AgentSettings(name=PERSON, grants=("*",))}


def _is_object(words: Sequence[str]) -> bool:
    return len(words) == 1 and words[0].lstrip().startswith("{")


def _object(words: Sequence[str]) -> dict[str, Any]:
    try:
        return json.loads(words[0])
    except ValueError as error:
        raise UsageInvalid(f"the arguments are not JSON: {error}", suggestion="or give NAME=VALUE…") from None


def _members(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments given as NAME=VALUE…. Raises UsageInvalid."""
    known: Mapping[str, Any] = schema.get("properties") or {}
    given: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageInvalid(
                f"{word!r} is not NAME=VALUE", suggestion="give arguments as NAME=VALUE, or all as one JSON object"
            )
        if name in given:
            raise UsageInvalid(f"{name} is given twice", suggestion="a list is written as JSON: NAME='[1, 2]'")
        given[name] = value if _takes_text(known.get(name)) else _value(value)
    return given


def _takes_text(schema: object) -> bool:
    """Report whether the schema accepts any text."""
    facts = cast("Mapping[str, Any]", schema if isinstance(schema, Mapping) else {})
    kinds: Any = facts.get("type") or ()
    others = [one for key in ("anyOf", "oneOf") for one in facts.get(key) or ()]
    return kinds == "string" or "string" in kinds or any(map(_takes_text, others))


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
