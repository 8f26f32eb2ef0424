"""Every backend carries bytes, sizes, environment and exits exactly, with real programs on real terminals."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import signal
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.errors import BackendUnavailable, DirectoryUnusable, ShellUnavailable, TerminalsExhausted
from ai_session.models import ExitStatus, ScreenSnapshot
from tests.ai_session.support.terminals import BOUND_SECONDS, BackendSetup, open_backend
from tests.support.process_ends import ended

pytestmark = [pytest.mark.anyio, pytest.mark.corners]

MEGABYTE = 1 << 20
SHOW_SIZE = """
import os, signal
def show(*_): size = os.get_terminal_size(0); os.write(1, b"<%d %d>" % (size.lines, size.columns))
signal.signal(signal.SIGWINCH, show)
show()
while True: signal.pause()
"""


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def here(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[BackendSetup]:
    async with open_backend(request.param, home) as made:
        yield made


def random_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size - 256) + bytes(range(256))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_terminals_open_on_what_was_started_ahead(here: BackendSetup) -> None:
    await here.backend.make_ready()
    (keeper,) = here.runtime.glob("*.sock")
    ahead = keeper.stat().st_ino
    owned = await here.sh("printf yes")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == b"yes"
    assert keeper.stat().st_ino == ahead
    await owned.close()


async def test_output_arrives_byte_for_byte(here: BackendSetup, home: Path) -> None:
    wanted = random_bytes(MEGABYTE)
    (home / "data").write_bytes(wanted)
    owned = await here.sh(f"stty raw -echo; cat '{home}/data'")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == wanted
    assert owned.at_exit == len(wanted)
    await owned.close()


@pytest.mark.either("here")
async def test_output_without_line_end_and_long_lines(here: BackendSetup) -> None:
    owned = await here.sh("stty -opost; head -c 1000000 /dev/zero | tr '\\0' x; printf 'no end'")
    await owned.ended()
    assert owned.output == b"x" * 1000000 + b"no end"
    await owned.close()


async def test_a_paste_arrives_byte_for_byte(here: BackendSetup) -> None:
    wanted = random_bytes(MEGABYTE)
    owned = await here.sh(f"stty raw -echo; echo ready; head -c {len(wanted)} | sha256sum")
    await owned.shows(b"ready")
    owned.terminal.write(wanted)
    await owned.ended()
    assert hashlib.sha256(wanted).hexdigest().encode() in owned.output
    await owned.close()


@pytest.mark.either("here")
async def test_a_paste_that_is_echoed_does_not_deadlock(here: BackendSetup, home: Path) -> None:
    wanted = b"".join(b"%07d\n" % number for number in range(40000))
    script = f"stty -icanon -opost; echo ready; head -c {len(wanted)} | sha256sum >'{home}/sum'; echo done"
    owned = await here.sh(script)
    await owned.shows(b"ready")
    owned.terminal.write(wanted)
    assert await owned.ended() == ExitStatus(code=0)
    assert (home / "sum").read_text().split()[0] == hashlib.sha256(wanted).hexdigest()
    assert b"done" in owned.output
    assert owned.log.end > len(wanted) // 2
    await owned.close()


@pytest.mark.either("here")
async def test_input_waits_for_a_child_that_does_not_read(here: BackendSetup, home: Path) -> None:
    os.mkfifo(home / "gate")
    pieces = [random.Random(number).randbytes(1 + 997 * number) for number in range(46)]
    wanted = b"".join(pieces)
    script = f"stty raw -echo; echo ready; read x <'{home}/gate'; head -c {len(wanted)} | sha256sum"
    owned = await here.sh(script)
    await owned.shows(b"ready")
    for piece in pieces:
        owned.terminal.write(piece)
    other = await here.sh("read x; echo got $x")
    other.terminal.write(b"word\n")
    await other.shows(b"got word")
    assert not owned.exits
    with open(home / "gate", "w") as gate:
        gate.write("go\n")
    await owned.ended()
    assert hashlib.sha256(wanted).hexdigest().encode() in owned.output
    await owned.close()
    await other.close()


@pytest.mark.either("here")
async def test_control_characters_reach_the_foreground(here: BackendSetup) -> None:
    # A shell with a trap could get the signal just before it reads, and would wait for a line.
    waits = "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, [2]); print('ready', flush=True); s.sigwait([2])"
    owned = await here.open(sys.executable, "-c", f"{waits}; print('interrupted'); exit(5)")
    await owned.shows(b"ready")
    owned.terminal.write(b"\x03")
    assert await owned.ended() == ExitStatus(code=5)
    assert b"interrupted" in owned.output
    await owned.close()


async def test_resize_is_seen_and_signalled(here: BackendSetup) -> None:
    owned = await here.open(sys.executable, "-c", SHOW_SIZE)
    await owned.shows(b"<24 80>")
    await owned.terminal.resize(50, 132)
    await owned.shows(b"<50 132>")
    await owned.terminal.resize(10, 20)
    await owned.shows(b"<10 20>")
    await owned.close()


@pytest.mark.either("here")
@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", ExitStatus(code=0)),
        ("exit 7", ExitStatus(code=7)),
        ("exit 255", ExitStatus(code=255)),
        ("kill -KILL $$", ExitStatus(signal=signal.SIGKILL)),
        ("kill -TERM $$", ExitStatus(signal=signal.SIGTERM)),
    ],
)
async def test_exit_status(here: BackendSetup, script: str, status: ExitStatus) -> None:
    owned = await here.sh(script)
    assert await owned.ended() == status
    await owned.close()
    assert owned.exits == [status]


@pytest.mark.parametrize("times", [4, pytest.param(30, marks=pytest.mark.torture)])
async def test_exit_comes_once_and_after_the_last_byte(here: BackendSetup, times: int) -> None:
    for number in range(times):
        size = random.Random(number).randrange(1, 40000)
        owned = await here.sh(f"stty -opost; head -c {size} /dev/zero | tr '\\0' y; printf end; exit {number}")
        assert await owned.ended() == ExitStatus(code=number)
        assert owned.output == b"y" * size + b"end"
        assert owned.at_exit == size + 3
        owned.terminal.write(b"ignored")
        await owned.close()
        assert len(owned.exits) == 1


@pytest.mark.either("here")
async def test_exit_is_known_while_the_terminal_is_held(here: BackendSetup) -> None:
    owned = await here.sh("trap '' HUP; sleep 1000 & echo pid=$!; exit 3")
    assert await owned.ended() == ExitStatus(code=3)
    pid = int(owned.output.split(b"pid=")[1].split()[0])
    await owned.close()
    os.kill(pid, signal.SIGKILL)
    await ended(pid)


@pytest.mark.either("here")
async def test_exit_is_known_while_something_floods_the_terminal(here: BackendSetup) -> None:
    owned = await here.sh("trap '' HUP; yes & echo pid=$!; read x; exit 4")
    await owned.shows(b"y\r\ny\r\n")
    output = await owned.shows(b"pid=")
    owned.terminal.write(b"\n")
    assert await owned.ended() == ExitStatus(code=4)
    await owned.close()
    await ended(int(output.split(b"pid=")[1].split()[0]))


@pytest.mark.either("here")
async def test_a_child_may_close_its_terminal_for_a_while(here: BackendSetup, home: Path) -> None:
    os.mkfifo(home / "gate")
    script = f"echo before; exec <&- >&- 2>&-; read x <'{home}/gate'; exec <>/dev/tty >&0 2>&0; echo after; exit 6"
    owned = await here.sh(script)
    await owned.shows(b"before")
    with open(home / "gate", "w") as gate:
        gate.write("go\n")
    assert await owned.ended() == ExitStatus(code=6)
    assert owned.output == b"before\r\nafter\r\n"
    await owned.close()


@pytest.mark.either("here")
async def test_environment_is_exactly_the_one_given(here: BackendSetup) -> None:
    given = {
        "PLAIN": "1",
        "EMPTY": "",
        "LINES": "24 not really",
        "TEXT": "a b\t'\"$x`\\\n=ü€\n",
        "BYTES": os.fsdecode(b"\xff\xfe"),
        "LARGE": "x" * 100_000,
        "LARGE_TOO": "y" * 100_000,
    }
    owned = await here.open("/bin/sh", "-c", "stty -opost; exec /usr/bin/env -0", env={"PATH": "/bin", **given})
    await owned.ended()
    seen = dict(item.split(b"=", 1) for item in owned.output.rstrip(b"\0").split(b"\0"))
    for name, value in given.items():
        assert seen.pop(name.encode()) == os.fsencode(value), name
    added = {name.decode() for name in seen} - {"PATH", "PWD", "_"}
    assert {name for name in added if not name.startswith(("TERM", "TMUX", "COLORTERM"))} == set()
    assert "TERM" in added
    await owned.close()


@pytest.mark.either("here")
async def test_a_given_term_is_kept_where_the_terminal_is_not_its_own(here: BackendSetup) -> None:
    owned = await here.sh("echo TERM=$TERM", env={"PATH": "/bin", "TERM": "vt100"})
    await owned.ended()
    assert b"TERM=vt100" in owned.output
    await owned.close()


@pytest.mark.either("here")
async def test_signals_are_at_their_defaults(here: BackendSetup) -> None:
    code = """if True:
        import signal
        ignored = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
        # Python itself ignores PIPE and XFSZ; a shell sets the last two as it needs them.
        ignored -= {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN, signal.SIGTTOU}
        print("ignored", ignored, "blocked", signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    owned = await here.open(sys.executable, "-c", code)
    await owned.ended()
    assert owned.output == b"ignored set() blocked set()\r\n"
    await owned.close()


@pytest.mark.either("here")
async def test_child_leads_its_session_and_has_the_terminal(here: BackendSetup) -> None:
    code = "import os; print(os.getsid(0) == os.getpid(), os.ttyname(0), os.tcgetpgrp(0) == os.getpgrp(), os.getpid())"
    owned = await here.open(sys.executable, "-c", code)
    await owned.ended()
    assert owned.output.split() == [b"True", owned.terminal.tty.encode(), b"True", str(owned.terminal.pid).encode()]
    await owned.close()


async def test_child_inherits_no_descriptor(here: BackendSetup) -> None:
    owned = await here.sh("ls /proc/$$/fd")
    await owned.ended()
    assert {int(fd) for fd in owned.output.split()} <= {0, 1, 2, 10}
    await owned.close()


@pytest.mark.either("here")
async def test_working_directory(here: BackendSetup, home: Path) -> None:
    folder = home / 'it\'s a "földer" $HOME #{x} %d'
    folder.mkdir()
    owned = await here.open("/bin/pwd", cwd=str(folder))
    await owned.ended()
    assert owned.output.decode().strip() == str(folder)
    await owned.close()


async def test_arguments_are_passed_unchanged(here: BackendSetup) -> None:
    words = ["", "a b", "'", '"', "$HOME", "#{pane_id}", "%1", "\\", "ü", ";", "{", "~", "line\nend"]
    owned = await here.open("/bin/sh", "-c", 'stty -opost; for x; do printf "[%s]" "$x"; done', "sh", *words)
    await owned.ended()
    assert owned.output.decode() == "".join(f"[{word}]" for word in words)
    await owned.close()


@pytest.mark.either("here")
async def test_a_directory_that_cannot_be_entered(here: BackendSetup, home: Path) -> None:
    (home / "file").touch()
    for path in ("/no/such/place", str(home / "file")):
        with pytest.raises(DirectoryUnusable, match=path) as caught:
            await here.sh("true", cwd=path)
        assert caught.value.suggestion
    await works(here)


@pytest.mark.either("here")
async def test_a_program_that_cannot_be_started(here: BackendSetup, home: Path) -> None:
    (home / "file").touch()
    for path in ("/no/such/program", str(home / "file")):
        with pytest.raises((BackendUnavailable, ShellUnavailable), match=path) as caught:
            await here.open(path)
        assert caught.value.suggestion
    await works(here)


async def works(here: BackendSetup) -> None:
    owned = await here.sh("echo fine")
    assert await owned.ended() == ExitStatus(code=0)
    assert owned.output == b"fine\r\n"
    await owned.close()


@pytest.mark.either("here")
@pytest.mark.parametrize("many", [8, pytest.param(50, marks=pytest.mark.torture)])
async def test_many_at_once(here: BackendSetup, many: int) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        everyone = await asyncio.gather(*(here.sh(f"read x; echo {number} $x") for number in range(many)))
    assert len({owned.terminal.tty for owned in everyone}) == many
    for owned in everyone:
        owned.terminal.write(b"word\n")
    for number, owned in enumerate(everyone):
        await owned.ended()
        assert owned.output == b"word\r\n%d word\r\n" % number
        await owned.close()


@contextmanager
def descriptors_left(spare: int) -> Generator[None]:
    """This process can open ``spare`` more."""
    limit = 0
    while Path(f"/proc/self/fd/{limit}").is_symlink() or spare:
        spare -= not Path(f"/proc/self/fd/{limit}").is_symlink()
        limit += 1
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.either("here")
async def test_running_out_of_descriptors_hurts_only_what_is_opened(here: BackendSetup) -> None:
    other = await here.sh("stty -echo; echo ready; while read x; do echo got $x; done")
    await other.shows(b"ready")
    before = open_descriptors()
    for spare in range(4):
        spec = here.spec(["/bin/true"])
        with descriptors_left(spare):
            expected = (
                suppress(TerminalsExhausted) if spare else pytest.raises(TerminalsExhausted, match=r"descriptor|files")
            )
            with expected:
                await (await here.backend.open(spec)).close()
            other.terminal.write(b"word%d\n" % spare)
            await other.shows(b"got word%d" % spare)
        assert open_descriptors() == before
        await works(here)
    await other.close()


@pytest.mark.either("here")
async def test_descriptors_return_to_where_they_were(here: BackendSetup) -> None:
    await works(here)
    before = open_descriptors()
    for _ in range(5):
        await works(here)
        with pytest.raises(DirectoryUnusable):
            await here.sh("true", cwd="/no/such/place")
    everyone = await asyncio.gather(*(here.sh("read x") for _ in range(10)))
    for owned in everyone:
        await owned.close()
    assert open_descriptors() == before


@pytest.mark.either("here")
async def test_close_hangs_up(here: BackendSetup, home: Path) -> None:
    owned = await here.sh(f"trap 'echo hup >{home}/hup; exit' HUP; echo ready; while :; do read x; done")
    await owned.shows(b"ready")
    await owned.close()
    await owned.close()
    await ended(owned.terminal.pid)
    assert (home / "hup").read_text() == "hup\n"
    owned.terminal.write(b"ignored")
    assert owned.terminal.read_into(memoryview(bytearray(10))) == 0
    assert owned.exits == []


@pytest.mark.either("here")
async def test_screen_is_the_terminals_own_or_none(here: BackendSetup) -> None:
    owned = await here.sh("echo shown; read x")
    await owned.shows(b"shown")
    snapshot, drawing = await owned.terminal.capture(), await owned.terminal.capture_ansi()
    if isinstance(snapshot, ScreenSnapshot):
        assert (snapshot.rows, snapshot.cols, snapshot.lines[0]) == (24, 80, "shown")
        assert drawing is not None
        assert b"shown" in drawing
    else:
        assert snapshot is drawing is None
    await owned.close()


async def test_probe_drives_a_shell_and_leaves_nothing(here: BackendSetup) -> None:
    before = open_descriptors()
    status = await here.backend.probe()
    assert (status.name, status.usable, status.reason) == (here.name, True, "")
    assert status.version
    assert open_descriptors() <= before + 1
    assert not list(here.runtime.iterdir())
