"""The verbs plan check and plan show, and the reading of plans."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.options import Group
from agentwire.cli.output import remark, say, show_facts, show_json, show_rows
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, load, peek
from ccswarm.cli.trust import asker
from ccswarm.errors import PlanInvalid

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded
    from ccswarm.config.settings import Settings

app = Group("Check a plan, and show what it would do.")

PlanFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="A plan; without one the tasks of the configuration.")
]


@app.command()
def check(
    file: PlanFile = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check only the plan: no server, tool, brain or repository is asked.")
    ] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Check whether a plan can be carried out, before anything runs or costs: servers are asked for the tools it calls,
    and the agents' models, programs and clones are checked.

    Exit codes: 0 it can, 1 a server that it needs does not work, 2 it cannot: lists every problem with its location, 5
    the configuration or the plan changed since a person used it and nobody agreed (never with --offline).
    """
    from ccswarm.cli.configured_servers import workspace_of
    from ccswarm.plan.check import plan_problems
    from ccswarm.runs import planning

    loaded = peek(config) if offline else load(config)
    loaded = replace(loaded, settings=settings_of(file, loaded) if offline else _approved_settings(file, loaded))
    settings = loaded.settings
    if not settings.tasks:
        raise PlanInvalid(
            f"{_plan_name(file, loaded)}: there are no tasks", suggestion="add [[tasks]] with steps, or [[steps]]"
        )
    check_all = None if offline else planning.problems(settings, workspace_of(loaded))
    if wrong := asyncio.run(check_all) if check_all else plan_problems(settings, None):
        raise PlanInvalid(f"{_plan_name(file, loaded)}: {'; '.join(wrong)}", suggestion="fix the problems listed above")
    counts = {"tasks": len(settings.tasks), "steps": sum(len(task.steps) for task in settings.tasks)}
    facts = {"plan": _plan_name(file, loaded), **counts, "agents": len(settings.agents), "servers_asked": not offline}
    if as_json:
        show_json({"valid": True, **facts})
    else:
        show_facts(facts)
        say("The plan can be carried out.")


@app.command()
def show(file: PlanFile = None, config: Config = None, as_json: Json = False) -> None:
    """Show what a plan would do: every step in order, with its agent, its tool and the steps before it.

    Exit codes: 0 shown, 2 the plan is not valid.
    """
    from ccswarm.plan.check import describe

    plan = describe(settings_of(file, peek(config)))
    if as_json:
        show_json(plan)
        return
    say(f"{plan['swarm']}: {plan['topology']}, {plan['strategy']}")
    stages = {name: number for number, names in enumerate(plan["stages"], 1) for name in names}
    rows: list[dict[str, Any]] = []
    for task in plan["tasks"]:
        head = {"stage": stages[task["id"]], "task": task["id"], "agents": task["agents"]}
        rows += [head | _step(step) for step in task["steps"]] or [head | {"tool": "(as its brain decides)"}]
        rows += [head | {"step": "gate", "tool": gate.get("tool") or gate["command"]} for gate in task.get("gates", ())]
    show_rows(rows, ("stage", "task", "agents", "step", "tool", "after", "only"))
    if not rows:
        remark(
            'There are no tasks: add [[tasks]], pass a plan file, or give a task in words: ccswarm run "list the files"'
        )


def settings_of(file: Path | None, loaded: Loaded) -> Settings:
    """Return the configuration with the plan in ``file``, if given; neither need be approved."""
    from ccswarm.config import config

    return config.peek_plan(_existing(file), loaded.settings) if file else loaded.settings


def _approved_settings(file: Path | None, loaded: Loaded) -> Settings:
    """Return the same for starting its servers, which a person must have approved."""
    from ccswarm.config import config

    return config.load_plan(_existing(file), loaded.settings, confirm=asker()).settings if file else loaded.settings


def _existing(file: Path) -> Path:
    if not file.exists():
        from ccswarm.runs import planning  # slow to load

        raise planning.no_file(str(file))
    return file


def _step(step: dict[str, Any]) -> dict[str, Any]:
    only = [step["when"]] if step.get("when") else []
    only += [f"for each of {step['for_each']}"] if step.get("for_each") else []
    agents = {"agents": [step["agent"]]} if step.get("agent") else {}
    return {"step": step["id"], "tool": step["tool"], "after": step["needs"], "only": only, **agents}


def _plan_name(file: Path | None, loaded: Loaded) -> str:
    return str(file or loaded.path or "the configuration")
