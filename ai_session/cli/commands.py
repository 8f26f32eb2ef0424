"""Verbs about the programs in a session: exec, logs, screen, send."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import stat
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Json, Option
from agentwire.cli.output import EXIT_INTERRUPTED, leave, remark, show_json, to_person, write_bytes
from agentwire.system.inherited_signals import is_ignored
from ai_session.cli.follow import PAGE_CHARS, WAIT_SECONDS, Follower
from ai_session.cli.output import EXIT_EXEC_FAILED, EXIT_RUNNING, report, write_error_text, write_text
from ai_session.cli.sessions import SessionName, sessions
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, InvalidArguments, NothingRunning, SessionExists
from ai_session.sandbox.workspace.words import sentence

if TYPE_CHECKING:
    from ai_session.cli.keyboard import Keyboard

QUICK_SECONDS = 0.1
"""A command that ends within this takes one round trip; the output of others is followed."""

ASKS_SECONDS = 3.0
"""A command that reads the terminal and prints nothing for this long is assumed to ask; some read while they work."""

MAX_STDIN_BYTES = 10_000_000

SHELL_ENDED = re.compile(r"the session's shell has ended \(([^()]*)\)")
DROPPED = re.compile(r"the half-typed line .* was dropped")
"""The daemon's notes for models that people need as well."""


def exec_(
    session: SessionName,
    command: Annotated[
        list[str],
        Argument(metavar="COMMAND...", help="A single word is shell text; several are quoted, as with env or sudo."),
    ],
    timeout: Annotated[
        float | None,
        Option("--timeout", "-t", least=0, help="Seconds to wait; then exit code 124, and the command keeps running."),
    ] = None,
    new: Annotated[bool, Option("--new", help="Open the session if it does not exist.")] = False,
    no_stdin: Annotated[bool, Option("--no-stdin", "-n", help="Do not pass piped input on.")] = False,
    apart: Annotated[bool, Option("--stderr", help="Capture standard error separately and print it there.")] = False,
    as_json: Json = False,
) -> None:
    """Run a command in a session and return its exit code.

    Output is shown as it arrives, and piped input becomes the command's. On a terminal, answer its questions and use
    full-screen programs here; ctrl-] leaves it running. Without a terminal, a command that waits for input is left
    running (exit code 124), unless --timeout says how long to wait. Ctrl-C interrupts the command (exit code 130); a
    second one leaves it running. Put -- before a command with options: ai-session exec build -- make -j4
    """
    try:
        text = command[0] if len(command) == 1 else shlex.join(command)
        stdin = None if no_stdin else _piped_input()
        with connect() as client:
            if new and session not in {row["name"] for row in sessions(client)}:
                with contextlib.suppress(SessionExists):  # another program was quicker
                    client.call("create_session", name=session)
            run = Run(client, session, timeout, quiet=as_json)
            facts = run.run(text, stdin, apart)
    except AiSessionError as error:
        leave(report(error, as_json=as_json, exit_code=EXIT_EXEC_FAILED))
    if as_json:
        show_json(facts)
    else:
        if facts.get("stderr"):
            write_error_text(facts["stderr"])
        run.show_notes(facts)
    leave(run.exit_code(facts))


def _piped_input() -> str | None:
    """Return all of standard input if it is a pipe, a file or a socket; None for a terminal or /dev/null."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return None
    data = sys.stdin.buffer.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise InvalidArguments(
            f"standard input is longer than {MAX_STDIN_BYTES} bytes",
            suggestion="write it to a file and redirect that in the command",
        )
    return data.decode("utf-8", "surrogateescape")


class Run:
    """One command of ``exec``: Ctrl-C interrupts it, a second Ctrl-C leaves it running.

    While it asks, this terminal's keyboard is the command's; without a keyboard it is left running.
    """

    def __init__(self, client: ControlClient, session: str, timeout: float | None, *, quiet: bool) -> None:
        self._client = client
        self._session = session
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._quiet = quiet
        self._interrupts = 0
        self._mid_line = False
        self._pending = ""
        self._keyboard: Keyboard | None = None
        self._asked_at: tuple[int, float] | None = None
        self._unanswered = False

    def run(self, text: str, stdin: str | None, apart: bool) -> dict[str, Any]:
        """Run the command, showing its output, until it ends, time is up or the person leaves; return the facts."""
        before = signal.getsignal(signal.SIGINT)
        if not is_ignored(signal.SIGINT):  # it is in a script's background job
            signal.signal(signal.SIGINT, self._interrupt)
        facts: dict[str, Any] = {"status": "running", "exit_code": None}
        try:
            facts |= self._client.call(
                "execute_command",
                session_id=self._session,
                command=text,
                timeout_seconds=self._wait(QUICK_SECONDS),
                stdin=stdin,
                separate_stderr=apart or None,
                max_output_chars=PAGE_CHARS,
            ).structured
            if facts["status"] != "running" and not facts.get("omitted_bytes"):
                self._show(facts["output"])
            else:
                self._follow(facts, apart)
        except KeyboardInterrupt:
            pass
        finally:
            if self._keyboard is not None:
                self._keyboard.stop()
            self._show("")
            signal.signal(signal.SIGINT, before)
        return facts

    def _follow(self, facts: dict[str, Any], apart: bool) -> None:
        live = to_person() and not self._quiet
        if live:
            self._lend_keyboard(facts["command_id"])
        polls = self._keyboard is None
        output = Follower(self._client, self._session, facts["command_id"], 0, live=live, polls=polls)
        output.notices += facts.get("notices", [])
        for name in ("omitted_bytes", "next_offset", "note", "input_mode"):
            facts.pop(name, None)
        facts["output"] = ""
        for text in output.follow(self._wait):
            self._show(text)
            facts["output"] += text if self._quiet else ""
            names = ("status", "exit_code", "duration_seconds", "input_mode", "note")
            facts |= {name: output.page[name] for name in names if name in output.page}
            over = facts["status"] != "running"
            if not over and (self._wait(WAIT_SECONDS) <= 0 or self._cannot_be_answered(output.page)):
                break
        for text in output.rest():
            self._show(text)
            facts["output"] += text if self._quiet else ""
        if output.notices:
            facts["notices"] = output.notices
        if apart:
            page = self._client.call("read_output", session_id=self._session, command_id=facts["command_id"]).structured
            facts["stderr"] = page.get("stderr", "")

    def _cannot_be_answered(self, page: dict[str, Any]) -> bool:
        """Report whether the command waits for input that cannot be typed here, without a time limit from the person.

        A program that reads single keys may also work meanwhile.
        """
        if self._keyboard is not None or self._deadline is not None or page.get("input_mode") in (None, "raw"):
            self._asked_at = None
            return False
        if self._asked_at is None or self._asked_at[0] != page["end_offset"]:
            self._asked_at = (page["end_offset"], time.monotonic())
        self._unanswered = time.monotonic() - self._asked_at[1] >= ASKS_SECONDS
        return self._unanswered

    def _lend_keyboard(self, command_id: str) -> None:
        from ai_session.cli import keyboard

        def on_refused() -> None:
            self._remark(f"hint: it waits for input: ai-session attach {self._session}")

        if keyboard.usable():
            self._keyboard = keyboard.Keyboard(self._session, command_id, on_refused, self._leave)
            self._keyboard.start()

    def _leave(self) -> None:
        """End the verb like a second Ctrl-C. May be called from any thread."""
        self._interrupts += 1
        os.kill(os.getpid(), signal.SIGINT)

    def show_notes(self, facts: dict[str, Any]) -> None:
        """Print what the person needs to know besides output and exit code."""
        note = str(facts.get("note") or "")
        if (ended := SHELL_ENDED.search(note)) and facts["status"] != "running":
            self._remark(
                f"[session {self._session} has ended: {ended[1]}; ai-session new {self._session} opens it again]"
            )
        if dropped := DROPPED.search(note):
            self._remark(f"warning: {dropped[0]}")
        if facts.get("notices"):
            self._remark(f"warning: {sentence(facts['notices'])}")

    def _remark(self, message: str) -> None:
        """Print on a separate line, even if the command's last line has not ended."""
        with contextlib.suppress(OSError):
            if self._mid_line and os.path.sameopenfile(1, 2):
                message = f"\n{message}"
        self._mid_line = False
        remark(message)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            raise KeyboardInterrupt
        # On a separate connection, so that output is still shown until the command has ended.
        import threading

        threading.Thread(target=self._stop_command, daemon=True).start()

    def _stop_command(self) -> None:
        try:
            with connect() as client:
                facts = client.call("interrupt_command", session_id=self._session).structured
        except AiSessionError as error:
            if not isinstance(error, NothingRunning):
                report(error, as_json=False)
        else:
            if facts["status"] == "running":
                self._remark("the command is still running; Ctrl-C again leaves it running")

    def exit_code(self, facts: dict[str, Any]) -> int:
        """Return the exit code of ``exec``."""
        if self._unanswered:
            self._remark("hint: it waits for input, which cannot be typed here: pipe it in, or attach")
        if facts["status"] == "running":
            word = "left" if self._interrupts or self._unanswered else "still"
            ways = ("attach", "interrupt") if self._unanswered else ("logs -f", "interrupt")
            self._remark(f"{word} running: " + ", ".join(f"ai-session {way} {self._session}" for way in ways))
        if self._interrupts:
            return EXIT_INTERRUPTED
        if facts["status"] == "running":
            return EXIT_RUNNING
        if facts.get("exit_code") is None:
            self._remark(f"error: the command's exit code is not known: {facts.get('note') or facts['status']}")
            return EXIT_EXEC_FAILED
        return facts["exit_code"] & 0xFF

    def _show(self, text: str) -> None:
        """Print output, or store it while a program has the screen."""
        self._pending += text
        if self._pending and not self._quiet and not (self._keyboard and self._keyboard.covers):
            text = self._pending
            self._pending = ""
            write_text(text)
            self._mid_line = not text.endswith("\n")

    def _wait(self, longest: float) -> float:
        if self._deadline is None:
            return longest
        return max(0.0, min(longest, self._deadline - time.monotonic()))


def logs(
    session: SessionName,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Print output as it arrives, until the session ends.")
    ] = False,
    tail: Annotated[int, Option("--tail", "-n", least=0, help="Only the last lines; 0: all kept output.")] = 0,
    command_id: Annotated[str, Option("--command", "-c", help="Only this command's output; 'last' for the last.")] = "",
    as_json: Json = False,
) -> None:
    """Show what a session printed."""
    if follow and as_json:
        raise InvalidArguments(
            "--json and --follow exclude each other: output that continues is not one JSON document",
            suggestion="leave out one of them",
        )
    shown: list[str] = []
    show = shown.append if as_json else write_text
    with connect() as client:
        wanted = command_id or "all"
        if wanted == "last":
            wanted = client.call("read_output", session_id=session).structured["command_id"]
        page: dict[str, Any] = {}
        if tail:
            page = client.call(
                "read_output", session_id=session, command_id=wanted, tail_lines=tail, max_output_chars=PAGE_CHARS
            ).structured
            show(page["output"])
        output = Follower(client, session, wanted, page["next_offset"] if tail else 0, live=to_person())
        if not tail:
            for text in output.rest():
                show(text)
        if follow:
            for text in output.follow(lambda longest: longest):
                show(text)
    if as_json:
        show_json({"output": "".join(shown)})


def screen(
    session: SessionName,
    ansi: Annotated[bool, Option("--ansi", help="Print the escape sequences too, with colours.")] = False,
    as_json: Json = False,
) -> None:
    """Show a session's screen. For vim, less, htop, a REPL."""
    with connect() as client:
        if ansi:
            client.attach(session, rows=0, cols=0, read_only=True)
            drawn = next(payload for kind, payload in client.frames() if kind == b"o")
            if to_person():
                from ai_session.terminal.filter import TerminalFilter

                drawn = TerminalFilter(live=False).feed(drawn)
            write_bytes(drawn)
            return
        facts = client.call("read_screen", session_id=session).structured
    if as_json:
        show_json(facts)
    else:
        write_text(facts["screen"] + "\n")


def send(
    session: SessionName,
    text: Annotated[
        list[str] | None, Argument(help="Typed unchanged, but CRLF as LF; words are joined with spaces.")
    ] = None,
    key: Annotated[
        list[str] | None, Option("--key", "-k", help="Then press this key: Enter, C-c, Up, F5… May be repeated.")
    ] = None,
    no_enter: Annotated[bool, Option("--no-enter", help="Do not press Enter after the text.")] = False,
    as_json: Json = False,
) -> None:
    """Type text and Enter, or press keys. To run a command use exec."""
    keys = list(key or [])
    if text and not keys and not no_enter:
        keys.append("Enter")
    with connect() as client:
        facts = client.call(
            "send_input", session_id=session, text=" ".join(text or []) or None, keys=keys or None
        ).structured
    if as_json:
        show_json(facts)
