"""One private tmux server, reached through one control client that is replaced when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_session.backends.tmux.control import (
    Blocks,
    ControlClient,
    ControlClosed,
    TmuxRefused,
    complaint_of,
    end_left_client,
    join,
    listener,
    take_lock,
)
from ai_session.config import config
from ai_session.errors import BackendUnavailable, OperatorError, TerminalsExhausted
from ai_session.system.events import parent_of_orphans, process_ended, traces_descendants_only

KEEPER = "ais-keeper"
EXIT_OPTION = "@ais-exit-"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
OLDEST = (3, 2)
END_SECONDS = 5.0
ANSWER_SECONDS = 10.0
ATTEMPTS = 5
ENDING = re.compile(r"|(lost server|server exited.*|.*no server running.*)")
INSTALL = "install tmux 3.2 or newer (apt-get install tmux, dnf install tmux, brew install tmux), or use backend pty"

# When a pane of ours dies, tmux has handed its last byte to the pipe. Closing the pane is the only thing that closes
# the pipe of a dead pane (pipe-pane refuses it), and the pipe's end is how everyone learns that the log is complete.
# Closing it gives notice to control clients, and tmux before 3.7 crashes when one of them is only just attaching. So
# it is closed when one is attached for good, which shows on the keeper's session, or else by the next that attaches.
# It is up to each pane to remain, so that a person's own windows close as usual. The keeper's does, and keeps the
# server alive without a process.
CONFIG = """\
set-option -gq remain-on-exit-format ""
set-option -g automatic-rename off
set-option -s escape-time 10
set-option -g default-terminal "%(term)s"
set-hook -g pane-died "if-shell -F '#{@ais-id}' \\"\
set-option -gF '%(exit)s#{@ais-id}' '#{pane_dead_status},#{pane_dead_signal},#{pane_pid},#{@ais-dir}' ; \
set-option -p @ais-dead 1 ; \
if-shell -F '#{S:#{?#{==:#{session_name},%(keeper)s},#{session_attached},}}' kill-pane\\""
"""


class ServerGone(BackendUnavailable):
    """There is no tmux server (any more), and none was asked for."""


@dataclass(slots=True, eq=False)
class _Input:
    number: int
    line: bytes
    blocks: int
    done: Callable[[], None]


class TmuxServer:
    """The server behind ``directory/tmux.sock``. Everything else on this machine's tmux is left alone.

    ``on_notice`` is called when terminals came or went and when the control client was replaced. ``hold``: terminals
    hold on to their ttys beside tmux, where the kernel allows it.
    """

    def __init__(
        self, directory: str | os.PathLike[str], on_notice: Callable[[], None] = lambda: None, *, hold: bool = True
    ) -> None:
        self.hold = hold
        self.directory = Path(directory)
        self.socket = str(self.directory / "tmux.sock")
        self.lock = str(self.directory / "tmux.lock")
        self.version = ""
        self.paste_flags = b"-rd"
        self._on_notice = on_notice
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: ControlClient | None = None
        self._pid = 0
        self._typed = 0
        self._journal: deque[_Input] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._gone = False
        self._era = 0
        self._children: set[int] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop the control client belongs to; for worker threads."""
        assert self._loop is not None
        return self._loop

    def take_child(self, pid: int) -> None:
        """Sees to it that a process this one started does not stay a zombie for long."""
        self._children.add(pid)
        self._children = {child for child in self._children if not take_status(child)}

    def look_again(self) -> None:
        """Forget that the server was found gone: somebody may have started one."""
        self._gone = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs ``work`` beside the caller, until ``close`` at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def client_pid(self) -> int:
        """Process id of the control client, 0 while there is none."""
        return self._client.pid if self._client and not self._client.closed else 0

    @property
    def pid(self) -> int:
        """Process id of the server last reached, 0 when none was."""
        return self._pid

    async def client(self, *, start: bool = False) -> ControlClient:
        """The attached control client, replaced when it has died.

        Raises ServerGone when there is no server and ``start`` is false, BackendUnavailable when none could be
        started, TerminalsExhausted when this process is out of descriptors.
        """
        if self._client is not None and not self._client.closed:
            return self._client
        async with self._lock:
            if self._client is not None and not self._client.closed:
                return self._client
            if self._gone and not start:
                raise ServerGone("the tmux server has ended", suggestion="create a new session")
            self._loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    client = await self._attach(start=start)
            except ServerGone:
                self._gone = True
                self._forget_input()
                raise
            except TimeoutError:
                raise self.silent() from None
            self._gone = False
            self._on_notice()
            return client

    def silent(self) -> BackendUnavailable:
        """What is wrong where the server did not answer within ANSWER_SECONDS."""
        said = f"tmux did not answer within {ANSWER_SECONDS:.0f} s"
        return BackendUnavailable(said, suggestion=f"look at process {self._pid}")

    async def _attach(self, *, start: bool) -> ControlClient:
        """Raises ServerGone, BackendUnavailable, TerminalsExhausted."""
        for last in [False] * (ATTEMPTS - 1) + [True]:
            try:
                return await self._attach_once(start=start)
            except ControlClosed as closed:
                if not start:
                    raise ServerGone(f"no tmux server: {closed.message}", suggestion="create a new session") from closed
                if last or not ENDING.fullmatch(closed.message):
                    reason = f"tmux does not start: {closed.message or 'it ended without a word'}"
                    raise BackendUnavailable(reason, suggestion=INSTALL) from closed
                # A server that shuts down still accepts: its successor can only start once it has ended.
                await self._ended(self._pid or listener(self.socket))
                self._pid = 0
        raise AssertionError

    async def _attach_once(self, *, start: bool) -> ControlClient:
        tmux = await asyncio.to_thread(lambda: shutil.which("tmux", path=config.outside_path()))
        if tmux is None:
            raise BackendUnavailable("tmux is not on PATH", suggestion=INSTALL)
        settings = self.directory / "tmux.conf"
        if start:
            settings.write_text(CONFIG % {"term": terminal_type(), "keeper": KEEPER, "exit": EXIT_OPTION})
        end_left_client(self.directory / "tmux.client", self.socket)
        argv = [tmux, "-u", "-S", self.socket, "-f", str(settings), *([] if start else ["-N"]), "-C", "new-session"]
        argv += ["-A", "-s", KEEPER, "-x", "80", "-y", "24", "-f", "no-output,ignore-size", "exit 0"]
        argv += [";", "set-option", "-p", "-t", f"={KEEPER}:", "remain-on-exit", "on"]
        env = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
        lock = await take_lock(self.lock, shared=False)
        try:
            # Once it has answered a plain client, it has done what an earlier control client had asked for.
            complaint = await complaint_of([tmux, "-S", self.socket, "-N", "display-message", "-p", "x"], env)
            if complaint and not start:
                raise ControlClosed(complaint)
            with parent_of_orphans() if self.hold and traces_descendants_only() else contextlib.nullcontext():
                client = await ControlClient.start(argv, env, self._noticed, self._closed)
        except OSError as error:
            raise TerminalsExhausted(
                f"cannot run tmux: {error.strerror}", suggestion="close sessions or raise the limit of open files"
            ) from error
        finally:
            os.close(lock)
        try:
            await self._greet(client)
        except BaseException:
            await client.close()
            raise
        return client

    async def _greet(self, client: ControlClient) -> None:
        (self.directory / "tmux.client").write_text(f"{client.pid} {os.getpid()}")
        ask = b'display-message -p "#{pid} #{version} #{AIS_INPUT}" ; list-commands paste-buffer ; '
        [facts], [usage], dead = await client.send(
            ask + join(["list-panes", "-a", "-f", "#{@ais-dead}", "-F", "#{pane_id}"]), 3
        )
        for pane in dead:
            with contextlib.suppress(TmuxRefused):
                await client.send(b"kill-pane -t " + pane)
        pid, self.version, *typed = facts.decode().split(" ")
        # tmux 3.7 and newer rewrite pasted text by default.
        self.paste_flags = b"-rdS" if re.search(rb"\[-\w*S", usage) else b"-rd"
        self._take(client, int(pid), int(typed[0] or 0) if typed else 0)

    async def _ended(self, pid: int) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                if pid:
                    await process_ended(pid)
                    take_status(pid)
        except TimeoutError:
            raise BackendUnavailable(
                f"the tmux server (pid {pid}) neither answers nor ends", suggestion=f"kill -9 {pid}"
            ) from None

    def _take(self, client: ControlClient, pid: int, typed: int) -> None:
        """Makes ``client`` the one in use and sends again what the last one took with it, and only that."""
        if pid != self._pid:
            self._forget_input()
        self._client = client
        self._pid = pid
        self._typed = max(self._typed, typed)
        waiting = self._journal
        self._journal = deque()
        for item in waiting:
            if item.number > typed:
                self._send(client, item)
        # Only now: callers notified of free space continue typing, which must come after what was waiting.
        for item in waiting:
            if item.number <= typed:
                item.done()

    def _forget_input(self) -> None:
        waiting = self._journal
        self._journal = deque()
        for item in waiting:
            item.done()

    async def ask(
        self, line: bytes, blocks: int = 1, *, counted: bool = False, again: bool = True, pid: int = 0
    ) -> Blocks:
        """Runs one command line and gives its answers; see ``ControlClient.send`` for the arguments.

        ``again``: the line may be run twice, so a control client that died meanwhile goes unnoticed; else none is
        attached for it. ``pid``: it is meant for that server only, since another one gives the same ids to other panes.
        Raises
        TmuxRefused, ServerGone, BackendUnavailable, ControlClosed (without ``again``, or when ``close`` was called).
        """
        era = self._era
        while True:
            if not again and (self._client is None or self._client.closed):
                raise ControlClosed("the tmux control client has ended")
            client = await self.client()
            if pid not in (0, self._pid):
                raise ServerGone("the tmux server has ended", suggestion="create a new session")
            try:
                return await client.send(line, blocks, counted=counted)
            except ControlClosed:
                if not again or era != self._era:
                    raise

    def type_in(self, line: bytes, blocks: int, pid: int, done: Callable[[], None]) -> None:
        """Runs an input line exactly once, in order, also across the death of the control client.

        ``done`` is called when it was run, was refused or never will be. ``pid`` as for ``ask``.
        """
        if pid != self._pid:
            asyncio.get_running_loop().call_soon(done)
            return
        self._typed += 1
        line = b"%s ; set-environment -gh AIS_INPUT %d" % (line, self._typed)
        item = _Input(self._typed, line, blocks + 1, done)
        if self._client is not None and not self._client.closed:
            self._send(self._client, item)
        else:
            self._journal.append(item)

    def _send(self, client: ControlClient, item: _Input) -> None:
        self._journal.append(item)
        client.send(item.line, item.blocks).add_done_callback(lambda future: self._sent(future, item))

    def _sent(self, future: asyncio.Future[Blocks], item: _Input) -> None:
        if isinstance(future.exception(), ControlClosed):
            return
        with contextlib.suppress(ValueError):
            self._journal.remove(item)
            item.done()

    def _noticed(self, line: bytes) -> None:
        if line.startswith(b"%sessions-changed"):
            self._on_notice()

    def _closed(self) -> None:
        if not self._closing:
            self.spawn(self._recover())

    async def _recover(self) -> None:
        try:
            await self.client()
        except OperatorError:
            self._on_notice()

    async def close(self) -> None:
        """Detaches; the server and its terminals stay."""
        self._closing = True
        self._era += 1
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        self._client = None
        self._closing = False

    async def stop(self) -> None:
        """Ends the server and every terminal in it; returns when its process is gone. Starts none to do so."""
        try:
            client = await self.client()
        except ServerGone:
            await self.close()
            return
        self._closing = True
        with contextlib.suppress(ControlClosed, TmuxRefused):
            await client.send(b"kill-server")
        await self.close()
        await self._ended(self._pid)
        self._pid = 0


def take_status(pid: int) -> bool:
    """True when that child has ended, or was none. A server that became our orphan leaves its status to us, too."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def version_number(version: str) -> tuple[int, int]:
    """``3.3a`` and ``next-3.4`` as (3, 3) and (3, 4); ``master`` as newer than any."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (999, 0)


def terminal_type() -> str:
    """What TERM is inside: tmux's own entry where terminfo has it, else the older one it also speaks."""
    roots = ["/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/local/share/terminfo"]
    roots += ["/opt/homebrew/share/terminfo", "/usr/lib/terminfo"]
    # Terminfo files lie under the first letter, or under its code in hex on case-insensitive systems.
    found = any(Path(root, folder, "tmux-256color").exists() for root in roots for folder in ("t", "74"))
    return "tmux-256color" if found else "screen-256color"
