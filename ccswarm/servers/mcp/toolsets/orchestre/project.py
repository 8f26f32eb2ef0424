"""initialize_project: a run of a configured agent writes a starter, so that all rules for agents' calls apply to it."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccswarm.config import parsing
from ccswarm.config.config import Loaded
from ccswarm.config.settings import AgentSettings, Settings
from ccswarm.errors import UsageInvalid
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import GATE_TOOLS, Origin, gate_problems
from ccswarm.plan.shell_text import quote
from ccswarm.runs import service
from ccswarm.runs.status import facts_of
from ccswarm.servers.mcp.toolsets.base import Facts, Given
from ccswarm.servers.mcp.toolsets.orchestre.base import REQUIREMENTS, OrchestreTool, Refusal, takes
from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT, NEXT, files_of
from ccswarm.servers.mcp.toolsets.swarm import calls
from ccswarm.servers.mcp.workbench import Workbench

WAIT_SECONDS = 45.0
"""The longest wait for the run, which continues after that."""

TASK, LIST = "write", "list"


async def initialize_project(workbench: Workbench, given: Given) -> Given:
    loaded = await workbench.loaded()
    name, template = str(given["projectName"]), str(given["template"])
    if template not in ABOUT:
        raise Refusal(
            "Template not found",
            "TEMPLATE_NOT_FOUND",
            "Choose one of the available templates",
            {"availableTemplates": list(ABOUT)},
        )
    files = files_of(template, name, given.get("requirements", ""))
    target = _target(workbench, loaded, given["projectPath"], name)
    _require_free(target, files)
    base = target
    while not base.is_dir():
        base = base.parent
    folder = Path(os.path.relpath(target, base))
    text, settings = _plan_for_agent(loaded.settings, name, template, folder, files)
    run, _ = await workbench.begin({"plan": text}, settings, str(base), loaded, origin=Origin.SERVER)
    progress = await _follow(workbench, run)
    project: Facts = {"projectName": name, "template": template, "projectPath": str(target), "run": run}
    if not progress["over"]:
        return {
            "status": "in_progress",
            "message": f"The files are being written by run {run}, which is {progress['status']}",
            "project": project,
            "nextSteps": [progress["next"]],
        }
    written = await _written_sizes(workbench, run)
    sizes = {path: written.get(str(folder / path)) for path in files}
    if missing := [path for path, content in files.items() if sizes[path] != len(content.encode())]:
        raise Refusal(
            f"The project was not written: run {run} {progress['status']}",
            "PROJECT_NOT_CREATED",
            f"read_result {run} tells why",
            {"run": run, "missing": missing, "files": sorted(set(files) - set(missing))},
        )
    return {
        "project": {**project, "files": list(files)},
        "nextSteps": [f"cd {shlex.quote(str(target))}", *NEXT[template]],
    }


def _target(workbench: Workbench, loaded: Loaded, path: str, name: str) -> Path:
    """Return the project's directory: ``path``, or the one with the project's name in it. Raises Refusal."""
    if not path.startswith("/"):
        raise Refusal(f"projectPath {path[:200]!r} is not absolute", "INVALID_PATH", "Give it from / on")
    target = Path(path) if Path(path).name == name else Path(path) / name
    try:
        return workbench.within(str(target), loaded)
    except UsageInvalid:
        root = workbench.root(loaded)
        raise Refusal(
            f"projectPath {path[:200]!r} is not in the workspace {root}",
            "PATH_NOT_ALLOWED",
            "Give a path inside of it, or start the server with another --workspace",
            {"workspace": str(root)},
        ) from None


def _require_free(target: Path, files: Mapping[str, str]) -> None:
    """Raise Refusal if a file would be overwritten, or something else is in the way."""
    folders = {parent for path in files for parent in (target / path).parents}
    existing = [path for path in files if os.path.lexists(target / path)]
    existing += [
        os.path.relpath(folder, target)
        for folder in sorted(folders)
        if os.path.lexists(folder) and (not folder.is_dir() or (folder.is_symlink() and folder.is_relative_to(target)))
    ]
    if existing:
        raise Refusal(
            f"In {target} there is already {', '.join(existing)}: nothing is written over",
            "PROJECT_EXISTS",
            "Choose another projectName or projectPath",
            {"existingFiles": existing},
        )


def _plan_for_agent(
    own: Settings, name: str, template: str, folder: Path, files: Mapping[str, str]
) -> tuple[str, Settings]:
    """Return the run's plan, as text and parsed, for the first agent that may carry it out. Raises Refusal."""
    server = own.swarm.shell
    task = _task(server, name, template, folder, files)
    problems: list[str] = []
    for agent in own.agents:
        if agent.workspace == "shared":
            # The task consists of its steps, so the agent's own brain is not used; its grants and approvals stay.
            follower: Facts = {"name": agent.name, "brain": service.PLAYBOOK, "settings": {}}
            text = json.dumps({"agents": [follower], "tasks": [{**task, "agent": agent.name}]}, indent=1)
            settings = service.with_name(parsing.parse_plan(text, own), name.lstrip("-")[:63])
            problems = [*plan_problems(settings, None), *gate_problems(settings.tasks[0].gates, [agent], server)]
            if not problems:
                return text, settings
    raise Refusal(
        "No agent is configured that could write files" + (f": {'; '.join(problems[:3])}" if problems else ""),
        "NO_AGENT_CONFIGURED",
        _advice(server, own.agents),
    )


def _advice(server: str, agents: tuple[AgentSettings, ...]) -> str:
    grants = ", ".join(f'"{server}.{tool}"' for tool in GATE_TOOLS)
    added = " Agents with a clone of their own are left out." if any(one.workspace == "clone" for one in agents) else ""
    return (
        f"The person configures an MCP server {server} (ai-session mcp-server --stdio, trusted = true) and an "
        f"[[agents]] with grants = [{grants}]; ccswarm init writes such a configuration.{added}"
    )


def _task(server: str, name: str, template: str, folder: Path, files: Mapping[str, str]) -> Facts:
    """Return the task. Its steps never fail by themselves, so that the terminal is closed in any case; the gate and the
    list of files show afterwards what was written."""
    folders = sorted({str((folder / path).parent) for path in files})
    quoted = " ".join(quote(str(folder / path)) for path in files)
    session: Facts = {"session_id": "${steps.open.session_id}"}
    items = [{"path": _literal(str(folder / path)), "content": _literal(text)} for path, text in files.items()]
    return {
        "id": TASK,
        "text": f"Write the starter {template} as {name}.",
        "steps": [
            {
                "id": "open",
                "tool": f"{server}.create_session",
                "args": {"name": "${run.id}-" + TASK, "working_directory": "${workspace}"},
            },
            {
                "id": "folders",
                "tool": f"{server}.execute_command",
                "args": {**session, "command": _literal(f"mkdir -p -- {' '.join(map(quote, folders))}")},
            },
            {
                "id": "files",
                "tool": f"{server}.execute_command",
                "for_each": items,
                # noclobber: a file that exists by then is not changed.
                "args": {**session, "command": "(set -C; cat > ${q:item.path})", "stdin": "${item.content}"},
            },
            {
                "id": LIST,
                "tool": f"{server}.execute_command",
                "args": {**session, "command": _literal(f"wc -c -- {quoted}")},
            },
            {"id": "close", "tool": f"{server}.close_session", "args": session},
        ],
        "gates": [{"command": f"ls -- {quoted} >/dev/null"}],
    }


def _literal(text: str) -> str:
    """Escape text for a plan."""
    return text.replace("${", "$${")


async def _follow(workbench: Workbench, run: str) -> Facts:
    """Return the answer of run_events once the run is over, waits for a person, or the time has passed."""
    deadline, cursor = time.monotonic() + WAIT_SECONDS, ""
    while True:
        left = max(0.0, deadline - time.monotonic())
        progress = (await calls.run_events(workbench, {"run": run, "cursor": cursor, "wait_seconds": left})).facts
        if progress["over"] or progress["approvals"] or progress["status"] in ("paused", "interrupted") or not left:
            return progress
        cursor = progress["cursor"]


async def _written_sizes(workbench: Workbench, run: str) -> dict[str, int]:
    """Return the size in bytes of each file, by the run's own list."""
    facts = await facts_of((await workbench.reading()).engine, run)
    result: Any = facts["tasks"].get(TASK, {}).get("result")
    try:
        output = str(result["steps"][LIST]["output"])
    except (TypeError, KeyError):
        return {}
    rows = [line.split(None, 1) for line in output.splitlines()]
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdecimal()}


TOOLS = (
    OrchestreTool(
        "initialize_project",
        "Begin a project",
        "Write a small starter that runs and has tests, in a new folder of the workspace; nothing is written over. An "
        "agent of the configuration writes it, in a run. Templates: "
        + "; ".join(f"{name}: {about}" for name, about in ABOUT.items())
        + ".",
        takes(
            {
                "projectName": {"type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[a-z0-9-]+$"},
                "template": {"type": "string", "minLength": 1, "description": f"One of: {', '.join(ABOUT)}."},
                "projectPath": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4000,
                    "description": "Absolute, in the workspace: the project's folder, or the one to make it in.",
                },
                "requirements": {**REQUIREMENTS, "description": "Kept in the project's README."},
            },
            ("projectName", "template", "projectPath"),
        ),
        initialize_project,
    ),
)
