"""Swarms, their agents and their tasks as they are kept: one JSON file for each swarm, replaced as a whole."""

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
    """An agent of a swarm. ``handle`` is what it is called in plans, unique in its swarm; ``template`` the agent of the
    configuration that it is; ``ended`` when it was terminated."""

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
    """A task. ``members`` are the ids of who does it, ``runs`` those of the runs it is carried out in, the last being
    the present one; ``over`` is the status it ended with. ``left``: an agent left its present run, which another one is
    to follow."""

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
    """By handle, once it is over."""


class StoredSwarm(BaseModel):
    """One swarm."""

    id: str
    topology: Topology
    most: int
    strategy: SwarmStrategy
    directory: str
    created: float
    members: dict[str, Member] = Field(default={})
    tasks: dict[str, Assigned] = Field(default={})

    def living(self) -> list[Member]:
        """Those that were not terminated, in the order in which they came."""
        return [member for member in self.members.values() if not member.ended]


class Files:
    """Where they are kept. A swarm that nobody is in is forgotten after ``days``."""

    def __init__(self, state_directory: Path, days: float) -> None:
        self._directory = state_directory / "visionflow"
        self._days = days
        self._removed: set[str] = set()

    def read(self) -> dict[str, StoredSwarm]:
        """All there are, the oldest first."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        found: list[StoredSwarm] = []
        for file in self._directory.iterdir():
            if not FILE.fullmatch(file.name):
                continue
            try:
                kept = StoredSwarm.model_validate_json(file.read_bytes())
            except (OSError, ValidationError) as error:
                log.warning("%s is not a swarm and is ignored: %s", file, error)
                continue
            newest = max([kept.created, *(member.ended for member in kept.members.values())])
            if not kept.living() and newest < time.time() - self._days * 86400:
                file.unlink(missing_ok=True)
            else:
                found.append(kept)
        return {kept.id: kept for kept in sorted(found, key=lambda kept: kept.created)}

    def write(self, kept: StoredSwarm) -> None:
        """On the disk when this returns, or as it was before; not at all where it was removed. Raises OSError."""
        if kept.id in self._removed:
            return
        file = self._directory / f"{kept.id}.json"
        temporary = file.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as stream:
            stream.write(kept.model_dump_json(exclude_defaults=True).encode())
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)

    def remove(self, swarm_id: str) -> None:
        """A second time does nothing."""
        self._removed.add(swarm_id)
        (self._directory / f"{swarm_id}.json").unlink(missing_ok=True)
