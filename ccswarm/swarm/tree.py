"""The tree of one attempt at a task, if its agent has one: a clone in which only this attempt works.

What the agent did becomes a commit before it is judged. Gates and reviewers see that commit, each in a copy whose
changes are discarded, and only that commit is merged. Failed work stays at a ref of its own, which nothing later sees.
Every method is a recorded step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ccswarm.clones.clones import Clone, Workspaces
from ccswarm.config.trust import Source
from ccswarm.engines.base import Flow
from ccswarm.errors import Conflict, WorkspaceUnusable
from ccswarm.models import Json, RunStatus
from ccswarm.swarm.agent import Ending, emit_event

TITLE_CHARS = 200

EndTerminals = Callable[[Clone], Awaitable[str]]
"""Ends every terminal that could still change a clone. Returns why that failed, else ``""``."""


@dataclass(frozen=True, slots=True)
class Presented:
    """The agent's work as a ``commit``, and its copy in ``directory`` for the gates; or the ``problem`` with it."""

    commit: str = ""
    directory: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """The result of a merge: done; or ``problem``, which a person has to solve; or, if merging into ``head`` gives
    something that was not judged, that commit as ``candidate``, in ``directory``."""

    problem: str = ""
    head: str = ""
    candidate: str = ""
    directory: str = ""
    not_run: tuple[str, ...] = ()


class Tree:
    """The tree of one attempt. ``files`` configure the run; ``title`` is the title of commits."""

    def __init__(
        self,
        flow: Flow,
        workspaces: Workspaces,
        clone: Clone,
        end_terminals: EndTerminals,
        files: Sequence[str],
        title: str,
    ) -> None:
        self.clone = clone
        self._flow = flow
        self._workspaces = workspaces
        self._end_terminals = end_terminals
        self._files = [str(Source.parse(file).path) for file in files]
        self._title = title[:TITLE_CHARS]

    @property
    def directory(self) -> str:
        """Where the agent works."""
        return str(self.clone.directory)

    async def present(self, round_number: int, *, gates: bool, seconds: float | None = None) -> Presented:
        """End the agent's terminals, commit what it did, and make the copy for the ``gates``. Each that takes longer
        than ``seconds`` is a problem."""

        async def commit_and_copy(_: str) -> Json:
            if problem := await self._end_terminals(self.clone):
                return {"problem": problem}
            try:
                commit = await self._workspaces.commit(self.clone, self._title, seconds=seconds)
                name = f"gates{round_number}"
                copy = await self._workspaces.copy(self.clone, commit, name, seconds=seconds) if gates else None
            except (Conflict, WorkspaceUnusable) as refused:
                return {"problem": self._explain(refused)}
            return {"commit": commit, "directory": str(copy.directory) if copy else ""}

        return Presented(**await self._flow.step(f"present {round_number}", commit_and_copy))

    async def withdraw(self, directory: str) -> None:
        """Remove the gates' copy in ``directory``."""
        name = Path(directory.removesuffix(self.clone.prefix)).name

        async def remove_copy(_: str) -> Json:
            await self._remove(replace(self.clone, path=self.clone.path.with_name(name)))

        await self._flow.step(f"withdraw {name}", remove_copy)

    async def merge(self, commit: str, judged: Sequence[str] | None, turn: int, seconds: float | None = None) -> Merge:
        """Merge ``commit``, and remove the clone and its refs. With ``judged``, merge only if that gives the files of
        one of these commits; otherwise put the result into a directory for the gates. A person has to solve what is not
        done within ``seconds``."""

        async def try_merge(_: str) -> Json:
            try:
                done = await self._workspaces.merge(
                    self.clone, self._title, self._files, commit=commit, judged=judged, seconds=seconds
                )
                if not done.candidate:
                    return {"commits": done.commits, "head": done.head, "not_run": done.not_run}
                name, together = f"merged{turn}", replace(self.clone, base=done.head)
                # What an earlier process left there is the merge into another commit.
                await self._workspaces.discard(
                    replace(together, path=together.path.with_name(_sibling(together, name)))
                )
                copy = await self._workspaces.copy(together, done.candidate, name, seconds=seconds)
            except (Conflict, WorkspaceUnusable) as conflict:
                return {"conflict": self._explain(conflict)}
            return {"candidate": done.candidate, "head": done.head, "directory": str(copy.directory)}

        facts = await self._flow.step(f"merge {turn}", try_merge)
        about = {"ref": self.clone.ref, "commit": commit, "base": self.clone.base}
        if candidate := facts.get("candidate"):
            await emit_event(self._flow, "merge.judged", **about, head=facts["head"], candidate=candidate)
            return Merge("", facts["head"], candidate, facts["directory"])
        not_run = facts.pop("not_run", ())
        await emit_event(self._flow, "merge", **about, **facts)
        if why := facts.get("conflict"):
            return Merge(str(why))
        await self._forget()
        return Merge(head=facts["head"], not_run=tuple(not_run))

    async def size(self, commit: str, round_number: int) -> Mapping[str, Json]:
        """Return how much ``commit`` changes: ``files`` is the number of files, ``summary`` says how much in words."""

        async def count(_: str) -> Json:
            difference = await self._workspaces.difference(self.clone.base, commit)
            return {"files": len(difference.files), "summary": difference.summary}

        return await self._flow.step(f"size {round_number}", count)

    async def leave_on_branch(self, commit: str, *, waits: bool) -> tuple[str, str]:
        """Put ``commit`` on a branch, and remove the clone and its refs unless other work ``waits`` for the merge.
        Return the branch, ``""`` if it is merged already, and the problem, else ``""``."""

        async def create_branch(_: str) -> Json:
            try:
                name, is_merged = await self._workspaces.leave_on_branch(self.clone, commit)
            except (Conflict, WorkspaceUnusable) as conflict:
                return {"problem": self._explain(conflict)}
            return {"branch": name, "merged": is_merged}

        facts = await self._flow.step("branch", create_branch)
        if problem := facts.get("problem"):
            return "", str(problem)
        about = {"ref": self.clone.ref, "commit": commit, "base": self.clone.base}
        if facts["merged"]:
            await emit_event(self._flow, "merge", **about, commits=0)
        else:
            await emit_event(self._flow, "work.on_branch", **about, branch=facts["branch"])
        if facts["merged"] or not waits:
            await self._forget()
        return "" if facts["merged"] else str(facts["branch"]), ""

    async def keep(self, seconds: float | None = None) -> str:
        """Put what the agent did at its ref, unseen by later work. Return where it is as a sentence; ``""`` if there is
        nothing, and then the clone is removed. If that takes longer than ``seconds``, the work stays in the clone."""

        async def commit_all(_: str) -> Json:
            if problem := await self._end_terminals(self.clone):
                return {"problem": problem}
            try:
                commit = await self._workspaces.commit(self.clone, self._title, seconds=seconds)
            except (Conflict, WorkspaceUnusable) as refused:
                return {"problem": refused.message}
            return {"commit": commit}

        facts = await self._flow.step("keep", commit_all)
        if problem := facts.get("problem"):
            return f"its work is in {self.clone.path} ({problem})"
        if facts["commit"] == self.clone.base:
            await self._forget()
            return ""
        await emit_event(self._flow, "work.kept", ref=self.clone.ref, commit=facts["commit"], base=self.clone.base)
        return f"its work is kept, unmerged: git diff {self.clone.base[:12]} {self.clone.ref}"

    async def discard(self) -> None:
        """Remove the tree and everything that was done in it."""

        async def remove(_: str) -> Json:
            await self._remove(self.clone)

        await self._flow.step("discard", remove)

    def _explain(self, refused: Conflict | WorkspaceUnusable) -> str:
        """Return the message for a person. A conflict says where the work lies; for a repository that became unusable,
        only the clone is left."""
        where = "" if isinstance(refused, Conflict) else f"; the work is in {self.clone.path}"
        return f"{refused.message}; {refused.suggestion}{where}"

    async def _remove(self, clone: Clone) -> None:
        """Remove a clone. One that cannot be removed now is found by the next clean-up, and no work fails for it."""
        await self._end_terminals(clone)
        with suppress(WorkspaceUnusable):
            await self._workspaces.discard(clone)

    async def _forget(self) -> None:
        async def forget(_: str) -> Json:
            with suppress(Conflict, WorkspaceUnusable):
                await self._workspaces.forget(self.clone)

        await self._flow.step("forget", forget)

    def unmerged(self, ending: Ending, commit: str, *, agreed: bool = False) -> dict[str, Json]:
        """Return what another run needs to deliver finished work; ``commit`` is empty if it has not been judged. A
        person has ``agreed`` to merging it, or has not been asked."""
        facts: Json = {
            "clone": clone_to_json(self.clone),
            "summary": ending.summary,
            "commit": commit,
            "agreed": agreed,
        }
        return {"unmerged": facts}


async def first_tree(
    flow: Flow, workspaces: Workspaces, run_id: str, name: str, merged: Mapping[str, str], *, merges: bool
) -> Clone:
    """Return the clone with which an attempt begins. It must contain the commits of ``merged``, given by the tasks that
    made them. Raises WorkspaceUnusable and Conflict, also if it ``merges`` and cannot."""

    async def make(_: str) -> Json:
        await workspaces.require_ready(merges=merges)
        clone = await workspaces.clone(run_id, name)
        await workspaces.require_merged(clone, merged)
        return clone_to_json(clone)

    return clone_from_json(await flow.step("clone", make))


async def shown_tree(flow: Flow, workspaces: Workspaces, shown: Mapping[str, Json], name: str) -> Clone:
    """Return a copy of the commit that a reviewer is to inspect. Raises WorkspaceUnusable."""

    async def make(_: str) -> Json:
        return clone_to_json(await workspaces.copy(clone_from_json(shown["clone"]), str(shown["commit"]), name))

    return clone_from_json(await flow.step("clone", make))


def _sibling(clone: Clone, name: str) -> str:
    return f"{clone.path.name}.{name}"


def blocked(why: str, ending: Ending) -> Ending:
    """Return the ending of finished work that needs a person before it counts."""
    return Ending(RunStatus.BLOCKED, why, ending.result, ending.usage)


def clone_to_json(clone: Clone) -> dict[str, Json]:
    """Return the clone as a JSON object."""
    return {**asdict(clone), "path": str(clone.path)}


def clone_from_json(facts: Mapping[str, str]) -> Clone:
    """Return the clone that ``clone_to_json`` wrote."""
    names = ("branch", "ref", "base", "prefix", "onto")
    return Clone(Path(facts["path"]), **{name: facts[name] for name in names if name in facts})
