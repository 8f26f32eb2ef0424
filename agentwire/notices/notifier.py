"""Sends notices to a person by the configured ways: immediately, within a time limit, and without making callers wait.

A process of its own sends each notice, and is killed if it takes too long. A failure is logged once per way, until the
way works again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import IO

from agentwire.notices.settings import NotifySettings
from agentwire.visible import visible

POST = str(Path(__file__).with_name("post.py"))
MINUTE = 60.0
MOST_ERROR_BYTES = 500
TITLE_CHARS, TEXT_CHARS = 120, 1000
PASSED_ON = (
    *("HOME", "USER", "LOGNAME", "LANG", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR"),
    *("DBUS_SESSION_BUS_ADDRESS", "https_proxy", "http_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Variables that the processes get in addition to PATH."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """``event`` is the kind of notice, for programs; ``facts`` are details for them that the text may omit."""

    event: str
    title: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Sent:
    """One way, and why it failed; the problem is empty if it worked."""

    way: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Process:
    argv: Sequence[str]
    stdin: str


class Notifier:
    """The sender of notices. ``program`` is its name; ``environ`` provides the variables of the desktop, and a PATH
    that agents cannot write to; ``masked`` removes secrets from every text; ``unusable`` returns why a command must not
    be run, or an empty text."""

    def __init__(
        self,
        program: str,
        settings: NotifySettings,
        environ: Mapping[str, str],
        masked: Callable[[str], str],
        unusable: Callable[[Sequence[str]], str] = lambda argv: "",
    ) -> None:
        self._program = program
        self._settings = settings
        self._masked = masked
        self._unusable = unusable
        self._path = environ.get("PATH", os.defpath)
        self._env = {"PATH": self._path, **{name: environ[name] for name in PASSED_ON if name in environ}}
        self._sent_at = deque[float]()
        self._dropped = 0
        self._broken: set[str] = set()
        self._sending: set[asyncio.Task[None]] = set()

    def __bool__(self) -> bool:
        """Whether any way is configured."""
        settings = self._settings
        return bool(settings.command or settings.ntfy or settings.webhook or settings.desktop)

    def tell(self, notice: Notice) -> None:
        """Send a notice from a running loop; returns immediately and raises nothing. Notices beyond the limit are
        dropped, and counted in the next one."""
        if not self:
            return
        now = time.monotonic()
        while self._sent_at and now - self._sent_at[0] > MINUTE:
            self._sent_at.popleft()
        if len(self._sent_at) >= self._settings.per_minute:
            self._dropped += 1
            return
        self._sent_at.append(now)
        if self._dropped:
            more = f"{notice.text} ({self._dropped} more notices were left out.)"
            notice = Notice(notice.event, notice.title, more, notice.facts)
            self._dropped = 0
        task = asyncio.create_task(self._log(notice))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def send(self, notice: Notice) -> list[Sent]:
        """Send by all configured ways at the same time, and return the result of each."""
        clean = Notice(
            notice.event,
            _line(self._masked(notice.title))[:TITLE_CHARS],
            _line(self._masked(notice.text))[:TEXT_CHARS],
            {name: self._masked(value) for name, value in notice.facts.items()},
        )
        return await asyncio.gather(*(self._send_by(way, process) for way, process in self._processes(clean)))

    async def close(self, seconds: float = 0.0) -> None:
        """Wait up to ``seconds`` for notices that are being sent, then cancel the rest."""
        if self._sending and seconds:
            await asyncio.wait(list(self._sending), timeout=seconds)
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _log(self, notice: Notice) -> None:
        try:
            ways = await self.send(notice)
        except Exception:  # no caller awaits this task
            log.exception("a notice could not be sent")
            return
        for sent in ways:
            if not sent.problem:
                self._broken.discard(sent.way)
            elif sent.way not in self._broken:
                self._broken.add(sent.way)
                log.warning("nobody was notified by %s: %s", sent.way, sent.problem)

    def _processes(self, notice: Notice) -> Iterator[tuple[str, _Process]]:
        settings = self._settings
        if settings.command:
            yield "command", _Process(settings.command, json.dumps(asdict(notice)))
        if settings.desktop:
            program = shutil.which("notify-send", path=self._path) or "notify-send"
            shown = (escape(notice.title, quote=False), escape(notice.text, quote=False))  # some desktops read markup
            yield "desktop", _Process((program, f"--app-name={self._program}", "--", *shown), "")
        if settings.ntfy:
            title = notice.title.encode("ascii", "replace").decode()
            yield "ntfy", self._post(settings.ntfy, notice.text, {"Title": title, "Tags": notice.event})
        if settings.webhook:
            body = json.dumps(asdict(notice))
            yield "webhook", self._post(settings.webhook, body, {"Content-Type": "application/json"})

    def _post(self, url: str, body: str, headers: Mapping[str, str]) -> _Process:
        request = {"url": url, "body": body, "headers": headers, "token_file": self._settings.token_file}
        return _Process((sys.executable, "-I", POST), json.dumps(request))

    async def _send_by(self, way: str, process: _Process) -> Sent:
        if why := await asyncio.to_thread(self._why_not, way, process.argv):
            return Sent(way, why)
        try:
            return Sent(way, await self._run(process))
        except OSError as error:
            return Sent(way, f"{process.argv[0]} cannot be started: {error.strerror or error}")

    def _why_not(self, way: str, argv: Sequence[str]) -> str:
        if not (os.path.isfile(argv[0]) and os.access(argv[0], os.X_OK)):
            return f"{argv[0]} is not a program that can be run"
        return self._unusable(argv) if way == "command" else ""

    async def _run(self, wanted: _Process) -> str:
        """Run the process and return why it failed, empty if it succeeded. Kills everything that it started."""
        errors, theirs = os.pipe()
        os.set_blocking(errors, False)
        process: asyncio.subprocess.Process | None = None
        text = b""
        try:
            try:
                with await asyncio.to_thread(_temporary_file, wanted.stdin) as file:
                    process = await asyncio.create_subprocess_exec(
                        *wanted.argv,
                        stdin=file,
                        stdout=asyncio.subprocess.DEVNULL,
                        stderr=theirs,
                        env=self._env,
                        cwd="/",
                        start_new_session=True,
                    )
            finally:
                os.close(theirs)
            async with asyncio.timeout(self._settings.seconds):
                status = await process.wait()
        except TimeoutError:
            return f"it did not end within {self._settings.seconds:g} s (notify.seconds)"
        finally:
            if process is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
            with suppress(BlockingIOError):
                text = os.read(errors, MOST_ERROR_BYTES)
            os.close(errors)
        if not status:
            return ""
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return _line(self._masked(text.decode(errors="replace"))) or f"it {how}"


def trial(program: str) -> Notice:
    """Return a notice for testing."""
    return Notice("test", f"{program}: a test", f"Notices of {program} reach you here.")


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _temporary_file(text: str) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(text.encode())
    file.seek(0)
    return file
