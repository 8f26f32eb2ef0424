"""Which task goes to which agent next, by needs, priority, strategy and capacity. Pure, without side effects."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccswarm.config.settings import AgentSettings, Strategy, TaskSettings
from ccswarm.models import PRIORITIES, RunStatus
from ccswarm.plan.topology import Links

_Requirements = tuple[str, str, tuple[str, ...]]
"""The agent that a task requires: name, type, capabilities."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A task and the agent that does it."""

    task_id: str
    agent: str


class Scheduler:
    """A scheduler that decides, from the tasks that have ended, which ones start.

    ``adaptive`` starts with one task per agent, halves the number of concurrent tasks after a failure, and adds one
    after each success; ``sequential`` runs one at a time. All needs exist, without cycles (``plan.check``). A task that
    no agent can do is skipped, with the reason.
    """

    def __init__(
        self,
        tasks: Sequence[TaskSettings],
        agents: Sequence[AgentSettings],
        links: Links,
        strategy: Strategy,
        most: int,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._links = links
        self._strategy = strategy
        self._most = 1 if strategy == "sequential" else min(most, len(agents))
        self._limit = self._most
        self.statuses: dict[str, RunStatus] = {task.id: RunStatus.QUEUED for task in tasks}
        self.reasons: dict[str, str] = {}
        """Why each skipped task was skipped."""
        self.agents: dict[str, str] = {}
        """The agent of each task that has started."""
        self._requirements: dict[str, _Requirements] = {
            task.id: (task.agent or "", task.type or "", task.capabilities) for task in tasks
        }
        self._rank = {task.id: (PRIORITIES.index(task.priority), index) for index, task in enumerate(tasks)}
        self._missing = {task.id: len(set(task.needs)) for task in tasks}
        self._needed_by: dict[str, list[str]] = {}
        for task in tasks:
            for need in dict.fromkeys(task.needs):
                self._needed_by.setdefault(need, []).append(task.id)
        self._ready: dict[_Requirements, list[tuple[int, int, str]]] = {}
        self._free = set(self._agents)
        self._running: set[str] = set()
        self._last = ""
        for task in tasks:
            if not self._missing[task.id]:
                self._offer(task.id)

    @property
    def running(self) -> int:
        """The number of tasks in progress."""
        return len(self._running)

    @property
    def done(self) -> bool:
        """Whether nothing is in progress and nothing more will start."""
        return not self._running and not self._ready

    def assume(self, task_id: str, agent: str) -> None:
        """Count a task as succeeded in an earlier run. Call this before the first ``start``."""
        self.agents[task_id] = agent
        self.statuses[task_id] = RunStatus.SUCCEEDED
        queue = [entry for entry in self._ready.pop(self._requirements[task_id], []) if entry[2] != task_id]
        if queue:
            heapq.heapify(queue)
            self._ready[self._requirements[task_id]] = queue
        self._unlock(task_id)

    def start(self) -> list[Placed]:
        """Return the tasks to start now, in order; they count as running from here on."""
        placed: list[Placed] = []
        while len(self._running) < self._limit and (found := self._choose()):
            requirements, agent = found
            queue = self._ready[requirements]
            task_id = heapq.heappop(queue)[2]
            if not queue:
                del self._ready[requirements]
            self._free.discard(agent)
            self._running.add(task_id)
            self.agents[task_id] = self._last = agent
            self.statuses[task_id] = RunStatus.RUNNING
            placed.append(Placed(task_id, agent))
        return placed

    def ended(self, task_id: str, status: RunStatus) -> None:
        """Record that a task is over. Tasks that need one that did not succeed are skipped, transitively."""
        self._running.discard(task_id)
        self._free.add(self.agents[task_id])
        self.statuses[task_id] = status
        succeeded = status is RunStatus.SUCCEEDED
        if self._strategy == "adaptive":
            self._limit = min(self._most, self._limit + 1) if succeeded else max(1, self._limit // 2)
        if not succeeded:
            self._skip(task_id)
            return
        self._unlock(task_id)

    def _unlock(self, task_id: str) -> None:
        for dependent in self._needed_by.get(task_id, ()):
            self._missing[dependent] -= 1
            if not self._missing[dependent] and self.statuses[dependent] is RunStatus.QUEUED:
                self._offer(dependent)

    def counts(self) -> Mapping[str, int]:
        """Return the number of tasks by status."""
        found: dict[str, int] = {}
        for status in self.statuses.values():
            found[status] = found.get(status, 0) + 1
        return found

    def _offer(self, task_id: str) -> None:
        requirements = self._requirements[task_id]
        if not any(self._is_able(name, requirements) for name in self._agents):
            self.statuses[task_id] = RunStatus.SKIPPED
            self.reasons[task_id] = f"no agent is {_describe(requirements)}"
            self._skip(task_id)
            return
        heapq.heappush(self._ready.setdefault(requirements, []), (*self._rank[task_id], task_id))

    def _choose(self) -> tuple[_Requirements, str] | None:
        order = [name for name in self._links.order(self._last) if name in self._free]
        for requirements in sorted(self._ready, key=lambda requirements: self._ready[requirements][0]):
            if agent := next((name for name in order if self._is_able(name, requirements)), ""):
                return requirements, agent
        return None

    def _is_able(self, name: str, requirements: _Requirements) -> bool:
        agent = self._agents[name]
        who, kind, capabilities = requirements
        return who in ("", name) and kind in ("", agent.type) and set(capabilities) <= set(agent.capabilities)

    def _skip(self, failed: str) -> None:
        left = [failed]
        while left:
            need = left.pop()
            for dependent in self._needed_by.get(need, ()):
                if self.statuses[dependent] is RunStatus.QUEUED:
                    self.statuses[dependent] = RunStatus.SKIPPED
                    self.reasons[dependent] = f"it needs {need!r}, which is {self.statuses[need]}"
                    left.append(dependent)


def _describe(requirements: _Requirements) -> str:
    who, kind, capabilities = requirements
    parts = [f"called {who!r}"] if who else []
    parts += [f"of type {kind!r}"] if kind else []
    parts += [f"able to {', '.join(capabilities)}"] if capabilities else []
    return " and ".join(parts) or "there"
