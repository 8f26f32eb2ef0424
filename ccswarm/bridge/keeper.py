"""Keeps the program of a task: started in a terminal, it asks the bridge what to run, runs it and reports back.

Standard library only. Output goes to the bridge, and as text to the terminal, where a person may watch.
The worker may be killed meanwhile: the next one hears everything again. When the task is over, or nobody continues with
it, the program is ended with all it has started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

from ccswarm.bridge.relay import LOOK_SECONDS, PATIENCE_SECONDS, READ_BYTES, VARIABLE, Over, dial

GRACE_SECONDS = 5.0
KEPT_BYTES = 8 << 20
"""Of what was printed; the oldest lines go first."""

ERROR_CHARS = 4000
SHOWN_CHARS = 300
UNREACHABLE = 74
"""Exit code where the bridge cannot be reached from here."""


def main(environ: Mapping[str, str]) -> NoReturn:
    """Exits as the program did; with 127 when it cannot be started, 74 when there is no bridge to be reached."""
    try:
        sys.exit(Keeper(environ).run())
    except Over as error:
        sys.stderr.write(f"ccswarm: {error}\n")
        sys.exit(UNREACHABLE)


class Keeper:
    """One start of one program."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = dict(environ)
        self._guest = self._environ.get(VARIABLE, "")
        self._link: socket.socket | None = None
        self._left = time.monotonic()
        self._heard = b""
        self._lines: list[bytes] = []
        self._kept = 0
        self._rest = b""
        self._errors = ""
        self._last: bytes | None = None
        self._killed_at = 0.0
        self._over = False
        self._child: subprocess.Popen[bytes] | None = None
        self._ended, self._end = os.pipe()

    def run(self) -> int:
        """The exit code. Raises Over when the bridge is not there at the beginning."""
        launch = self._launch()
        code = self._start(launch)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while not (self._over and self._last is not None):
            if self._link is None:
                self._connect()
            self._turn()
            if self._last is not None and self._child:
                code = self._child.returncode
        return 128 - code if code < 0 else code

    def _launch(self) -> dict[str, Any]:
        while (found := dial(self._guest, role="program", begun=False)) is None:
            if time.monotonic() - self._left > PATIENCE_SECONDS:
                raise Over("the tools of the task are not being served")
            select.poll().poll(LOOK_SECONDS * 1000)
        self._link, facts, self._heard = found
        return facts["launch"]

    def _start(self, launch: Mapping[str, Any]) -> int:
        environ = {**self._environ, **launch["environment"]}
        try:
            self._prepare(launch, environ)
            with open(launch["input"] or os.devnull, "rb") as given:
                self._child = subprocess.Popen(
                    launch["command"],
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environ,
                    cwd=launch["directory"],
                    process_group=0,
                )
        except (OSError, ValueError, KeyError) as error:
            self._say(f"{launch['command'][0]}: {error}\n".encode(), 2)
            self._tell_end({"failed": type(error).__name__, "message": str(error)})
            return 127
        threading.Thread(target=self._wait, daemon=True).start()
        return 0

    def _prepare(self, launch: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Some need a file that only they can make: a command's JSON, with ``changes`` to each object of one list."""
        if wanted := launch.get("prepare"):
            made = subprocess.run(
                wanted["command"], env=environ, cwd=launch["directory"], stdin=subprocess.DEVNULL, capture_output=True
            )
            facts = json.loads(made.stdout)
            facts[wanted["list"]] = [{**one, **wanted["changes"]} for one in facts[wanted["list"]]]
            with open(wanted["file"], "w") as file:
                json.dump(facts, file)

    def _wait(self) -> None:
        assert self._child
        self._child.wait()
        os.write(self._end, b".")

    def _turn(self) -> None:
        """Waits for whatever happens next, and heeds it."""
        ready = select.poll()
        ready.register(self._ended, select.POLLIN)
        if self._link:
            ready.register(self._link, select.POLLIN)
        pipes = self._pipes()
        for fd in pipes:
            ready.register(fd, select.POLLIN)
        bound = None if self._link and not self._killed_at else LOOK_SECONDS * 1000
        fds = {fd for fd, _ in ready.poll(bound)}
        for fd, pipe in pipes.items():
            if fd in fds:
                self._print(pipe)
        if self._link and self._link.fileno() in fds:
            self._listen()
        if self._ended in fds:
            self._finish()
        if self._killed_at and time.monotonic() - self._killed_at > GRACE_SECONDS:
            self._signal(signal.SIGKILL)

    def _pipes(self) -> dict[int, IO[bytes]]:
        if self._child is None or self._last is not None:
            return {}
        return {pipe.fileno(): pipe for pipe in (self._child.stdout, self._child.stderr) if pipe and not pipe.closed}

    def _print(self, pipe: IO[bytes]) -> bool:
        """What the program printed, to the terminal and the bridge; whether there was anything."""
        assert self._child
        chunk = os.read(pipe.fileno(), READ_BYTES)
        if not chunk:
            pipe.close()
            return False
        if pipe is self._child.stderr:
            self._say(chunk, 2)
            self._errors = (self._errors + chunk.decode(errors="replace"))[-ERROR_CHARS:]
            return True
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._line(line)
        return True

    def _line(self, line: bytes) -> None:
        self._say(in_words(line).encode(), 1)
        message = json.dumps({"out": line.decode(errors="replace")}).encode()
        self._lines.append(message)
        self._kept += len(message)
        while self._kept > KEPT_BYTES and len(self._lines) > 1:
            self._kept -= len(self._lines.pop(0))
        self._send(message)

    def _finish(self) -> None:
        """The program has ended; what it started may still hold its pipes, so only what is in them is read."""
        os.read(self._ended, 1)
        for fd, pipe in self._pipes().items():
            ready = select.poll()
            ready.register(fd, select.POLLIN)
            while ready.poll(0) and self._print(pipe):
                pass
        if self._rest:
            self._line(self._rest)
        assert self._child
        self._signal(signal.SIGTERM)  # what it left running
        self._tell_end({"exit": self._child.returncode})

    def _tell_end(self, facts: Mapping[str, Any]) -> None:
        self._last = json.dumps({**facts, "errors": self._errors}).encode()
        self._killed_at = 0.0
        self._send(self._last)

    def _connect(self) -> None:
        try:
            found = dial(self._guest, role="program", begun=True)
        except Over:
            self._stop()
            return
        if found is None:
            if time.monotonic() - self._left > PATIENCE_SECONDS:
                self._stop()
            return
        self._link, _, self._heard = found
        for line in (*self._lines, *filter(None, [self._last])):
            self._send(line)

    def _listen(self) -> None:
        assert self._link
        try:
            chunk = self._link.recv(READ_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self._lose()
            return
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        if any(json.loads(line).get("over") for line in lines):
            self._stop()

    def _stop(self) -> None:
        """The task is over: so is the program."""
        self._over = True
        if self._last is None and not self._killed_at:
            self._killed_at = time.monotonic()
            self._signal(signal.SIGTERM)

    def _on_signal(self, *_: object) -> None:
        if self._last is not None:
            os._exit(1)  # only the bridge is waited for
        self._stop()

    def _signal(self, number: int) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def _send(self, line: bytes) -> None:
        if self._link:
            try:
                self._link.sendall(line + b"\n")
            except OSError:
                self._lose()

    def _lose(self) -> None:
        if self._link:
            self._link.close()
        self._link = None
        self._heard = b""
        self._left = time.monotonic()

    def _say(self, chunk: bytes, fd: int) -> None:
        with contextlib.suppress(OSError):
            while chunk:
                chunk = chunk[os.write(fd, chunk) :]


def in_words(line: bytes) -> str:
    """A line of a program for people: what an event says and calls; what is no event as it is. Without what a terminal
    would take for an order."""
    text = line.decode(errors="replace")
    try:
        event: dict[str, Any] = json.loads(text)
        texts = list(_format_event(event))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        texts = [text]
    return "".join(f"{_plain(one)}\n" for one in texts if one)


def _format_event(event: dict[str, Any]) -> Iterator[str]:
    """Of claude's, codex' and gemini's events, those that people care about."""
    kind: str = event["type"]
    item: dict[str, Any] = event.get("item") or {}
    if kind == "assistant":
        parts: list[dict[str, Any]] = event["message"]["content"]
        for part in parts:
            yield part.get("text") or (_called(part["name"], part.get("input")) if "name" in part else "")
    elif kind == "message" and event.get("role") == "assistant":
        yield event.get("content") or ""
    elif kind == "tool_use":
        yield _called(event["tool_name"], event.get("parameters"))
    elif kind == "item.completed" and item.get("type") == "agent_message":
        yield item.get("text") or ""
    elif kind == "item.started" and item.get("type") == "mcp_tool_call":
        yield _called(item["tool"], item.get("arguments"))
    elif kind in ("error", "turn.failed"):
        yield f"error: {event.get('message') or event.get('error')}"
    elif kind == "result":
        yield f"(ended: {event.get('subtype') or event.get('status')})"


def _called(name: str, arguments: object) -> str:
    return f"> {name} {json.dumps(arguments or {}, ensure_ascii=False)[:SHOWN_CHARS]}"


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "·" for char in text)
