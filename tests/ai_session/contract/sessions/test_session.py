"""What a session promises, on every backend: the results must be equal. The same in boxes: test_boxed_session.py."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ai_session.errors import (
    DirectoryUnusable,
    LimitReached,
    SessionBusy,
    SessionExists,
    SessionExited,
    ShellUnavailable,
)
from ai_session.models import ExitStatus, SessionState
from ai_session.sessions import wait
from ai_session.sessions.manager import GONE, SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import SessionDefaults
from ai_session.sessions.viewer import Viewer
from ai_session.system import membership
from tests.ai_session.support.sessions import (
    Result,
    printed,
    request,
    run,
    runtime_directory,
    spin,
    successor,
    text_of,
    until,
    workspace,
)
from tests.support.bounds import BOUND_SECONDS, pause_awaited

pytestmark = [pytest.mark.anyio, pytest.mark.corners, pytest.mark.either("backend")]


@pytest.fixture
async def manager(backend: str, home: Path) -> AsyncIterator[SessionManager]:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=backend, max_sessions=4))
    yield manager
    await manager.stop()


@pytest.fixture
async def session(manager: SessionManager) -> Session:
    return await manager.create(request())


async def test_output_exit_code_and_state_are_exact(session: Session) -> None:
    assert await run(session, "printf 'a\\nb'") == Result("a\nb", 0, "finished")
    assert await run(session, "(exit 7)") == Result("", 7, "finished")
    assert await run(session, "cd /usr; export AISX='x y'; f() { echo F$1; }") == Result("", 0, "finished")
    assert await run(session, 'pwd; echo "$AISX"; f 1') == Result("/usr\nx y\nF1\n", 0, "finished")
    assert session.cwd == "/usr"
    assert session.state() is SessionState.READY


def timers_of(session: Session) -> list[asyncio.TimerHandle]:
    """Return the timers of a session's parts that will go off."""
    parts = (session.reader, session.watchdog, session.prompt, session.typed_lines)
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    return [timer for timer in scheduled if not timer.cancelled() and getattr(timer._callback, "__self__", 0) in parts]


async def test_a_shell_started_again_before_the_last_one_was_looked_at_has_one_timer(session: Session) -> None:
    before = len(timers_of(session))
    session.watchdog.watch_start_files()
    session.watchdog.watch_start_files()
    assert len(timers_of(session)) <= before + 1


async def test_a_prompt_that_is_not_read_as_expected_is_not_watched_forever(
    manager: SessionManager, home: Path
) -> None:
    # Once its prompt is drawn, the line editor waits for something else than the terminal.
    waits = "mkfifo ~/f; exec 5<>~/f; print -u 5; h() { read -u 5; read -u 5 }; zle -F 5 h\n"
    (home / ".zshrc").write_text(waits)
    session = await manager.create(request(shell="zsh"))
    assert timers_of(session)
    deadline = time.monotonic() + BOUND_SECONDS
    while session.prompt.looks_left or timers_of(session):
        assert time.monotonic() < deadline, "it is watched forever"
        await pause_awaited()


async def test_the_directory_is_the_one_that_the_shell_is_in_under_its_own_name(session: Session, home: Path) -> None:
    location = workspace(home)
    (location / "real/sub").mkdir(parents=True)
    (location / "link").symlink_to("real")
    for command, directory in (
        ("cd link/sub", f"{location}/link/sub"),
        ("PWD=/usr", f"{location}/link/sub"),
        ("unset PWD", f"{location}/link/sub"),
        ("cd ..; PWD=/nonsense", f"{location}/link"),
        ("unset DIRSTACK; PWD=/usr", f"{location}/real"),
        ("mkdir new; cd new; mv ../new ../moved", f"{location}/real/moved"),
        ("rmdir ../moved", f"{location}/real/moved"),
    ):
        assert await run(session, command) == Result("", 0, "finished")
        assert session.cwd == directory
        assert session.history.all()[-1].cwd == directory
    running = await session.begin("cd /usr; read x", command_id="cmd")
    await until(session, lambda: running.started)
    spin(lambda: session.cwd == "/usr")
    session.send(b"\n")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"


async def test_one_command_at_a_time_and_it_says_so(session: Session) -> None:
    running = await session.begin("read x; echo got:$x", command_id="cmd_a")
    with pytest.raises(SessionBusy, match="cmd_a"):
        await session.begin("echo no", command_id="cmd_b")
    assert await wait.for_command(session, running, 0.0, until_input=False) == "timeout"
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input"
    session.send(b"hello\n")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert text_of(session, running.record) == "hello\ngot:hello\n"


async def test_wanting_input_is_seen_from_the_kernel(session: Session) -> None:
    for command, mode, answer in (
        ("read -r x", "line", b"x\n"),
        ("python3 -c 'input()'", "line", b"x\n"),
        ("python3 -c 'import getpass; getpass.getpass()'", "password", b"x\n"),
        ("less /etc/passwd", "raw", b"q"),
        ("cat", "line", b"\x04"),
    ):
        running = await session.begin(command, command_id="cmd")
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input", command
        assert session.input_wanted() == mode, command
        assert session.state() is SessionState.WAITING_INPUT, command
        session.send(answer)
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished", command


async def test_a_sleeping_command_is_running_and_not_waiting(session: Session) -> None:
    running = await session.begin("sleep 30", command_id="cmd")
    await until(session, lambda: running.started)
    assert await wait.for_command(session, running, 0.5, until_input=True) == "timeout"
    assert session.state() is SessionState.RUNNING
    outcome = await wait.interrupt(session, 5.0)
    assert (outcome.steps, outcome.ended) == (("Ctrl-C",), True)
    assert (running.record.status, running.record.exit_code) == ("interrupted", 130)
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_interrupt_climbs_to_sigkill_and_spares_the_shell(session: Session) -> None:
    stubborn = 'import signal as s\nfor n in (2, 3, 15): s.signal(n, s.SIG_IGN)\nprint("deaf", flush=True)\ns.pause()'
    running = await session.begin(f"kept=1; python3 -c '{stubborn}'", command_id="cmd")
    await until(session, printed(session, b"deaf"))
    outcome = await wait.interrupt(session, 0.2)
    assert outcome.steps == ("Ctrl-C", "Ctrl-C", "Ctrl-\\", "SIGTERM", "SIGKILL")
    assert outcome.ended
    # The shell's own word: it was told to interrupt the command, too, and may notice that before the program's end.
    assert running.record.exit_code in (130, 137)
    assert await run(session, "echo $kept") == Result("1\n", 0, "finished")


async def test_interrupt_ends_what_no_key_reaches(session: Session) -> None:
    """A bash without the descriptor of its terminal keeps the terminal to itself, and keys reach only bash."""
    await run(session, "kept=1; sleep 1000 & exec 255>&-")
    for handling, steps in (("SIG_DFL", 4), ("SIG_IGN", 5)):
        python = f"import signal as s; s.signal(15, s.{handling}); print('{handling}', flush=True); s.pause()"
        running = await session.begin(f'python3 -c "{python}"', command_id="cmd")
        await until(session, printed(session, handling.encode()))
        outcome = await wait.interrupt(session, 0.4)
        assert outcome == wait.Interruption(("Ctrl-C", "Ctrl-C", "Ctrl-\\", "SIGTERM", "SIGKILL")[:steps], ended=True)
        assert running.record.exit_code == 130
    typed = await session.typed_lines.send_lines(b"sh -c 'echo typed; exec sleep 1000'\n", "typed")
    assert typed is not None
    await until(session, printed(session, b"typed\r\n"))
    outcome = await wait.interrupt(session, 0.4)
    assert outcome == wait.Interruption(("Ctrl-C", "Ctrl-C", "Ctrl-\\", "SIGTERM"), ended=True)
    assert await run(session, "echo $kept; kill %1") == Result("1\n", 0, "finished")


@pytest.mark.torture  # by day test_recovery.py has it
async def test_a_stopped_shell_is_continued(session: Session) -> None:
    running = await session.begin("kill -STOP $$; echo after", command_id="cmd")
    await wait.interrupt(session, 2.0)
    assert running.finished.done()
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_nothing_waits_for_keys_before_it_has_started(session: Session) -> None:
    session.send(b"echo 'unfinished\n")
    await until(session, printed(session, b"> "))
    with pytest.raises(SessionBusy, match="incomplete"):
        await session.begin("echo no", command_id="cmd")
    session.send(b"\x03")
    running = await session.begin("echo ran", command_id="cmd")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "finished"
    assert text_of(session, running.record) == "ran\n"


async def test_interrupt_presses_the_keys_that_the_terminal_has(session: Session) -> None:
    await run(session, "stty intr ^X quit ^Y")
    holder = session.holder
    running = await session.begin("sleep 1000", command_id="cmd")
    await asyncio.to_thread(spin, lambda: (h := holder()) is not None and h.name == "sleep")
    outcome = await wait.interrupt(session, BOUND_SECONDS)
    assert (outcome.steps, running.record.exit_code) == (("Ctrl-X",), 130)
    await run(session, "stty intr undef")
    running = await session.begin("sleep 1000", command_id="cmd")
    await asyncio.to_thread(spin, lambda: (h := holder()) is not None and h.name == "sleep")
    outcome = await wait.interrupt(session, BOUND_SECONDS)
    assert (outcome.steps, running.record.exit_code) == (("SIGINT",), 130)
    await run(session, "stty sane")
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


@pytest.mark.torture  # by day test_shell_people.py has it
async def test_interrupt_finds_the_end_also_when_the_command_replaced_the_hooks(session: Session) -> None:
    running = await session.begin("PS1='evil> ' PROMPT_COMMAND=; sleep 30", command_id="cmd")
    holder = session.holder
    await asyncio.to_thread(spin, lambda: (h := holder()) is not None and not h.leads_itself)
    assert (await wait.interrupt(session, 2.0)).ended
    assert running.record.exit_code == 130
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_a_stopped_foreground_program_is_reported(session: Session) -> None:
    running = await session.begin("sh -c 'kill -STOP $$'; echo after", command_id="cmd")
    await wait.for_command(session, running, BOUND_SECONDS, until_input=False)
    assert "after" in text_of(session, running.record)
    assert (await run(session, "kill -9 %1; wait 2>/dev/null; echo ok")).output.endswith("ok\n")


async def test_an_exit_is_reported_and_a_respawn_keeps_the_state(manager: SessionManager, session: Session) -> None:
    await run(session, "cd /usr; export FOO='a b'; g() { echo G$FOO; }; alias zz='echo ZZ'; unexported=1")
    assert await run(session, "echo bye; exit 3") == Result("bye\n", 3, "finished")
    await until(session, lambda: session.exit)
    assert session.exit == ExitStatus(code=3)
    assert session.state() is SessionState.EXITED
    with pytest.raises(SessionExited):
        await session.begin("echo no", command_id="cmd")
    again = await manager.create(request())
    assert again is session
    assert await run(session, "pwd; g; zz; echo [$unexported]") == Result("/usr\nGa b\nZZ\n[]\n", 0, "finished")


@pytest.mark.torture  # by day test_recovery.py has it
async def test_what_silenced_a_shell_is_not_in_the_next(manager: SessionManager) -> None:
    session = await manager.create(request(name="zsh", shell="zsh"))
    await run(session, "cd /usr; export KEPT=1; alias a=b; preexec() { kill -INT $$; }")
    await run(session, "echo no")
    await until(session, lambda: session.exit)
    await manager.create(request(name="zsh", shell="zsh"))
    kept = Result("/usr 1\npreexec: none\na: none\n", 0, "finished")
    assert await run(session, "echo $PWD $KEPT; whence -w preexec a; true") == kept


async def test_a_killed_shell_is_reported_with_its_signal(manager: SessionManager, session: Session) -> None:
    result = await run(session, "echo partial; kill -9 $$")
    assert result == Result("partial\n", 137, "finished")
    await until(session, lambda: session.exit)
    assert session.exit == ExitStatus(signal=9)
    await manager.create(request())
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_stdin_and_separate_stderr(session: Session) -> None:
    data = bytes(range(256)) * 100
    result = await run(session, "sha256sum; echo err >&2", stdin=data, separate_stderr=True)
    import hashlib

    assert result.output == f"{hashlib.sha256(data).hexdigest()}  -\n"
    last = session.history.last
    assert last is not None
    assert Path(last.stderr_path).read_text() == "err\n"


@pytest.mark.torture  # by day test_typed_input.py has it
async def test_a_half_typed_line_is_not_run_with_the_next_command(session: Session, home: Path) -> None:
    session.send(f"touch {workspace(home)}/never; echo x".encode())
    await until(session, printed(session, b"never"))
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")
    assert not (workspace(home) / "never").exists()


@pytest.mark.torture  # by day test_typed_input.py has it
async def test_a_persons_command_makes_the_session_busy_until_its_prompt(session: Session) -> None:
    session.send(b"sleep 1000\n")
    await until(session, lambda: session.at.human_line)
    await asyncio.to_thread(spin, lambda: (h := session.holder()) is not None and not h.leads_itself)
    assert session.state() is SessionState.RUNNING
    with pytest.raises(SessionBusy, match="sleep"):
        await session.begin("echo no", command_id="cmd")
    session.send(b"\x03")
    await until(session, lambda: session.at.ready)
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_close_leaves_no_orphan(manager: SessionManager, session: Session) -> None:
    await run(
        session,
        "sleep 1000 & nohup sleep 1001 >/dev/null 2>&1 & setsid sleep 1002 & "
        "(setsid sh -c 'sleep 1003 & exec sleep 1004' >/dev/null 2>&1 &); disown -a",
    )
    cookie, directory = session.spec.cookie, session.directory
    await asyncio.to_thread(spin, lambda: len(membership.members(cookie)) >= 6)
    await manager.close(session)
    assert membership.members(cookie) == []
    assert not directory.exists()
    assert manager.named("", "main") is None


async def test_on_a_disk_with_little_room_a_session_is_closed_once_its_files_are_removed(
    manager: SessionManager, session: Session
) -> None:
    gone = manager.runtime_directory / GONE / session.spec.session_id
    manager.defaults = replace(manager.defaults, retain_bytes=1 << 62)
    await manager.close(session)
    assert not gone.exists()
    assert not session.directory.exists()


async def test_a_session_is_free_after_a_command_that_could_not_be_written(session: Session) -> None:
    in_the_way = session.files / "c" / "kept"
    in_the_way.mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        await session.begin("echo no", command_id="cmd")
    in_the_way.rmdir()
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_what_could_not_be_asked_of_the_shell_is_asked_once_it_can_be(session: Session) -> None:
    in_the_way = session.files / "p.new"
    in_the_way.mkdir()
    running = await session.begin("exec bash --norc", command_id="cmd")
    await until(session, lambda: running.asks > 2)
    assert session.running is running
    in_the_way.rmdir()
    await until(session, lambda: session.running is None)
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_what_a_killed_daemon_left_of_closed_sessions_is_removed_by_the_next(manager: SessionManager) -> None:
    left = manager.runtime_directory / GONE / "ses_left"
    (left / "shell").mkdir(parents=True)
    (left / "shell/rc").touch()
    await manager.adopt()
    await manager.aclose()
    assert not left.exists()


async def test_a_new_manager_takes_over_a_running_command(
    manager: SessionManager, session: Session, backend: str
) -> None:
    await run(session, "kept=1")
    await session.begin("echo one; read x; echo two $x; (exit 4)", command_id="cmd_over", call_key="key")
    await until(session, printed(session, b"one"))
    await manager.aclose()
    later = successor(manager)
    try:
        assert await later.adopt() == 1
        again = later.named("", "main")
        assert again.running is not None
        assert again.running.record.call_key == "key"
        taken = again.running
        again.send(b"go\n")
        assert await wait.for_command(again, taken, BOUND_SECONDS, until_input=False) == "finished"
        assert text_of(again, taken.record) == "one\ngo\ntwo go\n"
        assert (taken.record.exit_code, taken.record.command_id) == (4, "cmd_over")
        assert await run(again, "echo $kept") == Result("1\n", 0, "finished")
    finally:
        await later.stop()


async def test_a_command_that_ended_while_nobody_was_there(
    manager: SessionManager, session: Session, home: Path
) -> None:
    fifo = workspace(home) / "fifo"
    os.mkfifo(fifo)
    running = await session.begin(f"cat {fifo}; echo done; (exit 5)", command_id="cmd_away")
    await until(session, lambda: running.started)
    await manager.aclose()
    with open(fifo, "w") as file:
        file.write("fed\n")
    later = successor(manager)
    try:
        await later.adopt()
        again = later.named("", "main")
        if again.running is not None:
            await wait.for_command(again, again.running, BOUND_SECONDS, until_input=False)
        record = again.history.get("cmd_away")
        assert record is not None
        assert (text_of(again, record), record.exit_code) == ("fed\ndone\n", 5)
    finally:
        await later.stop()


async def test_a_command_whose_trigger_may_not_have_been_typed_runs_once(
    manager: SessionManager, session: Session, home: Path
) -> None:
    await session.begin(f"echo x >>{workspace(home)}/ran; (exit 5)", command_id="cmd_early")
    await manager.aclose()
    later = successor(manager)
    try:
        await later.adopt()
        again = later.named("", "main")
        if again.running is not None:
            await wait.for_command(again, again.running, BOUND_SECONDS, until_input=False)
        record = again.history.get("cmd_early")
        assert record is not None
        assert record.exit_code == 5
        assert (workspace(home) / "ran").read_text() == "x\n"
        assert await run(again, "echo ok") == Result("ok\n", 0, "finished")
    finally:
        await later.stop()


async def test_viewers_see_everything_and_may_type(session: Session) -> None:
    await run(session, "echo before")
    viewer, watcher = Viewer(session, read_only=False), Viewer(session, read_only=True)
    seen = {viewer: b"", watcher: b""}

    async def watch(who: Viewer) -> None:
        async for chunk in who.output():
            seen[who] += chunk
            session.wake()

    tasks = [asyncio.ensure_future(watch(v)) for v in seen]
    await until(session, lambda: all(b"before" in s for s in seen.values()))
    watcher.write(b"echo no-$((1+1))\n")
    viewer.write(b"echo yes\x1b[?1;2c-$((1+1))\necho end-$((1+1))\n")
    await until(session, lambda: all(b"end-2" in s for s in seen.values()))
    assert all(b"yes-2" in s for s in seen.values()), "what a terminal answers is not typed"
    assert not any(b"no-2" in s or b"7777" in s for s in seen.values())
    await viewer.resize(30, 90)
    assert await run(session, "stty size") == Result("30 90\n", 0, "finished")
    await viewer.close()
    await watcher.close()
    await asyncio.gather(*tasks)
    assert await run(session, "stty size") == Result("50 200\n", 0, "finished")
    assert session.viewers == 0


async def test_the_screen_of_a_full_screen_program(session: Session) -> None:
    running = await session.begin("vim -u NONE -c 'set noswapfile'", command_id="cmd")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input"
    session.send("ihällo 世界\x1b".encode())
    await until(session, printed(session, "世界".encode()))
    screen = await session.screen()
    assert screen.lines[0] == "hällo 世界"
    assert screen.alternate_screen
    assert (screen.rows, screen.cols) == (50, 200)
    session.send(b":q!\r")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert not (await session.screen()).alternate_screen


async def test_bad_requests_name_the_problem_and_cost_nothing(
    manager: SessionManager, session: Session, home: Path
) -> None:
    with pytest.raises(SessionExists):
        await manager.create(request())
    with pytest.raises(ShellUnavailable, match="tcsh"):
        await manager.create(request("other", shell="tcsh"))
    with pytest.raises(DirectoryUnusable):
        await manager.create(request("other", working_directory=str(home / "missing")))
    for number in range(3):
        await manager.create(request(f"s{number}"))
    with pytest.raises(LimitReached):
        await manager.create(request("other"))
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_of_several_who_open_a_session_one_does_and_the_others_find_it(manager: SessionManager) -> None:
    wanted = [request(shell="tcsh"), request(), request(), request()]  # the first fails, and the next one goes on
    first, *opened = await asyncio.gather(*map(manager.create, wanted), return_exceptions=True)
    (made,) = [one for one in opened if isinstance(one, Session)]
    assert isinstance(first, ShellUnavailable)
    assert [type(one) for one in opened].count(SessionExists) == 2
    assert manager.named("", "main") is made
    assert made.state() is SessionState.READY

    made.send(b"exit\r")
    await until(made, lambda: made.exit is not None)
    again = await asyncio.gather(*map(manager.create, wanted[1:]), return_exceptions=True)
    assert [one for one in again if isinstance(one, Session)] == [made], "one gives it a new shell"


async def test_names_are_unique_and_can_change(manager: SessionManager, session: Session) -> None:
    other = await manager.create(request("other"))
    with pytest.raises(SessionExists):
        manager.rename(other, "main")
    manager.rename(other, "better")
    assert manager.named("", "better") is other
    assert manager.find(other.spec.session_id) is other
    assert manager.named("", "other") is None


async def test_sessions_are_independent(manager: SessionManager) -> None:
    sessions = await asyncio.gather(*(manager.create(request(f"s{n}")) for n in range(4)))
    results = await asyncio.gather(*(run(s, f"for i in 1 2 3; do echo {n}-$i; done") for n, s in enumerate(sessions)))
    assert results == [Result(f"{n}-1\n{n}-2\n{n}-3\n", 0, "finished") for n in range(4)]
    os.kill(sessions[0].terminal.pid, signal.SIGKILL)  # pyright: ignore[reportOptionalMemberAccess]
    await until(sessions[0], lambda: sessions[0].exit)
    assert await run(sessions[1], "echo ok") == Result("ok\n", 0, "finished")


@pytest.mark.torture  # by day test_backend.py has it
async def test_megabytes_arrive_whole(session: Session) -> None:
    result = await run(session, "seq 1 200000 | tee /dev/tty | sha256sum")
    record = session.history.last
    assert record is not None
    assert record.end_offset is not None
    raw = session.log.read(record.start_offset, record.end_offset).replace(b"\r\n", b"\n")
    import hashlib

    body, _, tail = raw.rpartition(b"\n")[0].rpartition(b"\n")
    assert hashlib.sha256(body + b"\n").hexdigest() == tail.decode().split()[0]
    assert len(result.output) <= 200_000
