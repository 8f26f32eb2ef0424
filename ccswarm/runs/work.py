"""What the tasks of a run changed: where the work of each is, merged or not, also while the task is in progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ccswarm.errors import RunNotFound, SwarmError, UsageInvalid
from ccswarm.runs.events import task_of
from ccswarm.runs.status import MOST_TASKS, RUN, approvals_of, facts_of, short, status_of
from ccswarm.toolbox.questions import MERGE

if TYPE_CHECKING:
    from ccswarm.clones.difference import ChangedFile, Difference
    from ccswarm.clones.looker import Looker
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

State = Literal["merged", "on a branch", "kept, not merged", "blocked, not merged", "waits to be accepted", "under way"]
STATES: Mapping[str, State] = {
    "merge": "merged",
    "work.on_branch": "on a branch",
    "work.kept": "kept, not merged",
    "merge.judged": "under way",
}
"""The state of work, by the event that reports it."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of the last attempt at a task, named by its path. It is ``commit``, made from ``base``, at the branch
    or ref ``ref``; or, without a commit, it is in the clone of ``execution``, if that has one."""

    task: str
    execution: str
    status: str
    state: State = "under way"
    base: str = ""
    commit: str = ""
    ref: str = ""


@dataclass(frozen=True, slots=True)
class WorkDiff:
    """What a task changed in its clone since its attempt began. ``text`` is input of ``git apply``; ``ref`` is its
    branch or ref, ``error`` why it cannot be shown."""

    task: str
    state: State
    ref: str
    files: Sequence[ChangedFile]
    text: bytes
    error: SwarmError | None = None

    @classmethod
    def of(cls, work: Work, found: Difference | SwarmError) -> WorkDiff:
        """Create it from the result of a comparison."""
        if isinstance(found, SwarmError):
            return cls(work.task, work.state, work.ref, (), b"", found)
        return cls(work.task, work.state, work.ref, found.files, found.text)


async def works(store: Store, run_id: str, task: str = "") -> list[Work]:
    """Return the work of all tasks that have begun, or of one task and its parts, in the order in which they began."""
    latest: dict[str, Execution] = {}
    for execution in sorted(await store.list(prefix=f"{run_id}.", limit=MOST_TASKS), key=lambda one: one.created_at):
        path = task_of(run_id, execution.id)
        if execution.kind != RUN and (not task or path == task or path.startswith(f"{task}.")):
            latest[path] = execution
    return [await _work(store, path, one) for path, one in latest.items()]


async def works_of(store: Store, run_id: str, task: str) -> tuple[str, list[Work]]:
    """Return the repository a run works on, and its ``works``. Raises RunNotFound, UsageInvalid for unknown tasks."""
    found = await works(store, run_id, task)
    if task and not found and task not in (await facts_of(store, run_id))["tasks"]:
        raise UsageInvalid(f"{short(run_id)} has no task {task!r}", suggestion=f"ccswarm status {short(run_id)}")
    return str((await store.status(run_id)).payload["workspace"]), found


async def _work(store: Store, path: str, execution: Execution) -> Work:
    status, event = status_of(execution).value, await _last_report(store, execution.id)
    state: State = STATES[str(event["event"])] if event else "under way"
    if state == "under way" and any(one.get("tool") == MERGE for one in approvals_of(execution)):
        state = "waits to be accepted"
    if not event:
        return Work(path, execution.id, status, state)
    state = "blocked, not merged" if event.get("conflict") else state
    where = str(event.get("branch") or event["ref"])
    return Work(path, execution.id, status, state, str(event["base"]), str(event["commit"]), where)


async def _last_report(store: Store, execution: str) -> Mapping[str, Any]:
    """Return the last event that reports where the work is."""
    last: Mapping[str, Any] = {}
    try:
        async for event in store.events(execution, follow=False):
            last = event if event["event"] in STATES else last
    except RunNotFound:
        pass  # it never began
    return last


def difference(work: Work, run_id: str, looker: Looker) -> Difference | None:
    """Return what changed since the attempt began; None without a clone. Raises WorkRefused, WorkspaceUnusable."""
    from ccswarm.clones.collect import runs_directory

    if work.commit:
        return looker.difference(work.base, work.commit)
    within, _, own = work.execution.rpartition(".")
    name, _, attempt = own.partition("~")
    return looker.under_way(runs_directory(run_id, within), f"{name}.{attempt or 1}")


def compare(run_id: str, repository: str, found: Sequence[Work]) -> list[tuple[Work, Difference | SwarmError]]:
    """Return what each task has changed, or why that cannot be shown, without tasks that changed nothing. Blocks."""
    from ccswarm.clones.looker import Looker
    from ccswarm.config import files

    results: list[tuple[Work, Difference | SwarmError]] = []
    looker = Looker(Path(repository), files.clones_directory(files.state_directory()), files.environment())
    for work in found:
        try:
            if (result := difference(work, run_id, looker)) and result.files:
                results.append((work, result))
        except SwarmError as error:
            results.append((work, error))
    return results
