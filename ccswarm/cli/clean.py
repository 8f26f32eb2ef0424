"""The verb clean: removes what is left of unmerged work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from agentwire.cli.output import EXIT_ERROR, leave, remark, show_json, show_rows
from agentwire.visible import visible
from ccswarm.cli.output import Json, report
from ccswarm.cli.parameters import MOST_RUNS, Config, open_app
from ccswarm.errors import WorkspaceUnusable


def clean(
    days: Annotated[
        float | None,
        typer.Option("--days", min=0, help="Minimum age of what is removed, instead of engine.clone_days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Remove clones and refs of work that failed or was not merged, and is older than engine.clone_days. Those of
    unfinished runs stay, whatever their age, and so do those in which a program still works; those of merged work are
    removed when it is merged. Terminals that finished runs left open are closed, unless they were to be kept.

    Exit codes: 0 done, 1 something cannot be removed.
    """
    from ccswarm.clones import kept
    from ccswarm.config import config as configs
    from ccswarm.config import files

    unfinished, most, terminals = asyncio.run(_unfinished(config, ends=not dry_run))
    oldest = most if days is None else days
    root = files.clones_directory(files.state_directory())
    found = [one for one in kept.list_kept(root, unfinished) if one.days >= oldest]
    facts = [{"run": one.run, "path": str(one.path), "bytes": one.bytes, "refs": len(one.refs)} for one in found]
    problems: dict[str, WorkspaceUnusable] = {}
    if not dry_run:
        for one in found:
            try:
                kept.remove(one, configs.server_environment())
            except WorkspaceUnusable as problem:
                problems[one.run] = problem
    removed = [] if dry_run else [one for one in facts if one["run"] not in problems]
    if as_json:
        left = [one for one in facts if one not in removed]
        show_json({"removed": removed, "left": left, **({"terminals": terminals} if terminals else {})})
    else:
        show_rows(facts if dry_run else removed, ("run", "bytes", "refs", "path"))
        if terminals:
            remark(f"{terminals} {'terminal is' if terminals == 1 else 'terminals are'} closed")
    for problem in problems.values():
        report(problem, as_json=False)
    if problems:
        leave(EXIT_ERROR)
    if not facts and not as_json:
        remark(f"no finished run has anything that is {oldest:g} days old or older")


async def _unfinished(config: Path | None, *, ends: bool) -> tuple[set[str], float, int]:
    """Return the unfinished runs, for how many days work is kept, and, if ``ends``, how many terminals were closed."""
    from ccswarm.runs.terminals import end_terminals

    async with open_app(config) as opened:
        runs = await opened.engine.list(top=True, unfinished=True, limit=MOST_RUNS)
        terminals = 0
        if ends:
            terminals, problems = await end_terminals(opened)
            for problem in problems:
                remark(visible(f"terminals that runs left open may still exist: {problem}"))
        return {run.id for run in runs}, opened.settings.engine.clone_days, terminals
