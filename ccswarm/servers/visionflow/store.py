"""The stored swarms with their agents and tasks: a JSON file for each swarm, which is replaced atomically."""

from __future__ import annotations

import logging
import os
import re
import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from ccswarm.config.settings import Strategy, Topology
from ccswarm.models import Priority

SwarmStrategy = Literal["adaptive", "balanced", "specialized"]
FILE = re.compile(r"swarm-[0-9a-f-]{36}\.json\Z")

log = logging.getLogger(__name__)


class Member(BaseModel):
    """An agent of a swarm. ``handle`` is its name in plans, unique in the swarm; ``template`` the configured agent;
    ``ended`` the time of its termination, else 0."""

    id: str
    name: str
    handle: str
    type: str
    template: str
    capabilities: list[str]
    spawned: float
    ended: float = 0.0


class Share(BaseModel):
    """What one agent did in a task that is over."""

    status: str
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0


class Assigned(BaseModel):
    """A task of a swarm. ``members`` are the ids of its agents, ``runs`` those of its runs, the last being the current
    one; ``over`` is its final status. ``left``: an agent left the current run, and another run follows."""

    id: str
    text: str
    strategy: Strategy
    priority: Priority
    members: list[str]
    runs: list[str]
    created: float
    over: str = ""
    left: bool = False
    ended: float = 0.0
    shares: dict[str, Share] = Field(default={})
    """By handle, once the task is over."""


class StoredSwarm(BaseModel):
    """A swarm as it is stored."""

    id: str
    topology: Topology
    most: int
    strategy: SwarmStrategy
    directory: str
    created: float
    members: dict[str, Member] = Field(default={})
    tasks: dict[str, Assigned] = Field(default={})

    def living(self) -> list[Member]:
        """Return the agents that are not terminated, in the order in which they joined."""
        return [member for member in self.members.values() if not member.ended]


class Files:
    """The files of swarms. A swarm without agents is deleted after ``days``."""

    def __init__(self, state_directory: Path, days: float) -> None:
        self._directory = state_directory / "visionflow"
        self._days = days
        self._removed: set[str] = set()

    def read(self) -> dict[str, StoredSwarm]:
        """Return all swarms by id, the oldest first."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found: list[StoredSwarm] = []
        for file in self._directory.iterdir():
            if not FILE.fullmatch(file.name):
                continue
            try:
                swarm = StoredSwarm.model_validate_json(file.read_bytes())
            except (OSError, ValidationError) as error:
                log.warning("%s is not a swarm and is ignored: %s", file, error)
                continue
            newest = max([swarm.created, *(member.ended for member in swarm.members.values())])
            if not swarm.living() and newest < time.time() - self._days * 86400:
                file.unlink(missing_ok=True)
            else:
                found.append(swarm)
        return {swarm.id: swarm for swarm in sorted(found, key=lambda swarm: swarm.created)}

    def write(self, swarm: StoredSwarm) -> None:
        """Store the swarm durably and atomically, unless it was removed. Raises OSError."""
        if swarm.id in self._removed:
            return
        file = self._directory / f"{swarm.id}.json"
        temporary = file.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as stream:
            stream.write(swarm.model_dump_json(exclude_defaults=True).encode())
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)

    def remove(self, swarm_id: str) -> None:
        """Delete the swarm; repeating it does nothing."""
        self._removed.add(swarm_id)
        (self._directory / f"{swarm_id}.json").unlink(missing_ok=True)
