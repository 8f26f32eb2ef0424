"""An MCP client of pipes and raw lines, without the SDK between test and server."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.conftest import UNBOXED, contents, new_home, pids
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked
from tests.support.process_ends import ending
from tests.support.processor_time import OwnTime

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"]
DATA = Path(__file__).parents[2] / "data/wire"
FAR = [sys.executable, str(DATA / "window.py")]
"""A server whose client is a process of its own. Without that parent, its client would be the process that adopts
orphans, which may be an ancestor of all tests: systemd for a person's desktop."""
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Message = dict[str, Any]


class Client:
    """A server process and the pipes to it.

    A server of this project is forked, and with an ``env`` its daemon before it; without, it starts the daemon itself
    if there is none. It has a process group of its own, or the given ``process_group``, 0 or the test's. With ``anew``,
    other options of Popen or another interpreter, the command is executed, as is the daemon that it starts. With
    ``script``, the forked server begins with that file, as does a daemon that it starts.
    """

    def __init__(self, command: list[str] = SERVER, *, anew: bool = False, script: str = "", **options: Any) -> None:
        ours = command[: len(SERVER)] == SERVER or command == FAR
        loaded = ours and not anew and options.keys() <= {"env", "cwd", "user", "process_group"}
        given_daemon = (loaded or anew) and not script and not options.get("user") and "--no-daemon" not in command
        if given_daemon and options.get("env"):
            forked.daemon(options["env"])
        self.process: subprocess.Popen[bytes] | Forked
        # As hosts do. In the test's own process group, all that this run starts would belong to the client.
        if loaded:
            env = {"PYTHONPATH": str(forked.ROOT), **(options.get("env") or os.environ)}
            words, script = ([], command[1]) if command == FAR else (command[3:], script)
            given = {"cwd": Path(options.get("cwd", ".")).absolute(), "env": env, "user": options.get("user")}
            self.process = forked.piped(
                "ai_session", words, **given, reads=True, script=script, apart=not options.get("process_group")
            )
        else:
            given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
            if not options.get("start_new_session"):
                given["process_group"] = 0
            self.process = subprocess.Popen(command, **(given | options))  # type: ignore[call-overload]
        self.lines: list[bytes] = []
        self._held = bytearray()
        self._id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()

    def write(self, data: bytes | str | Message) -> None:
        """Write bytes or text as they are, or a message as one line."""
        if isinstance(data, dict):
            data = json.dumps(data) + "\n"
        assert self.process.stdin
        left = memoryview(data.encode() if isinstance(data, str) else data)
        while left:
            left = left[self.process.stdin.write(left) or 0 :]

    def line(self, seconds: float = BOUND_SECONDS) -> bytes:
        """Return the next line, or b"" at the end of the stream. Raises TimeoutError."""
        assert self.process.stdout
        deadline = time.monotonic() + seconds
        searched = 0
        while (end := self._held.find(b"\n", searched)) < 0:
            searched = len(self._held)
            if not select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no line within {seconds:g} s; so far {bytes(self._held[:200])!r}")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                assert not self._held, self._held
                return b""
            self._held += chunk
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        self.lines.append(line)
        return line

    def read(self, seconds: float = BOUND_SECONDS) -> Message:
        """Return the next message, ignoring notifications about the list of sessions, which arrive at any time."""
        while (message := self.message(seconds)).get("method") == "notifications/resources/list_changed":
            pass
        return message

    def message(self, seconds: float = BOUND_SECONDS) -> Message:
        """Return the next message."""
        line = self.line(seconds)
        assert line, "the server closed its output"
        return json.loads(line)

    def answered(self) -> Message:
        """Return the result in the next message."""
        message = self.read()
        assert "result" in message, message
        return message["result"]

    def request(self, method: str, params: Message | None = None, *, modern: bool = False) -> int:
        """Send a request and return its id."""
        self._id += 1
        message: Message = {"jsonrpc": "2.0", "id": self._id, "method": method}
        if modern:
            params = {**(params or {}), "_meta": {**ENVELOPE, **(params or {}).get("_meta", {})}}
        if params is not None:
            message["params"] = params
        self.write(message)
        return self._id

    def ask(self, method: str, params: Message | None = None, *, modern: bool = False) -> Message:
        """Send a request and return its response. Notifications before it are dropped; other messages fail the test."""
        wanted = self.request(method, params, modern=modern)
        while "id" not in (message := self.read()):
            pass
        assert message["id"] == wanted, message
        return message

    def result(self, method: str, params: Message | None = None, *, modern: bool = False) -> Message:
        answer = self.ask(method, params, modern=modern)
        assert "result" in answer, answer
        return answer["result"]

    def call(self, tool: str, /, *, modern: bool = False, **arguments: Any) -> Message:
        return self.result("tools/call", {"name": tool, "arguments": arguments}, modern=modern)

    def initialize(self, version: str = "2025-11-25", name: str = "wire") -> Message:
        info = {"name": name, "version": "1"}
        result = self.result("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": info})
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def end(self) -> tuple[int, float]:
        """Close standard input; return the exit status and the seconds until the end, as OwnTime measures them."""
        assert self.process.stdin
        taken = OwnTime(self.process)
        self.process.stdin.close()
        seconds = taken.seconds_to_its_end()
        return self.process.wait(), seconds

    def signalled(self, number: int) -> tuple[int, float]:
        """Send a signal; return the exit status and the seconds until the end, as OwnTime measures them."""
        taken = OwnTime(self.process)
        self.process.send_signal(number)
        seconds = taken.seconds_to_its_end()
        return self.process.wait(), seconds


def living_in(home: Path) -> dict[str, str]:
    """Return the environment of a client with this HOME."""
    return {**os.environ, "HOME": str(home)}


@contextmanager
def double(*flags: str, home: Path | None = None, logs: str = "") -> Iterator[Forked]:
    """Yield a listening daemon whose gate is a double. At the end its log must contain ``logs``, or be empty."""
    home = home or Path(os.environ["HOME"])
    log, script = home / "double.log", str(DATA / "double_daemon.py")
    log.unlink(missing_ok=True)
    process = forked.piped("ai_session", flags, cwd=home, env=living_in(home), errors=log, script=script)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n", log.read_text()
        yield process
        found = log.read_text()
        assert (logs in found) if logs else not found, found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.close()


def runtime(home: Path | None = None) -> Path:
    """Return the runtime directory of a HOME, by default of this process's."""
    return (home or Path(os.environ["HOME"])) / ".local/state/ai-session"


def daemon_pids(home: Path | None = None) -> list[int]:
    """Return the running daemons of a HOME, without children that one has forked but that have not executed yet."""
    found: dict[int, int] = {}
    wanted = {b"daemon", os.fsencode(runtime(home))}
    for pid in pids():
        with suppress(OSError):
            if wanted <= set(contents(f"/proc/{pid}/cmdline").split(b"\0")):
                found[pid] = int(contents(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent not in found]


@contextmanager
def running_daemon(homes: Path, config: str = UNBOXED) -> Iterator[Path]:
    """Yield a new home with a daemon, which ends afterwards with its sessions."""
    home = new_home(homes, config)
    forked.daemon(living_in(home))
    yield home
    stop_daemons(home)


def stop_daemons(home: Path | None = None) -> None:
    """End the daemons of a HOME with their sessions, and wait for their ends."""
    for pid in daemon_pids(home):
        with ending(pid), suppress(ConnectionError), socket.socket(socket.AF_UNIX) as link:
            link.connect(str(runtime(home) / "sock"))
            link.sendall(b'{"ai_session":1,"role":"control"}\n{"id":1,"method":"stop","params":{"sessions":true}}\n')
            while link.recv(65536):
                pass
