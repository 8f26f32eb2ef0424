"""The verb diff: what the tasks of a run changed, each since its attempt began."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Option
from agentwire.cli.output import EXIT_ERROR, leave, remark, show_json, show_rows, to_person, write_bytes
from agentwire.visible import visible
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, LastRun
from ccswarm.cli.reading import read_store
from ccswarm.errors import SwarmError
from ccswarm.runs.status import LAST, run_id_of, short

if TYPE_CHECKING:
    from pathlib import Path

    from rich.text import Text

    from ccswarm.clones.difference import Difference
    from ccswarm.runs.store import StoreView
    from ccswarm.runs.work import Work

Found = tuple["Work", "Difference | SwarmError"]

STYLES = {"+": "green", "-": "red", "@": "cyan"}
TAB = 8


def diff(
    run: LastRun = LAST,
    task: Annotated[str, Argument(metavar="[TASK]", help="Only this task and its parts.")] = "",
    stat: Annotated[bool, Option("--stat", help="Only file names and line counts.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what the tasks of a run changed in their clones, each since its attempt began: merged, on a branch, kept,
    waiting to be accepted, or under way.

    In a pipe the output is input for git apply; where each task's work is goes to standard error. Exit codes: 0 shown,
    1 the work of some task cannot be shown, 2 there is no such run or task.
    """
    run_id, found = compared_work(run, task, config)
    if as_json:
        show_json(facts_of_diff(run_id, found))
    else:
        for one in found:
            _show(*one, stat=stat)
        if not found:
            remark(f"no task of {short(run_id)} has changed anything in a clone")
    leave(EXIT_ERROR if any(isinstance(result, SwarmError) for _, result in found) else 0)


def compared_work(run: str, task: str, config: Path | None) -> tuple[str, Sequence[Found]]:
    """Return the run's id and what its tasks changed. Raises RunNotFound and UsageInvalid."""
    from ccswarm.runs.work import compare

    run_id, repository, works = read_store(config, lambda view: _works(run, task, view))
    return run_id, compare(run_id, repository, works)


def facts_of_diff(run_id: str, found: Sequence[Found]) -> dict[str, Any]:
    """Return the document of ``--json``."""
    return {"run": run_id, "tasks": [_facts(*one) for one in found]}


def styled_lines(found: Sequence[Found], see_all: str, most: int) -> list[Text]:
    """Return the first ``most`` lines of what tasks have changed, for a terminal; if there are more, a last line says
    that ``see_all`` shows them."""
    from rich.text import Text

    lines: list[Text] = []
    for work, result in found:
        if isinstance(result, SwarmError):
            lines.append(Text(visible(f"{work.task}: {result.message}")))
            continue
        lines_of_task = result.text.decode(errors="backslashreplace").split("\n")[:-1]
        lines += [Text(visible(line.expandtabs(TAB)), style=style) for line, style in _styled(lines_of_task)]
    left = len(lines) - most
    rest = [Text(f"… {left} more lines: {see_all}", style="bold")] if left > 0 else []
    return lines[:most] + rest


async def _works(text: str, task: str, view: StoreView) -> tuple[str, str, list[Work]]:
    """Return the run's id, its repository, and the work to show."""
    from ccswarm.runs.work import works_of

    run_id = await run_id_of(view.store, text, view.project)
    return run_id, *await works_of(view.store, run_id, task)


def _facts(work: Work, result: Difference | SwarmError) -> dict[str, Any]:
    facts = {"task": work.task, "status": work.status, "state": work.state, "ref": work.ref, "base": work.base}
    if isinstance(result, SwarmError):
        return {**facts, "error": {"code": result.code, "message": result.message, "suggestion": result.suggestion}}
    files = [
        {"path": os.fsencode(one.path).decode(errors="replace"), "added": one.added, "removed": one.removed}
        for one in result.files
    ]
    return {**facts, "commit": work.commit or None, "files": files, "diff": result.text.decode(errors="replace")}


def _show(work: Work, result: Difference | SwarmError, *, stat: bool) -> None:
    if isinstance(result, SwarmError):
        remark(visible(f"{work.task}: {result.message}; {result.suggestion}"))
        return
    where = f": {work.ref}" if work.ref else ""
    remark(visible(f"{work.task}: {result.summary}, {work.state}{where}"))
    if stat:
        rows = [{"path": one.path, "added": one.added, "removed": one.removed} for one in result.files]
        show_rows([{"task": work.task, **row} for row in rows], ("task", "path", "added", "removed"))
    elif to_person():
        _show_lines(result.text)
    else:
        write_bytes(result.text)


def _show_lines(text: bytes) -> None:
    """Print in colors, with escapes for what could control a terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line, style in _styled(text.decode(errors="backslashreplace").split("\n")[:-1]):
        console.print(Text(visible(line.expandtabs(TAB)), style=style))


def _styled(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield lines with their styles. Only within a hunk does the first character mean added or removed."""
    inside = False
    for line in lines:
        inside = line.startswith("@@") or (inside and not line.startswith("diff "))
        yield line, STYLES.get(line[:1], "") if inside else "bold"
