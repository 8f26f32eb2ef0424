"""Runs the program of a task: started in a terminal, it asks the bridge what to run, runs it and reports back.

Standard library only. Output goes to the bridge, and as text to the terminal, where a person may watch. If the worker
is killed, the next one gets all output again. When the task is over, or no worker continues it, the program and all its
processes are ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any, NoReturn

from ccswarm.bridge.relay import PATIENCE_SECONDS, POLL_SECONDS, READ_BYTES, VARIABLE, Guest, TaskOver, dial

GRACE_SECONDS = 5.0
MOST_STORED_BYTES = 8 << 20
"""The most output stored for a new worker; the oldest lines are dropped first."""

ERROR_CHARS = 4000
SHOWN_CHARS = 300
UNREACHABLE = 74
"""The exit code if the bridge cannot be reached from this terminal."""


def main(environ: Mapping[str, str]) -> NoReturn:
    """Exit with the program's code, 127 if it cannot be started, or 74 if the bridge cannot be reached."""
    try:
        sys.exit(Keeper(environ).run())
    except TaskOver as error:
        sys.stderr.write(f"ccswarm: {error}\n")
        sys.exit(UNREACHABLE)


class Keeper(Guest):
    """One start of one program."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ.get(VARIABLE, ""))
        self._environ = dict(environ)
        self._lines: list[bytes] = []
        self._stored_bytes = 0
        self._partial_line = b""
        self._errors = ""
        self._report: bytes | None = None
        self._killed_at = 0.0
        self._over = False
        self._child: subprocess.Popen[bytes] | None = None
        self._ended_fd, self._end_fd = os.pipe()

    def run(self) -> int:
        """Run the program and return its exit code. Raises TaskOver if the bridge cannot be reached at first."""
        launch = self._launch()
        code = self._start(launch)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while not (self._over and self._report is not None):
            if self._link is None:
                self._connect()
            self._handle_next()
            if self._report is not None and self._child:
                code = self._child.returncode
        return 128 - code if code < 0 else code

    def _launch(self) -> dict[str, Any]:
        while (found := dial(self._guest, role="program", begun=False)) is None:
            if time.monotonic() - self._lost_at > PATIENCE_SECONDS:
                raise TaskOver("the tools of the task are not being served")
            select.poll().poll(POLL_SECONDS * 1000)
        self._link, facts, self._received = found
        return facts["launch"]

    def _start(self, launch: Mapping[str, Any]) -> int:
        environ = {**self._environ, **launch["environment"]}
        try:
            self._prepare(launch, environ)
            with open(launch["input"] or os.devnull, "rb") as stdin:
                self._child = subprocess.Popen(
                    launch["command"],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environ,
                    cwd=launch["directory"],
                    process_group=0,
                )
        except (OSError, ValueError, KeyError) as error:
            self._write(f"{launch['command'][0]}: {error}\n".encode(), 2)
            self._report_end({"failed": type(error).__name__, "message": str(error)})
            return 127
        threading.Thread(target=self._wait, daemon=True).start()
        return 0

    def _prepare(self, launch: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Write a file that some programs need: a command's JSON, with ``changes`` to each item of a list."""
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
        os.write(self._end_fd, b".")

    def _handle_next(self) -> None:
        ready = select.poll()
        ready.register(self._ended_fd, select.POLLIN)
        if self._link:
            ready.register(self._link, select.POLLIN)
        pipes = self._pipes()
        for fd in pipes:
            ready.register(fd, select.POLLIN)
        bound = None if self._link and not self._killed_at else POLL_SECONDS * 1000
        fds = {fd for fd, _ in ready.poll(bound)}
        for fd, pipe in pipes.items():
            if fd in fds:
                self._print(pipe)
        if self._link and self._link.fileno() in fds:
            self._read_bridge()
        if self._ended_fd in fds:
            self._finish()
        if self._killed_at and time.monotonic() - self._killed_at > GRACE_SECONDS:
            self._signal(signal.SIGKILL)

    def _pipes(self) -> dict[int, IO[bytes]]:
        if self._child is None or self._report is not None:
            return {}
        return {pipe.fileno(): pipe for pipe in (self._child.stdout, self._child.stderr) if pipe and not pipe.closed}

    def _print(self, pipe: IO[bytes]) -> bool:
        """Pass output of the program to the terminal and the bridge; false at its end."""
        assert self._child
        chunk = os.read(pipe.fileno(), READ_BYTES)
        if not chunk:
            pipe.close()
            return False
        if pipe is self._child.stderr:
            self._write(chunk, 2)
            self._errors = (self._errors + chunk.decode(errors="replace"))[-ERROR_CHARS:]
            return True
        *lines, self._partial_line = (self._partial_line + chunk).split(b"\n")
        for line in lines:
            self._forward_line(line)
        return True

    def _forward_line(self, line: bytes) -> None:
        self._write(format_line(line).encode(), 1)
        message = json.dumps({"out": line.decode(errors="replace")}).encode()
        self._lines.append(message)
        self._stored_bytes += len(message)
        while self._stored_bytes > MOST_STORED_BYTES and len(self._lines) > 1:
            self._stored_bytes -= len(self._lines.pop(0))
        self._send(message)

    def _finish(self) -> None:
        """Read what is left in the pipes without waiting: processes the program started may hold them open."""
        os.read(self._ended_fd, 1)
        for fd, pipe in self._pipes().items():
            ready = select.poll()
            ready.register(fd, select.POLLIN)
            while ready.poll(0) and self._print(pipe):
                pass
        if self._partial_line:
            self._forward_line(self._partial_line)
        assert self._child
        self._signal(signal.SIGTERM)  # processes that it left running
        self._report_end({"exit": self._child.returncode})

    def _report_end(self, facts: Mapping[str, Any]) -> None:
        self._report = json.dumps({**facts, "errors": self._errors}).encode()
        self._killed_at = 0.0
        self._send(self._report)

    def _connect(self) -> None:
        try:
            found = dial(self._guest, role="program", begun=True)
        except TaskOver:
            self._stop()
            return
        if found is None:
            if time.monotonic() - self._lost_at > PATIENCE_SECONDS:
                self._stop()
            return
        self._link, _, self._received = found
        for line in (*self._lines, *filter(None, [self._report])):
            self._send(line)

    def _read_bridge(self) -> None:
        if not (chunk := self._read_link()):
            return
        *lines, self._received = (self._received + chunk).split(b"\n")
        if any(json.loads(line).get("over") for line in lines):
            self._stop()

    def _stop(self) -> None:
        self._over = True
        if self._report is None and not self._killed_at:
            self._killed_at = time.monotonic()
            self._signal(signal.SIGTERM)

    def _on_signal(self, *_: object) -> None:
        if self._report is not None:
            os._exit(1)  # only the report to the bridge is missing
        self._stop()

    def _signal(self, number: int) -> None:
        if self._child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, number)

    def _write(self, chunk: bytes, fd: int) -> None:
        with contextlib.suppress(OSError):
            while chunk:
                chunk = chunk[os.write(fd, chunk) :]


def format_line(line: bytes) -> str:
    """Format a line of output for people: an event's text and calls, or the line. Replaces control characters."""
    text = line.decode(errors="replace")
    try:
        event: dict[str, Any] = json.loads(text)
        texts = list(_format_event(event))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        texts = [text]
    return "".join(f"{_printable(one)}\n" for one in texts if one)


def _format_event(event: dict[str, Any]) -> Iterator[str]:
    kind: str = event["type"]
    item: dict[str, Any] = event.get("item") or {}
    if kind == "assistant":
        parts: list[dict[str, Any]] = event["message"]["content"]
        for part in parts:
            yield part.get("text") or (_format_call(part["name"], part.get("input")) if "name" in part else "")
    elif kind == "message" and event.get("role") == "assistant":
        yield event.get("content") or ""
    elif kind == "tool_use":
        yield _format_call(event["tool_name"], event.get("parameters"))
    elif kind == "item.completed" and item.get("type") == "agent_message":
        yield item.get("text") or ""
    elif kind == "item.started" and item.get("type") == "mcp_tool_call":
        yield _format_call(item["tool"], item.get("arguments"))
    elif kind in ("error", "turn.failed"):
        yield f"error: {event.get('message') or event.get('error')}"
    elif kind == "result":
        yield f"(ended: {event.get('subtype') or event.get('status')})"


def _format_call(name: str, arguments: object) -> str:
    return f"> {name} {json.dumps(arguments or {}, ensure_ascii=False)[:SHOWN_CHARS]}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t" else "·" for char in text)
