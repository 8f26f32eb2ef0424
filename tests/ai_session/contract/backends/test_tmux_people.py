"""A terminal on tmux is also there for people with tmux: they see it, type into it, and cannot break it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ai_session.models import ExitStatus
from tests.ai_session.support.terminals import BOUND_SECONDS, BackendSetup
from tests.ai_session.support.tmux_servers import CAT, ECHOES, Person, a_world, pane, tmux
from tests.support.process_ends import ended

NASTY = "a 'b\" #[x]#{pid}#(date) %Y$HOME`id`\\;~ é {}"
pytestmark = pytest.mark.anyio


@pytest.mark.either("either")
async def test_a_person_sees_the_same_terminal_and_does_not_change_its_size(either: BackendSetup) -> None:
    owned = await either.sh(ECHOES)
    await owned.shows(b"ready")
    await owned.terminal.resize(50, 200)
    person = await Person.attach(either, owned)
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


@pytest.mark.either("either")
async def test_input_reaches_the_child_while_a_person_reads_back(either: BackendSetup) -> None:
    owned = await either.sh("stty raw -echo; printf ready; exec cat -v")
    await owned.shows(b"ready")
    await tmux(either, "copy-mode", "-t", pane(owned).pane)
    owned.terminal.write(b"q one ")
    await owned.shows(b"q one ")
    assert await tmux(either, "display-message", "-p", "-t", pane(owned).pane, "#{pane_in_mode}") == "1"
    owned.terminal.write(b"\0two\0\0")
    await owned.shows(b"^@two^@^@")
    await owned.close()


@pytest.mark.either("either")
async def test_a_terminal_killed_by_a_person_is_lost(either: BackendSetup) -> None:
    owned, other = await either.sh(CAT), await either.sh(CAT)
    await owned.shows(b"ready")
    await tmux(either, "kill-session", "-t", pane(owned).session_id)
    assert await owned.ended() == ExitStatus(lost=True)
    await ended(owned.terminal.pid)
    other.terminal.write(b"fine")
    await other.shows(b"fine")
    await owned.close()
    await other.close()


async def test_a_pane_beside_ours_is_none_of_our_business(here: BackendSetup) -> None:
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
    async with a_world(home / NASTY) as here:
        owned = await here.sh('read -r x; echo "$x"; pwd', cwd=str(home / NASTY))
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


async def test_the_screen_is_read_from_tmux(here: BackendSetup) -> None:
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


async def test_a_fresh_screen_has_no_title(here: BackendSetup) -> None:
    owned = await here.sh(CAT)
    await owned.shows(b"ready")
    snapshot = await owned.terminal.capture()
    assert snapshot is not None
    assert (snapshot.title, snapshot.alternate_screen, snapshot.cursor_visible) == ("", False, True)
    assert (snapshot.cursor_row, snapshot.cursor_col) == (0, 5)
    await owned.close()


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.torture)])
async def test_a_server_ended_by_a_person_is_replaced(here: BackendSetup, times: int) -> None:
    for _ in range(times):
        owned = await here.sh(CAT)
        await owned.shows(b"ready")
        await tmux(here, "kill-server")
        other = await here.sh("echo again")
        assert await owned.ended() == ExitStatus(lost=True)
        assert await other.ended() == ExitStatus(code=0)
        await owned.close()
        await other.close()


async def test_a_child_may_start_a_tmux_of_its_own(here: BackendSetup, home: Path) -> None:
    inner = f"tmux -S '{home}/inner' -f /dev/null"
    owned = await here.sh(f"{inner} new-session -d -s mine cat && {inner} list-sessions -F '#S'; {inner} kill-server")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == b"mine\r\n"
    await owned.close()
