"""The Python API, blocking and awaited, against a real daemon."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import ai_session
from ai_session.api import aio, blocking
from ai_session.errors import SessionExists
from tests.ai_session.support.mcp_client import daemon_pids, living_in, running_daemon, stop_daemons
from tests.conftest import UNBOXED, environment, new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

NAMES = {
    "AiSessionError",
    "Command",
    "CommandFailed",
    "CommandResult",
    "ConsentNeeded",
    "Denied",
    "NotExpected",
    "Screen",
    "Session",
    "SessionBusy",
    "SessionInfo",
    "aio",
    "list_sessions",
    "open",
    "spawn",
}
RULE = '[[policy.rules]]\nid = "{0}"\ndecision = "{0}"\nclients = ["python"]\ntools = ["execute_command"]\n{1}\n'
POLICY = RULE.format("deny", 'commands = ["halt now"]') + RULE.format("ask", 'commands = ["mount all"]')


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes, UNBOXED + POLICY) as home, environment(living_in(home)):
        yield home
        blocking._connections.close()  # pyright: ignore[reportPrivateUsage]


def test_its_names_are_these_and_cost_nothing_until_they_are_used() -> None:
    assert set(ai_session.__all__) == NAMES
    assert all(hasattr(ai_session, name) for name in NAMES)
    script = "import sys; before = set(sys.modules); import ai_session; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["ai_session"]
    heavy = "import sys, ai_session; ai_session.open; print(*{'asyncio', 'pydantic', 'typer'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize("name", ["open", "list_sessions", "Session", "Command"])
def test_what_is_awaited_has_the_same_names_and_arguments(name: str) -> None:
    one, other = getattr(blocking, name), getattr(aio, name)
    if inspect.isclass(one):
        shared = {what for what in vars(one) if not what.startswith("_")}
        assert shared == {what for what in vars(other) if not what.startswith("_")} - {"drive"}
        for what in shared:
            assert arguments(getattr(one, what)) == arguments(getattr(other, what))
            assert inspect.iscoroutinefunction(getattr(other, what))
    else:
        assert arguments(one) == arguments(other)


def arguments(function: object) -> list[str]:
    return [str(parameter) for parameter in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


@pytest.mark.torture
def test_what_keeps_the_daemon_from_starting_is_what_is_raised(homes: Path) -> None:
    home = new_home(homes, "[session")
    with environment(living_in(home)):
        for look in (ai_session.list_sessions, lambda: asyncio.run(aio.list_sessions())):
            with pytest.raises(ai_session.AiSessionError) as found:
                look()
            assert (found.value.code, "fix the file" in found.value.suggestion) == ("config_invalid", True)
    stop_daemons(home)


def test_closing_again_is_no_error_and_hides_none(daemon_home: Path) -> None:
    with environment(living_in(daemon_home)):
        session = ai_session.open(shell="bash", backend="pty", directory=daemon_home)
        with pytest.raises(ai_session.AiSessionError, match="command: is empty"):
            session.run("")

        def leave_a_closed_one() -> None:
            with session:
                session.close()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            leave_a_closed_one()
        session.close()
        with pytest.raises(ai_session.AiSessionError) as gone:
            session.run("true")
    assert gone.value.code == "session_not_found"


def test_a_command_has_its_output_and_its_exit_code(session: ai_session.Session) -> None:
    done = session.run("echo out; echo err >&2; cd /; false", separate_stderr=True)
    assert (done.status, done.exit_code, done.output, done.stderr, done.cwd) == ("finished", 1, "out\n", "err\n", "/")
    assert not done.ok
    assert session.run("pwd").output == "/\n"
    assert session.run("cat", stdin="given").output == "given"
    assert session.run("true", check=True).ok
    with pytest.raises(ai_session.CommandFailed, match="exit code 3") as failed:
        session.run("(exit 3)", check=True)
    assert failed.value.result.exit_code == 3
    whole = session.run("seq 100000")
    assert whole.output == "".join(f"{number}\n" for number in range(1, 100_001))
    assert not whole.truncated
    assert session.read().count("99999\n") == 1
    assert session.info().state == "ready"


def test_a_timeout_ends_the_wait_and_not_the_command(session: ai_session.Session, daemon_home: Path) -> None:
    os.mkfifo(daemon_home / "go")
    running = session.run(f"cat {daemon_home}/go; echo done", timeout=0.1)
    assert (running.status, running.exit_code) == ("running", None)
    with pytest.raises(ai_session.SessionBusy) as busy:
        session.run("true")
    assert busy.value.__notes__ == [busy.value.suggestion]
    (daemon_home / "go").write_text("went\n")
    (info,) = [info for info in ai_session.list_sessions() if info.session_id == session.id]
    assert info.name == session.name
    assert ai_session.Command(session, running.command_id).wait(BOUND_SECONDS).output == "went\ndone\n"


def test_what_a_command_prints_is_expected_and_answered(session: ai_session.Session) -> None:
    asking = session.start("echo one; echo two; printf 'Name: '; read -r name; echo hello $name; (exit 4)")
    assert asking.expect(r"o(n)e").group(1) == "n"
    asking.expect("Name: ", timeout=BOUND_SECONDS)
    wants = asking.wait()
    assert (wants.status, wants.input_mode) == ("running", "line")
    assert asking.poll() is None
    with pytest.raises(ai_session.NotExpected) as late:
        asking.expect("never", timeout=0)
    assert (late.value.ended, late.value.before) == (False, "")
    asking.send("Ada\n")
    assert asking.expect(r"hello (\w+)").group(1) == "Ada"
    assert asking.wait().exit_code == 4
    with pytest.raises(ai_session.NotExpected) as over:
        asking.expect("never")
    assert (over.value.ended, over.value.before) == (True, "\n")
    assert isinstance(over.value, TimeoutError)
    assert asking.output() == "one\ntwo\nName: Ada\nhello Ada\n"
    reading = session.start("printf a; read x; echo b; read y")
    reading.wait()
    assert reading.read() == "a"
    session.keys("Enter")
    reading.expect("b")
    assert reading.interrupt().status == "interrupted"
    assert (found := reading.poll())
    assert found.exit_code == 130


def test_the_screen_and_its_size(session: ai_session.Session) -> None:
    session.resize(10, 40)
    session.run("printf 'top\\n'")
    screen = session.screen()
    assert (screen.rows, screen.cols, len(screen.lines)) == (10, 40, 10)
    assert "top" in screen.text


def test_a_named_session_stays_and_an_unnamed_one_does_not(daemon_home: Path) -> None:
    with environment(living_in(daemon_home)):
        with ai_session.open("kept", backend="pty") as named:
            named.run("x=5")
        with ai_session.open() as unnamed:
            pass
        with ai_session.open("kept") as again:
            assert again.id == named.id
            assert again.run("echo $x").output == "5\n"
        there = [info.name for info in ai_session.list_sessions()]
        assert "kept" in there
        assert unnamed.name not in there
        named.close()


def test_no_session_is_returned_that_is_another_than_was_asked_for(daemon_home: Path, tmp_path: Path) -> None:
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    (workspace / "below").mkdir(parents=True)
    elsewhere.mkdir()
    others: list[tuple[dict[str, str], str]] = [
        ({"profile": "read-only"}, "profile workspace, not read-only"),
        ({"profile": "trusted"}, "profile workspace, not trusted"),
        ({"shell": "dash"}, "shell bash, not dash"),
        ({"backend": "tmux"}, "backend pty, not tmux"),
        ({"directory": str(elsewhere)}, f"directory {workspace}, not {elsewhere}"),
    ]
    with environment(living_in(daemon_home)):
        made = ai_session.open("asked", profile="workspace", directory=workspace, shell="bash", backend="pty")
        for state, hint in (("running", "use it as it is"), ("exited", "start it again as it was")):
            for asked, other in others:
                with pytest.raises(SessionExists, match=re.escape(other)) as refused:
                    ai_session.open("asked", **asked)
                if "directory" not in asked:
                    assert f"leave that out to {hint}" in refused.value.suggestion
            if state == "running":
                made.run("exit")
        with ai_session.open("asked", profile="workspace", directory=workspace / "below", shell="bash") as same:
            assert (same.id, same.run("echo works").output) == (made.id, "works\n")
        same.close()


def test_the_policy_holds_and_no_program_is_the_person(session: ai_session.Session) -> None:
    with pytest.raises(ai_session.Denied):
        session.run("halt now")
    with pytest.raises(ai_session.ConsentNeeded, match="ap_"):
        session.run("mount all")
    assert session.run("echo fine").ok


def test_a_command_is_carried_out_once_though_the_daemon_is_killed(
    session: ai_session.Session, daemon_home: Path
) -> None:
    os.mkfifo(daemon_home / "gate")
    begun = daemon_home / "count"
    command = f"echo begun >>{begun}; read line <{daemon_home}/gate; echo $line"
    results: list[ai_session.CommandResult] = []
    waiting = threading.Thread(target=lambda: results.append(session.run(command)))
    with environment(living_in(daemon_home)):
        waiting.start()
        with open(os.open(daemon_home / "gate", os.O_RDWR), "w") as gate:  # which waits for no reader
            for pid in daemon_pids(daemon_home):
                os.kill(pid, signal.SIGKILL)
            gate.write("through\n")
            gate.flush()
            waiting.join(BOUND_SECONDS)  # with the gate open: what is in a closed pipe without a reader is lost
    assert [(done.exit_code, done.output) for done in results] == [(0, "through\n")]
    assert begun.read_text() == "begun\n"


def test_threads_and_a_forked_child_use_it_at_the_same_time(session: ai_session.Session) -> None:
    found: dict[int, str] = {}

    def look(number: int) -> None:
        found[number] = session.info().name

    threads = [threading.Thread(target=look, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert list(found.values()) == [session.name] * 8
    child = os.fork()
    if child == 0:
        os._exit(0 if session.run("echo child").output == "child\n" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.run("echo parent").output == "parent\n"


@pytest.mark.anyio
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.torture)])
async def test_awaited_many_commands_run_at_once(daemon_home: Path, killed: bool) -> None:
    with environment(living_in(daemon_home)):
        opened = [ai_session.aio.open(f"many-{number}", backend="pty") for number in range(3)]
        async with asyncio.timeout(2 * BOUND_SECONDS):
            sessions = await asyncio.gather(*opened)

            async def several(session: aio.Session) -> list[str]:
                return [(await session.run(f"echo {session.name} {turn}")).output for turn in range(3)]

            said = await asyncio.gather(*map(several, sessions))
            assert said == [[f"many-{number} {turn}\n" for turn in range(3)] for number in range(3)]
            first = sessions[0]
            asking = await first.start("printf '? '; read -r x; echo got $x")
            await asking.expect(r"\? ")
            waiting = asyncio.create_task(asking.wait(BOUND_SECONDS))
            await asyncio.sleep(0)
            waiting.cancel()
            await asking.send("it\n")
            await asking.expect("got it")
            assert (await asking.wait()).ok
            with pytest.raises(ai_session.Denied):
                await first.run("halt now")
            for pid in daemon_pids(daemon_home) if killed else ():
                os.kill(pid, signal.SIGKILL)
            assert (await first.run("echo back")).output == "back\n"
            assert {info.name for info in await aio.list_sessions()} >= {session.name for session in sessions}
            await asyncio.gather(*(session.close() for session in sessions))


def test_the_fixture_gives_a_terminal_of_its_own(tmp_path: Path, home: Path) -> None:
    """Carried out by a run of pytest in a process of its own."""
    (plugin,) = entry_points(group="pytest11", name="ai_session")
    assert plugin.value == "ai_session.api.pytest_plugin"
    (tmp_path / "test_it.py").write_text(
        "def test_terminal(terminal, tmp_path):\n"
        "    assert terminal.run('pwd').output == f'{tmp_path}\\n'\n"
        "    assert terminal.run('echo $HOME | head -c 5; false').exit_code == 1\n"
    )
    (tmp_path / "run.py").write_text("import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))\n")
    env = {**living_in(home), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-q", "-p", "ai_session.api.pytest_plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    words += ["--import-mode=importlib", str(tmp_path / "test_it.py")]
    code, out, _ = forked.run("ai_session", words, cwd=tmp_path, env=env, script=str(tmp_path / "run.py"))
    assert code == pytest.ExitCode.OK, out.decode()


def test_the_pages_examples_do_what_they_say(daemon_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each example of the page, in order, in one namespace; a comment behind a print is what it prints."""
    page = (Path(__file__).parents[4] / "docs/howto/python.md").read_text()
    names: dict[str, object] = {"__name__": "example"}
    (daemon_home / "shop").mkdir()
    with environment(living_in(daemon_home)), chdir(daemon_home / "shop"):
        for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            exec(compile(code, "docs/howto/python.md", "exec"), names)
            wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
            assert capsys.readouterr().out.splitlines() == wanted
        for info in ai_session.list_sessions():
            ai_session.open(info.name).close()
