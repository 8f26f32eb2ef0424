"""A blocking client of the daemon's control protocol. Standard library only, because every verb starts with it."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from agentwire.system.readable import readable
from ai_session import errors
from ai_session.client import relay
from ai_session.errors import AiSessionError, DaemonUnavailable, InvalidArguments

HEADER = struct.Struct(">cI")
READ_BYTES = 1 << 16
START_SECONDS = 30.0

END_SECONDS = 10.0
"""The time that a daemon may take to end after it has closed its connections."""


class Reply(NamedTuple):
    """The result of a tool call."""

    text: str
    structured: dict[str, Any]


class ControlClient:
    """One connection, for one thread. ``redial`` connects to the daemon that replaces one that ended."""

    def __init__(self, connection: socket.socket, redial: Callable[[], socket.socket] | None = None) -> None:
        self._redial = redial
        self._open(connection)

    def _open(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        self._socket = connection
        self._buffer = bytearray()
        self._id = 0
        self.hello = self._checked(self._message())
        """The daemon's first line: version, pid."""

    def reconnect(self) -> None:
        """Continue with the next daemon, which is started if necessary. Requests to the previous one are not repeated.

        Raises DaemonUnavailable if that was stopped and its sessions ended, or if no other daemon can be reached.
        """
        self._socket.close()
        if self._redial is None:
            raise _disconnected("the daemon closed it")
        wait_until_ended(self.hello.get("pid", 0))
        self._open(_dial(self._redial))

    def request(self, method: str, /, **params: Any) -> Any:
        """Return one method's result. Raises the daemon's AiSessionError, or DaemonUnavailable if it disconnects."""
        self.send_request(method, **params)
        return self.answer()

    def answer(self) -> Any:
        """Return the result of the last request. Raises as ``request``."""
        message = self._message()
        while message.get("id") not in (self._id, None):
            message = self._message()
        return self._checked(message)["result"]

    def send_request(self, method: str, /, **params: Any) -> None:
        """Send a request without waiting for its result. Raises DaemonUnavailable."""
        self._id += 1
        self._send(json.dumps({"id": self._id, "method": method, "params": params}).encode() + b"\n")

    def call(self, tool: str, /, *, box: str = "", **arguments: Any) -> Reply:
        """Call a tool through the gate and return its result; arguments that are None are omitted. Raises the tool's
        error.

        A call that only reads is repeated if the daemon ends meanwhile. ``box`` is a person's choice of sandbox profile
        for a new session.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        ask = partial(self.request, "call", name=tool, arguments=given, **({"profile": box} if box else {}))
        try:
            result = ask()
        except DaemonUnavailable as error:
            from ai_session.client.resume import READ_ONLY

            if tool not in READ_ONLY:
                stopped = has_ended(self.hello.get("pid", 0)) and not sessions_left()
                rest = "was stopped, and its sessions ended" if stopped else "ended; ai-session ls shows what runs"
                error.suggestion = f"whether {tool} took effect is unknown: the daemon {rest}"
                raise
            self.reconnect()
            result = ask()
        if result["is_error"]:
            raise error_from(result["structured"].get("error") or {"message": result["text"]})
        return Reply(result["text"], result["structured"])

    def attach(self, session: str, *, rows: int, cols: int, read_only: bool) -> None:
        """Switch the connection to frames. Rows and columns of 0 leave the session's size unchanged."""
        self.request("attach", session=session, rows=rows, cols=cols, read_only=read_only)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def send_frame(self, kind: bytes, payload: bytes = b"") -> None:
        """Send a frame: ``i`` input, ``r`` resize, ``d`` detach. Raises DaemonUnavailable."""
        self._send(HEADER.pack(kind, len(payload)) + payload)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield type and payload of each frame, waiting for more. Raises DaemonUnavailable at the end of the stream."""
        while True:
            yield from self.arrived()
            self.receive()

    def receive(self) -> None:
        """Read once, waiting if necessary; ``arrived`` then yields the complete frames. Raises DaemonUnavailable."""
        try:
            chunk = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise _disconnected(str(error)) from error
        if not chunk:
            raise _disconnected("the daemon closed it")
        self._buffer += chunk

    def arrived(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames that were read completely, without waiting."""
        while len(self._buffer) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._buffer)
            end = HEADER.size + size
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            yield kind, payload

    def wait_closed(self) -> None:
        """Wait until the daemon has closed the connection."""
        try:
            while self._socket.recv(READ_BYTES):
                pass
        except OSError:
            return

    def close(self) -> None:
        """Close the connection; the daemon cancels this connection's requests, commands continue."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _message(self) -> dict[str, Any]:
        while (end := self._buffer.find(b"\n")) < 0:
            self.receive()
        message: dict[str, Any] = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return message

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        if "error" in message:
            raise error_from(message["error"])
        return message

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _disconnected(str(error)) from error


def connect(*, start: bool = True) -> ControlClient:
    """Connect to this user's daemon; with ``start`` it is started if necessary. Raises DaemonUnavailable."""
    return _connect(partial(relay.connect, "control", start=start), partial(relay.connect, "control"))


def connect_running() -> ControlClient | None:
    """Connect to this user's daemon; None if none runs. Raises DaemonUnavailable, for example if it does not answer."""
    try:
        link = relay.connect("control", start=False)
    except relay.NotRunning:
        return None
    except relay.Unreachable as error:
        raise _unavailable(error) from None
    return _connect(lambda: link, partial(relay.connect, "control"))


def connect_program(name: str) -> ControlClient:
    """Connect as a program of that name, to whose calls the policy applies as to an agent's; in any thread."""
    return _connect(partial(dial_program, name), partial(dial_program, name))


def dial_program(name: str) -> socket.socket:
    """Return a connection from which the daemon's first line is still to be read. Raises relay.Unreachable."""
    return dial_started("control", f',"client":{json.dumps(name)}')


def dial_started(role: str, more: str) -> socket.socket:
    """Connect like relay.connect, but in any thread: another process starts the daemon if necessary."""
    dial = partial(relay.connect, role, start=False, more=more)
    try:
        return dial()
    except relay.Unreachable:
        problem = start_daemon()
    try:
        return dial()
    except relay.Unreachable as unreachable:
        raise problem or unreachable from None


def start_daemon() -> relay.Unreachable | None:
    """Make another process start a daemon, and return the error that it reports.

    Starting one in this process requires the alarm signal, which only the main thread, and no library, may use.
    """
    import subprocess

    command = (sys.executable, "-P", "-m", "ai_session", "daemon", "start", "--json")
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        ran = subprocess.run(command, stdin=null, stdout=pipe, stderr=null, check=False, timeout=START_SECONDS)
        problem = json.loads(ran.stdout)["error"]
        return relay.Unreachable(problem["message"], problem["suggestion"], problem["code"])
    except (subprocess.TimeoutExpired, ValueError, LookupError, TypeError):
        return None


def _connect(dial: Callable[[], socket.socket], redial: Callable[[], socket.socket]) -> ControlClient:
    connection = _dial(dial)
    try:
        return ControlClient(connection, redial)
    except BaseException:
        connection.close()
        raise


def _dial(dial: Callable[[], socket.socket]) -> socket.socket:
    try:
        return dial()
    except relay.Unreachable as error:
        raise _unavailable(error) from None


def _unavailable(error: relay.Unreachable) -> AiSessionError:
    return error_from({"code": error.code, "message": error.message, "suggestion": error.suggestion})


def wait_until_ended(pid: int) -> None:
    """Wait until the daemon ``pid`` has ended and another may be dialed.

    Raises DaemonUnavailable if it was stopped and its sessions ended.
    """
    has_ended(pid)
    if not sessions_left():
        raise DaemonUnavailable("the daemon was stopped, and its sessions ended", suggestion="ai-session new opens one")


def has_ended(pid: int) -> bool:
    """Wait until the process has ended, for a limited time, and report whether it has."""
    with suppress(OSError):
        if sys.platform == "linux":
            process = os.pidfd_open(pid)
            try:
                return bool(readable([process], END_SECONDS))
            finally:
                os.close(process)
        with closing(select.kqueue()) as queue:
            event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            return bool(queue.control([event], 1, END_SECONDS))
    return True  # there is no such process


def sessions_left() -> bool:
    """Report whether there may be sessions that a daemon runs or has left."""
    try:
        return any(next(Path(directory).glob("sessions/*/spec.json"), None) for directory in relay.directories())
    except OSError:
        return True


def _disconnected(why: str) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the connection to the daemon ended: {why}",
        suggestion="try again; sessions keep running, a new daemon adopts them",
    )


def error_from(facts: dict[str, Any]) -> AiSessionError:
    """Return this package's error with this code, or the base class with the code set."""
    code = str(facts.get("code") or "internal_error")
    known = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AiSessionError))
    found = next((kind for kind in known if kind.code == code), AiSessionError)
    error = found(str(facts.get("message") or code), suggestion=str(facts.get("suggestion") or ""))
    if isinstance(error, InvalidArguments):
        error.fields = dict(facts.get("fields") or {})
    error.code = code  # pyright: ignore[reportAttributeAccessIssue]  # a newer daemon may know more codes
    return error
