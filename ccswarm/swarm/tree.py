"""The tree of one attempt at a task, where its agent has one of its own: a clone that only this attempt works in.

What the agent did becomes a commit before anybody judges it. Gates and reviewers see that commit, each in a copy whose
changes come to nothing, and that commit is merged, or none. Work that failed stays at a ref of its own, and nothing
that is done later sees it. Every method is a recorded step.
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
from ccswarm.swarm.agent import Ending, tell

TITLE_CHARS = 200

EndTerminals = Callable[[Clone], Awaitable[str]]
"""Ends every terminal that could still change a clone; why that cannot be done, else ``""``."""


@dataclass(frozen=True, slots=True)
class Presented:
    """``commit`` is what the agent did, and ``directory`` where its copy for the gates is; or ``problem`` says why it
    cannot be taken over."""

    commit: str = ""
    directory: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Merge:
    """How it went: merged; or ``problem`` says why that needs a person; or nobody judged yet what the merge into
    ``head`` would be: that is ``candidate``, and lies in ``directory``."""

    problem: str = ""
    head: str = ""
    candidate: str = ""
    directory: str = ""
    not_run: tuple[str, ...] = ()


class Tree:
    """``files`` configure the run; ``title`` is what commits are called."""

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

    async def present(self, visit: int, *, gates: bool, seconds: float | None = None) -> Presented:
        """End the agent's terminals, commit what it did, and make the copy that ``gates`` look at: within ``seconds``
        each, or it is a problem."""

        async def presented(_: str) -> Json:
            if problem := await self._end_terminals(self.clone):
                return {"problem": problem}
            try:
                commit = await self._workspaces.commit(self.clone, self._title, seconds=seconds)
                name = f"gates{visit}"
                copy = await self._workspaces.copy(self.clone, commit, name, seconds=seconds) if gates else None
            except (Conflict, WorkspaceUnusable) as refused:
                return {"problem": self._why(refused)}
            return {"commit": commit, "directory": str(copy.directory) if copy else ""}

        return Presented(**await self._flow.step(f"present {visit}", presented))

    async def withdraw(self, directory: str) -> None:
        """Remove the copy that gates looked at in ``directory``."""
        name = Path(directory.removesuffix(self.clone.prefix)).name

        async def withdrawn(_: str) -> Json:
            await self._remove(replace(self.clone, path=self.clone.path.with_name(name)))

        await self._flow.step(f"withdraw {name}", withdrawn)

    async def merge(self, commit: str, judged: Sequence[str] | None, turn: int, seconds: float | None = None) -> Merge:
        """Merge ``commit``, and remove the clone and its refs; with ``judged`` only where that gives the files of one
        of these commits, and else what it would give is put into a directory for the gates. What is not done within
        ``seconds`` needs a person."""

        async def merged(_: str) -> Json:
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
                return {"conflict": self._why(conflict)}
            return {"candidate": done.candidate, "head": done.head, "directory": str(copy.directory)}

        facts = await self._flow.step(f"merge {turn}", merged)
        about = {"ref": self.clone.ref, "commit": commit, "base": self.clone.base}
        if candidate := facts.get("candidate"):
            await tell(self._flow, "merge.judged", **about, head=facts["head"], candidate=candidate)
            return Merge("", facts["head"], candidate, facts["directory"])
        not_run = facts.pop("not_run", ())
        await tell(self._flow, "merge", **about, **facts)
        if why := facts.get("conflict"):
            return Merge(str(why))
        await self._forget()
        return Merge(head=facts["head"], not_run=tuple(not_run))

    async def size(self, commit: str, visit: int) -> Mapping[str, Json]:
        """How much ``commit`` changes: ``files`` is the number of files, ``told`` a summary."""

        async def counted(_: str) -> Json:
            difference = await self._workspaces.difference(self.clone.base, commit)
            return {"files": len(difference.files), "told": difference.summary}

        return await self._flow.step(f"size {visit}", counted)

    async def leave_on_branch(self, commit: str, *, waits: bool) -> tuple[str, str]:
        """The branch that ``commit`` lies on from now on, ``""`` where it is merged already; or why it cannot be on
        one. The clone and its refs are removed, unless somebody ``waits`` for the merge."""

        async def left(_: str) -> Json:
            try:
                name, is_merged = await self._workspaces.leave_on_branch(self.clone, commit)
            except (Conflict, WorkspaceUnusable) as conflict:
                return {"problem": self._why(conflict)}
            return {"branch": name, "merged": is_merged}

        facts = await self._flow.step("branch", left)
        if problem := facts.get("problem"):
            return "", str(problem)
        about = {"ref": self.clone.ref, "commit": commit, "base": self.clone.base}
        if facts["merged"]:
            await tell(self._flow, "merge", **about, commits=0)
        else:
            await tell(self._flow, "work.on_branch", **about, branch=facts["branch"])
        if facts["merged"] or not waits:
            await self._forget()
        return "" if facts["merged"] else str(facts["branch"]), ""

    async def keep(self, seconds: float | None = None) -> str:
        """What the agent did goes to its ref, and stays out of everything later; a sentence that says where it is,
        ``""`` where there is nothing, and then the clone is removed. It stays where it is if that takes longer than
        ``seconds``."""

        async def kept(_: str) -> Json:
            if problem := await self._end_terminals(self.clone):
                return {"problem": problem}
            try:
                commit = await self._workspaces.commit(self.clone, self._title, seconds=seconds)
            except (Conflict, WorkspaceUnusable) as refused:
                return {"problem": refused.message}
            return {"commit": commit}

        facts = await self._flow.step("keep", kept)
        if problem := facts.get("problem"):
            return f"its work is in {self.clone.path} ({problem})"
        if facts["commit"] == self.clone.base:
            await self._forget()
            return ""
        await tell(self._flow, "work.kept", ref=self.clone.ref, commit=facts["commit"], base=self.clone.base)
        return f"its work is kept, unmerged: git diff {self.clone.base[:12]} {self.clone.ref}"

    async def discard(self) -> None:
        """Remove the tree: whatever was done in it comes to nothing."""

        async def discarded(_: str) -> Json:
            await self._remove(self.clone)

        await self._flow.step("discard", discarded)

    def _why(self, refused: Conflict | WorkspaceUnusable) -> str:
        """A conflict says where the work lies; of a repository that cannot be used any more only the clone is left."""
        where = "" if isinstance(refused, Conflict) else f"; the work is in {self.clone.path}"
        return f"{refused.message}; {refused.suggestion}{where}"

    async def _remove(self, clone: Clone) -> None:
        """What cannot be removed now is found by who cleans up later; no work fails for it."""
        await self._end_terminals(clone)
        with suppress(WorkspaceUnusable):
            await self._workspaces.discard(clone)

    async def _forget(self) -> None:
        async def forgotten(_: str) -> Json:
            with suppress(Conflict, WorkspaceUnusable):
                await self._workspaces.forget(self.clone)

        await self._flow.step("forget", forgotten)

    def unmerged(self, ending: Ending, commit: str, *, agreed: bool = False) -> dict[str, Json]:
        """What another run needs to deliver what is done; ``commit`` is empty where it was not judged yet, and a person
        has ``agreed`` to merging it, or was not asked yet."""
        facts: Json = {"clone": facts_of(self.clone), "summary": ending.summary, "commit": commit, "agreed": agreed}
        return {"unmerged": facts}


async def first_tree(
    flow: Flow, workspaces: Workspaces, run_id: str, name: str, merged: Mapping[str, str], *, merges: bool
) -> Clone:
    """The clone that an attempt begins with, of what is merged by now: that has to hold the commits of ``merged``, by
    the tasks whose work they are. Raises WorkspaceUnusable, Conflict; also where it ``merges`` and could not."""

    async def made(_: str) -> Json:
        await workspaces.require_ready(merges=merges)
        clone = await workspaces.clone(run_id, name)
        await workspaces.require_merged(clone, merged)
        return facts_of(clone)

    return clone_of(await flow.step("clone", made))


async def shown_tree(flow: Flow, workspaces: Workspaces, shown: Mapping[str, Json], name: str) -> Clone:
    """A copy of the commit that a reviewer is to look at. Raises WorkspaceUnusable."""

    async def made(_: str) -> Json:
        return facts_of(await workspaces.copy(clone_of(shown["clone"]), str(shown["commit"]), name))

    return clone_of(await flow.step("clone", made))


def _sibling(clone: Clone, name: str) -> str:
    """What the directory of a clone's copy is called."""
    return f"{clone.path.name}.{name}"


def blocked(why: str, ending: Ending) -> Ending:
    """Work that is done, and needs a person before it counts."""
    return Ending(RunStatus.BLOCKED, why, ending.result, ending.usage)


def facts_of(clone: Clone) -> dict[str, Json]:
    """The clone as a JSON object."""
    return {**asdict(clone), "path": str(clone.path)}


def clone_of(facts: Mapping[str, str]) -> Clone:
    """Of ``facts_of``."""
    names = ("branch", "ref", "base", "prefix", "onto")
    return Clone(Path(facts["path"]), **{name: facts[name] for name in names if name in facts})
