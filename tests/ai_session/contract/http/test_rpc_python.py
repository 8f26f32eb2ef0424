"""code.runPython: exact outputs, and nothing left of it, whatever the code does and whenever its client goes away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai_session.tools.code import MAX_FILE_BYTES, MAX_OUTPUT_BYTES
from tests.ai_session.support.mcp_client import daemon_pids, living_in, runtime, stop_daemons
from tests.ai_session.support.rpc_servers import Rpc, RpcHome, new_rpc_home, serving
from tests.conftest import processes
from tests.support import forked
from tests.support.bounds import pause_awaited

pytestmark = pytest.mark.anyio

FORKS = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


HERE = "import time\nprint('here')\nwhile True: time.sleep(60)"
ENDLESS = "import time\nopen('begun', 'w')\nwhile True: time.sleep(60)"


@pytest.fixture(scope="module")
def rpc_home(homes: Path) -> Iterator[RpcHome]:
    rpc_home = new_rpc_home(homes)
    forked.daemon(living_in(rpc_home.home))
    yield rpc_home
    stop_daemons(rpc_home.home)


@contextlib.contextmanager
def nothing_left(rpc_home: RpcHome) -> Iterator[None]:
    """No session's directory, no process of a box and no file in the workspace more than before."""
    sessions = runtime(rpc_home.home) / "sessions"
    files = sorted(rpc_home.workspace.rglob("*"))
    yield
    assert sessions_of(rpc_home) == []
    marks = (str(sessions).encode(), b"\0AI_SESSION_ID=")
    assert [
        what for _, what in processes() if str(rpc_home.home).encode() in what and any(m in what for m in marks)
    ] == []
    assert sorted(rpc_home.workspace.rglob("*")) == files


async def test_outputs_are_exact(rpc_home: RpcHome) -> None:
    binary = bytes(range(256)) + b"\r\n\x1b[31mred\x1b[0m\t\0"
    code = f"import sys\nsys.stdout.buffer.write({binary!r})\nsys.stderr.write('a\\r\\nb\\x1b[1mc\\0')\nsys.exit(3)\n"
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            ran = await here.python(code)
            assert base64.b64decode(ran["stdoutBase64"]) == binary
            assert ran["stdout"] == binary.decode(errors="replace")
            assert (ran["stderr"], ran["exitCode"]) == ("a\r\nb\x1b[1mc\0", 3)
            assert "stderrBase64" not in ran
            ran = await here.python("import os\nprint(os.getcwd())\nprint(repr(open(0).read()))\nprint('ä€😀')")
            assert ran["stdout"] == f"{rpc_home.workspace}\n''\nä€😀\n"
            failed = await here.python("def f():\n  raise ValueError('no')\nf()")
            assert failed["exitCode"] == 1
            assert failed["stderr"].endswith("ValueError: no\n")
            assert (await here.python("raise SystemExit"))["exitCode"] == 0
            assert (await here.python("import os; os.kill(os.getpid(), 9)"))["exitCode"] == 137


async def test_it_is_in_a_box(rpc_home: RpcHome) -> None:
    (rpc_home.workspace / ".env").write_text("TOKEN=abc")
    outside = rpc_home.home / "outside"
    outside.write_text("private")
    (rpc_home.workspace / "kept.txt").write_text("old")
    code = f"""
import os, socket
for path in ({str(outside)!r}, '/root/.ssh', {str(runtime(rpc_home.home) / "audit")!r}):
    print(os.path.exists(path))
print(repr(open('.env').read()))
try:
    socket.create_connection(('1.1.1.1', 80), 1)
except OSError as error:
    print('no network')
open('kept.txt', 'w').write('new')
try:
    open('/usr/made', 'w')
except OSError as error:
    print('read-only')
"""
    async with serving(rpc_home) as here:
        assert (await here.python(code))["stdout"] == "False\nFalse\nFalse\n''\nno network\nread-only\n"
    assert (rpc_home.workspace / "kept.txt").read_text() == "new"


async def test_its_time_is_limited_and_what_it_said_is_told(rpc_home: RpcHome) -> None:
    ignoring = "import signal\nfor n in (1, 2, 3, 15):\n  signal.signal(n, signal.SIG_IGN)\n"
    stubborn = f"{ignoring}print('here')\nwhile True: signal.pause()"
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            for code in (HERE, stubborn):
                reported = await here.method("code.runPython", {"code": code, "timeout_seconds": 2})
                assert reported["isError"] is True
                assert reported["content"][0]["text"].startswith("Error: Execution timed out")
                assert reported["content"][1] == {"type": "code_output", "stdout": "here\n", "stderr": ""}


async def test_whatever_it_starts_ends_with_it(rpc_home: RpcHome) -> None:
    daemon = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  while True: time.sleep(100)\nprint('parent')"
    killer = "import os\nprint('before')\nos.kill(os.getppid(), 9)"
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            assert (await here.python(daemon))["stdout"] == "parent\n"
            reported = await here.method("code.runPython", {"code": killer, "timeout_seconds": 10})
            assert reported["content"][0]["stdout"] == "before\n"
            assert "shell has ended" in reported["content"][1]["text"]


async def test_output_without_end_is_bounded(rpc_home: RpcHome) -> None:
    endless = "line = 'x' * 1023 + '\\n'\nwhile True: print(line * 1024, end='')"
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            reported = (await here.method("code.runPython", {"code": endless}))["content"]
            shown = reported[0]
            assert (shown["exitCode"], len(shown["stdout"])) == (1, MAX_OUTPUT_BYTES)
            assert "File too large" in shown["stderr"]
            assert reported[1]["text"].startswith(f"stdout has {MAX_FILE_BYTES} bytes")
            reported = await here.method("code.runPython", {"code": "import sys; sys.stderr.write('é' * 200_000)"})
            assert set(reported["content"][0]["stderr"]) == {"é"}
            assert "only the last are shown" in reported["content"][1]["text"]


async def test_no_python_is_said(rpc_home: RpcHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(rpc_home.home))
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            assert "no python3" in await here.failure("code.runPython", code="print(1)")


@pytest.mark.either("begun")
@pytest.mark.parametrize("begun", [False, True], ids=["being made", "running"])
async def test_a_client_that_goes_away_takes_it_along(rpc_home: RpcHome, begun: bool) -> None:
    body = request(ENDLESS)
    head = (
        b"POST /rpc HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % len(body)
    )
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            async with here.line() as (_, writer):
                writer.write(head + body)
                await until(here, (lambda: begun_in(rpc_home)) if begun else (lambda: bool(sessions_of(rpc_home))))
            await until(here, lambda: not sessions_of(rpc_home))
            (rpc_home.workspace / "begun").unlink(missing_ok=True)


async def test_a_daemon_that_is_killed_leaves_no_code_to_the_next(rpc_home: RpcHome) -> None:
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            asking = asyncio.create_task(here.ask(request(ENDLESS)))
            await until(here, lambda: begun_in(rpc_home))
            for pid in daemon_pids(rpc_home.home):
                os.kill(pid, signal.SIGKILL)
            reported = (await asking).json()
            assert reported["error"]["data"]["code"] == "daemon_unavailable"
            await asyncio.to_thread(forked.daemon, living_in(rpc_home.home))
            await until(here, lambda: not sessions_of(rpc_home))
            (rpc_home.workspace / "begun").unlink()


def request(code: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": "code.runPython", "params": {"code": code}}
    return json.dumps(message).encode()


def begun_in(rpc_home: RpcHome) -> bool:
    return (rpc_home.workspace / "begun").exists()


def sessions_of(rpc_home: RpcHome) -> list[Path]:
    """None before the first is made, with the folder of them all."""
    return list((runtime(rpc_home.home) / "sessions").glob("*"))


async def until(here: Rpc, condition: Callable[[], bool]) -> None:
    """Asks for its health until then, which also starts a daemon where there is none."""
    while not condition():
        await here.http.get(here.address.base_url + "/health")
        await pause_awaited()


@pytest.mark.torture
@pytest.mark.parametrize("code", [FORKS, "while True: pass", "x = []\nwhile True: x.append('x' * 10_000_000)"])
async def test_code_that_takes_all_there_is_ends(rpc_home: RpcHome, code: str) -> None:
    async with serving(rpc_home) as here:
        with nothing_left(rpc_home):
            await here.method("code.runPython", {"code": code, "timeout_seconds": 2})
            assert (await here.python("print(1)"))["stdout"] == "1\n"


@pytest.mark.torture
async def test_a_hundred_runs_leave_nothing(rpc_home: RpcHome) -> None:
    async with serving(rpc_home, bound_seconds=280) as here:
        with nothing_left(rpc_home):
            for number in range(25):
                ran = await asyncio.gather(*(here.python(f"print({number} + {each})") for each in range(4)))
                assert [one["stdout"] for one in ran] == [f"{number + each}\n" for each in range(4)]
