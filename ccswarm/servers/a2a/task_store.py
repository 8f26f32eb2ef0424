"""The tasks of A2A clients, for both profiles: a JSON file for each, which is replaced atomically.

A task belongs to one ``profile``, and only its routes find it; messages and artifacts are stored in that profile's
format. All methods run at once in the event loop, and have recorded the change when they return; followers get events
in the order in which they happen.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ccswarm.errors import BudgetExhausted, OperatorError
from ccswarm.models import Json

MOST_TASKS = 2000
MOST_CHARS = 64 << 20
"""The maximal size of all tasks as JSON. Beyond it, those that are over are removed, the oldest first."""

MOST_UNHEARD = 1000
"""How many events a follower may be behind before it is dropped."""

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z")

log = logging.getLogger(__name__)


class State(StrEnum):
    """A state as A2A 0.3 writes it; ``input-required`` waits for a person."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED)


@dataclass(slots=True)
class Task:
    """A task, which only ``Tasks`` changes. ``said`` is the message about its current state, or None; ``runs`` are the
    ids of its runs, the last being the current one. Times are seconds since 1970."""

    id: str
    profile: str
    context: str = ""
    state: State = State.SUBMITTED
    said: Json = None
    messages: list[Json] = field(default_factory=list[Json])
    artifacts: list[Json] = field(default_factory=list[Json])
    metadata: Json = None
    runs: list[str] = field(default_factory=list[str])
    created: float = field(default_factory=time.time)
    updated: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """An event of a task. ``kind`` is status, message or artifact; ``content`` is the message about the state, the
    message, or the artifact. ``state`` is the task's at that moment."""

    kind: str
    content: Json
    state: State
    at: float


class Tasks:
    """The tasks of one state directory, used by one process at a time. Tasks over for ``days`` are removed."""

    def __init__(
        self,
        directory: Path,
        days: float,
        most: int = MOST_TASKS,
        most_chars: int = MOST_CHARS,
        most_unheard: int = MOST_UNHEARD,
    ) -> None:
        self._directory = directory
        self._days = days
        self._most = most
        self._most_chars = most_chars
        self._most_unheard = most_unheard
        self._tasks: dict[str, Task] = {}
        self._chars: dict[str, int] = {}
        self._queues: dict[str, list[asyncio.Queue[TaskEvent | None]]] = {}
        self._lock = -1

    def open(self) -> None:
        """Read the stored tasks. Raises OperatorError if another process uses the directory, or it is unusable."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise OperatorError(
                "another process serves A2A with this state directory", suggestion="end it, or set XDG_STATE_HOME"
            ) from None
        except OSError as error:
            raise OperatorError(
                f"{self._directory} cannot be used: {error.strerror}", suggestion="fix it, or set XDG_STATE_HOME"
            ) from None
        for unfinished in self._directory.glob("*.new"):
            with suppress(OSError):
                unfinished.unlink()
        for file in self._directory.glob("*.json"):
            try:
                text = file.read_text()
                kept: dict[str, Any] = json.loads(text)
                kept["state"] = State(kept["state"])
                task = Task(**kept)
            except (OSError, ValueError, TypeError, KeyError) as error:
                log.warning("%s is not a task and is ignored: %s", file, error)
                continue
            self._tasks[task.id], self._chars[task.id] = task, len(text)
        self._tasks = dict(sorted(self._tasks.items(), key=lambda one: one[1].created))
        self._remove_old()

    def close(self) -> None:
        """End the streams of all followers, and unlock the directory."""
        for queues in self._queues.values():
            for queue in queues:
                queue.put_nowait(None)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def begin(
        self, profile: str, task_id: str, *, context: str = "", messages: Sequence[Json] = (), metadata: Json = None
    ) -> Task:
        """Create a submitted task. Raises BudgetExhausted for too many unfinished ones, OperatorError if not stored."""
        assert ID.match(task_id)
        assert task_id not in self._tasks
        self._remove_old(room=1)
        if len(self._tasks) >= self._most:
            raise BudgetExhausted(
                f"{len(self._tasks)} tasks are still in progress", suggestion="wait until some are done, or cancel some"
            )
        task = Task(task_id, profile, context, messages=list(messages), metadata=metadata)
        self._tasks[task_id] = task
        try:
            self.store(task)
        except OSError as error:
            del self._tasks[task_id]
            raise OperatorError(
                f"the task cannot be stored: {error.strerror}", suggestion=f"free disk space in {self._directory}"
            ) from None
        return task

    def find(self, profile: str, task_id: str) -> Task | None:
        """Return the task with that id, or None."""
        task = self._tasks.get(task_id)
        return task if task and task.profile == profile else None

    def select(self, profile: str, wanted: Callable[[Task], bool] = lambda _: True) -> list[Task]:
        """Return the ``wanted`` tasks, the newest first."""
        return [task for task in reversed(self._tasks.values()) if task.profile == profile and wanted(task)]

    def set_state(self, task: Task, state: State, said: Json = None) -> bool:
        """Change the state, unless the task is over. Report whether it was changed."""
        if task.state.over:
            return False
        task.state = state
        task.said = said
        self._publish(task, "status", said)
        return True

    def add_message(self, task: Task, message: Json) -> None:
        """Add a message."""
        task.messages.append(message)
        self._publish(task, "message", message)

    def add_artifact(self, task: Task, artifact: Json) -> None:
        """Add an artifact."""
        task.artifacts.append(artifact)
        self._publish(task, "artifact", artifact)

    def store(self, task: Task) -> None:
        """Store a task whose ``runs`` or ``metadata`` were changed. Raises OSError."""
        if self._tasks.get(task.id) is not task:
            return  # it was removed in the meantime
        task.updated = time.time()
        text = json.dumps(asdict(task))
        file = self._directory / f"{task.id}.json"
        temporary = file.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as stream:
            stream.write(text)
        temporary.replace(file)
        self._chars[task.id] = len(text)

    @contextmanager
    def follow(self, task: Task) -> Generator[AsyncIterator[TaskEvent]]:
        """Yield the events of a task from now on. They end with the one that ends the task, with the server, or for a
        follower that is too far behind; at once if the task is over."""
        queue = asyncio.Queue[TaskEvent | None]()
        queues = self._queues.setdefault(task.id, [])
        queues.append(queue)
        try:
            yield _events(queue, task.state.over)
        finally:
            queues.remove(queue)
            if not queues and self._queues.get(task.id) is queues:
                del self._queues[task.id]

    def _publish(self, task: Task, kind: str, content: Json) -> None:
        try:
            self.store(task)
        except OSError as error:  # events must not depend on free disk space
            log.error("task %s was not recorded: %s", task.id, error)
        run_event = TaskEvent(kind, content, task.state, task.updated)
        for queue in self._queues.get(task.id, ()):
            queue.put_nowait(run_event if queue.qsize() < self._most_unheard else None)

    def _remove_old(self, room: int = 0) -> None:
        """Remove the tasks that have been over for too long, and, if there are too many, the oldest that are over."""
        aged = time.time() - self._days * 86400
        chars = sum(self._chars.values())
        for task in [task for task in self._tasks.values() if task.state.over]:
            if task.updated >= aged and len(self._tasks) + room <= self._most and chars <= self._most_chars:
                continue
            (self._directory / f"{task.id}.json").unlink(missing_ok=True)
            chars -= self._chars.pop(task.id)
            del self._tasks[task.id]


async def _events(queue: asyncio.Queue[TaskEvent | None], over: bool) -> AsyncIterator[TaskEvent]:
    while not over:
        run_event = await queue.get()
        if run_event is None:
            return
        yield run_event
        over = run_event.state.over
