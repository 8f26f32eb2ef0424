"""What only the tmux backend does about its server, its control client, its sinks and its ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import select
import shutil
import signal
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ai_session.backends.tmux.plugin import creation
from ai_session.backends.tmux.terminal import HOLD_BYTES
from ai_session.errors import BackendUnavailable
from ai_session.models import ExitStatus
from ai_session.system.events import FileGrowth, process_ended
from tests.ai_session.support.terminals import BOUND_SECONDS, BackendSetup, Owned
from tests.ai_session.support.tmux_servers import (
    CAT,
    ECHOES,
    backend,
    client_pid,
    holder,
    kill_sink,
    pane,
    sinks,
    tmux,
    until_piped,
)
from tests.support.bounds import pause_awaited
from tests.support.process_ends import ended
from tests.support.stopping import stop

pytestmark = pytest.mark.anyio

NOTICED_BYTES = 8 << 20
"""What a terminal may print before its owner hears of the first of it."""


@pytest.mark.either("either")
async def test_a_killed_server_loses_its_terminals_and_the_next_open_starts_another(either: BackendSetup) -> None:
    everyone = [await either.sh(CAT) for _ in range(3)]
    for owned in everyone:
        await owned.shows(b"ready")
    old = backend(either).server.pid
    os.kill(old, signal.SIGKILL)
    for owned in everyone:
        assert await owned.ended() == ExitStatus(lost=True)
        assert owned.output == b"ready"
        await ended(owned.terminal.pid)
        owned.terminal.write(b"ignored")
        await owned.terminal.resize(30, 90)
        assert await owned.terminal.capture() is None
        await owned.close()
    owned = await either.sh("echo again; exec cat")  # through tmux alone, what precedes an end may be lost
    assert await owned.shows(b"\n") == b"again\r\n"
    assert backend(either).server.pid != old
    await owned.close()


@pytest.mark.either("either")
async def test_a_terminal_of_a_dead_server_does_not_reach_into_its_successor(either: BackendSetup) -> None:
    old = await either.sh(CAT)
    await old.shows(b"ready")
    server = backend(either).server.pid
    os.kill(server, signal.SIGKILL)
    await process_ended(server)
    new = await either.sh(CAT)
    assert pane(new).pane == pane(old).pane
    await new.shows(b"ready")
    old.terminal.write(b"lost")
    await old.terminal.resize(7, 7)
    assert await old.terminal.capture() is None
    await old.close()
    new.terminal.write(b"fine")
    assert await new.shows(b"fine") == b"readyfine"
    snapshot = await new.terminal.capture()
    assert snapshot is not None
    assert (snapshot.rows, snapshot.cols) == (24, 80)
    await new.close()


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.torture)])
async def test_a_new_daemon_replaces_a_server_that_is_just_ending(here: BackendSetup, times: int) -> None:
    for _ in range(times):
        await (await here.sh(CAT)).shows(b"ready")
        await backend(here).aclose()
        await tmux(here, "kill-server")
        here.backend = here.new_backend()
        owned = await here.sh("echo again")
        assert await owned.ended() == ExitStatus(code=0)
        await owned.close()


@pytest.mark.either("either")
async def test_no_input_is_lost_or_doubled_when_the_control_client_is_killed(either: BackendSetup) -> None:
    owned = await either.sh(CAT)
    await owned.shows(b"ready")
    wanted = b"".join(b"%06d\n" % number for number in range(20000))
    clients = set[int]()
    for start in range(0, len(wanted), 7000):
        owned.terminal.write(wanted[start : start + 7000])
        if client := client_pid(either):
            clients.add(client)
            with contextlib.suppress(ProcessLookupError):
                os.kill(client, signal.SIGKILL)
        await owned.until(lambda start=start: len(owned.output) > start // 2)
    owned.terminal.write(b"end")
    assert await owned.shows(b"end") == b"ready" + wanted + b"end"
    assert clients
    await owned.close()


@pytest.mark.parametrize(
    "either",
    [pytest.param(True, marks=pytest.mark.torture, id="held"), pytest.param(False, id="through tmux")],
    indirect=True,
)
async def test_input_is_exact_also_through_tmux(either: BackendSetup) -> None:
    wanted = (
        b"-f ; {} ~ $HOME #{x} %if \\ \" '\n" + random.Random(7).randbytes(100000) + b"\0\0" + bytes(range(256)) * 3
    )
    got = either.runtime / "got"
    owned = await either.sh(f"stty raw -echo; printf ready; head -c {len(wanted)} >'{got}'; printf done; exec cat")
    await owned.shows(b"ready")
    for start in range(0, len(wanted), 25001):
        owned.terminal.write(wanted[start : start + 25001])
    await owned.shows(b"done")
    assert got.read_bytes() == wanted
    await owned.close()


async def test_questions_survive_the_death_of_the_control_client(here: BackendSetup) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    os.kill(client_pid(here), signal.SIGKILL)
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert snapshot.lines[0] == "ready"
    await owned.close()


def blocked_until(condition: Callable[[], bool]) -> None:
    """Waits as a loop does that has other work: nothing else of this process runs meanwhile."""
    end = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < end


async def test_a_saver_that_is_late_takes_nothing_from_the_next_sink(here: BackendSetup) -> None:
    """It sees no end of the sink that was killed, for the next one holds the FIFO when it looks."""
    owned = await here.sh(ECHOES)
    await owned.shows(b"ready")
    directory = pane(owned).directory
    os.mkfifo(directory / "room")  # where the next sink tries whether there is room, and waits for a reader
    saver = Path("/proc", str(holder(directory / "tail")))
    stop(int(saver.name))
    await kill_sink(owned)
    room = await asyncio.to_thread(os.open, directory / "room", os.O_RDONLY)
    os.kill(int(saver.name), signal.SIGCONT)
    end = os.open(directory / "sink", os.O_RDONLY | os.O_NONBLOCK)
    try:
        blocked_until(lambda: "State:\tS" in (saver / "status").read_text())
        while os.read(room, 65536):
            pass
        blocked_until(lambda: bool(sinks(owned)))
        blocked_until(lambda: not select.select((end,), (), (), 0)[0])
    finally:
        os.close(room)
        os.close(end)
    await owned.until(lambda: not owned.terminal.losing)
    owned.terminal.write(b"0\n")
    assert await owned.shows(b"<0>\r\n") == b"ready\r\n<0>\r\n"
    await owned.close()


@pytest.mark.torture
async def test_a_killed_sink_is_replaced(either: BackendSetup) -> None:
    owned = await either.sh(ECHOES)
    await owned.shows(b"ready")
    for number in range(5):
        await kill_sink(owned)
        await until_piped(owned)
        owned.terminal.write(b"%d\n" % number)
        await owned.shows(b"<%d>\r\n" % number)
    assert owned.output == b"ready\r\n" + b"".join(b"<%d>\r\n" % number for number in range(5))
    assert not owned.exits
    await owned.close()


async def until_shown(owned: Owned, text: str) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while (snapshot := await owned.terminal.capture()) is None or text not in snapshot.lines:
            await pause_awaited()


async def test_a_full_disk_stops_the_log_of_one_session_until_there_is_room(here: BackendSetup) -> None:
    owned, other = await here.sh(ECHOES), await here.sh(ECHOES)
    await owned.shows(b"ready")
    server = backend(here).server.pid
    soft, hard = resource.prlimit(server, resource.RLIMIT_FSIZE)
    resource.prlimit(server, resource.RLIMIT_FSIZE, (20000, hard))
    await kill_sink(owned)
    await until_piped(owned)
    for number in range(30):
        owned.terminal.write(b"%01000d\n" % number)
    owned.terminal.write(b"last\n")
    await until_shown(owned, "<last>")
    assert len(owned.output) <= 20000
    other.terminal.write(b"fine\n")
    await other.shows(b"<fine>")
    resource.prlimit(server, resource.RLIMIT_FSIZE, (soft, hard))

    def has_room(sink: int) -> bool:
        """Not one that was started while the server's limit was the low one, which it keeps: that is ended."""
        with contextlib.suppress(ProcessLookupError):
            if resource.prlimit(sink, resource.RLIMIT_FSIZE)[0] == soft:
                return True
            os.kill(sink, signal.SIGKILL)
        return False

    async with asyncio.timeout(BOUND_SECONDS):
        while not any(has_room(sink) for sink in sinks(owned)):
            await owned.terminal.capture()
    owned.terminal.write(b"room\n")
    await owned.shows(b"<room>")
    assert not owned.exits
    for one in (owned, other):
        await one.close()


async def test_a_later_daemon_finds_everything(here: BackendSetup) -> None:
    live, dies, mute = await here.sh(ECHOES), await here.sh(f"{ECHOES}; exit 7"), await here.sh(ECHOES)
    for owned in (live, dies, mute):
        await owned.shows(b"ready")
    await backend(here).aclose()
    await tmux(here, "send-keys", "-t", pane(live).session_id, "away", "Enter")
    await tmux(here, "send-keys", "-t", pane(dies).session_id, "bye", "Enter", "C-d")
    await ended(dies.terminal.pid)
    await kill_sink(mute)
    here.backend = here.new_backend()
    found = await here.adopt()
    assert set(found) == {owned.terminal.session_id for owned in (live, dies, mute)}
    assert await found[dies.terminal.session_id].ended() == ExitStatus(code=7)
    assert found[dies.terminal.session_id].output == b"ready\r\n<bye>\r\n"
    again = found[live.terminal.session_id]
    assert (again.terminal.pid, again.terminal.tty) == (live.terminal.pid, live.terminal.tty)
    again.terminal.write(b"back\n")
    assert await again.shows(b"<back>") == b"ready\r\n<away>\r\n<back>\r\n"
    muted = found[mute.terminal.session_id]
    await until_piped(muted)
    muted.terminal.write(b"heard\n")
    await muted.shows(b"<heard>")
    for owned in found.values():
        await owned.close()
    assert await here.succeed() == {}


async def test_a_child_whose_daemon_died_while_opening_it_is_let_go(here: BackendSetup) -> None:
    kept = await here.sh(CAT)
    spec = here.spec(["/bin/sh", "-c", ECHOES])
    for name in ("sink", "ready", "tail", "gate"):
        os.mkfifo(Path(spec.directory) / name)
    (Path(spec.directory) / "log").touch()
    await tmux(here, *creation(spec, [], ""))
    found = await here.succeed()
    assert set(found) == {kept.terminal.session_id, spec.session_id}
    await found[spec.session_id].shows(b"ready")
    for owned in found.values():
        await owned.close()


async def test_a_terminal_whose_directory_has_gone_is_ended(here: BackendSetup) -> None:
    kept, stray, dead = await here.sh(CAT), await here.sh(CAT), await here.sh("exit 1")
    await dead.ended()
    for owned in (stray, dead):
        shutil.rmtree(here.directory(owned.terminal.session_id))
    assert list(await here.succeed()) == [kept.terminal.session_id]
    await ended(stray.terminal.pid)
    assert f"@ais-exit-{dead.terminal.session_id}" not in await tmux(here, "show-options", "-g")


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.torture)])
async def test_attaching_while_terminals_end_leaves_the_server_alive(here: BackendSetup, times: int) -> None:
    await (await here.sh("true")).close()
    server = backend(here).server.pid
    for _ in range(times):
        everyone = await asyncio.gather(*(here.sh("read x") for _ in range(12)))
        await backend(here).aclose()
        here.backend = here.new_backend()
        adopting = asyncio.ensure_future(here.adopt())
        for owned in everyone:
            os.kill(owned.terminal.pid, signal.SIGKILL)
            await asyncio.sleep(0)
        found = await adopting
        assert set(found) == {owned.terminal.session_id for owned in everyone}
        for owned in found.values():
            assert await owned.ended() == ExitStatus(signal=9)
            await owned.close()
        assert backend(here).server.pid == server


async def test_adopting_starts_no_server(here: BackendSetup) -> None:
    assert await here.adopt() == {}
    assert not os.path.exists(backend(here).server.socket)


@pytest.mark.parametrize("many", [8, pytest.param(50, marks=pytest.mark.torture)])
async def test_many_simultaneous_ends_are_all_reported(here: BackendSetup, many: int) -> None:
    script = "stty -echo -opost; read x; seq 3000; exit "
    everyone = await asyncio.gather(*(here.sh(f"{script}{number}") for number in range(many)))
    for owned in everyone:
        owned.terminal.write(b"\n")
    wanted = b"".join(b"%d\n" % number for number in range(1, 3001))
    for number, owned in enumerate(everyone):
        assert await owned.ended() == ExitStatus(code=number)
        assert owned.output.lstrip() == wanted
        await owned.close()


@pytest.mark.either("either")
@pytest.mark.parametrize("times", [3, pytest.param(20, marks=pytest.mark.torture)])
async def test_input_for_a_child_that_just_ends_leaves_the_server_alive(either: BackendSetup, times: int) -> None:
    server = 0
    for _ in range(times):
        owned = await either.sh(CAT)
        await owned.shows(b"ready")
        server = server or backend(either).server.pid
        os.kill(owned.terminal.pid, signal.SIGKILL)
        for _ in range(20):
            owned.terminal.write(b"late")
        assert await owned.ended() == ExitStatus(signal=9)
        await owned.close()
    assert backend(either).server.pid == server


async def test_an_id_in_use_is_refused_and_its_terminal_left_alone(here: BackendSetup) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    spec = here.spec(["cat"])
    taken = type(spec)(owned.terminal.session_id, spec.directory, spec.argv, spec.env, "/", 24, 80)
    with pytest.raises(BackendUnavailable, match="duplicate"):
        await here.backend.open(taken)
    owned.terminal.write(b"fine")
    await owned.shows(b"fine")
    await owned.close()


async def test_a_cancelled_open_leaves_nothing(here: BackendSetup) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    for turns in range(12):
        task = asyncio.create_task(here.backend.open(here.spec(["sleep", "1000"])))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            await task.result().close()
    async with asyncio.timeout(BOUND_SECONDS):
        while await tmux(here, "list-sessions", "-F", "#{session_name}") != f"ais-keeper\n{owned.terminal.session_id}":
            pass
    await owned.close()


@pytest.mark.torture
async def test_a_server_that_is_stopped_keeps_nobody_waiting_and_opens_nothing_later(here: BackendSetup) -> None:
    held = await here.sh(CAT)
    server = int(await tmux(here, "display-message", "-p", "#{pid}"))
    stop(server)
    try:
        with pytest.raises(BackendUnavailable, match="did not answer"):
            await here.sh("echo never")
        with pytest.raises(BackendUnavailable, match="did not answer"):
            await held.terminal.capture()
        await held.close()
    finally:
        os.kill(server, signal.SIGCONT)
    owned = await here.sh("echo now")
    await owned.ended()
    async with asyncio.timeout(BOUND_SECONDS):
        while {"ses_1", "ses_2"} & {*(await tmux(here, "list-sessions", "-F", "#{session_name}")).split()}:
            pass
    await owned.close()


@pytest.mark.either("either")
async def test_stop_ends_the_server_and_all_terminals(either: BackendSetup) -> None:
    everyone = [await either.sh(CAT) for _ in range(3)]
    server = backend(either).server.pid
    await either.backend.stop()
    for pid in (server, *(owned.terminal.pid for owned in everyone)):
        await ended(pid)
    await either.backend.stop()
    owned = await either.sh("echo again")
    assert await owned.ended() == ExitStatus(code=0)


async def test_probe_says_what_is_missing(here: BackendSetup, home: Path) -> None:
    kept, os.environ["PATH"] = os.environ["PATH"], str(home)
    try:
        status = await here.backend.probe()
    finally:
        os.environ["PATH"] = kept
    assert not status.usable
    assert status.reason == "tmux is not on PATH"
    assert "apt-get install tmux" in status.suggestion


async def test_probe_repeats_what_tmux_complains_of(here: BackendSetup, home: Path) -> None:
    (home / "tmux").write_text("#!/bin/sh\necho 'unknown option -- N' >&2\nexit 1\n")
    (home / "tmux").chmod(0o755)
    kept, os.environ["PATH"] = os.environ["PATH"], str(home)
    try:
        status = await here.backend.probe()
    finally:
        os.environ["PATH"] = kept
    assert (status.usable, status.reason) == (False, "tmux does not start: unknown option -- N")


class Behind(Owned):
    """An owner that takes nothing in until it is asked to."""

    reads = False

    def _on_output(self) -> None:
        self.terminal.unread(self.log.size - self.log.end)
        if self.reads:
            super()._on_output()
            self.terminal.unread(self.log.size - self.log.end)
        self._changed.set()

    def read_on(self) -> None:
        self.reads = True
        self._on_output()

    def stopped(self) -> bool:
        """Whether nothing that is printed comes further than the terminal."""
        tty = os.open(self.terminal.tty, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return not os.write(tty, b"x")
        except BlockingIOError:
            return True
        finally:
            os.close(tty)


async def a_flood(here: BackendSetup) -> Behind:
    spec = here.spec(
        ["/bin/sh", "-c", "trap 'echo; echo the end; exit' INT; while :; do head -c 1048576 /dev/zero; done"]
    )
    owned = Behind(await here.backend.open(spec), spec.directory)
    await owned.until(lambda: owned.log.size > HOLD_BYTES)
    await owned.until(owned.stopped)
    return owned


@pytest.mark.either("either")
async def test_a_session_that_is_far_behind_is_held_back_until_it_is_read(either: BackendSetup) -> None:
    owned = await a_flood(either)
    size = owned.log.size
    assert size < HOLD_BYTES + NOTICED_BYTES
    owned.read_on()
    await owned.holds(size + HOLD_BYTES)
    os.kill(owned.terminal.pid, signal.SIGINT)
    assert b"the end" in await owned.shows(b"the end")
    assert await owned.ended() == ExitStatus(code=0)
    await owned.close()


@pytest.mark.torture  # by day it goes on for a reader, and for the next daemon
@pytest.mark.either("either")
async def test_what_was_held_back_goes_on_when_the_daemon_leaves_it(either: BackendSetup) -> None:
    owned = await a_flood(either)
    size = owned.log.size
    owned.detach()
    log = Path(either.directory("ses_1")) / "log"
    growth = FileGrowth()
    grown = asyncio.Event()
    growth.add(str(log), lambda: grown.set() if log.stat().st_size > size + HOLD_BYTES else None)
    async with asyncio.timeout(BOUND_SECONDS):
        await grown.wait()
    growth.close()


@pytest.mark.either("either")
async def test_what_a_killed_daemon_held_back_goes_on_when_it_is_adopted(either: BackendSetup) -> None:
    owned = await a_flood(either)
    size = owned.log.size
    terminal = pane(owned)
    tty = os.open(terminal.tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    owned.detach()
    termios.tcflow(tty, termios.TCOOFF)
    os.close(tty)
    [again] = (await either.succeed()).values()
    await again.holds(size + HOLD_BYTES)
    await again.close()


async def test_the_log_keeps_to_its_bounds_while_nobody_reads_it(here: BackendSetup) -> None:
    spec = replace(
        here.spec(["/bin/sh", "-c", "read go; head -c 19922944 /dev/zero; echo the end; read x"]), retain_bytes=1 << 20
    )
    owned = Owned(await here.backend.open(spec), spec.directory)
    log, growth, grown = Path(spec.directory) / "log", FileGrowth(), asyncio.Event()
    growth.add(str(log), grown.set)
    owned.terminal.write(b"go\n")
    owned.detach()
    async with asyncio.timeout(BOUND_SECONDS):
        while log.stat().st_size < 19 << 20:
            await grown.wait()
            grown.clear()
            assert log.stat().st_blocks * 512 <= (1 << 20) + (16 << 20)
    growth.close()
    [again] = (await here.succeed()).values()
    assert (await again.shows(b"the end")).rstrip().endswith(b"the end")
    await again.close()
