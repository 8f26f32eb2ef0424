"""Runs that a program starts for a person, with ``ccswarm feed``: what can be started here, whether it is valid, and
the start. A process of its own carries out the run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentwire.system.user import user_name
from ccswarm.cli.parameters import check_person, load, open_app, peek, with_agents
from ccswarm.errors import SwarmError, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded

PLAN_FOLDERS = ("", "plans")
"""The folders in which plans are searched, from the current directory."""

MOST_PLANS, MOST_PLAN_BYTES = 50, 1 << 20
LOG = "begun.log"
"""The file in the state directory for the standard error of the processes that carry out runs."""

Params = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StartRequest:
    """What is to be started: a task in words, a plan of ``plans``, or, if both are empty, the configuration's tasks."""

    words: str
    file: str

    @classmethod
    def of(cls, params: Params, config: Path | None) -> StartRequest:
        """Raises UsageInvalid."""
        words, file = params.get("words", ""), params.get("file", "")
        if not isinstance(words, str) or not isinstance(file, str) or (words and file):
            raise UsageInvalid("give either words or a file, as a string", suggestion="ai-session docs runs-provider")
        if file and file not in [one["file"] for one in plans(peek(config))]:
            raise UsageInvalid(f"there is no plan {file} here", suggestion="ccswarm run FILE accepts any plan file")
        return cls(words.strip(), file)


def beginnings(params: Params, config: Path | None) -> dict[str, Any]:
    """Return what can be started in this directory. The configuration need not be approved; nothing is started."""
    loaded = peek(config)
    agents = [agent.name for agent in loaded.settings.agents if agent.takes_words]
    return {
        "directory": str(Path.cwd()),
        "configuration": str(loaded.path or ""),
        "tasks": len(loaded.settings.tasks),
        "takes_words": bool(agents) or not (loaded.settings.agents or loaded.settings.tasks),
        "plans": plans(loaded),
    }


def plans(loaded: Loaded) -> list[dict[str, Any]]:
    """Return the plans in this directory, each with its number of tasks."""
    from ccswarm.config import parsing

    found: list[dict[str, Any]] = []
    for file in [file for folder in PLAN_FOLDERS for file in sorted(Path(folder).glob("*.toml"))][:MOST_PLANS]:
        if file.absolute() == loaded.path or not file.is_file() or file.stat().st_size > MOST_PLAN_BYTES:
            continue
        try:
            tables = parsing.plan_tables(file.read_text())
        except (SwarmError, OSError, ValueError):
            continue  # another program's file, or incomplete
        if tables.get("tasks") or tables.get("steps"):
            found.append({"file": str(file), "tasks": len(tables.get("tasks") or ()) or 1})
    return found


def check(params: Params, config: Path | None) -> dict[str, Any]:
    """Return what would be done, as ``run --dry-run`` shows it, with ``problems`` that prevent the start and ``notes``
    for the person to read first; ``digest`` identifies exactly this. Nothing is started."""
    from ccswarm.config import config as files
    from ccswarm.plan.check import describe, plan_problems
    from ccswarm.runs import planning
    from ccswarm.runs.checks import brain_problems

    request = StartRequest.of(params, config)
    loaded, plan = _load_tasks(request, peek(config), only_look=True)
    problems = plan_problems(plan.settings, None)
    described: dict[str, Any] = describe(plan.settings) if not problems else {"tasks": [], "stages": []}
    changed = [f"{one.what()}: {one.remedy()}" for one in files.changes(config)]
    named = [Path(request.file)] if request.file else []
    changed += [f"{one.what()}: {one.remedy()}" for one in map(files.change_of, named) if one]
    workspace = planning.directory(None, plan.settings, loaded)
    return {
        "workspace": workspace,
        "configuration": str(loaded.path or ""),
        "tasks": [_task_facts(described["stages"], task) for task in described["tasks"]],
        "problems": [*problems, *brain_problems(plan.settings), *changed],
        "notes": _first_use(loaded),
        "digest": _digest(plan, workspace),
    }


def start(params: Params, config: Path | None) -> dict[str, Any]:
    """Start a run of what was checked. Raises UsageInvalid if that has changed; PlanInvalid, ServerUnavailable,
    ConfigChanged and ApprovalNeeded."""
    check_person()
    request = StartRequest.of(params, config)
    name = params.get("name", "")
    if not isinstance(name, str):
        raise UsageInvalid("name should be a string", suggestion="ai-session docs runs-provider")
    return asyncio.run(_start(request, name, str(params.get("digest", "")), config))


async def _start(request: StartRequest, name: str, digest: str, config: Path | None) -> dict[str, Any]:
    await asyncio.to_thread(import_module, "ccswarm.runs.service")
    from ccswarm.config import config as files
    from ccswarm.plan.origin import Origin
    from ccswarm.runs import app, planning, service

    if digest != check({"words": request.words, "file": request.file}, config)["digest"]:
        raise UsageInvalid("the plan has changed since it was checked", suggestion="check it again")
    loaded, plan = _load_tasks(request, load(config, executes=True))
    settings = service.with_name(plan.settings, name)
    directory = planning.directory(None, settings, loaded)
    service.refuse(await planning.problems(settings, directory))
    sources = planning.sources(loaded, plan)
    async with app.submitting(settings, files.state_directory()) as opened:
        begun = await opened.swarm.submit(
            settings, app.new_run_id(), directory, sources, origin=Origin.PERSON, by=user_name()
        )
    _carry_out(begun.id, config)
    return {"run": begun.id}


def resume(params: Params, config: Path | None) -> dict[str, Any]:
    """Resume a run that is paused, or that no worker carries out. Raises RunNotFound, UsageInvalid if it is over,
    ConfigChanged and ApprovalNeeded."""
    from ccswarm.config import config as files

    check_person()
    text = params.get("run")
    if not isinstance(text, str):
        raise UsageInvalid("run should be a string", suggestion="ai-session docs runs-provider")
    for change in files.changes(config):
        raise change.error()
    run_id = asyncio.run(_unfinished(text, config))
    _carry_out(run_id, config)
    return {"run": run_id}


async def _unfinished(text: str, config: Path | None) -> str:
    from ccswarm.runs.status import run_id_of, short

    async with open_app(config) as opened:
        run_id = await run_id_of(opened.engine, text, opened.project)
        if (await opened.engine.status(run_id)).status.over:
            raise UsageInvalid(
                f"{run_id} is over", suggestion=f"ccswarm resume {short(run_id)} repeats the tasks that did not succeed"
            )
        return run_id


def _load_tasks(request: StartRequest, loaded: Loaded, *, only_look: bool = False) -> tuple[Loaded, Loaded]:
    """Return the configuration, and the same with the tasks to start."""
    from ccswarm.runs import planning
    from ccswarm.runs.service import with_task

    if request.words:
        loaded = with_agents(loaded)
        return loaded, replace(loaded, settings=with_task(request.words, loaded.settings))
    return loaded, planning.load_tasks(request.file or None, loaded, only_look=only_look)


def _task_facts(stages: list[list[str]], task: dict[str, Any]) -> dict[str, Any]:
    stage = next(number for number, names in enumerate(stages, 1) if task["id"] in names)
    gates = [str(gate.get("tool") or gate.get("command", "")) for gate in task.get("gates", ())]
    kept = {"text": task.get("text", ""), "needs": task.get("needs", []), "agents": task["agents"]}
    return {"task": task["id"], "stage": stage, **kept, "steps": len(task["steps"]), "gates": gates}


def _first_use(loaded: Loaded) -> list[str]:
    """Return a note if the configuration was never used, with the programs that it starts."""
    from ccswarm.config import files
    from ccswarm.config.trust import ConfigTrust, Verdict, look

    if not loaded.path or ConfigTrust(files.state_directory()).verdict(look(loaded.path)) is not Verdict.FIRST:
        return []
    commands = [server.command for server in loaded.settings.mcp.servers if server.command.strip()]
    starts = f"it starts {', '.join(dict.fromkeys(commands))}" if commands else "it starts no program"
    return [f"{loaded.path} is used for the first time: {starts}"]


def _digest(plan: Loaded, workspace: str) -> str:
    facts = [plan.settings.model_dump(mode="json", exclude={"engine", "telemetry"}), workspace]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _carry_out(run_id: str, config: Path | None) -> None:
    """Start a process that resumes the run, and outlives this process."""
    from ccswarm.config import files

    named = ["--config", str(config.absolute())] if config else []
    log = os.open(files.state_directory() / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ccswarm", "resume", run_id, "--json", *named],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    threading.Thread(target=process.wait, daemon=True).start()
