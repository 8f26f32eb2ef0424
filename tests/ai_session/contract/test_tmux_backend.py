"""What only the tmux backend does: its server, its pipes, its client, and people who attach with tmux itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from ai_session.backends.tmux import TmuxBackend, creation
from ai_session.errors import BackendUnavailable
from ai_session.kernel_events import process_ended
from ai_session.models import ExitStatus
from ai_session.tmux_terminal import TmuxTerminal
from tests.ai_session.contract.terminal_harness import BOUND_SECONDS, Owned, World, gone, world

pytestmark = pytest.mark.anyio

CAT = "stty raw -echo; printf ready; exec cat"
ECHOES = "stty -echo; echo ready; while read -r line; do echo \"<$line>\"; done"
NASTY = "a 'b\" #[x]#{pid}#(date) %Y$HOME`id`\\;~ é {}"


@pytest.fixture
async def here(home: Path) -> AsyncGenerator[World]:
    async with world("tmux", home) as made:
        yield made


def backend(here: World) -> TmuxBackend:
    assert isinstance(here.backend, TmuxBackend)
    return here.backend


def pane(owned: Owned) -> TmuxTerminal:
    assert isinstance(owned.terminal, TmuxTerminal)
    return owned.terminal


async def tmux(here: World, *words: str) -> str:
    """A person's own tmux command on the server; what it says."""
    process = await asyncio.create_subprocess_exec(
        "tmux", "-S", backend(here).server.socket, *words, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(BOUND_SECONDS):
        out, _ = await process.communicate()
    return out.decode().rstrip("\n")


def sinks(owned: Owned) -> list[int]:
    """The processes that append to the log."""
    wanted = os.stat(pane(owned).log).st_ino
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.stat(folder / "fd" / "1").st_ino == wanted and (folder / "comm").read_text() == "cat\n":
                found.append(int(folder.name))
    return found


async def kill_sink(owned: Owned) -> None:
    [sink] = sinks(owned)
    os.kill(sink, signal.SIGKILL)
    await process_ended(sink)


async def until_piped(owned: Owned) -> None:
    """Each round asks tmux something, which is when a sink that could not be had before is tried again."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not sinks(owned):
            await owned.terminal.capture()


class Person:
    """Somebody who attached to a terminal with tmux itself, on a terminal of another size."""

    def __init__(self, owned: Owned, home: World) -> None:
        self.owned = owned
        self._here = home

    @classmethod
    async def attach(cls, here: World, owned: Owned) -> Person:
        """Uses a terminal of another backend, as a person's emulator would be."""
        command = ("tmux", "-S", backend(here).server.socket, "attach", "-t", pane(owned).session_id)
        elsewhere = World("pty", here.runtime.parent / "p")
        elsewhere.runtime.mkdir(mode=0o700)
        person = cls(await elsewhere.open(*command, env={"PATH": os.environ["PATH"], "TERM": "xterm"}), elsewhere)
        await person.owned.shows(b"ready")
        return person

    async def leave(self) -> None:
        self.owned.terminal.write(b"\x02d")
        await self.owned.ended()
        await self.owned.close()
        await self._here.backend.stop()


async def test_a_killed_server_loses_its_terminals_and_the_next_open_starts_another(here: World) -> None:
    everyone = [await here.sh(CAT) for _ in range(3)]
    for owned in everyone:
        await owned.shows(b"ready")
    old = backend(here).server.pid
    os.kill(old, signal.SIGKILL)
    for owned in everyone:
        assert await owned.ended() == ExitStatus(lost=True)
        assert owned.output == b"ready"
        await gone(owned.terminal.pid)
        owned.terminal.write(b"ignored")
        await owned.terminal.resize(30, 90)
        assert await owned.terminal.capture() is None
        await owned.close()
    owned = await here.sh("echo again")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == b"again\r\n"
    assert backend(here).server.pid != old
    await owned.close()


async def test_a_server_ended_by_a_person_is_replaced(here: World) -> None:
    for _ in range(5):
        owned = await here.sh(CAT)
        await owned.shows(b"ready")
        await tmux(here, "kill-server")
        other = await here.sh("echo again")
        assert await owned.ended() == ExitStatus(lost=True)
        assert await other.ended() == ExitStatus(code=0)
        await owned.close()
        await other.close()


async def test_a_new_daemon_replaces_a_server_that_is_just_ending(here: World) -> None:
    for _ in range(5):
        await (await here.sh(CAT)).shows(b"ready")
        await backend(here).aclose()
        await tmux(here, "kill-server")
        here.backend = here.new_backend()
        owned = await here.sh("echo again")
        assert await owned.ended() == ExitStatus(code=0)
        await owned.close()


async def test_no_input_is_lost_or_doubled_when_the_control_client_is_killed(here: World) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    wanted = b"".join(b"%06d\n" % number for number in range(60000))
    server, clients = backend(here).server, set[int]()
    for start in range(0, len(wanted), 21000):
        owned.terminal.write(wanted[start : start + 21000])
        if client := server.client_pid:
            clients.add(client)
            with contextlib.suppress(ProcessLookupError):
                os.kill(client, signal.SIGKILL)
        await owned.until(lambda start=start: len(owned.output) > start // 2)
    owned.terminal.write(b"end")
    assert await owned.shows(b"end") == b"ready" + wanted + b"end"
    assert len(clients) > 5
    await owned.close()


async def test_questions_survive_the_death_of_the_control_client(here: World) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    os.kill(backend(here).server.client_pid, signal.SIGKILL)
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert snapshot.lines[0] == "ready"
    await owned.close()


async def test_a_killed_sink_is_replaced(here: World) -> None:
    owned = await here.sh(ECHOES)
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
            pass


async def test_a_full_disk_stops_the_log_of_one_session_until_there_is_room(here: World) -> None:
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
    for process in (server, *sinks(owned)):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))
    await until_piped(owned)
    owned.terminal.write(b"room\n")
    await owned.shows(b"<room>")
    assert not owned.exits
    for one in (owned, other):
        await one.close()


async def test_a_later_daemon_finds_everything(here: World) -> None:
    live, dies, mute = await here.sh(ECHOES), await here.sh(f"{ECHOES}; exit 7"), await here.sh(ECHOES)
    for owned in (live, dies, mute):
        await owned.shows(b"ready")
    await backend(here).aclose()
    await tmux(here, "send-keys", "-t", pane(live).session_id, "away", "Enter")
    await tmux(here, "send-keys", "-t", pane(dies).session_id, "bye", "Enter", "C-d")
    await gone(dies.terminal.pid)
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


async def test_a_child_whose_daemon_died_while_opening_it_is_let_go(here: World) -> None:
    kept = await here.sh(CAT)
    spec = here.spec(["/bin/sh", "-c", ECHOES])
    for name in ("sink", "gate"):
        os.mkfifo(Path(spec.directory) / name)
    (Path(spec.directory) / "log").touch()
    await tmux(here, *creation(spec, []))
    found = await here.succeed()
    assert set(found) == {kept.terminal.session_id, spec.session_id}
    await found[spec.session_id].shows(b"ready")
    for owned in found.values():
        await owned.close()


async def test_a_terminal_whose_directory_has_gone_is_ended(here: World) -> None:
    kept, stray, dead = await here.sh(CAT), await here.sh(CAT), await here.sh("exit 1")
    await dead.ended()
    for owned in (stray, dead):
        shutil.rmtree(here.directory(owned.terminal.session_id))
    assert list(await here.succeed()) == [kept.terminal.session_id]
    await gone(stray.terminal.pid)
    assert f"@ais-exit-{dead.terminal.session_id}" not in await tmux(here, "show-options", "-g")


async def test_adopting_starts_no_server(here: World) -> None:
    assert await here.adopt() == {}
    assert not os.path.exists(backend(here).server.socket)


async def test_a_person_sees_the_same_terminal_and_does_not_change_its_size(here: World) -> None:
    owned = await here.sh(ECHOES)
    await owned.shows(b"ready")
    await owned.terminal.resize(50, 200)
    person = await Person.attach(here, owned)
    person.owned.terminal.write(b"human\r")
    await owned.shows(b"<human>")
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert (snapshot.rows, snapshot.cols) == (50, 200)
    await owned.terminal.resize(20, 60)
    await person.leave()
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert (snapshot.rows, snapshot.cols) == (20, 60)
    await owned.close()


async def test_input_reaches_the_child_while_a_person_reads_back(here: World) -> None:
    owned = await here.sh("stty raw -echo; printf ready; exec cat -v")
    await owned.shows(b"ready")
    await tmux(here, "copy-mode", "-t", pane(owned).pane)
    owned.terminal.write(b"q one ")
    await owned.shows(b"q one ")
    assert await tmux(here, "display-message", "-p", "-t", pane(owned).pane, "#{pane_in_mode}") == "1"
    owned.terminal.write(b"\0two\0\0")
    await owned.shows(b"^@two^@^@")
    await owned.close()


async def test_a_terminal_killed_by_a_person_is_lost(here: World) -> None:
    owned, other = await here.sh(CAT), await here.sh(CAT)
    await owned.shows(b"ready")
    await tmux(here, "kill-session", "-t", pane(owned).session_id)
    assert await owned.ended() == ExitStatus(lost=True)
    await gone(owned.terminal.pid)
    other.terminal.write(b"fine")
    await other.shows(b"fine")
    await owned.close()
    await other.close()


async def test_a_pane_beside_ours_is_none_of_our_business(here: World) -> None:
    owned = await here.sh(ECHOES)
    await owned.shows(b"ready")
    await tmux(here, "split-window", "-d", "-t", pane(owned).session_id, "exit 3")
    async with asyncio.timeout(BOUND_SECONDS):
        while len((await tmux(here, "list-panes", "-s", "-t", pane(owned).session_id)).split("\n")) > 1:
            pass
    await tmux(here, "new-window", "-d", "-t", pane(owned).session_id, "cat")
    owned.terminal.write(b"word\n")
    assert await owned.shows(b"<word>") == b"ready\r\n<word>\r\n"
    assert list(await here.succeed()) == [owned.terminal.session_id]
    await tmux(here, "kill-session", "-t", owned.terminal.session_id)


async def test_any_path_will_do(home: Path) -> None:
    (home / NASTY).mkdir()
    async with world("tmux", home / NASTY) as here:
        owned = await here.sh("read -r x; echo \"$x\"; pwd", cwd=str(home / NASTY))
        owned.terminal.write(b"word\n")
        assert await owned.ended() == ExitStatus(code=0)
        assert owned.output.decode() == f"word\r\nword\r\n{home / NASTY}\r\n"
        await owned.close()
        kept = await here.sh(CAT)
        await kept.shows(b"ready")
        assert list(await here.succeed()) == [kept.terminal.session_id]


SCREEN = r"""
printf '\033]2;a title\007\033[?1049h\033[2J\033[H'
printf 'wide 你好 e\314\201\r\n%%end 1 2 1\r\n%%begin 1 2 1\r\n\033[5;3H\033[31mred\033[0m\033[?25l'
printf '\033[24;70Hlast line!'; read x
"""


async def test_the_screen_is_read_from_tmux(here: World) -> None:
    owned = await here.sh(SCREEN)
    await owned.shows(b"last line!")
    snapshot, drawing = await owned.terminal.capture(), await owned.terminal.capture_ansi()
    assert snapshot is not None
    assert drawing is not None
    assert snapshot.lines[:5] == ("wide 你好 e\u0301", "%end 1 2 1", "%begin 1 2 1", "", "  red")
    assert snapshot.lines[5:23] == ("",) * 18
    assert snapshot.lines[23] == " " * 69 + "last line!"
    assert (snapshot.rows, snapshot.cols, snapshot.cursor_row, snapshot.cursor_col) == (24, 80, 23, 79)
    assert (snapshot.cursor_visible, snapshot.title, snapshot.alternate_screen) == (False, "a title", True)
    again = await here.sh("stty raw; read x")
    (here.runtime / "drawing").write_bytes(drawing)
    shown = await here.sh(f"stty raw -echo; cat '{here.runtime}/drawing'; read x")
    await shown.until(lambda: len(shown.output) == len(drawing))
    assert await shown.terminal.capture() == snapshot
    for one in (owned, again, shown):
        await one.close()


async def test_a_fresh_screen_has_no_title(here: World) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert (snapshot.title, snapshot.alternate_screen, snapshot.cursor_visible) == ("", False, True)
    assert (snapshot.cursor_row, snapshot.cursor_col) == (0, 5)
    await owned.close()


async def test_fifty_that_end_at_once_are_all_told(here: World) -> None:
    script = "stty -echo -opost; read x; seq 3000; exit "
    everyone = await asyncio.gather(*(here.sh(f"{script}{number}") for number in range(50)))
    for owned in everyone:
        owned.terminal.write(b"\n")
    wanted = b"".join(b"%d\n" % number for number in range(1, 3001))
    for number, owned in enumerate(everyone):
        assert await owned.ended() == ExitStatus(code=number)
        assert owned.output.lstrip() == wanted
        await owned.close()


async def test_input_for_a_child_that_just_ends_leaves_the_server_alive(here: World) -> None:
    server = 0
    for _ in range(20):
        owned = await here.sh(CAT)
        await owned.shows(b"ready")
        server = server or backend(here).server.pid
        os.kill(owned.terminal.pid, signal.SIGKILL)
        for _ in range(20):
            owned.terminal.write(b"late")
        assert await owned.ended() == ExitStatus(signal=9)
        await owned.close()
    assert backend(here).server.pid == server


async def test_an_id_in_use_is_refused_and_its_terminal_left_alone(here: World) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    spec = here.spec(["cat"])
    taken = type(spec)(owned.terminal.session_id, spec.directory, spec.argv, spec.env, "/", 24, 80)
    with pytest.raises(BackendUnavailable, match="duplicate"):
        await here.backend.open(taken)
    owned.terminal.write(b"fine")
    await owned.shows(b"fine")
    await owned.close()


async def test_a_cancelled_open_leaves_nothing(here: World) -> None:
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


async def test_stop_ends_the_server_and_all_terminals(here: World) -> None:
    everyone = [await here.sh(CAT) for _ in range(3)]
    server = backend(here).server.pid
    await here.backend.stop()
    for pid in (server, *(owned.terminal.pid for owned in everyone)):
        await gone(pid)
    await here.backend.stop()
    owned = await here.sh("echo again")
    assert await owned.ended() == ExitStatus(code=0)


async def test_a_child_may_start_a_tmux_of_its_own(here: World, home: Path) -> None:
    inner = f"tmux -S '{home}/inner' -f /dev/null"
    owned = await here.sh(f"{inner} new-session -d -s mine cat && {inner} list-sessions -F '#S'; {inner} kill-server")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == b"mine\r\n"
    await owned.close()


async def test_probe_says_what_is_missing(here: World, home: Path) -> None:
    kept, os.environ["PATH"] = os.environ["PATH"], str(home)
    try:
        status = await here.backend.probe()
    finally:
        os.environ["PATH"] = kept
    assert not status.usable
    assert status.reason == "tmux is not on PATH"
    assert "apt-get install tmux" in status.suggestion


async def test_probe_repeats_what_tmux_complains_of(here: World, home: Path) -> None:
    (home / "tmux").write_text("#!/bin/sh\necho 'unknown option -- N' >&2\nexit 1\n")
    (home / "tmux").chmod(0o755)
    kept, os.environ["PATH"] = os.environ["PATH"], str(home)
    try:
        status = await here.backend.probe()
    finally:
        os.environ["PATH"] = kept
    assert (status.usable, status.reason) == (False, "tmux does not start: unknown option -- N")
