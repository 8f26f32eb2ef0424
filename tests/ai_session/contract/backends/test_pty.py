"""What only the pty backend can meet: a holder that is killed, stopped or cannot be started."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_session.errors import BackendUnavailable
from ai_session.models import ExitStatus
from tests.ai_session.contract.backends.test_backend_survival import keepers
from tests.ai_session.support.terminals import BackendSetup, open_backend
from tests.support.process_ends import ended
from tests.support.stopping import stop

pytestmark = pytest.mark.anyio

ANSWERS = "stty -echo; echo ready; while read x; do echo got $x; [ $x = end ] && exit 9; done"


@pytest.fixture
async def here(home: Path) -> AsyncIterator[BackendSetup]:
    async with open_backend("pty", home) as made:
        yield made


async def kill_holder(here: BackendSetup) -> None:
    (pid,) = keepers(here)
    os.kill(pid, signal.SIGKILL)
    await ended(pid)


async def test_terminals_go_on_when_no_holder_can_be_started(here: BackendSetup) -> None:
    owned, ends = await here.sh(ANSWERS), await here.sh(ANSWERS)
    for one in (owned, ends):
        await one.shows(b"ready")
    (here.runtime / "holder.lock").unlink()
    (here.runtime / "holder.lock").mkdir()
    await kill_holder(here)
    with pytest.raises(BackendUnavailable, match=r"holder\.lock") as caught:
        await here.sh("true")
    assert caught.value.suggestion
    for one, word in ((owned, b"one"), (ends, b"end")):
        one.terminal.write(word + b"\n")
        await one.shows(b"got " + word)
    assert await ends.ended() == ExitStatus(lost=True)
    assert ends.output == b"ready\r\ngot end\r\n"
    (here.runtime / "holder.lock").rmdir()
    assert await (await here.sh("exit 3")).ended() == ExitStatus(code=3)
    again = (await here.succeed())[owned.terminal.session_id]
    again.terminal.write(b"end\n")
    await again.shows(b"got end")
    assert (await again.ended()).code in (9, None)


async def test_an_orderly_end_right_after_the_holders(here: BackendSetup) -> None:
    for word in ("one", "two", "three"):
        owned = await here.sh(ANSWERS)
        await owned.shows(b"ready")
        (pid,) = keepers(here)
        os.kill(pid, signal.SIGKILL)
        if word != "one":
            await ended(pid)
        again = (await here.succeed())[owned.terminal.session_id]
        owned.log.close()
        again.terminal.write(f"{word}\n".encode())
        await again.shows(f"got {word}".encode())
        await again.close()


async def test_an_open_that_meets_a_dying_holder_is_done_again(here: BackendSetup) -> None:
    for _ in range(5):
        await (await here.sh("true")).close()
        (pid,) = keepers(here)
        opening = [asyncio.ensure_future(here.sh("echo fine")) for _ in range(5)]
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        for owned in await asyncio.gather(*opening):
            assert (await owned.ended()).code in (0, None)
            assert owned.output == b"fine\r\n"
            await owned.close()


@pytest.mark.torture
async def test_a_stopped_holder_is_an_error(here: BackendSetup) -> None:
    owned = await here.sh(ANSWERS)
    await owned.shows(b"ready")
    (pid,) = keepers(here)
    stop(pid)
    with pytest.raises(BackendUnavailable, match="no answer"):
        await here.sh("true")
    owned.terminal.write(b"one\n")
    await owned.shows(b"got one")
    await owned.close()
    with pytest.raises(BackendUnavailable, match="stopped"):
        await here.new_backend().adopt()
    os.kill(pid, signal.SIGCONT)
    fresh = await here.sh("echo fresh")
    await fresh.ended()
    assert list(await here.succeed()) == [fresh.terminal.session_id]
