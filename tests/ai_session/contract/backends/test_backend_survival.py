"""Every backend keeps its terminals when owner or keeper go, in order or by kill -9, with no byte lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from agentwire import plugins
from ai_session.errors import BackendUnavailable
from ai_session.models import ExitStatus
from tests.ai_session.support.terminals import BOUND_SECONDS, BackendSetup, Owned, open_backend, start_owner
from tests.support.process_ends import ended
from tests.support.products import first

pytestmark = [pytest.mark.anyio, pytest.mark.corners]

LINES = 4000
COUNT = f'stty -opost -echo; i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo "line $i of some length"; done'
COUNTED = b"".join(b"line %d of some length\n" % number for number in range(1, LINES + 1))
ATTEMPTS = [2, pytest.param(6, marks=pytest.mark.torture)]
"""Every other child waits for its next owner; each owner is killed somewhere else."""
KEEPS_GOING_WITHOUT_ITS_KEEPER = {"pty"}


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def here(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[BackendSetup]:
    async with open_backend(request.param, home) as made:
        yield made


def keepers(here: BackendSetup) -> list[int]:
    """Processes that outlive the owner on purpose: not our children, with the runtime directory in their arguments."""
    ours = {child.pid for child in psutil.Process().children()}
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid not in ours and str(here.runtime) in " ".join(process.cmdline()):
                found += [process.pid]
    return found


@pytest.mark.either("here")
async def test_there_is_nothing_to_adopt_at_first(here: BackendSetup) -> None:
    assert list(await here.backend.adopt()) == []
    await here.backend.stop()
    assert keepers(here) == []


async def test_terminals_outlive_their_owner(here: BackendSetup) -> None:
    owned = await here.sh("stty -echo; echo one; while read x; do echo got $x; [ $x = end ] && exit 9; done")
    await owned.shows(b"one")
    pid, tty, session_id = owned.terminal.pid, owned.terminal.tty, owned.terminal.session_id
    before = owned
    for word in ("two", "three"):
        adopted = await here.succeed()
        before.log.close()
        assert list(adopted) == [session_id]
        again = adopted[session_id]
        assert (again.terminal.pid, again.terminal.tty) == (pid, tty)
        again.terminal.write(f"{word}\n".encode())
        await again.shows(f"got {word}".encode())
        before = again
    (again,) = (await here.succeed()).values()
    before.log.close()
    again.terminal.write(b"end\n")
    assert await again.ended() == ExitStatus(code=9)
    assert again.output == b"one\r\ngot two\r\ngot three\r\ngot end\r\n"
    await again.close()
    assert list(await here.backend.adopt()) == []


async def test_one_terminal_is_left_alone(here: BackendSetup) -> None:
    left, kept = await here.sh("stty -echo; read x; echo $x"), await here.sh("stty -echo; read x; echo $x")
    left.detach()
    kept.terminal.write(b"kept\n")
    await kept.shows(b"kept")
    kept.detach()
    adopted = await here.adopt()
    assert set(adopted) >= {left.terminal.session_id}
    again = adopted[left.terminal.session_id]
    again.terminal.write(b"again\n")
    await again.shows(b"again")
    assert await again.ended() == ExitStatus(code=0)


async def test_what_happened_without_an_owner_is_told(here: BackendSetup) -> None:
    scripts = {"code": "exit 5", "signal": "kill -KILL $$", "held": "exec 3>&1; (trap '' HUP; cat >&3) & exit 6"}
    owned = {name: await here.sh(f"stty -echo; echo ready; read x; {COUNT}; {end}") for name, end in scripts.items()}
    for one in owned.values():
        await one.shows(b"ready\r\n")
        one.terminal.write(b"\n")
    await here.backend.aclose()
    for one in owned.values():
        one.log.close()
        await ended(one.terminal.pid)
    here.backend = here.new_backend()
    adopted = await here.adopt()
    wanted = {"code": ExitStatus(code=5), "signal": ExitStatus(signal=9), "held": ExitStatus(code=6)}
    for name, one in owned.items():
        again = adopted[one.terminal.session_id]
        assert await again.ended() == wanted[name]
        assert again.output == b"ready\r\n" + COUNTED
        assert again.at_exit == again.log.end
        await again.close()
        assert len(again.exits) == 1


@pytest.mark.parametrize("attempts", ATTEMPTS)
@pytest.mark.parametrize("phase", first(("before", "read", "stored"), "read", "stored"))
async def test_a_killed_owner_loses_nothing(here: BackendSetup, phase: str, attempts: int) -> None:
    for attempt in range(attempts):
        await here.backend.aclose()
        waits = attempt % 2 == 0
        kill_at = random.randrange(len(COUNTED))
        spec = here.spec(["/bin/sh", "-c", f"{COUNT}; {'read x;' if waits else ''} exit 7"])
        owner, pid = await start_owner(here, spec, kill_at, phase)
        await ended(owner.pid)
        assert owner.wait() == -signal.SIGKILL
        owner.close()
        if not waits:
            await ended(pid)
        again = (await here.adopt())[spec.session_id]
        assert again.terminal.pid == pid
        await again.holds(len(COUNTED))
        again.terminal.write(b"\n")
        assert await again.ended() == ExitStatus(code=7)
        assert again.output == COUNTED, f"attempt {attempt}, killed at {kill_at}"
        await again.close()


@pytest.mark.parametrize("attempts", [1, pytest.param(6, marks=pytest.mark.torture)])
async def test_an_owner_killed_at_any_moment_loses_nothing(here: BackendSetup, attempts: int) -> None:
    for attempt in range(attempts):
        await here.backend.aclose()
        spec = here.spec(["/bin/sh", "-c", f"{COUNT}; exit 8"])
        owner, _ = await start_owner(here, spec, 1 << 40, "before")
        with suppress(TimeoutError):
            async with asyncio.timeout(random.random() * 0.05):
                await ended(owner.pid)
        owner.close()
        again = (await here.adopt())[spec.session_id]
        assert await again.ended() == ExitStatus(code=8)
        assert again.output == COUNTED, f"attempt {attempt}"
        await again.close()


async def kill_keepers(here: BackendSetup) -> None:
    for pid in keepers(here):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            await ended(pid)


@pytest.mark.parametrize("attempts", [1, pytest.param(6, marks=pytest.mark.torture)])
async def test_a_killed_keeper(here: BackendSetup, attempts: int) -> None:
    for _ in range(attempts):
        owned = await here.sh(f"{COUNT}; echo done; read x; echo $x; exit 3")
        waiting = await here.sh("stty -echo; echo ready; read x; echo got $x; exit 4")
        await waiting.shows(b"ready")
        kill_at = random.randrange(len(COUNTED))
        await owned.holds(kill_at)
        await kill_keepers(here)
        if here.name in KEEPS_GOING_WITHOUT_ITS_KEEPER:
            await goes_on(owned, waiting)
        else:
            assert (await waiting.ended()).code is None
            await owned.ended()
            assert COUNTED.startswith(owned.output[: len(COUNTED)])
        fresh = await here.sh("echo fresh")
        assert await fresh.ended() == ExitStatus(code=0)
        for one in (owned, waiting, fresh):
            await one.close()


async def goes_on(owned: Owned, waiting: Owned) -> None:
    await owned.shows(b"done\n")
    for one in (owned, waiting):
        one.terminal.write(b"word\n")
    assert (await owned.ended()).code in (3, None)
    assert owned.output == COUNTED + b"done\nword\n"
    assert (await waiting.ended()).code in (4, None)
    assert waiting.output == b"ready\r\ngot word\r\n"


async def test_a_killed_keeper_then_a_killed_owner(here: BackendSetup) -> None:
    if here.name not in KEEPS_GOING_WITHOUT_ITS_KEEPER:
        return
    owned = await here.sh("stty -echo; echo ready; read x; echo got $x; read x; exit 4")
    await owned.shows(b"ready")
    await kill_keepers(here)
    owned.terminal.write(b"one\n")
    await owned.shows(b"got one")
    await (await here.sh("true")).close()
    (again, *_) = (await here.succeed()).values()
    owned.log.close()
    again.terminal.write(b"\n")
    assert (await again.ended()).code in (4, None)
    assert again.output == b"ready\r\ngot one\r\n"
    await again.close()


async def test_two_owners_never_share_a_terminal(here: BackendSetup) -> None:
    owned = await here.sh(f"stty -echo; echo ready; read x; {COUNT}; read x; exit 2")
    await owned.shows(b"ready")
    other = here.new_backend()
    attempt = asyncio.ensure_future(other.adopt())
    owned.terminal.write(b"\n")
    await owned.holds(len(COUNTED))
    assert owned.output == b"ready\r\n" + COUNTED
    await here.backend.aclose()
    owned.log.close()
    here.backend = other
    try:
        terminals = await attempt
    except BackendUnavailable:
        terminals = await other.adopt()
    (terminal,) = terminals
    again = Owned(terminal, here.directory(terminal.session_id))
    again.terminal.write(b"\n")
    assert await again.ended() == ExitStatus(code=2)
    assert again.output == b"ready\r\n" + COUNTED
    await again.close()


async def test_two_starting_at_once_end_with_one_keeper(here: BackendSetup) -> None:
    first, second = here.backend, here.new_backend()
    specs = [here.spec(["/bin/sh", "-c", "read x"]) for _ in range(2)]

    async def use(number: int, backend: object) -> None:
        terminal = await (first, second)[number].open(specs[number])
        terminal.detach()
        await (first, second)[number].aclose()

    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(*(use(number, backend) for number, backend in enumerate((first, second))))
    here.backend = here.new_backend()
    assert {terminal.session_id for terminal in await here.backend.adopt()} == {spec.session_id for spec in specs}


async def test_stop_ends_everything(here: BackendSetup) -> None:
    everyone = [await here.sh("echo ready; read x") for _ in range(3)]
    for owned in everyone:
        await owned.shows(b"ready")
    found = keepers(here)
    assert found
    await here.backend.stop()
    for pid in [*found, *(owned.terminal.pid for owned in everyone)]:
        await ended(pid)
    assert list(await here.backend.adopt()) == []
    fresh = await here.sh("echo fresh")
    assert await fresh.ended() == ExitStatus(code=0)


@pytest.mark.either("here")
async def test_keeper_holds_nothing_of_its_starter(here: BackendSetup) -> None:
    await (await here.sh("true")).close()
    stay = 0
    for pid in keepers(here):
        # Others have only been forked by a keeper, or are ending.
        with suppress(ProcessLookupError, FileNotFoundError):
            assert os.getsid(pid) != os.getsid(0)
            assert os.getpgid(pid) != os.getpgid(0)
            for number in (0, 1, 2):
                assert not os.readlink(f"/proc/{pid}/fd/{number}").startswith(("pipe", "/dev/pts"))
            stay += 1
    assert stay


@pytest.mark.either("here")
async def test_an_open_nobody_waits_for_leaves_nothing(here: BackendSetup) -> None:
    await (await here.sh("true")).close()
    for turns in range(12):
        opening = asyncio.ensure_future(here.backend.open(here.spec(["/bin/sh", "-c", "read x"])))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
    last = await here.sh("read x")
    adopted = await here.succeed()
    assert list(adopted) == [last.terminal.session_id]
    last.log.close()
