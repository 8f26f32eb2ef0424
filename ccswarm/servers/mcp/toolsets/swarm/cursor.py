"""The position of a client in the events of a run: a cursor that any process can continue from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccswarm.errors import InvalidArguments
from ccswarm.runs.events import RunEvent, ended_execution, started_executions

CURSOR = re.compile(r"(\d{1,12})((?:;[A-Za-z0-9_.~-]{1,400}:\d{1,12})*)\Z")


class Position:
    """A position, ``COUNT;TASK:COUNT…``: the events read of the run, and of each unfinished execution in it."""

    def __init__(self, run: str, cursor: str = "") -> None:
        """Raises InvalidArguments for a text that is not a cursor."""
        found = CURSOR.match(cursor or "0")
        if not found:
            raise InvalidArguments(
                f"{cursor[:80]!r} is not a cursor", suggestion="pass a cursor that run_events returned"
            )
        self._run = run
        self._counts = {run: int(found[1])}
        for part in filter(None, found[2].split(";")):
            task, _, count = part.rpartition(":")
            self._counts[f"{run}.{task}"] = int(count)

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts by execution."""
        return self._counts

    def advance(self, one: RunEvent) -> None:
        """Record that an event and all before it were read."""
        self._counts[one.execution] = one.count
        for other in started_executions(one.execution, one.facts):
            self._counts.setdefault(other, 0)
        if over := ended_execution(one.execution, one.facts):
            for name in [name for name in self._counts if name == over or name.startswith(f"{over}.")]:
                del self._counts[name]

    def __str__(self) -> str:
        rest = {name: count for name, count in self._counts.items() if name != self._run}
        parts = (f"{name.removeprefix(f'{self._run}.')}:{count}" for name, count in rest.items())
        return ";".join([str(self._counts[self._run]), *parts])
