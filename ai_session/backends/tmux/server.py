"""A private tmux server, reached through one control client that is replaced when it ends."""

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
from typing import Any, ClassVar

from ai_session.backends.tmux.control import (
    Blocks,
    ControlClient,
    ControlClosed,
    TmuxRefused,
    complaint_of,
    join,
    kill_orphaned_client,
    listener_pid,
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

# When one of our panes dies, tmux has written its last byte to the pipe. The end of the pipe shows that the log is
# complete, and only closing the pane closes the pipe of a dead pane (pipe-pane refuses to). This notifies control
# clients, and tmux before 3.7 crashes if one of them is just attaching. So the pane is closed once a client is fully
# attached, which the keeper's session shows, or else by the next client that attaches. remain-on-exit is set for each
# pane, so that a person's own windows close as usual. The keeper's pane remains, and keeps the server alive without a
# process.
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
    """There is no tmux server, or it has ended, and the caller did not ask to start one."""


@dataclass(slots=True, eq=False)
class _Input:
    number: int
    line: bytes
    blocks: int
    done: Callable[[], None]


class TmuxServer:
    """The server behind ``directory/tmux.sock``; no other tmux server on this machine is touched.

    ``on_notice`` is called when terminals were created or ended and when the control client was replaced. With
    ``hold``, terminals hold their ttys open in addition to tmux, if the kernel allows it.
    """

    _children: ClassVar[set[int]] = set()

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

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the control client, for worker threads."""
        assert self._loop is not None
        return self._loop

    def take_child(self, pid: int) -> None:
        """Reap a process that this one started, now or in a later call for any server."""
        self._children.add(pid)
        self._children.difference_update([child for child in self._children if take_status(child)])

    def look_again(self) -> None:
        """Look for a server again even if it was found to have ended: another process may have started one."""
        self._gone = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` as a task, which ``close`` cancels."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def pid(self) -> int:
        """The process id of the server last reached, 0 if none was."""
        return self._pid

    async def client(self, *, start: bool = False) -> ControlClient:
        """Return the attached control client; attach one if there is none or it has ended.

        Raises ServerGone if there is no server and ``start`` is false, BackendUnavailable if none can be started,
        TerminalsExhausted if this process is out of descriptors.
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
        """Return the error of a server that did not answer within ANSWER_SECONDS."""
        message = f"tmux did not answer within {ANSWER_SECONDS:.0f} s"
        return BackendUnavailable(message, suggestion=f"check why process {self._pid} does not answer, or end it")

    async def _attach(self, *, start: bool) -> ControlClient:
        """Attach; retry while an old server is ending. Raises ServerGone, BackendUnavailable, TerminalsExhausted."""
        if not start and not os.path.exists(self.socket):  # as tmux would find, in a process of its own
            raise ServerGone("no tmux server: it has no socket", suggestion="create a new session")
        for last in [False] * (ATTEMPTS - 1) + [True]:
            try:
                return await self._attach_once(start=start)
            except ControlClosed as closed:
                if not start:
                    raise ServerGone(f"no tmux server: {closed.message}", suggestion="create a new session") from closed
                if last or not ENDING.fullmatch(closed.message):
                    reason = f"tmux does not start: {closed.message or 'it ended without a message'}"
                    raise BackendUnavailable(reason, suggestion=INSTALL) from closed
                # A server that shuts down still accepts connections: its successor can start only once it has ended.
                await self._ended(self._pid or listener_pid(self.socket))
                self._pid = 0
        raise AssertionError

    async def _attach_once(self, *, start: bool) -> ControlClient:
        tmux = await asyncio.to_thread(lambda: shutil.which("tmux", path=config.outside_path()))
        if tmux is None:
            raise BackendUnavailable("tmux is not on PATH", suggestion=INSTALL)
        settings = self.directory / "tmux.conf"
        if start:
            settings.write_text(CONFIG % {"term": terminal_type(), "keeper": KEEPER, "exit": EXIT_OPTION})
        kill_orphaned_client(self.directory / "tmux.client", self.socket)
        argv = [tmux, "-u", "-S", self.socket, "-f", str(settings), *([] if start else ["-N"]), "-C", "new-session"]
        argv += ["-A", "-s", KEEPER, "-x", "80", "-y", "24", "-f", "no-output,ignore-size", "exit 0"]
        argv += [";", "set-option", "-p", "-t", f"={KEEPER}:", "remain-on-exit", "on"]
        env = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
        lock = await take_lock(self.lock, shared=False)
        try:
            if os.path.exists(self.socket):  # otherwise there is nobody to ask
                # Once it has answered a plain client, it has run all commands of an earlier control client.
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
        """Use ``client`` from now on, and send the input again that was lost with the last one, and only that."""
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
        # Only now: callers notified of free space send more input, which must follow the waiting input.
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
        """Run one command line and return its replies; see ``ControlClient.send`` for the arguments.

        With ``again``, the line may be run twice: it is repeated if the control client ends meanwhile. Without, no
        client is attached for it. ``pid`` is the only server it is for, because another gives the same ids to other
        panes. Raises TmuxRefused, ServerGone, BackendUnavailable; ControlClosed without ``again`` or after ``close``.
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
        """Run an input line exactly once and in order, even if the control client ends meanwhile.

        ``done`` is called when it was run or refused, or cannot be run any more. ``pid`` is as for ``ask``.
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
        """Detach and cancel the tasks of ``spawn``; the server and its terminals remain."""
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
        """End the server and all its terminals, and wait until its process has ended. Starts no server to do so."""
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
    """Reap a child, or an orphan that became one, without blocking. Return whether no such child is left running."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def version_number(version: str) -> tuple[int, int]:
    """Return (3, 3) for ``3.3a`` and (3, 4) for ``next-3.4``; ``master`` is newer than any."""
    found = re.search(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (999, 0)


def terminal_type() -> str:
    """Return the TERM of panes: tmux's own entry if terminfo has it, else screen's, which tmux also supports."""
    roots = ["/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/local/share/terminfo"]
    roots += ["/opt/homebrew/share/terminfo", "/usr/lib/terminfo"]
    # Terminfo files are in the folder of their first letter, or of its code in hex on case-insensitive systems.
    found = any(Path(root, folder, "tmux-256color").exists() for root in roots for folder in ("t", "74"))
    return "tmux-256color" if found else "screen-256color"
