"""A session whose shell says nothing any more finds out what became of its command, and goes on."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_session.errors import IntegrationLost, SessionBusy, SessionExited
from ai_session.models import SessionState
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.recovery_cases import OF_SHELL, Lost
from tests.ai_session.support.sessions import (
    Result,
    request,
    run,
    runtime_directory,
    spin,
    text_of,
    until,
)
from tests.support.bounds import BOUND_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.corners, pytest.mark.either("backend")]


SILENCING = (
    ("bash", "shopt -s extdebug; trap false DEBUG"),
    ("zsh", "TRAPDEBUG() { return 1; }"),
    ("dash", "set -n"),
    ("busybox", "set -n"),
    ("zsh", "trap 'return 1' DEBUG"),
)
"""What keeps a shell from executing anything, by its own definition of it."""


@pytest.fixture
async def manager(backend: str, home: Path) -> AsyncIterator[SessionManager]:
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=backend, max_sessions=100))
    yield manager
    await manager.stop()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shell", OF_SHELL)
async def test_no_state_of_the_shell_is_for_ever(manager: SessionManager, shell: str, every: bool) -> None:
    cases = [case for case in OF_SHELL[shell] if every or not case.alike]
    wrong = await asyncio.gather(*(goes_on(manager, shell, n, case) for n, case in enumerate(cases)))
    assert not [text for text in wrong if text]


async def goes_on(manager: SessionManager, shell: str, number: int, case: Lost) -> str:
    """What is wrong after ``case``; the next command is begun at once, as a caller would that does not look."""
    session = await manager.create(request(f"s{number}", shell=shell))
    running = await session.begin(case.command, command_id="cmd")
    if await wait.for_command(session, running, BOUND_SECONDS, until_input=True) != "finished":
        return f"{case.command}: still {session.state()}"
    record = running.record
    if record.exit_code != case.exit_code or record.status != ("lost" if case.exit_code is None else "finished"):
        return f"{case.command}: {record.status}, exit code {record.exit_code}"
    if case.exit_code is None and not record.note:
        return f"{case.command}: nothing is said of what befell it"
    if os.path.basename(session.spec.shell) != (case.shell or shell):
        return f"{case.command}: the shell counts as {session.spec.shell}"
    result = await run(session, "sh -c 'echo next; exit 4'")
    return "" if result == Result("next\n", 4, "finished") else f"{case.command}: the next command gave {result}"


@pytest.mark.parametrize(
    "shells", [("dash",), pytest.param(("mksh", "busybox"), marks=pytest.mark.torture)], ids=" ".join
)
async def test_a_shell_that_may_never_open_enough_files_again_ends_and_says_why(
    manager: SessionManager, shells: tuple[str, ...]
) -> None:
    for shell in shells:
        session = await manager.create(request(shell, shell=shell))
        assert await run(session, "ulimit -n 12; (exit 5)") == Result("", 5, "finished"), shell
        with pytest.raises(SessionExited, match="only 12 files"):
            await session.begin("echo never", command_id="next")
        while session.exit is None:
            assert await session.changed(BOUND_SECONDS)
        assert "only 12 files" in str(session.exit)
        assert session.ended_by == "cmd"


@pytest.mark.parametrize(
    "cases", [SILENCING[:3], pytest.param(SILENCING[3:], marks=pytest.mark.torture)], ids=["3", "2"]
)
async def test_a_shell_that_executes_nothing_any_more_ends_and_starts_again_where_it_was(
    manager: SessionManager, cases: tuple[tuple[str, str], ...]
) -> None:
    async def starts_again(number: int, shell: str, command: str) -> None:
        name = f"s{number}"
        session = await manager.create(request(name, shell=shell))
        assert await run(session, "cd /usr; export AISX=kept") == Result("", 0, "finished")
        await run(session, command)
        while session.exit is None:
            assert await session.changed(BOUND_SECONDS)
        assert session.shell.silenced_by
        assert session.shell.silenced_by in str(session.exit), (shell, command)
        assert session.ended_by == "cmd"
        with pytest.raises(SessionExited, match="did not execute what was typed") as refused:
            await session.begin("echo never", command_id="next")
        assert f"create_session with name '{name}'" in refused.value.suggestion
        again = await manager.create(request(name, shell=shell))
        kept = "kept" if shell == "zsh" else ""
        assert await run(again, 'pwd; echo "$AISX"') == Result(f"/usr\n{kept}\n", 0, "finished"), (shell, command)

    await asyncio.gather(*(starts_again(number, *case) for number, case in enumerate(cases)))


@pytest.mark.torture
async def test_a_shell_that_reads_elsewhere_for_ever_is_busy_and_says_what_it_reads(manager: SessionManager) -> None:
    async def refuses(shell: str, command: str, source: str) -> None:
        session = await manager.create(request(shell, shell=shell))
        assert await run(session, command) == Result("", 0, "finished"), shell
        with pytest.raises(SessionBusy, match=source):
            await session.begin("echo never", command_id="next")
        assert session.state() is SessionState.RUNNING

    await asyncio.gather(
        refuses("bash", "exec 0<>/dev/full 1>&0 2>&0", "/dev/full"),
        refuses("dash", "mkfifo pipe; exec 0<>pipe", "/pipe"),
        refuses("mksh", "exec </dev/zero", "/dev/zero"),
        refuses("busybox", "exec </dev/zero", "/dev/zero"),
    )


@pytest.mark.torture
@pytest.mark.parametrize("shell", ["mksh", "dash"])
async def test_letters_that_are_keys_of_the_terminal_are_typed_all_the_same(
    manager: SessionManager, shell: str
) -> None:
    keys = ("erase a", "kill s", "intr a", "quit .", "erase f kill s intr a quit . werase ' '")
    cases = enumerate(f"stty {key}; (exit 5)" for key in keys)
    wrong = await asyncio.gather(*(goes_on(manager, shell, n, Lost(text, 5)) for n, text in cases))
    assert not [text for text in wrong if text]


@pytest.mark.torture
async def test_a_prompt_that_never_comes_is_said_and_nothing_is_typed(manager: SessionManager) -> None:
    async def refuses(shell: str, command: str) -> None:
        session = await manager.create(request(shell, shell=shell))
        assert await run(session, command) == Result("", 0, "finished"), shell
        for _ in range(2):
            with pytest.raises(SessionBusy, match="preparing its prompt"):
                await session.begin("echo never", command_id="next")
            assert session.state() is SessionState.RUNNING
        await manager.close(session)

    await asyncio.gather(
        refuses("bash", "PROMPT_COMMAND='kill -INT $$'"),
        refuses("dash", "PS1='$(kill -INT $$)'"),
        refuses("busybox", "PS1='$(kill -INT $$)'"),
    )


@pytest.mark.torture
@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "fish", "mksh", "busybox"])
async def test_a_program_from_elsewhere_that_takes_what_is_typed_is_named(manager: SessionManager, shell: str) -> None:
    """Who of the two gets it is chance: a command ends as it should, or is lost and says why."""
    session = await manager.create(request(shell=shell))
    assert session.terminal is not None
    with open(session.terminal.tty, opener=lambda path, flags: os.open(path, flags | os.O_NOCTTY)) as terminal:
        null = asyncio.subprocess.DEVNULL
        thief = await asyncio.create_subprocess_exec("cat", stdin=terminal, stdout=null, start_new_session=True)
    try:
        for _ in range(4):
            running = await session.begin("sh -c 'exit 4'", command_id="cmd")
            assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
            record = running.record
            assert record.exit_code == 4 or (record.exit_code is None and f"(process {thief.pid})" in record.note)
    finally:
        thief.kill()
        await thief.wait()
    assert (await run(session, "sh -c 'exit 5'")).exit_code == 5


@pytest.mark.parametrize(
    ("shell", "command"),
    [
        ("bash", "read -e x; echo got:$x"),
        pytest.param("bash", "read x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("bash", "read -s x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("bash", "read -n 10 x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("bash", "stty raw -echo; read -n 10 x; stty sane; echo got:$x", marks=pytest.mark.torture),
        pytest.param("zsh", "vared -c x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("zsh", "read -s x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("zsh", "read -k 10 x; echo got:$x", marks=pytest.mark.torture),
        ("fish", "read x; echo got:$x"),
        pytest.param("dash", "read x; echo got:$x", marks=pytest.mark.torture),
        ("dash", "stty -echo; read x; stty echo; echo got:$x"),
        pytest.param("mksh", "read x; echo got:$x", marks=pytest.mark.torture),
        pytest.param("busybox", "read x; echo got:$x", marks=pytest.mark.torture),
    ],
)
async def test_what_a_command_asks_for_itself_stays_its_own(manager: SessionManager, shell: str, command: str) -> None:
    session = await manager.create(request(shell, shell=shell))
    running = await session.begin(command, command_id="cmd")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input"
    # All that tells of it says the same.
    holder = session.holder()
    assert holder is not None
    assert (session.state(), session.input_wanted()) == (SessionState.WAITING_INPUT, holder.input_mode)
    session.send(b"whole line\r")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert "got:whole line\n" in text_of(session, running.record).replace("\r", "")
    assert running.record.exit_code == 0


async def test_the_next_command_waits_until_it_is_known_that_the_last_one_has_ended(manager: SessionManager) -> None:
    session = await manager.create(request())
    running = await session.begin("enable -n printf", command_id="cmd")
    await until(session, lambda: running.started and session.at.ready)
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


async def test_a_shell_that_a_person_replaced_is_used_from_then_on(manager: SessionManager) -> None:
    session = await manager.create(request(shell="bash"))
    session.send(b"exec zsh\n")
    await until(session, lambda: session.at.human_line)
    await until(session, lambda: session.spec.shell.endswith("zsh"))
    result = await run(session, "echo $ZSH_VERSION | grep -c .")
    assert (result.output, result.exit_code) == ("1\n", 0)


@pytest.mark.parametrize("text", ["PROMPT_COMMAND='sleep 0.5'", "trap 'sleep 0.1' DEBUG"])
async def test_what_a_slow_prompt_runs_is_waited_for(manager: SessionManager, home: Path, text: str) -> None:
    (home / ".bashrc").write_text(f"{text}\n")
    session = await manager.create(request(shell="bash"))
    for code in (4, 5):
        assert await run(session, f"(exit {code})") == Result("", code, "finished")


async def test_start_files_that_replace_the_shell(manager: SessionManager, home: Path) -> None:
    (home / ".bashrc").write_text("exec zsh\n")
    session = await manager.create(request(shell="bash"))
    assert os.path.basename(session.spec.shell) == "zsh"
    assert await run(session, "echo ok") == Result("ok\n", 0, "finished")


@pytest.mark.parametrize(
    ("shell", "file", "text"),
    [
        ("bash", ".bashrc", "exec fish"),
        pytest.param("bash", ".bashrc", "exec bash --norc", marks=pytest.mark.torture),
        pytest.param("bash", ".bashrc", "readonly PROMPT_COMMAND", marks=pytest.mark.torture),
        ("bash", ".bashrc", "PROMPT_COMMAND='echo hi'; readonly PROMPT_COMMAND PS1 PS0 HISTCONTROL"),
        pytest.param("bash", ".bashrc", "enable -n printf", marks=pytest.mark.torture),
        pytest.param("bash", ".bashrc", "builtin() { :; }", marks=pytest.mark.torture),
        pytest.param("bash", ".bashrc", "alias builtin=false", marks=pytest.mark.torture),
        pytest.param("zsh", ".zshrc", "exec bash", marks=pytest.mark.torture),
        ("zsh", ".zshrc", "readonly PS1 precmd_functions preexec_functions zshexit_functions"),
        ("fish", ".config/fish/config.fish", "exec zsh"),
    ],
)
async def test_whatever_the_start_files_do_commands_run(
    manager: SessionManager, home: Path, shell: str, file: str, text: str
) -> None:
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(f"{text}\n")
    session = await manager.create(request(shell=shell))
    assert session.at.up
    for code in (4, 5):
        result = await run(session, f"sh -c 'echo next; exit {code}'")
        assert result.output.count("next\n") == 1
        assert result.exit_code == code
    assert not session.at.human_line


NIGHTLY = pytest.mark.torture


@pytest.mark.parametrize(
    ("shell", "file", "text", "said"),
    [
        ("bash", ".bashrc", "exec vim -u NONE", "vim"),
        ("bash", ".bashrc", "read -p 'name? ' x", "wait for input"),
        ("zsh", ".zshrc", "read 'x?name? '", "wait for input"),
        pytest.param("zsh", ".zshenv", "read -k 1 'x?name? '", "wait for input", marks=NIGHTLY),
        ("fish", ".config/fish/config.fish", "read -P 'name? ' x", "wait for input"),
    ],
)
async def test_start_files_that_keep_the_shell_are_named(
    manager: SessionManager, home: Path, shell: str, file: str, text: str, said: str
) -> None:
    (home / file).parent.mkdir(parents=True, exist_ok=True)
    (home / file).write_text(f'{text}\necho "<$x>" >>~/got\n')
    session = await manager.create(request(shell=shell))
    assert session.state() is SessionState.STARTING
    for _ in range(2):
        with pytest.raises(IntegrationLost, match=said):
            await session.begin("echo never", command_id="cmd")
    assert not (home / "got").exists()
    if said == "wait for input":
        session.send(b"a\n")
        await until(session, (home / "got").exists)
        assert (home / "got").read_text() == "<a>\n"


ONCE = '[ -n "$asked" ] || {{ asked=1; {}; echo "<$x>" >>~/got; }}'


@pytest.mark.parametrize(
    ("shell", "text"),
    [
        ("bash", "read -p 'update? ' x"),
        pytest.param("bash", "read -t 600 x", marks=NIGHTLY),
        pytest.param("bash", "read -s x", marks=NIGHTLY),
        ("bash", "read -n 1 x"),
        ("bash", "x=$(exec python3 -c 'import getpass; print(getpass.getpass())')"),
        pytest.param("bash", "x=$(python3 -c 'print(input())')", marks=NIGHTLY),
        pytest.param("bash", 'python3 -c \'print(input(), file=open("x", "w"))\'; read x <x', marks=NIGHTLY),
        pytest.param("zsh", 'python3 -c \'print(input(), file=open("x", "w"))\'; read x <x', marks=NIGHTLY),
        ("zsh", "read 'x?update? '"),
        pytest.param("zsh", "read -t 600 x", marks=NIGHTLY),
        pytest.param("zsh", "read -s x", marks=NIGHTLY),
        pytest.param("zsh", "read -k 1 x", marks=NIGHTLY),
    ],
)
async def test_what_a_hook_of_the_prompt_asks_is_not_answered_by_a_command(
    manager: SessionManager, home: Path, shell: str, text: str
) -> None:
    """A line, with a limit of time, without an echo, a single key; by the shell, or by a program."""
    asks = ONCE.format(text)
    (home / ".bashrc").write_text(f"hook() {{ {asks}; }}\nPROMPT_COMMAND=hook\n")
    (home / ".zshrc").write_text(f"precmd() {{ {asks}; }}\n")
    session = await manager.create(request(shell=shell))
    assert session.state() is SessionState.WAITING_INPUT
    with pytest.raises(SessionBusy, match="waits for input"):
        await session.begin("echo never", command_id="never")
    assert not (home / "got").exists()
    single = "1 x" in text
    assert await session.typed_lines.send_lines(b"y" if single else b"yes\n", "answer") is None
    await until(session, lambda: session.at.ready)
    assert (home / "got").read_text() == ("<y>\n" if single else "<yes>\n")
    running = await session.begin("sh -c 'echo next; exit 4'", command_id="next")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert (text_of(session, running.record), running.record.exit_code, running.dropped) == ("next\n", 4, "")


@pytest.mark.parametrize(
    ("begins", "asks"),
    [
        ("exec zsh", 'read x; echo "<$x>" >>~/got'),
        pytest.param("exec zsh", 'precmd() { [ -n "$a" ] || { a=1; read x; echo "<$x>" >>~/got; }; }', marks=NIGHTLY),
        ('[ -n "$a" ] || { export a=1; exec bash --noediting; }; read x; echo "<$x>" >>~/got; PS1=\'p> \'', ""),
    ],
)
async def test_what_start_files_of_an_executed_shell_ask_is_not_answered_by_us(
    manager: SessionManager, home: Path, begins: str, asks: str
) -> None:
    (home / ".bashrc").write_text(f"{begins}\n")
    (home / ".zshrc").write_text(f"{asks}\n")
    session = await manager.create(request(shell="bash"))
    assert session.state() is SessionState.STARTING
    with pytest.raises(IntegrationLost, match="wait for input"):
        await session.begin("echo never", command_id="never")
    assert not (home / "got").exists()
    session.send(b"yes\n")
    # At once: what the start files wait for may have been answered.
    assert await run(session, "sh -c 'echo next; exit 4'") == Result("next\n", 4, "finished")
    assert (home / "got").read_text() == "<yes>\n"


async def test_a_start_file_that_was_answered_goes_on(manager: SessionManager, home: Path) -> None:
    (home / ".bashrc").write_text("read -p 'name? ' name\n")
    session = await manager.create(request(shell="bash"))
    session.send(b"ann\n")
    await until(session, lambda: session.at.ready)
    assert await run(session, "echo $name") == Result("ann\n", 0, "finished")


@pytest.mark.parametrize(
    ("shell", "line"),
    [("bash", b"read -e y\n"), pytest.param("zsh", b"vared -c y\n", marks=pytest.mark.torture), ("fish", b"read y\n")],
)
async def test_what_a_persons_line_asks_with_the_line_editor_is_no_prompt(
    manager: SessionManager, shell: str, line: bytes
) -> None:
    session = await manager.create(request(shell=shell))
    session.send(line)
    await until(session, lambda: session.at.human_line)
    holder = session.holder
    await asyncio.to_thread(spin, lambda: (h := holder()) is not None and h.input_mode == "raw")
    # Asked, and not answered: it is known to read.
    await until(session, lambda: not session.watchdog.may_have_ended())
    assert session.at.human_line
    session.send(b"zz\r")
    await until(session, lambda: session.at.ready and not session.at.human_line)
    assert (await run(session, "echo y=$y")).output == "y=zz\n"


async def test_an_old_prompt_that_is_printed_again_ends_nothing(manager: SessionManager, home: Path) -> None:
    session = await manager.create(request(shell="bash"))
    await run(session, "true")
    (home / "old").write_bytes(session.log.read(session.log.first, session.log.end))
    running = await session.begin(f"cat {home}/old; read -e x; echo got:$x; (exit 9)", command_id="cmd")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input"
    session.send(b"mine\r")
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert text_of(session, running.record).endswith("got:mine\n")
    assert running.record.exit_code == 9


async def test_a_shell_that_was_asked_before_it_began_loses_no_output(manager: SessionManager) -> None:
    session = await manager.create(request(shell="bash"))
    running = await session.begin("echo kept", command_id="cmd")
    running.quiet_end = session.log.end
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    assert text_of(session, running.record) == "kept\n"


async def test_a_fish_that_draws_its_prompt_does_not_count_as_reading(manager: SessionManager, home: Path) -> None:
    """It has a thread then that polls for what the programs print that draw it."""
    os.mkfifo(home / "fifo")
    (home / ".config/fish").mkdir(parents=True)
    (home / ".config/fish/config.fish").write_text("function fish_prompt; set -l x (cat ~/fifo); echo '> '; end")
    session = await manager.create(request(shell="fish"))
    process = session.process
    assert process is not None
    threads = Path(f"/proc/{process.pid}/task")
    await asyncio.to_thread(spin, lambda: any("poll" in file.read_text() for file in threads.glob("*/wchan")))
    session.prompt.learn()
    holder = session.holder()
    assert holder is not None
    assert (process.prompt_known, holder.input_mode, session.evidence().reads) == (False, None, False)
    with await asyncio.to_thread((home / "fifo").open, "w"):
        (home / "fifo").unlink()
        (home / "fifo").touch()
    await asyncio.to_thread(spin, lambda: session.evidence().reads)
