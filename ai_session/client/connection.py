"""A blocking client of the daemon's control protocol; standard library only, because every CLI verb starts with it."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
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

GONE_SECONDS = 10.0
"""How long a daemon that closed its connections may take to end."""


class Reply(NamedTuple):
    """What a tool call returned."""

    text: str
    structured: dict[str, Any]


class ControlClient:
    """One connection. Not for several threads.

    ``redial`` connects to the daemon that follows one that was killed or replaced.
    """

    def __init__(self, connection: socket.socket, redial: Callable[[], socket.socket] | None = None) -> None:
        self._redial = redial
        self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        self._socket = connection
        self._held = bytearray()
        self._id = 0
        self.hello = self._checked(self._message())
        """The daemon's first line: version, pid."""

    def outlive(self) -> None:
        """Go on with the next daemon, which is started if nobody has. What was asked of the last one is not repeated.

        Raises DaemonUnavailable where that was stopped and its sessions ended, or there is no way to another.
        """
        self._socket.close()
        if self._redial is None:
            raise _gone("it closed the connection")
        follow(self.hello.get("pid", 0))
        self._begin(_dialled(self._redial))

    def request(self, method: str, /, **params: Any) -> Any:
        """One method's result. Raises the AiSessionError the daemon names, DaemonUnavailable when it goes away."""
        self.tell(method, **params)
        return self.answer()

    def answer(self) -> Any:
        """The result of the request sent last. Raises as ``request``."""
        message = self._message()
        while message.get("id") not in (self._id, None):
            message = self._message()
        return self._checked(message)["result"]

    def tell(self, method: str, /, **params: Any) -> None:
        """As ``request``, for what nobody waits for the result of. Raises DaemonUnavailable."""
        self._id += 1
        self._send(json.dumps({"id": self._id, "method": method, "params": params}).encode() + b"\n")

    def call(self, tool: str, /, *, box: str = "", **arguments: Any) -> Reply:
        """One tool call through the gate; None leaves an argument out. Raises what the tool failed with.

        What only looks is asked again where the daemon dies meanwhile. ``box`` is the sandbox profile a person chooses
        for a new session.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        ask = partial(self.request, "call", name=tool, arguments=given, **({"profile": box} if box else {}))
        try:
            result = ask()
        except DaemonUnavailable as error:
            from ai_session.client.resume import READ_ONLY

            if tool not in READ_ONLY:
                error.suggestion = (
                    f"whether {tool} took effect is unknown; sessions stay open: ai-session ls shows what runs"
                )
                raise
            self.outlive()
            result = ask()
        if result["is_error"]:
            raise error_named(result["structured"].get("error") or {"message": result["text"]})
        return Reply(result["text"], result["structured"])

    def attach(self, session: str, *, rows: int, cols: int, read_only: bool) -> None:
        """Turn the connection into frames. Rows and columns of 0 leave the session's size alone."""
        self.request("attach", session=session, rows=rows, cols=cols, read_only=read_only)

    def fileno(self) -> int:
        """Of its socket."""
        return self._socket.fileno()

    def send_frame(self, kind: bytes, payload: bytes = b"") -> None:
        """``i`` input, ``r`` resize, ``d`` detach."""
        self._send(HEADER.pack(kind, len(payload)) + payload)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Type and payload of each frame as it comes; raises DaemonUnavailable at the end of the stream."""
        while True:
            yield from self.arrived()
            self.receive()

    def receive(self) -> None:
        """Read once, waiting for the daemon when nothing is there; ``arrived`` then has what is complete."""
        try:
            chunk = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise _gone(str(error)) from error
        if not chunk:
            raise _gone("it closed the connection")
        self._held += chunk

    def arrived(self) -> Iterator[tuple[bytes, bytes]]:
        """The frames that have been read whole."""
        while len(self._held) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._held)
            end = HEADER.size + size
            if len(self._held) < end:
                return
            payload = bytes(self._held[HEADER.size : end])
            del self._held[:end]
            yield kind, payload

    def wait_closed(self) -> None:
        """Returns when the daemon has closed the connection."""
        try:
            while self._socket.recv(READ_BYTES):
                pass
        except OSError:
            return

    def close(self) -> None:
        """Hang up; whatever the daemon still does for this connection is given up, commands continue."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _message(self) -> dict[str, Any]:
        while (end := self._held.find(b"\n")) < 0:
            self.receive()
        message: dict[str, Any] = json.loads(self._held[:end])
        del self._held[: end + 1]
        return message

    def _checked(self, message: dict[str, Any]) -> dict[str, Any]:
        if "error" in message:
            raise error_named(message["error"])
        return message

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _gone(str(error)) from error


def connect(*, start: bool = True) -> ControlClient:
    """A connection to this user's daemon, started when there is none and ``start``. Raises DaemonUnavailable."""
    return _greeted(partial(relay.connect, "control", start=start), partial(relay.connect, "control"))


def connect_program(name: str) -> ControlClient:
    """As ``connect``, for a program of that name, whose calls are judged as agents' are. May be used in any thread."""
    return _greeted(partial(dial_program, name), partial(dial_program, name))


def dial_program(name: str) -> socket.socket:
    """The connection before the daemon's first line is read. Raises relay.Unreachable."""
    return dial_started("control", f',"client":{json.dumps(name)}')


def dial_started(role: str, more: str) -> socket.socket:
    """As relay.connect, from any thread: a daemon that has to be started is started by another process."""
    dial = partial(relay.connect, role, start=False, more=more)
    try:
        return dial()
    except relay.Unreachable:
        problem = start_daemon()
    try:
        return dial()
    except relay.Unreachable as nobody:
        raise problem or nobody from None


def start_daemon() -> relay.Unreachable | None:
    """Let another process start one; what kept it from that, where it says so.

    To start one from inside takes the process's alarm, which only its main thread may, and a library may not.
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


def _greeted(dial: Callable[[], socket.socket], redial: Callable[[], socket.socket]) -> ControlClient:
    connection = _dialled(dial)
    try:
        return ControlClient(connection, redial)
    except BaseException:
        connection.close()
        raise


def _dialled(dial: Callable[[], socket.socket]) -> socket.socket:
    try:
        return dial()
    except relay.Unreachable as error:
        raise error_named({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None


def follow(pid: int) -> None:
    """Returns when the daemon ``pid`` has ended and another may be dialled.

    Raises DaemonUnavailable where it was stopped and its sessions ended.
    """
    _wait_for_end(pid)
    if not _sessions_left():
        raise DaemonUnavailable("the daemon was stopped, and its sessions ended", suggestion="ai-session new opens one")


def _wait_for_end(pid: int) -> None:
    """Returns when the process has ended, or takes long to end, in which case its state is unknown."""
    with suppress(AttributeError, OSError):
        process = os.pidfd_open(pid)
        try:
            readable([process], GONE_SECONDS)
        finally:
            os.close(process)


def _sessions_left() -> bool:
    return any(next(Path(directory).glob("sessions/*/spec.json"), None) for directory in relay.directories())


def _gone(why: str) -> DaemonUnavailable:
    return DaemonUnavailable(
        f"the daemon went away: {why}", suggestion="try again; sessions stay alive and a new daemon finds them"
    )


def error_named(facts: dict[str, Any]) -> AiSessionError:
    """The error of this package with this code, or the base with the code kept."""
    code = str(facts.get("code") or "internal_error")
    known = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AiSessionError))
    found = next((kind for kind in known if kind.code == code), AiSessionError)
    error = found(str(facts.get("message") or code), suggestion=str(facts.get("suggestion") or ""))
    if isinstance(error, InvalidArguments):
        error.fields = dict(facts.get("fields") or {})
    error.code = code  # pyright: ignore[reportAttributeAccessIssue]  # a newer daemon may know more codes
    return error
