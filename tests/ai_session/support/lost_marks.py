"""Sessions that lose or repeat marks of some kinds at random, and what must hold for them nevertheless."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

from ai_session.errors import SessionBusy
from ai_session.sessions import wait
from ai_session.sessions.commands import RunningCommand
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.terminal.marks import Mark, MarkKind
from tests.ai_session.support.sessions import request, until
from tests.support.bounds import BOUND_SECONDS

USABLE_SECONDS = 3.0
COMMANDS = 4


@dataclass
class Faults:
    """The faults of a session: a random ``share`` of the marks in ``kinds`` is handled 0 or 2 times, as given there."""

    kinds: dict[MarkKind, int]
    seed: int
    share: float = 0.5
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)

    def times(self, kind: MarkKind) -> int:
        return self.kinds[kind] if kind in self.kinds and self.chance.random() < self.share else 1

    def __str__(self) -> str:
        shown = ", ".join(f"{kind.name} x{times}" for kind, times in self.kinds.items())
        return f"{shown} (seed {self.seed})"


class FaultySession(Session):
    """A session with faulty marks, according to the plan of its name."""

    plans: ClassVar[dict[str, Faults]] = {}

    def on_mark(self, mark: Mark) -> None:
        plan = self.plans.get(self.spec.name)
        for _ in range(plan.times(mark.kind) if plan else 1):
            super().on_mark(mark)


class FaultyManager(SessionManager):
    session_class = FaultySession


async def begun(session: Session, command: str, command_id: str) -> RunningCommand:
    """Begin a command, trying again while the session is busy because its typed line is not known to have ended."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            try:
                return await session.begin(command, command_id=command_id)
            except SessionBusy:  # it has waited for its prompt already
                await asyncio.sleep(0)


async def play(manager: SessionManager, shell: str, name: str, faults: Faults, directory: Path) -> list[str]:
    """Run commands in a session with faults and return what is wrong.

    Wrong are an exit code other than the command's, a command run twice or not at all, and a session that is not usable
    in time. After the faults, all must be exact.
    """
    wrong: list[str] = []
    loop = asyncio.get_running_loop()
    FaultySession.plans[name] = faults
    began = loop.time()
    session = await manager.create(request(name, shell=shell))
    for number in range(1, COMMANDS + 1):
        if loop.time() - began > USABLE_SECONDS:
            wrong.append(f"{faults}: usable after {loop.time() - began:.1f} s only, before command {number}")
        ran = directory / f"{name}-{number}"
        running = await begun(session, f"sh -c 'echo x >>{ran}; exit {number}'", f"cmd_{number}")
        await until(session, lambda ran=ran: ran.exists() or session.running is None)
        began = loop.time()
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "finished", faults
        record = running.record
        times = ran.read_text().count("x") if ran.exists() else 0
        if (record.exit_code, record.status) not in ((number, "finished"), (None, "lost")):
            wrong.append(f"{faults}: command {number} {record.status} with {record.exit_code}")
        if times > 1 or (times == 0 and record.status == "finished"):
            wrong.append(f"{faults}: command {number} ran {times} times, {record.status}")
        if number == 2:
            session.send(b"true\n")
    del FaultySession.plans[name]
    for code in (7, 8):
        running = await begun(session, f"sh -c 'echo out; exit {code}'", f"cmd_{code}")
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "finished", faults
        if running.record.exit_code != code:
            wrong.append(f"{faults}: after it, {running.record.status} with {running.record.exit_code}")
    await manager.close(session)
    return wrong
