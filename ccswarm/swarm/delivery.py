"""The delivery of work that gates and reviews accepted: merged, merged once a person agrees, or left on a branch. Every
method is durable: what it does is a recorded step, and the flow waits for a person's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from ccswarm.config.settings import Merge
from ccswarm.engines.base import Flow
from ccswarm.models import Json, RunStatus
from ccswarm.swarm.agent import APPROVAL_SECONDS, STOP, Ending, emit_event, stopped
from ccswarm.swarm.gates import LONGEST_SECONDS, Checked
from ccswarm.swarm.time_budgets import TimeBudgets
from ccswarm.swarm.tree import Tree, blocked
from ccswarm.toolbox.questions import MERGE, question_id
from ccswarm.toolbox.telemetry.base import Telemetry

MOST_MERGES = 10
"""How often the gates check the merge again because other commits were made in the meantime."""

Check = Callable[[str, str], Awaitable[Checked]]
"""Runs the task's gates in a directory; the second argument is the name of that check in the record."""


@dataclass(frozen=True, slots=True)
class Judged:
    """How work ended, and how it was judged. If it succeeded, ``feedback`` is what gates or reviews rejected, and
    ``commit`` is what was judged, if the work has a tree of its own. A person may have ``agreed`` to merging it, or
    ``returned`` it."""

    ending: Ending
    commit: str = ""
    feedback: str = ""
    agreed: bool = False
    returned: bool = False


class Delivery:
    """The delivery of the work of one attempt, ``number``.

    ``check`` is None if the task has no gates; ``needed`` says that other tasks wait for its work. ``facts`` are for
    the result of the task: what another run needs to deliver the work (``unmerged``), which commit was ``merged``,
    whether a person ``refused`` it, and which parts of the person's git were ``not_run``.
    """

    def __init__(
        self,
        flow: Flow,
        tree: Tree,
        how: Merge,
        *,
        number: str,
        agent: str,
        needed: bool,
        check: Check | None,
        time: TimeBudgets,
        telemetry: Telemetry,
    ) -> None:
        self.facts: dict[str, Any] = {}
        self._flow = flow
        self._tree = tree
        self._how = how
        self._number = number
        self._agent = agent
        self._needed = needed
        self._check = check
        self._time = time
        self._telemetry = telemetry

    async def ask_to_merge(self, done: Judged, round_number: int) -> Judged:
        """Ask a person, once for each ``round_number``, whether accepted work may be merged, if the plan says so."""
        if self._how != "ask" or done.agreed or done.feedback or done.ending.status != RunStatus.SUCCEEDED:
            return done
        size = await self._tree.size(done.commit, round_number)
        if not size["files"]:
            return done
        answer = await self._ask(done.commit, str(size["summary"]), round_number)
        if isinstance(answer, Ending):
            return replace(done, ending=replace(answer, result=done.ending.result, usage=done.ending.usage))
        by, reason = str(answer.get("by") or "a person"), str(answer.get("reason") or "")
        if answer.get("approved") is True:
            return replace(done, agreed=True)
        if answer.get("again") is True:
            return replace(done, feedback=f"{by} returned the work: {reason}", returned=True)
        self.facts = {"refused": True}
        why = f"{by} rejected merging it" if answer else "merging it was not approved within a week"
        return replace(done, ending=replace(done.ending, status=RunStatus.FAILED, summary=f"{why}: {reason}"))

    async def deliver(self, done: Judged) -> Judged:
        """Merge the work, or leave it on a branch. If that fails, the returned ending says why."""
        return await (self._leave_on_branch if self._how == "branch" else self._merge)(done)

    async def _merge(self, done: Judged) -> Judged:
        ending, judged = done.ending, [done.commit]
        for turn in range(1, MOST_MERGES + 1):
            left = await self._time.left()
            seconds = left.seconds if left else None
            merge = await self._tree.merge(done.commit, judged if self._check else None, turn, seconds)
            if merge.problem:
                return self._blocked(done, blocked(merge.problem, ending))
            if not merge.candidate or not self._check:
                self.facts = self._as_merged(done) | ({"not_run": list(merge.not_run)} if merge.not_run else {})
                return replace(done, ending=ending)
            checked = await self._check(merge.directory, f"merge{turn}")
            await self._tree.withdraw(merge.directory)
            ending = replace(ending, usage=ending.usage + checked.usage)
            if checked.ending:
                return replace(done, ending=replace(checked.ending, result=ending.result, usage=ending.usage))
            if checked.problem:
                why = f"merged with what was committed in the meantime, {merge.head[:12]}: {checked.problem}"
                return replace(done, ending=replace(ending, status=RunStatus.FAILED, summary=why))
            judged.append(merge.candidate)
        why = f"something else was committed {MOST_MERGES} times while its gates checked the merge; ccswarm resume"
        return self._blocked(done, blocked(f"{why} tries it again", ending))

    async def _leave_on_branch(self, done: Judged) -> Judged:
        branch, problem = await self._tree.leave_on_branch(done.commit, waits=self._needed)
        if problem:
            return self._blocked(done, blocked(problem, done.ending))
        if not branch:
            self.facts = self._as_merged(done)
            return done
        if self._needed:
            return self._blocked(done, blocked(f"other tasks wait for its merge: git merge {branch}", done.ending))
        remark = f"its work is on a branch: git merge {branch}"
        summary = "; ".join(filter(None, (done.ending.summary, remark)))
        return replace(done, ending=replace(done.ending, summary=summary))

    def _as_merged(self, done: Judged) -> dict[str, Any]:
        """Return the fact by which dependent tasks find the work in their checkout, if there is any work."""
        return {} if done.commit == self._tree.clone.base else {"merged": done.commit}

    def _blocked(self, done: Judged, ending: Ending) -> Judged:
        """End blocked: a person has to do something before another run can deliver the work."""
        self.facts = self._tree.unmerged(done.ending, done.commit, agreed=done.agreed)
        return replace(done, ending=ending)

    async def _ask(self, commit: str, changes: str, round_number: int) -> dict[str, Any] | Ending:
        """Return a person's answer, empty if none came; or how the attempt ended in the meantime."""
        run, _, task = self._number.partition(".")
        name = f"{run[:12]}.{task}"
        question: dict[str, Json] = {
            "id": question_id(self._number, f"{MERGE}{round_number}", commit),
            "agent": self._agent,
            "tool": MERGE,
            "arguments": {"task": name, "changes": changes, "commit": commit},
            "question": f"merge {changes} of {name}?",
        }
        number = str(question["id"])
        await self._time.left()
        left = await self._time.left(attempt=False)
        await self._flow.publish({"approvals": [question]})
        # The question may be answered as soon as this is emitted.
        await emit_event(self._flow, "approval.asked", **question)
        stop = asyncio.create_task(self._flow.receive(STOP, left.seconds if left else LONGEST_SECONDS))
        answer = asyncio.create_task(self._answer(number))
        try:
            done = await self._flow.first([stop, answer])
        finally:
            for task in (stop, answer):
                task.cancel()
            await asyncio.gather(stop, answer, return_exceptions=True)
        await self._flow.publish({"approvals": []})
        await self._time.left(attempt=False)
        if stop in done:
            return stopped(stop.result(), LONGEST_SECONDS, left)
        facts: dict[str, Any] = dict(answer.result() or {})
        about = {**facts, "id": number, "approved": facts.get("approved") is True}
        await emit_event(self._flow, "approval.answered", **about)
        return facts

    async def _answer(self, number: str) -> Any:
        return await self._telemetry.await_answer(number, self._flow.receive(f"approval:{number}", APPROVAL_SECONDS))
