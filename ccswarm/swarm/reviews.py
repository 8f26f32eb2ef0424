"""Reviews: the votes of other agents on an agent's work before it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ccswarm.config.settings import SwarmSettings, TaskSettings
from ccswarm.engines.base import Flow, Outcome
from ccswarm.models import Json, RunStatus, Usage
from ccswarm.swarm.agent import PART, STOP, Ending, emit_event, stopped
from ccswarm.swarm.time_budgets import TimeLeft

ASKED = """Review what agent {agent} did in this directory. Its task was:

{text}

It reports:

{summary}

{more}
Check for yourself; its report is not evidence. Change nothing. Finish as succeeded if the work can be accepted, and as
failed if it must be done again: then say exactly what is wrong."""


LONGEST_SECONDS = 365 * 86400.0
DEPTH = SwarmSettings().spawn_depth
OF_THE_RUN = ("swarm", "agents")
"""The parts of a payload that belong to the run, and are not stored with each of its parts."""


class Review:
    """The reviews of one attempt. ``payload`` is the task's, with the task's budget among those ``above``. The work
    lies in ``directory``; each reviewer gets a copy of the commit ``shown``, if any. ``usage`` is what reviews cost."""

    def __init__(
        self,
        flow: Flow,
        payload: Mapping[str, Any],
        directory: str,
        round_number: int,
        shown: Mapping[str, Json] | None = None,
    ) -> None:
        self._flow = flow
        self._payload = payload
        self._task = TaskSettings.model_validate(payload["task"])
        self._directory = directory
        self._round = round_number
        self._shown = shown
        self.usage = Usage()

    async def collect(self, ending: Ending, left: TimeLeft | None = None) -> str | Ending:
        """Start all reviews and wait for them. Return ``""`` if as many reviewers as required accept the work, else
        what the others say. If the task is stopped, or the time ``left`` is over, stop them and return how it ends."""
        review = self._task.review
        numbers = {name: f"{self._flow.id}.review{self._round}.{name}" for name in review.by}
        for name, number in numbers.items():
            await self._flow.start(
                PART, number, self._payload_for(name, ending), agent=name, priority=self._task.priority
            )
        await emit_event(self._flow, "review.asked", by=list(numbers), round=self._round)
        seconds = max(left.seconds, 0.0) if left else LONGEST_SECONDS
        stop = asyncio.create_task(self._flow.receive(STOP, seconds))
        asked = {name: asyncio.create_task(self._flow.outcome(number)) for name, number in numbers.items()}
        ended: Ending | None = None
        try:
            while waited := [task for task in asked.values() if not task.done()]:
                done = await self._flow.first(waited if ended else [stop, *waited])
                if not ended and stop in done:
                    ended = stopped(stop.result(), LONGEST_SECONDS, left)
                    for number in numbers.values():
                        await self._flow.send(number, STOP, ended.summary)
        finally:
            tasks = [stop, *asked.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        verdicts = {name: await self._verdict(name, task.result()) for name, task in asked.items()}
        if ended:
            return ended
        against = {name: why for name, why in verdicts.items() if why}
        if len(verdicts) - len(against) >= (review.quorum or len(verdicts)):
            return ""
        return "\n".join(f"review by {name}: {why}" for name, why in against.items())

    async def _verdict(self, name: str, outcome: Outcome) -> str:
        facts: Mapping[str, Any] = outcome.result or {"status": outcome.status, "summary": outcome.error}
        self.usage += Usage(**facts.get("usage", {}))
        accepted = facts["status"] == RunStatus.SUCCEEDED
        objection = "" if accepted else str(facts["summary"] or facts["status"])
        vote = {"by": name, "round": self._round, "accepted": accepted, "summary": str(facts["summary"])}
        await emit_event(self._flow, "review.said", **vote)
        return objection

    def _payload_for(self, reviewer: str, ending: Ending) -> dict[str, Any]:
        """Return the payload of a reviewer's task. The reviewer works where the work lies, or in a copy of it."""
        review = self._task.review
        facts = {"agent": self._payload["agent"], "text": self._task.text, "summary": ending.summary}
        text = ASKED.format(**facts, more=f"{review.text}\n" if review.text else "")
        steps = [step.model_dump(mode="json", exclude_defaults=True) for step in review.steps]
        task = {"id": f"{self._task.id}-review", "text": text, "agent": reviewer, "steps": steps}
        where = "clone" if self._shown else "shared"
        placed = {**self._payload.get("placed", {}), reviewer: where}
        changed: dict[str, Any] = {"task": task, "agent": reviewer, "placed": placed, "unmerged": None}
        if self._shown:
            # Delegated work would be merged, and is not what was reviewed.
            changed |= {"shown": self._shown, "depth": self._payload["swarm"].get("spawn_depth", DEPTH)}
        else:
            changed |= {"workspace": self._directory}
        kept = {name: value for name, value in self._payload.items() if name not in OF_THE_RUN}
        return {**kept, **changed, "inputs": {}, "attempt": self._round, "pause_seconds": 0}
