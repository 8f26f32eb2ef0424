"""pexpect over a session: the program runs in a sandboxed, audited terminal that lives in the daemon.

pexpect does the searching, ``before``, ``after`` and the logs; this class gives it bytes to search, and forwards what
is typed. What cannot be supported is refused: there is no file descriptor, and no ``preexec_fn``.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shlex
import shutil
import signal
import termios
import threading
import tty
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, AnyStr, Protocol, cast

from pexpect import EOF, TIMEOUT, ExceptionPexpect
from pexpect.expect import Expecter, searcher_re, searcher_string
from pexpect.utils import split_command_line, which  # pyright: ignore[reportUnknownVariableType]

from agentwire.system.readable import readable
from ai_session.api import steps
from ai_session.api.blocking import Session, drive
from ai_session.api.blocking import open as open_session
from ai_session.client.connection import ControlClient, connect_program, error_from
from ai_session.errors import AiSessionError, DaemonUnavailable, NothingRunning
from ai_session.models import STARTER

if TYPE_CHECKING:
    from codecs import IncrementalDecoder, IncrementalEncoder

    from pexpect.spawnbase import SpawnBase

    class _Base(SpawnBase[AnyStr]):
        """The base class with members that pexpect's stubs omit."""

        _encoder: IncrementalEncoder
        _decoder: IncrementalDecoder
        _buffer: IO[Any]

        def _log(self, s: Any, direction: str) -> None: ...
        def _coerce_send_string(self, s: str | bytes) -> Any: ...
        def _coerce_expect_string(self, s: Any) -> Any: ...

else:
    from pexpect.spawnbase import SpawnBase

    class _Base(SpawnBase):
        """Generic for type checkers, as pexpect's stubs have it."""

        def __class_getitem__(cls, _: object) -> type:
            return cls


BEGIN_SECONDS = 20.0
"""The longest time that a program may take to start; a shell's function or builtin never starts one."""

POLL_SECONDS = 1.0
"""The longest single wait of a thread that reads for an event loop; it continues that long after a cancellation."""

ECHO_SECONDS = 0.1
"""The interval of checks whether a terminal echoes: there is no event for that."""

PREFIX = "SPAWN_"
"""Precedes the names of the program's own variables in its session."""

OWN = "AI_SESSION_ID"
"""The variable by which a session identifies its processes."""

EOF_KEY, INTERRUPT_KEY = b"\x04", b"\x03"
CONTROLS = {"@": 0, "`": 0, "[": 27, "{": 27, "\\": 28, "|": 28, "]": 29, "}": 29, "^": 30, "~": 30, "_": 31, "?": 127}


class Logfile(Protocol):
    """The file that ``logfile``, ``logfile_read`` and ``logfile_send`` write to."""

    def write(self, s: Any, /) -> object: ...
    def flush(self) -> object: ...


class spawn(_Base[AnyStr]):  # noqa: N801
    """A program run as by ``pexpect.spawn``, in its own session, which ends with it, or in ``session``.

    Arguments and members are pexpect's. A program in ``session`` has that session's directory and variables, and the
    session stays open. ``pid`` is the program's as the daemon sees it. An exit code above 128 counts as a signal, as in
    shells. Output that may be the beginning of a secret is held back until more is printed.
    """

    STDIN_FILENO, STDOUT_FILENO = 0, 1

    def __init__(
        self,
        command: str,
        args: list[str] = [],  # noqa: B006  pexpect's own, which refuses anything but a list
        timeout: float | None = 30,
        maxread: int = 2000,
        searchwindowsize: int | None = None,
        logfile: Logfile | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        ignore_sighup: bool = False,
        echo: bool = True,
        preexec_fn: Callable[[], None] | None = None,
        encoding: str | None = None,
        codec_errors: str = "strict",
        dimensions: tuple[int, int] | None = None,
        use_poll: bool = False,
        *,
        session: Session | None = None,
        profile: str = "",
        backend: str = "",
    ) -> None:
        super().__init__(timeout, maxread, searchwindowsize, logfile, encoding, codec_errors)
        if not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ExceptionPexpect(
                "The command is not a text: for a file descriptor, maybe you want to use fdpexpect.fdspawn"
            )
        if not isinstance(args, list):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("The argument, args, must be a list.")
        if preexec_fn is not None:
            raise TypeError(
                "preexec_fn is not supported: the daemon starts the program, and cannot run a function of this process"
            )
        if session is not None and (cwd is not None or env is not None or profile or backend):
            raise TypeError("cwd, env, profile and backend cannot be set for an existing session")
        self._lock = threading.Lock()
        self._unread = bytearray()
        self._offset = 0
        self._running = True
        self._ended = False
        self._size = dimensions or (24, 80)
        self._echo = echo
        self._echo_changed = not echo
        self.echo = echo
        self.ignore_sighup = ignore_sighup
        self.use_poll = use_poll
        self.cwd = cwd
        self.env = env
        self.args = _resolve(command, [os.fsdecode(word) for word in args], env, inside=session is not None)
        self.command = self.args[0]
        self.name = f"<{' '.join(self.args)}>"
        self._own = session is None
        if session is None:
            more = {PREFIX + name: value for name, value in (env or {}).items()}
            rows, cols = self._size
            shell = "bash" if shutil.which("bash") else "sh"
            session = open_session(
                directory=cwd or "", env=more, rows=rows, cols=cols, profile=profile, shell=shell, backend=backend
            )
            self._end_session = weakref.finalize(self, _end, session, os.getpid())
        elif dimensions is not None:
            session.resize(*dimensions)
        self.session = session
        """The session that runs the program."""
        words = _wrap(self.args, env, echo=echo, ignore_sighup=ignore_sighup)
        fish = session.info().shell == "fish"
        line = " ".join(_for_fish(word) if fish else shlex.quote(word) for word in words)
        try:
            self.command_id = drive(steps.start(session.id, line, stdin=None, apart=False))
            """The id of the program's command in the session."""
            limit = BEGIN_SECONDS if os.sep in words[0] else 0
            self._store(drive(steps.wait_started(session.id, self.command_id, limit)))
        except BaseException:
            if self._own:
                self._end_session()
            raise
        self.terminated = self.closed = False

    def __str__(self) -> str:
        """Return the command and the known facts: the text of EOF and TIMEOUT."""
        names = (
            "command",
            "args",
            "buffer",
            "before",
            "after",
            "match",
            "match_index",
            "exitstatus",
            "flag_eof",
            "pid",
        )
        facts = {name: getattr(self, name, None) for name in names}
        return "\n".join((repr(self), *(f"{name}: {str(value)[-200:]}" for name, value in facts.items())))

    def __repr__(self) -> str:
        return f"<ai_session.spawn {getattr(self, 'name', '')}>"

    def read_nonblocking(self, size: int = 1, timeout: float | None = -1) -> AnyStr:
        """Return at most ``size`` bytes as soon as there are some. Raises EOF, TIMEOUT."""
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if not self._unread and not self._ended:
            self._fetch(self.timeout if timeout == -1 else timeout)
        return self._pop(size)

    def _pop(self, size: int) -> AnyStr:
        with self._lock:
            data = bytes(self._unread[:size])
            del self._unread[:size]
        if not data and self._ended:
            self.flag_eof = True
            raise EOF("End Of File (EOF): the program has ended.")
        if not data:
            raise TIMEOUT("Timeout exceeded.")
        text: Any = self._decoder.decode(data, final=False)
        self._log(text, "read")
        return text

    def _fetch(self, seconds: float | None) -> None:
        """Store new output, waiting for it up to ``seconds``."""
        wait = steps.Wait(seconds)
        with self._lock:
            while True:
                facts = drive(steps.read_bytes(self.session.id, self.command_id, self._offset, wait.next()))
                self._store(facts)
                if facts["data"] or not self._running or wait.over:
                    return

    def _fetch_for(self, seconds: float) -> None:
        """Store all output of the next ``seconds``, or until the program ends."""
        wait = steps.Wait(seconds)
        while self._running and not wait.over:
            self._fetch(wait.next())

    def _store(self, facts: steps.Facts) -> None:
        self._unread += facts["data"].encode("utf-8", "surrogateescape")
        self._update(facts)

    def _update(self, facts: steps.Facts) -> None:
        self._offset = facts["next_offset"]
        self._ended = facts["ended"]
        self._size = (facts["rows"], facts["cols"])
        self.pid = facts.get("pid", self.pid)
        self._echo = facts.get("echo", self._echo)
        if facts["status"] == "running" or not self._running:
            return
        self._running = False
        self.terminated = True
        code = facts.get("exit_code")
        number = code - 128 if code is not None and 128 < code < 128 + signal.NSIG else 0
        if number:
            self.signalstatus = self.status = number
        elif code is not None:
            self.exitstatus = code
            self.status = code << 8

    def expect_list(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, pattern_list: Any, timeout: Any = -1, searchwindowsize: Any = -1, async_: bool = False
    ) -> Any:
        """Wait as pexpect does; with ``async_`` return an awaitable, whose cancellation loses no output."""
        if async_:
            return self._expect_async(Expecter(self, searcher_re(pattern_list), searchwindowsize), timeout)
        return super().expect_list(pattern_list, timeout, searchwindowsize)

    def expect_exact(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, pattern_list: Any, timeout: Any = -1, searchwindowsize: Any = -1, async_: Any = False
    ) -> Any:
        """Wait like ``expect``, but for literal text. Returns the index in ``pattern_list``."""
        if not async_:
            return super().expect_exact(pattern_list, timeout, searchwindowsize)
        one = isinstance(pattern_list, str | bytes | type)
        each: list[Any] = [pattern_list] if one else [*pattern_list]
        wanted = [known if isinstance(known, type) else self._coerce_expect_string(known) for known in each]
        return self._expect_async(Expecter(self, searcher_string(wanted), searchwindowsize), timeout)

    def _expect_async(self, expecter: Expecter[AnyStr], timeout: float | None) -> Coroutine[Any, Any, int]:
        async def expect() -> int:
            wait = steps.Wait(self.timeout if timeout == -1 else timeout)
            found: Any = expecter.existing_data()  # the stubs leave None out
            index: int | None = found
            try:
                while index is None:
                    while not self._unread and not self._ended and not wait.over:
                        await asyncio.to_thread(self._fetch, wait.next(POLL_SECONDS))
                    index = expecter.new_data(self._pop(self.maxread))
            except EOF as error:
                return expecter.eof(error)
            except TIMEOUT as error:
                return expecter.timeout(error)
            except BaseException:
                expecter.errored()
                raise
            return index

        return expect()

    def send(self, s: str | bytes) -> int:
        """Type ``s`` after ``delaybeforesend``; return the number of bytes. Raises OSError if the program has ended."""
        if self.delaybeforesend is not None:
            self._fetch_for(self.delaybeforesend)
        text = self._coerce_send_string(s)
        self._log(text, "send")
        return self._type(self._encoder.encode(text, final=False))

    def write(self, s: str | bytes) -> None:
        """Send ``s`` and return nothing, like a file's ``write``."""
        self.send(s)

    def writelines(self, sequence: Sequence[str | bytes]) -> None:
        """Send each text of a sequence."""
        for each in sequence:
            self.write(each)

    def sendline(self, s: str | bytes = "") -> int:
        """Send ``s`` and a line end."""
        return self.send(self._coerce_send_string(s) + self.linesep)

    def sendcontrol(self, char: str) -> int:
        """Press Ctrl and that key; returns 0 if there is no such key."""
        key = char.lower()
        number = ord(key) - 96 if "a" <= key <= "z" else CONTROLS.get(key)
        return 0 if number is None else self._press(bytes([number]))

    def sendeof(self) -> None:
        """Press the end-of-input key, which has effect if the program reads lines and is at the beginning of one."""
        self._press(EOF_KEY)

    def sendintr(self) -> None:
        """Press Ctrl-C."""
        self._press(INTERRUPT_KEY)

    def _press(self, key: bytes) -> int:
        self._log(key if self.encoding is None else key.decode(self.encoding, "replace"), "send")
        return self._type(key)

    def _type(self, data: bytes) -> int:
        try:
            drive(steps.type_into(self.session.id, self.command_id, data))
        except NothingRunning:
            raise OSError(errno.EIO, "the program has ended") from None
        return len(data)

    def isalive(self) -> bool:
        """Report whether the program runs."""
        if self._running:
            self._fetch(0)
        return self._running

    def wait(self) -> int | None:
        """Wait until the program ends, storing its output, and return the exit code."""
        while self._running:
            self._fetch(None)
        return self.exitstatus

    def kill(self, sig: int) -> None:
        """Send a signal to the program's process group."""
        if self.isalive():
            with suppress(NothingRunning):
                drive(steps.send_signal(self.session.id, self.command_id, sig))

    def terminate(self, force: bool = False) -> bool:
        """Send SIGHUP, SIGCONT and SIGINT in turn, with ``force`` also SIGKILL; report whether the program ended."""
        for number in (signal.SIGHUP, signal.SIGCONT, signal.SIGINT, *((signal.SIGKILL,) if force else ())):
            self.kill(number)
            self._fetch_for(self.delayafterterminate if number != signal.SIGKILL else POLL_SECONDS)
            if not self._running:
                return True
        return not self.isalive()

    def close(self, force: bool = True) -> None:
        """End the program, and its own session. Raises ExceptionPexpect if the program does not end."""
        if self.closed:
            return
        if not self.terminate(force):
            raise ExceptionPexpect("Could not terminate the child.")
        self.closed = True
        if self._own:
            self._end_session()
        elif self._echo_changed:
            self.session.run("stty echo", timeout=POLL_SECONDS)

    def eof(self) -> bool:
        """Report whether EOF was raised."""
        return self.flag_eof

    def fileno(self) -> int:
        """Raise io.UnsupportedOperation, an OSError: there is no descriptor."""
        raise io.UnsupportedOperation("the terminal is the daemon's: expect, read or interact instead of select")

    def isatty(self) -> bool:
        """Return True: the program has a terminal."""
        return True

    def getecho(self) -> bool:
        """Report whether the terminal echoes what is typed."""
        self.isalive()
        return self._echo

    def setecho(self, state: bool) -> None:
        """Set whether the terminal echoes what is typed."""
        drive(steps.set_echo(self.session.id, self.command_id, on=state))
        self.echo = self._echo = state
        self._echo_changed = self._echo_changed or not state

    def waitnoecho(self, timeout: float | None = -1) -> bool:
        """Wait until the terminal stops echoing, as for a password; return False after the timeout."""
        wait = steps.Wait(self.timeout if timeout == -1 else timeout)
        while self.getecho():
            if wait.over or not self._running:
                return False
            self._fetch_for(wait.next(ECHO_SECONDS))
        return True

    def getwinsize(self) -> tuple[int, int]:
        """Return rows and columns."""
        self.isalive()
        return self._size

    def setwinsize(self, rows: int, cols: int) -> None:
        """Resize the terminal; the program gets SIGWINCH."""
        self.session.resize(rows, cols)
        self._size = rows, cols

    def interact(
        self,
        escape_character: str | None = chr(29),
        input_filter: Callable[[bytes], bytes] | None = None,
        output_filter: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Connect the person's terminal to the program until either ends, or ``escape_character`` is typed."""
        self.write_to_stdout(self.buffer)
        self.stdout.flush()
        self.buffer = self.string_type()
        modes = termios.tcgetattr(self.STDIN_FILENO)
        tty.setraw(self.STDIN_FILENO)
        try:
            escape = b"" if escape_character is None else escape_character.encode("latin-1")
            self._forward(escape, input_filter or bytes, output_filter or bytes)
        finally:
            termios.tcsetattr(self.STDIN_FILENO, termios.TCSAFLUSH, modes)

    def _forward(self, escape: bytes, typed: Callable[[bytes], bytes], shown: Callable[[bytes], bytes]) -> None:
        def show(data: bytes) -> None:
            data = shown(data)
            self._log(data if self.encoding is None else data.decode(self.encoding, "replace"), "read")
            while data:
                data = data[os.write(self.STDOUT_FILENO, data) :]

        show(self._pop_all())
        while not self._ended:
            with connect_program("python") as link, suppress(DaemonUnavailable):
                # A connection of its own: input is not delayed, and closing it cancels the request.
                while not self._ended:
                    self._request(link)
                    while link.fileno() not in readable((link.fileno(), self.STDIN_FILENO)):
                        data = typed(os.read(self.STDIN_FILENO, 1000))
                        before, found, _ = data.rpartition(escape) if escape else (data, b"", b"")
                        text = before if found else data
                        if text:
                            self._log(text if self.encoding is None else text.decode(self.encoding, "replace"), "send")
                            with suppress(OSError):
                                self._type(text)
                        if found or not data:
                            return
                    result = link.answer()
                    if result["is_error"]:
                        raise error_from(result["structured"]["error"])
                    self._update(result["structured"])
                    show(result["structured"]["data"].encode("utf-8", "surrogateescape"))

    def _request(self, link: ControlClient) -> None:
        call = steps.bytes_from(self.session.id, self.command_id, self._offset, steps.MAX_WAIT_SECONDS)
        link.send_request("call", name=call.tool, arguments=call.arguments)

    def _pop_all(self) -> bytes:
        with self._lock:
            data = bytes(self._unread)
            self._unread.clear()
        return data


def _resolve(command: str, args: list[str], env: Mapping[str, str] | None, *, inside: bool) -> list[str]:
    """Return the program's path and arguments. Raises ExceptionPexpect if not found, except ``inside`` a session."""
    words: list[str] = [command, *args] if args else split_command_line(command)  # pyright: ignore[reportUnknownVariableType]
    found = cast("str | None", which(words[0], env=env))
    if found is None and not inside:
        raise ExceptionPexpect(f"The command was not found or was not executable: {words[0]}.")
    return [found or words[0], *words[1:]]


def _wrap(words: list[str], env: Mapping[str, str] | None, *, echo: bool, ignore_sighup: bool) -> list[str]:
    """Return the words, preceded if necessary by a script that sets the program's terminal and variables."""
    if echo and env is None and not ignore_sighup:
        return words
    script = ("trap '' HUP; " if ignore_sighup else "") + ("" if echo else "stty -echo; ") + "exec "
    if env is not None:
        # The values are passed as variables of the session: its own stay unchanged, and the record does not show them.
        script += "".join(
            ("/usr/bin/env -i ", f'{OWN}="${OWN}" ', *(f'{name}="${PREFIX}{name}" ' for name in env if name != OWN))
        )
    return ["/bin/sh", "-c", script + '"$@"', STARTER, *words]


def _for_fish(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _end(session: Session, pid: int) -> None:
    """Close the session of a discarded program, except in a forked child, which does not own it."""
    if os.getpid() == pid:
        with suppress(AiSessionError):
            session.close()
