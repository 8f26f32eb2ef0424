"""Moves an MCP client's conversation from a daemon that ended to the next one: the client notices only errors of calls
that cannot be repeated.

Standard library only. Lines are forwarded whole in both directions and parsed only afterwards: `json` takes 6 ms to
import, a third of a warm start. Stored are the handshake, subscriptions, and unanswered requests.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    import json

READ_BYTES = 1 << 16
WRITE_BYTES = select.PIPE_BUF
"""A write of this size does not block after POLLOUT; standard output may be a blocking pipe that is read slowly."""

MOST_LINE_BYTES = 64 << 20
"""The longest line that is buffered until its end; the daemon accepts no longer ones."""

MOST_STORED_BYTES = 1 << 20
"""The longest request that is stored for the next daemon; longer ones are not repeated."""

MOST_PENDING = 10_000
MOST_TRIES = 3
HANDSHAKE_SECONDS = 20.0

RESUMES = ',"resumes":true'
"""Part of the hello: the daemon may send `STOPPED` before it ends."""
STOPPED = b'{"ai_session":"stopped"}'
"""A person ended the daemon with every session: the next one starts with the client's next request."""

READ_ONLY = frozenset({"get_session_info", "list_sessions", "read_output", "read_screen"})
"""Tools that change nothing, so that calling them twice has the same effect as once."""

WAS_STOPPED = "was stopped"
STILL_THERE, ENDED = "Sessions and their commands keep running.", "Its sessions were ended."

HEAD = b'{"jsonrpc":"2.0","id":'
"""The beginning of the daemon's responses and requests."""

MODERN = "io.modelcontextprotocol/protocolVersion"
INTERRUPTED = "call_interrupted"

Outcome = Literal["client", "daemon"]


class Pending(NamedTuple):
    """An unanswered request; ``line`` is None if it is too long to be stored."""

    message: Mapping[str, Any]
    line: bytes | None


class Lines:
    """A buffer that splits the bytes of one direction into whole lines."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self.skipping = False
        """The rest of a line is dropped because its beginning was sent to another daemon."""
        self.passing = False
        """The line is so long that its parts are forwarded as they arrive."""

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield what may be forwarded, and whether it is a whole line."""
        self._buffer += chunk
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            self._searched = 0
            if not self.skipping:
                yield line, not self.passing
            self.skipping = self.passing = False
        self._searched = len(self._buffer)
        if len(self._buffer) > MOST_LINE_BYTES or ((self.passing or self.skipping) and self._buffer):
            if not self.skipping:
                self.passing = True
                yield bytes(self._buffer), False
            self._buffer.clear()
            self._searched = 0

    def rest(self) -> bytes:
        """Return the bytes after the last line."""
        left = b"" if self.skipping else bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return left

    def cut(self) -> None:
        """Drop the rest of a line whose beginning was forwarded: the other side is another daemon now."""
        self.skipping = self.skipping or self.passing
        self.passing = False


class Memory:
    """The state of a conversation that a new daemon needs. Lines are parsed only when it is needed."""

    def __init__(self) -> None:
        self._unread: list[tuple[bytes, bool]] = []
        self._json: Any = None
        self.initialize = self.initialized = self.level = b""
        self.subscriptions: dict[str, bytes] = {}
        self.pending: dict[int | str, Pending] = {}
        self.questions: set[int | str] = set()
        """The daemon's unanswered requests to the client."""
        self.withdrawn: set[int | str] = set()
        """Requests of a daemon that has ended: responses to them are dropped."""

    def note(self, line: bytes, *, of_client: bool) -> None:
        """Record that a line was forwarded."""
        self._unread.append((line, of_client))

    def understand(self) -> None:
        """Parse all lines that were recorded since the last call."""
        unread = self._unread
        self._unread = []
        for line, of_client in unread:
            if of_client:
                self._parse_client(line)
            else:
                self._parse_daemon(line)

    def is_withdrawn(self, line: bytes) -> bool:
        """Report whether a line of the client responds to a request of a daemon that has ended."""
        if not self.withdrawn or b'"method"' in line:
            return False
        number = self._parse(line).get("id")
        found = isinstance(number, (int, str)) and number in self.withdrawn
        if found:
            self.withdrawn.discard(number)
        return found

    def _parse_client(self, line: bytes) -> None:
        message = self._parse(line)
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            if isinstance(number, (int, str)):
                self.questions.discard(number)
        elif isinstance(number, (int, str)) and not isinstance(number, bool):
            if len(self.pending) < MOST_PENDING:
                self.pending[number] = Pending(message, line if len(line) <= MOST_STORED_BYTES else None)
            self._store_state(method, message, line)
        elif method == "notifications/initialized":
            self.initialized = line
        elif method == "notifications/cancelled":
            self.pending.pop(_params(message).get("requestId", ""), None)

    def _store_state(self, method: str, message: Mapping[str, Any], line: bytes) -> None:
        uri = str(_params(message).get("uri"))
        if method == "initialize":
            self.initialize = line
            self.initialized = b""
        elif method == "logging/setLevel":
            self.level = line
        elif method == "resources/subscribe":
            self.subscriptions[uri] = line
        elif method == "resources/unsubscribe":
            self.subscriptions.pop(uri, None)

    def _parse_daemon(self, line: bytes) -> None:
        number, is_response = self.head(line)
        if number is None:
            return
        if is_response:
            self.pending.pop(number, None)
        else:
            self.questions.add(number)

    def head(self, line: bytes) -> tuple[int | str | None, bool]:
        """Return the id of the daemon's message, and whether it is a response, without parsing all of a result."""
        if not line.startswith(HEAD):
            if line.startswith(b'{"jsonrpc":"2.0","method":') and b'"id":' not in line:
                return None, False
            message = self._parse(line)
            number = message.get("id")
            return (number if isinstance(number, (int, str)) else None), "method" not in message
        try:
            number, end = self._decoder().raw_decode(line[len(HEAD) : len(HEAD) + 4096].decode(errors="replace"))
        except ValueError:
            return None, False
        after = line[len(HEAD) : len(HEAD) + 4096].decode(errors="replace")[end:]
        return (number if isinstance(number, (int, str)) else None), not after.startswith(',"method"')

    def id_of(self, line: bytes) -> int | str | None:
        """Return the id in a line of the client."""
        number = self._parse(line).get("id")
        return number if isinstance(number, (int, str)) else None

    def encode(self, message: Mapping[str, Any]) -> bytes:
        """Return the message as a line."""
        import json

        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"

    def _parse(self, line: bytes) -> Mapping[str, Any]:
        try:
            return _object(self._decoder().decode(line.decode()))
        except (ValueError, RecursionError):
            return {}

    def _decoder(self) -> json.JSONDecoder:
        if self._json is None:
            import json

            self._json = json.JSONDecoder()
        return self._json


class Conversation:
    """One client's conversation with any number of daemons. ``dial`` returns a connection whose first line was read, or
    raises ``unreachable``. ``warn`` shows a message to the person."""

    def __init__(
        self,
        link: socket.socket,
        source: int,
        target: int,
        dial: Callable[[], socket.socket],
        unreachable: type[Exception],
        warn: Callable[[str], None],
    ) -> None:
        self._link: socket.socket | None = link
        self._source = source
        self._target = target
        self._dial = dial
        self._unreachable = unreachable
        self._warn = warn
        self._memory = Memory()
        self._inward = Lines()
        self._outward = Lines()
        self._to_daemon = bytearray()
        self._to_client = bytearray()
        self._ready = select.poll()
        self._registered = dict[int, int]()
        self._source_open = True
        self._stopped = False

    def run(self) -> int:
        """Relay until the client ends, and return the exit status."""
        try:
            while self._pump() == "daemon":
                self._memory.understand()
                self._drop_daemon()
                if self._stopped:
                    self._refuse_all(WAS_STOPPED)
                elif self._memory.pending or self._memory.subscriptions:
                    self._resume()
        except self._unreachable as error:
            self._memory.understand()
            self._refuse_all("ended, and no new one can be reached")
            self._flush()
            self._warn(f"{error}; sessions stay alive")
            return 1
        return 0

    def _pump(self) -> Outcome:
        """Copy lines both ways, with no direction blocking the other, until one side ends."""
        while True:
            if not self._source_open and self._link is None and not self._to_client:
                return "client"
            wanted = self._wanted()
            if wanted != self._registered:
                self._ready = select.poll()
                self._registered = wanted
                for fd, events in wanted.items():
                    self._ready.register(fd, events)
            link = self._link.fileno() if self._link else -1
            # The daemon first: what the client sends after its end is for the next one.
            for fd, events in sorted(self._ready.poll(), key=lambda found: found[0] != link):
                if fd == self._target and events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    return "client"
                if fd == self._target:
                    self._write_client()
                if fd == self._source and self._source_open and not self._to_daemon:
                    self._read_client()
                if fd == link and not self._exchange(events):
                    return "daemon" if self._source_open else "client"
            if not self._to_client:
                # Everything that was read has been forwarded, so that this delays no message.
                self._memory.understand()

    def _wanted(self) -> dict[int, int]:
        wanted: dict[int, int] = {self._target: select.POLLOUT if self._to_client else 0}
        if self._source_open and not self._to_daemon:
            wanted[self._source] = wanted.get(self._source, 0) | select.POLLIN
        if self._link and (self._to_daemon or not self._to_client):
            events = select.POLLOUT if self._to_daemon else 0
            wanted[self._link.fileno()] = events | (0 if self._to_client else select.POLLIN)
        return wanted

    def _read_client(self) -> None:
        try:
            chunk = os.read(self._source, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""  # a reset, a terminal that hung up, a directory: nothing will follow
        for part, whole in self._inward.feed(chunk):
            self._accept(part, whole=whole)
        if not chunk:
            self._source_open = False
            self._accept(self._inward.rest(), whole=False)
            if not self._to_daemon:
                self._end_link()
        elif self._to_daemon:
            self._write_daemon()

    def _accept(self, part: bytes, *, whole: bool) -> None:
        """Queue a line of the client for the current or the next daemon. Raises what ``dial`` raises."""
        if not part or (whole and self._memory.is_withdrawn(part)):
            return
        try:
            if self._link is None:
                self._resume()
                self._stopped = False
            self._to_daemon += part
        finally:
            if whole:
                self._memory.note(part, of_client=True)

    def _exchange(self, events: int) -> bool:
        """Write to and read from the daemon; return False if it has ended."""
        if self._to_daemon and events & select.POLLOUT and not self._write_daemon():
            return False
        if not self._to_client and events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            return self._read_daemon()
        return True

    def _read_daemon(self) -> bool:
        assert self._link
        try:
            chunk = self._link.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for part, whole in self._outward.feed(chunk):
            if whole and part.rstrip() == STOPPED:
                self._stopped = True
                continue
            self._to_client += part
            if whole:
                self._memory.note(part, of_client=False)
        self._write_client()
        return bool(chunk)

    def _write_daemon(self) -> bool:
        assert self._link
        try:
            while self._to_daemon:
                del self._to_daemon[: self._link.send(self._to_daemon[:READ_BYTES])]
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not self._source_open:
            self._end_link()
        return True

    def _write_client(self) -> None:
        try:
            while self._to_client and _writable(self._target):
                del self._to_client[: os.write(self._target, self._to_client[:WRITE_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            self._to_client.clear()  # its reader has closed it, as the descriptor's next event reports

    def _flush(self) -> None:
        """Send the client its remaining messages before the end, however slowly it reads."""
        while self._to_client:
            ready = select.poll()
            ready.register(self._target, select.POLLOUT)
            for _, events in ready.poll():
                if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                    return
            self._write_client()

    def _end_link(self) -> None:
        if self._link:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_WR)

    def _drop_daemon(self) -> None:
        """Forget a daemon that ended: cancel its requests to the client, and drop incomplete lines."""
        assert self._link
        self._link.close()
        self._link = None
        self._to_daemon.clear()
        self._inward.cut()
        if self._outward.passing:
            self._to_client += b"\n"
        self._outward = Lines()
        for number in self._memory.questions:
            params = {"requestId": number, "reason": "not asked any more"}
            self._send_client({"method": "notifications/cancelled", "params": params})
        self._memory.withdrawn |= self._memory.questions
        self._memory.questions.clear()

    def _resume(self) -> None:
        """Give a new daemon the state of the previous one; repeat unanswered requests, or answer them with an error.
        Raises what ``dial`` raises."""
        for _ in range(MOST_TRIES):
            self._link = self._dial()
            try:
                self._replay_state(self._link)
            except OSError:
                self._link.close()
                self._link = None
                self._outward = Lines()  # it may contain an incomplete line
                continue
            self._link.setblocking(False)
            what = "was stopped, and its sessions ended" if self._stopped else "ended; its sessions kept running"
            self._warn(f"the daemon {what}; a new one took over")
            return
        raise self._unreachable("new daemons end as soon as they have started", "ai-session daemon run shows why")

    def _replay_state(self, link: socket.socket) -> None:
        """Send the state to a new daemon. Raises OSError if that ends, too."""
        memory = self._memory
        link.settimeout(HANDSHAKE_SECONDS)
        waiting = list(memory.pending)
        if memory.initialize:
            self._replay(link, memory.initialize, waiting)
        if memory.initialized:
            link.sendall(memory.initialized)
        for line in (memory.level, *memory.subscriptions.values()):
            if line:
                self._replay(link, line, waiting)
        for number in waiting:
            one = memory.pending.get(number)
            if one is None or one.message["method"] == "initialize":
                continue
            if one.line is not None and repeatable(one.message):
                link.sendall(one.line)
            else:
                self._refuse(number, "ended")
        for uri in memory.subscriptions:
            self._send_client({"method": "notifications/resources/updated", "params": {"uri": uri}})

    def _replay(self, link: socket.socket, line: bytes, waiting: Sequence[int | str]) -> None:
        """Repeat a request of the client to a new daemon; the response is dropped unless the client waits for it."""
        number = self._memory.id_of(line)
        if number in waiting and line is not self._memory.initialize:
            return  # repeated together with all the others
        link.sendall(line)
        while True:
            if not (chunk := link.recv(READ_BYTES)):
                raise ConnectionResetError
            answered = False
            for part, whole in self._outward.feed(chunk):
                found, is_response = self._memory.head(part) if whole else (None, False)
                answered = answered or (is_response and found == number)
                if not (is_response and found == number) or number in waiting:
                    self._to_client += part
                    self._memory.note(part, of_client=False)
            if answered:
                return

    def _refuse_all(self, why: str) -> None:
        for number in list(self._memory.pending):
            self._refuse(number, why)

    def _refuse(self, number: int | str, why: str) -> None:
        self._send_client(interrupted(number, self._memory.pending.pop(number).message, why))

    def _send_client(self, message: Mapping[str, Any]) -> None:
        self._to_client += self._memory.encode({"jsonrpc": "2.0", **message})


def repeatable(message: Mapping[str, Any]) -> bool:
    """Report whether a request may be sent twice: it changes nothing, or has a key with which it runs once."""
    if message["method"] != "tools/call":
        return True
    params = _params(message)
    return params.get("name") in READ_ONLY or bool(_object(params.get("arguments")).get("call_key"))


def interrupted(number: int | str, message: Mapping[str, Any], why: str) -> Mapping[str, Any]:
    """Return the error response to a request that will not be answered any more."""
    params = _params(message)
    session = _object(params.get("arguments")).get("session_id")
    if message["method"] != "tools/call":
        return {"id": number, "error": {"code": -32603, "message": f"The daemon {why}; ask again"}}
    stopped = why == WAS_STOPPED
    look = f"get_session_info(session_id={session!r}) shows what runs there, read_output what it printed"
    look = "create_session opens another" if stopped else look if session else "list_sessions shows what there is"
    hint = "" if stopped or repeatable(message) else "; a call with a call_key is repeated and never runs twice"
    text = (
        f"error {INTERRUPTED}: the daemon {why} while {params.get('name')} was in progress: whether it took effect is"
        f" unknown; it was not repeated. {ENDED if stopped else STILL_THERE}\n"
        f"next: {look}{hint}"
    )
    error = {"code": INTERRUPTED, "message": text.partition("\n")[0]}
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": True}
    if MODERN in _object(params.get("_meta")):
        result["resultType"] = "complete"
    return {"id": number, "result": {**result, "_meta": {"ai-session/error": error}}}


def _params(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(message.get("params"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _writable(fd: int) -> bool:
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    return any(events & (select.POLLOUT | select.POLLERR) for _, events in ready.poll(0))
