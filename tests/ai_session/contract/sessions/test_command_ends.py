"""What did not run has not finished, what ended the shell says so, and what is typed can be waited for."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentwire import plugins
from ai_session.errors import SessionBusy, SessionExited
from ai_session.models import Principal, SessionState
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import Visibility
from ai_session.sessions.report import note_ending
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.sessions.visible import VisibleSessions
from ai_session.system import processes, terminal_device
from ai_session.tools.base import Context, Limits
from ai_session.tools.commands import ExecuteCommand, InterruptCommand, execute_command, interrupt_command
from ai_session.tools.input import SendInput, send_input
from ai_session.tools.output import ReadOutput, read_output
from ai_session.tools.sessions import OneSession, get_session_info
from tests.ai_session.support.sessions import request, runtime_directory, spin, successor, until, workspace
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = [pytest.mark.anyio, pytest.mark.corners, pytest.mark.either("backend")]
any_shell = pytest.mark.either("caller")

NOWHERE: Any = None
SHELLS = ("bash", "zsh", "dash", "fish", "mksh", "lksh")


class Caller:
    """Calls tools as a client's calls arrive, one after the other."""

    def __init__(self, manager: SessionManager, session: Session) -> None:
        self.go_on(manager)
        self.session = session

    def go_on(self, manager: SessionManager) -> None:
        """Call the next daemon from now on."""
        self.manager = manager
        self._context = Context(
            Principal("mcp", 0), VisibleSessions(manager, Visibility(everything=True)), NOWHERE, Limits()
        )

    @property
    def shell(self) -> str:
        return os.path.basename(self.session.spec.shell)

    async def execute(self, command: str, **more: Any) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_SECONDS):
            arguments = ExecuteCommand(session_id="main", command=command, **more)
            return (await execute_command(self._context, arguments)).structured

    async def send(self, text: str = "", **more: Any) -> dict[str, Any]:
        return (await send_input(self._context, SendInput(session_id="main", text=text, **more))).structured

    async def read(self, **more: Any) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_SECONDS):
            return (await read_output(self._context, ReadOutput(session_id="main", **more))).structured

    async def interrupt(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_SECONDS):
            return (await interrupt_command(self._context, InterruptCommand(session_id="main"))).structured

    async def state(self) -> str:
        return (await get_session_info(self._context, OneSession(session_id="main"))).structured["state"]


@pytest.fixture(params=SHELLS)
async def caller(request: pytest.FixtureRequest, backend: str, home: Path) -> AsyncIterator[Caller]:
    assert shutil.which(request.param), f"{request.param} is not installed"
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    runtime = runtime_directory(home)
    manager = SessionManager(runtime, SessionDefaults(backend=backend, user_rc=False, shell=request.param))
    try:
        new = NewSession(name="main", working_directory=str(workspace(home)), client_env=dict(os.environ), env={})
        caller = Caller(manager, await manager.create(new))
        yield caller
        manager = caller.manager
    finally:
        await manager.stop()


@any_shell
async def test_an_interrupted_list_does_not_go_on_after_a_program_that_only_a_signal_ended(
    caller: Caller, home: Path
) -> None:
    deaf = "sh -c 'trap \"\" INT QUIT TERM; echo up; while :; do sleep 9601; done'"
    await caller.execute(f"{deaf}; touch {home}/after; {deaf}", timeout_seconds=0)
    assert "up" in (await caller.read(wait_for="pattern", pattern="up"))["output"]
    facts = await caller.interrupt()
    assert facts["status"] == "interrupted"
    assert facts["note"] == "sent Ctrl-C, Ctrl-C, Ctrl-\\, SIGTERM, SIGKILL"
    assert not (home / "after").exists()
    assert (await caller.execute("echo ok"))["output"] == "ok\n"


# fish has no such exec, and zsh reads its terminal whatever its input is.
@any_shell
@pytest.mark.parametrize("caller", ["bash", "dash", "mksh"], indirect=True)
async def test_a_command_that_meets_the_end_of_its_shell_is_refused(caller: Caller, home: Path) -> None:
    facts = await caller.execute("exec </dev/null")
    assert (facts["status"], facts["exit_code"]) == ("finished", 0)
    assert "shell has ended" in facts["note"]
    with pytest.raises(SessionExited):
        await caller.execute(f"touch {home}/ran; (exit 7)")
    assert not (home / "ran").exists()
    assert await caller.state() == "exited"
    assert all(record.exit_code is None for record in caller.session.history.all() if "ran" in record.command)


@any_shell
async def test_a_command_that_meets_a_shell_told_to_exit_is_refused(caller: Caller, home: Path) -> None:
    caller.session.send(b"exit 3\n")
    with pytest.raises(SessionExited, match="exit status 3"):
        await caller.execute(f"touch {home}/ran")
    assert not (home / "ran").exists()
    assert await caller.state() == "exited"


@any_shell
async def test_a_command_that_ends_the_shell_says_so_itself(caller: Caller) -> None:
    command = "exit 3" if caller.shell == "fish" else "set -e; (exit 3)"
    facts = await caller.execute(command)
    assert (facts["status"], facts["exit_code"]) == ("finished", 3)
    assert "shell has ended (exit status 3)" in facts["note"]
    assert await caller.state() == "exited"
    with pytest.raises(SessionExited):
        await caller.execute("echo no")
    again = await caller.read(command_id=facts["command_id"])
    assert "shell has ended" in again["note"]


@any_shell
async def test_a_signal_that_ends_the_shell_is_how_its_command_ended(caller: Caller) -> None:
    """The shell's own last word would be the status before."""
    process = "$fish_pid" if caller.shell == "fish" else "$$"
    facts = await caller.execute(f"true; kill -USR1 {process}")
    assert (facts["status"], facts["exit_code"]) == ("finished", 128 + signal.SIGUSR1)
    assert "killed by signal 10" in facts["note"]
    assert await caller.state() == "exited"


@any_shell
async def test_how_a_command_ended_whose_session_was_closed_is_unknown(caller: Caller) -> None:
    """The shell is ended by a signal of the closing, which is nothing that the command did."""
    running = await caller.session.begin("cat", command_id="cat")
    await until(caller.session, lambda: running.started)
    await caller.manager.close(caller.session)
    record, notes = await running.finished, list[str]()
    assert (record.status, record.exit_code) == ("lost", None)
    note_ending(caller.session, record, notes)
    assert notes == ["the session was closed while it ran"]


@any_shell
@pytest.mark.parametrize(("ending", "code"), [("kill -USR1 $$", 128 + signal.SIGUSR1), ("exit 3", 3)])
async def test_how_the_shell_ended_is_how_the_line_typed_last_ended(caller: Caller, ending: str, code: int) -> None:
    process = "$fish_pid" if caller.shell == "fish" else "$$"
    sent = await caller.send(f"true; {ending.replace('$$', process)}\n")
    facts = await caller.read(command_id=sent["command_id"], wait_for="finish")
    assert (facts["status"], facts["exit_code"]) == ("finished", code)
    assert await caller.state() == "exited"


@pytest.mark.parametrize("caller", first(SHELLS, "bash", "zsh", "dash"), indirect=True)
async def test_settings_of_the_terminal_that_take_no_line_are_undone_and_said(caller: Caller) -> None:
    """A key that is a letter of what the session types, a line end that is none; capitals only are left as they are."""
    # Of the others, line editors make keys of their own.
    signals, others = ("intr .", "quit /", "susp e"), ("kill /", "erase s", "lnext .", "eof .")
    keys = {"mksh": (), "lksh": (), "bash": signals}.get(caller.shell, signals + others)
    code = "sh -c 'exit 3'" if caller.shell == "fish" else "(exit 3)"
    for setting in (*keys, "inlcr"):
        assert (await caller.execute(f"stty {setting}"))["exit_code"] == 0
        facts = await caller.execute(f"echo hi; {code}")
        assert (setting, facts["status"], facts["exit_code"]) == (setting, "finished", 3)
        assert facts["output"].splitlines()[-1] == "hi"
        if caller.shell == "dash":
            assert facts["note"] == f"`stty {setting}` is undone: no command could be typed with it"
    before = await caller.execute("pwd; stty olcuc")
    facts = await caller.execute(f"echo hi; {code}")
    assert (facts["status"], facts["exit_code"], facts["output"]) == ("finished", 3, "HI\n")
    facts = await caller.execute("stty -olcuc")
    assert (facts["status"], facts["exit_code"]) == ("finished", 0)
    assert before["output"].strip() == caller.session.cwd


@any_shell
async def test_jobs_have_the_numbers_of_typed_ones(caller: Caller) -> None:
    started = "sleep 100 &" if caller.shell == "fish" else "cd /usr\nsleep 100 &\necho on"
    first = "1\t" if caller.shell == "fish" else "[1]"
    for _ in range(2):
        assert (await caller.execute(started))["status"] == "finished"
        assert (await caller.execute("jobs"))["output"].splitlines()[-1].startswith(first)
        pid = int((await caller.execute("echo $last_pid" if caller.shell == "fish" else "echo $!"))["output"])
        assert (await caller.execute("kill %1"))["exit_code"] == 0
        spin(lambda pid=pid: not processes.alive(pid, None))
        while first in (await caller.execute("jobs"))["output"]:
            pass  # said once more
    facts = await caller.execute("sleep 0 & sh -c 'exit 3'")
    assert (facts["status"], facts["exit_code"]) == ("finished", 3)
    assert (await caller.execute(f"echo {'$status' if caller.shell == 'fish' else '$?'}"))["output"] == "3\n"


@pytest.mark.parametrize("caller", first(SHELLS, "zsh", "fish", "dash"), indirect=True)
async def test_a_typed_command_has_a_record_and_a_wait_of_its_own(caller: Caller, home: Path) -> None:
    earlier = await caller.execute("echo earlier")
    os.mkfifo(home / "fifo")
    sent = await caller.send(f"cat {home}/fifo; sh -c 'exit 5'\n")
    assert sent["command_id"] not in ("all", earlier["command_id"])
    assert sent["state"] != "ready"
    early = await caller.read(wait_for="finish", timeout_seconds=0.2)
    assert (early["command_id"], early["waited"], early["status"]) == (sent["command_id"], "timeout", "running")
    assert await caller.state() != "ready"
    with pytest.raises(SessionBusy):
        await caller.execute("echo no")
    await asyncio.to_thread((home / "fifo").write_text, "fed\n")
    facts = await caller.read(command_id=sent["command_id"], wait_for="finish", offset=0)
    assert (facts["waited"], facts["status"], facts["exit_code"]) == ("finished", "finished", 5)
    assert "fed" in facts["output"]
    assert await caller.state() == "ready"
    assert (await caller.execute("echo next"))["output"] == "next\n"


@any_shell
@pytest.mark.parametrize("ends", ["before", "after", "with its shell"])
async def test_a_next_daemon_knows_what_became_of_a_typed_command(caller: Caller, home: Path, ends: str) -> None:
    await caller.execute("echo earlier; kept=1" if caller.shell != "fish" else "echo earlier; set kept 1")
    os.mkfifo(home / "fifo")
    ending = "exit 5" if ends == "with its shell" else "sh -c 'exit 5'"
    sent = await caller.send(f"cat {home}/fifo; {ending}\n")
    await caller.manager.aclose()
    if ends == "before":
        await asyncio.to_thread((home / "fifo").write_text, "fed\n")
    caller.go_on(later := successor(caller.manager))
    assert await later.adopt() == 1
    if ends != "before":
        facts = await caller.read(wait_for="finish", timeout_seconds=0.2)
        assert (facts["command_id"], facts["status"]) == (sent["command_id"], "running")
        await asyncio.to_thread((home / "fifo").write_text, "fed\n")
    facts = await caller.read(wait_for="finish", offset=0)
    assert (facts["command_id"], facts["status"], facts["exit_code"]) == (sent["command_id"], "finished", 5)
    assert "fed" in facts["output"]
    if ends != "with its shell":
        assert (await caller.execute("echo $kept"))["output"] == "1\n"
        await caller.manager.aclose()
        caller.go_on(third := successor(caller.manager))
        assert await third.adopt() == 1
        assert (await caller.read(command_id=sent["command_id"]))["exit_code"] == 5


@any_shell
async def test_a_typed_line_that_asks_is_answered_and_ends_once(caller: Caller) -> None:
    sent = await caller.send("read x; echo got:$x\n")
    await until(caller.session, lambda: caller.session.at.human_line or not caller.session.shell.line_editor)
    answer = await caller.send("word\n")
    assert answer["command_id"] == sent["command_id"]
    facts = await caller.read(wait_for="finish", offset=0)
    assert (facts["command_id"], facts["status"], facts["exit_code"]) == (sent["command_id"], "finished", 0)
    assert "got:word" in facts["output"]


@pytest.mark.parametrize("caller", first(SHELLS, "bash", "mksh"), indirect=True)
async def test_several_typed_lines_are_one_command_that_ends_with_the_last(caller: Caller) -> None:
    sent = await caller.send("cd /usr\nsh -c 'exit 3'\n")
    facts = await caller.read(wait_for="finish")
    assert (facts["command_id"], facts["status"], facts["exit_code"]) == (sent["command_id"], "finished", 3)
    assert caller.session.cwd == "/usr"
    for _ in range(10):
        sent = await caller.send(keys=["Enter"])
        assert (await caller.read(wait_for="finish"))["command_id"] == sent["command_id"]
        assert caller.session.state() is SessionState.READY


@any_shell
async def test_a_typed_command_can_be_interrupted(caller: Caller) -> None:
    await caller.send("sleep 1000\n")
    await caller.read(wait_for="finish", timeout_seconds=0.2)
    facts = await caller.interrupt()
    assert (facts["status"], facts["exit_code"]) == ("interrupted", 130)
    assert (await caller.execute("echo next"))["output"] == "next\n"


@any_shell
async def test_a_typed_end_of_the_shell_is_the_end_of_what_was_typed(caller: Caller) -> None:
    await caller.execute("echo earlier")
    await caller.send("exit 4\n")
    facts = await caller.read(wait_for="finish")
    assert (facts["status"], facts["exit_code"]) == ("finished", 4)
    assert await caller.state() == "exited"


@any_shell
async def test_half_a_line_is_no_command_until_it_is_ended(caller: Caller) -> None:
    earlier = await caller.execute("echo earlier")
    assert (await caller.send("echo ha"))["command_id"] == "all"
    assert (await caller.read())["command_id"] == earlier["command_id"]
    await caller.send("lf", keys=["Enter"])
    await caller.read(wait_for="finish")
    last = caller.session.history.last
    assert last is not None
    assert (last.command, last.exit_code) == ("echo half", 0)


@any_shell
async def test_a_pattern_sees_the_blank_that_a_prompt_ends_in(caller: Caller) -> None:
    await caller.execute("echo earlier")
    offset = caller.session.log.end
    await caller.send("printf 'x\\ty\\n'\n")
    await caller.read(wait_for="finish")
    facts = await caller.read(
        command_id="all", wait_for="pattern", pattern=r"[#$%>] $", offset=offset, timeout_seconds=50
    )
    assert (facts["waited"], facts["matches"]) == ("pattern", 1)


@any_shell
async def test_what_runs_on_in_the_background_is_named_where_it_may_print(caller: Caller, home: Path) -> None:
    fifo = home / "fifo"
    os.mkfifo(fifo)
    first = await caller.execute(f"cat {fifo} &")
    assert "earlier commands" not in first.get("note", "")
    second = await caller.execute(f"echo late >{fifo}; wait; echo own")
    assert "own\n" in second["output"]
    assert f"of {first['command_id']} ('cat " in second["note"]
    await asyncio.to_thread(spin, lambda: not children(caller.session))  # fish runs some for its prompt
    assert (await caller.execute("echo quiet")).get("note", "") == ""


@any_shell
async def test_what_runs_on_in_the_background_is_named_beside_typed_lines(caller: Caller, home: Path) -> None:
    fifo = home / "fifo"
    os.mkfifo(fifo)
    first = await caller.send(f"cat {fifo} &\n")
    await caller.read(wait_for="finish")
    await caller.send(f"echo late >{fifo}; wait; echo own\n")
    facts = await caller.read(wait_for="finish")
    assert "own\n" in facts["output"]
    assert f"of {first['command_id']} ('cat " in facts["note"]
    assert "earlier commands" in (await caller.read(offset=0))["note"]
    await asyncio.to_thread(spin, lambda: not children(caller.session))
    await caller.send("echo quiet\n")
    assert "earlier commands" not in (await caller.read(wait_for="finish")).get("note", "")


@any_shell
async def test_what_was_printed_at_the_prompt_is_no_part_of_the_next_output(caller: Caller, home: Path) -> None:
    fifo = home / "fifo"
    os.mkfifo(fifo)
    first = await caller.execute(f"cat {fifo} &")
    session = caller.session
    await until(session, lambda: session.at.ready)
    with await asyncio.to_thread(fifo.open, "w", buffering=1) as held:  # who printed it lives when it is named
        held.write("late line\n")
        await until(session, lambda: b"late line" in session.log.read(session.log.first, session.log.end))
        second = await caller.execute("echo own")
        assert second["output"] == "own\n"
        if session.shell.draws_before_ready(session.at.version):
            assert second["late_output"].startswith("late line")
            assert f"of {first['command_id']}" in second["note"]
        assert "late_output" not in await caller.execute("echo quiet")


@pytest.mark.parametrize("caller", ["bash"], indirect=True)  # zsh waits for them, the others have none
async def test_a_process_substitution_is_named_with_its_command(caller: Caller, home: Path) -> None:
    os.mkfifo(home / "fifo")
    first = await caller.execute(f"seq 5 | tee >(cat {home}/fifo; wc -l) >/dev/null")
    second = await caller.execute(f"echo go >{home}/fifo; read -t 0.5 x; echo own")
    assert first["command_id"] in second["note"]


def children(session: Session) -> list[str]:
    """The programs that its shell has started and that run."""
    assert session.terminal
    pid, names = session.terminal.pid, list[str]()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            names.append(Path(f"/proc/{child}/comm").read_text().strip())
    return names


@any_shell
async def test_commands_that_leave_nothing_behind_get_no_notes(caller: Caller) -> None:
    holder = caller.session.holder
    for command in ("seq 3 | cat", "echo $(echo x)", "sh -c 'exit 0'", "sleep 1000 >/dev/null 2>&1 &", "echo last"):
        note, session = (await caller.execute(command)).get("note", ""), caller.session
        assert note == "", (command, session.latest, session.log.read(session.log.first, session.log.end))
        # What fish starts to draw its prompt, after it has reported it, has ended when it reads.
        await asyncio.to_thread(spin, lambda: (h := holder()) is not None and h.input_mode is not None)
        # What was begun in the background is the program by then, and no copy of the shell with the shell's output.
        await asyncio.to_thread(spin, lambda: all(name == "sleep" for name in children(caller.session)))


@any_shell
async def test_an_answer_from_before_the_shell_came_to_a_command_does_not_end_it(caller: Caller, home: Path) -> None:
    session, fifo = caller.session, home / "fifo"
    os.mkfifo(fifo)
    running = await session.begin(f"cat {fifo}; sh -c 'exit 3'", command_id="cmd")
    await until(session, lambda: running.started)
    assert session.terminal
    late = f"\x1b]7777;{session.spec.nonce};U;{running.record.seq};{running.asks}\a"
    assert terminal_device.show(session.terminal.tty, late.encode())
    shown = session.prompt.show_mark()
    assert shown is not None
    await until(session, lambda: session.prompt.read_back >= shown)
    await asyncio.to_thread(fifo.write_text, "fed\n")
    async with asyncio.timeout(BOUND_SECONDS):
        record = await running.finished
    assert (record.status, record.exit_code, record.note) == ("finished", 3, "")


@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
async def test_the_end_of_a_shell_is_noticed_while_others_always_have_more_to_do(backend: str, home: Path) -> None:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=backend, user_rc=False))
    busy = True

    def work() -> None:
        if busy:
            manager.turns.add("another session", work)

    try:
        session = await manager.create(request(shell="bash"))
        work()
        session.send(b"exit 3\r")
        await until(session, lambda: session.exit is not None)
        assert session.exit is not None
        assert session.exit.code == 3
    finally:
        busy = False
        await manager.stop()
