"""Terminals on plain pseudo-terminals, kept alive by a holder process.

The holder (``holder.py``, whose docstring describes the protocol) starts the children and keeps every master; this
side has a duplicate, which it reads and writes directly. The connection to the holder is the lease on the terminals.
When the holder is killed, a new one is started at once and receives all masters.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from ai_session.backends.pty.channel import Message
from ai_session.backends.pty.holder_client import (
    HolderLink,
    HolderLost,
    exhausted,
    is_alive,
    lease,
    refusal,
    unreachable,
)
from ai_session.errors import AiSessionError, BackendUnavailable
from ai_session.models import BackendStatus, ExitStatus, ScreenSnapshot, TerminalSpec
from ai_session.system.temporary_directories import abandoned, trial_directory

PROBE_SECONDS = 10.0
FREE_SECONDS = 2.0
ATTEMPTS = 3
WRITE_BYTES = 65536
# A child's last output waits in the kernel, in at most two buffers of some kB. More is from processes it left running.
AFTER_EXIT_BYTES = 1 << 18


class PtyTerminal:
    """One pseudo-terminal. After ``close`` or ``detach``, no callback is called."""

    writes_log = False
    losing = False

    def __init__(self, backend: PtyBackend, facts: Message, fds: list[int]) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._session_id: str = facts["id"]
        self._pid: int = facts["pid"]
        self._tty: str = facts["tty"]
        self.directory: str = facts["directory"]
        self._kept: Message = {name: facts[name] for name in ("retain",) if name in facts}
        self._master = fds[0]
        self._pidfd = fds[1] if len(fds) > 1 else -1
        self._on_output: Callable[[], None] | None = None
        self._on_exit: Callable[[ExitStatus], None] | None = None
        self._exit: ExitStatus | None = None
        self._input: deque[memoryview] = deque()
        self._waiting_for_room = False
        self._drained = False
        self._after_exit = AFTER_EXIT_BYTES

    @property
    def session_id(self) -> str:
        return self._session_id

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def tty(self) -> str:
        return self._tty

    @property
    def unsent(self) -> int:
        return sum(map(len, self._input))

    def unread(self, count: int) -> None:
        pass

    async def settled(self) -> None:
        """Return at once, because an end is always reported by itself."""

    def start(self, on_output: Callable[[], None], on_exit: Callable[[ExitStatus], None]) -> None:
        self._on_output = on_output
        self._on_exit = on_exit
        if self._exit is None:
            self.watch()
        else:
            self._loop.call_soon(self._finish)

    def watch(self) -> None:
        """Begin to read, or resume after the terminal was hung up for lack of a holder."""
        if self._master >= 0 and self._on_output is not None and self._exit is None:
            self._unwatch_child()
            self._loop.add_reader(self._master, self._on_output)

    def watch_alone(self) -> None:
        """Watch the child's pidfd because no holder is available; its exit status is lost."""
        if self._pidfd >= 0 and self._exit is None:
            self._loop.add_reader(self._pidfd, self.ended, ExitStatus(lost=True))

    def _unwatch_child(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)

    def ended(self, status: ExitStatus) -> None:
        """Record that the child has ended. Its output is delivered first, then ``on_exit`` is called."""
        if self._exit is None and self._master >= 0:
            self._exit = status
            self._drained = False
            self._drop_input()
            self._unwatch_child()
            if self._on_output is not None:
                self._loop.remove_reader(self._master)
                self._loop.call_soon(self._finish)

    def _finish(self) -> None:
        if self._master < 0 or self._on_output is None or self._on_exit is None or self._exit is None:
            return
        if not self._drained:
            self._on_output()  # the owner reads now, or when its turn comes
        if self._drained or self._after_exit <= 0:
            if self._master >= 0:
                self._on_exit(self._exit)
        else:
            self._loop.call_soon(self._finish)

    def read_into(self, buffer: memoryview) -> int:
        if self._master < 0:
            return 0
        count = 0
        try:
            count = os.readv(self._master, [buffer])
        except BlockingIOError:
            self._drained = True
            return 0
        except OSError:
            pass
        if count == 0:
            # Hung up: neither the holder nor another process has the terminal open. A pidfd would report the end.
            self._drained = True
            self._loop.remove_reader(self._master)
            if self._pidfd < 0:
                self._loop.call_soon(self.ended, ExitStatus())
        elif self._exit is not None:
            self._after_exit -= count
        return count

    def write(self, data: bytes) -> None:
        if self._master < 0 or self._exit is not None or not data:
            return
        self._input.append(memoryview(data))
        if len(self._input) == 1:
            self._write_queued()

    def _write_queued(self) -> None:
        budget = WRITE_BYTES
        try:
            while self._input and budget > 0:
                sent = os.write(self._master, self._input[0][:budget])
                budget -= sent
                self._input[0] = self._input[0][sent:]
                if not self._input[0]:
                    self._input.popleft()
        except BlockingIOError:
            pass
        except OSError:
            self._input.clear()
        self._wait_for_room(bool(self._input))

    def _wait_for_room(self, wanted: bool) -> None:
        if wanted != self._waiting_for_room:
            self._waiting_for_room = wanted
            if wanted:
                self._loop.add_writer(self._master, self._write_queued)
            else:
                self._loop.remove_writer(self._master)

    def _drop_input(self) -> None:
        self._input.clear()
        self._wait_for_room(False)

    async def resize(self, rows: int, cols: int) -> None:
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def capture(self) -> ScreenSnapshot | None:
        return None

    async def capture_ansi(self) -> bytes | None:
        return None

    def facts(self) -> Message:
        """Return the facts that a new holder needs to adopt the terminal."""
        status = None if self._exit is None else {"code": self._exit.code, "signal": self._exit.signal}
        known = {"id": self._session_id, "pid": self._pid, "tty": self._tty, "directory": self.directory}
        return known | self._kept | {"exit": status}

    def descriptors(self) -> list[int]:
        return [fd for fd in (self._master, self._pidfd) if fd >= 0]

    def release_descriptors(self) -> bool:
        """Stop watching and close the descriptors. Return False if that was done before."""
        if self._master < 0:
            return False
        self._loop.remove_reader(self._master)
        self._unwatch_child()
        self._drop_input()
        for fd in self.descriptors():
            os.close(fd)
        self._master = self._pidfd = -1
        return True

    def detach(self) -> None:
        if self.release_descriptors():
            self._backend.release(self)

    async def close(self) -> None:
        if self.release_descriptors():
            await self._backend.free(self)


class PtyBackend:
    """Opens terminals through the holder of one runtime directory."""

    name = "pty"

    def __init__(self, runtime_directory: str | os.PathLike[str]) -> None:
        self._directory = Path(runtime_directory)
        self._link: HolderLink | None = None
        self._connecting = asyncio.Lock()
        self._terminals: dict[str, PtyTerminal] = {}
        self._early: dict[str, ExitStatus] = {}
        self._recovery: asyncio.Task[None] | None = None

    async def probe(self) -> BackendStatus:
        try:
            for directory in abandoned("trial-pty"):
                with contextlib.suppress(AiSessionError, OSError):
                    await PtyBackend(directory).stop()
            with trial_directory("trial-pty") as directory:
                return await PtyBackend(directory)._try_shell()
        except Exception as error:
            advice = (
                error.suggestion
                if isinstance(error, AiSessionError)
                else "check that /dev/pts is mounted and /bin/sh runs"
            )
            return BackendStatus(self.name, usable=False, reason=f"{error}", suggestion=advice)

    async def _try_shell(self) -> BackendStatus:
        directory = str(self._directory)
        try:
            terminal = await self.open(
                TerminalSpec("probe", directory, ("/bin/sh",), {"PATH": os.defpath}, "/", 24, 80)
            )
            version = await asyncio.to_thread(_ask_shell, terminal.descriptors()[0])
            return BackendStatus(self.name, usable=True, version=version)
        finally:
            await self.stop()

    async def make_ready(self) -> None:
        await self._connect()

    async def open(self, spec: TerminalSpec) -> PtyTerminal:
        fields = {
            "id": spec.session_id,
            "argv": list(spec.argv),
            "env": {"TERM": "xterm-256color", **spec.env},
            "cwd": spec.working_directory,
            "rows": spec.rows,
            "cols": spec.cols,
            "directory": spec.directory,
            "retain": spec.retain_bytes,
        }
        for _ in range(ATTEMPTS):
            link = await self._connect()
            try:
                reply, fds = await link.spawn(fields)
            except HolderLost:
                continue
            if "error" in reply:
                raise refusal(spec, reply["error"])
            if not fds:
                link.notify("free", id=spec.session_id)
                raise exhausted("this process has no descriptor left for the terminal")
            return self._add(reply, fds)
        raise unreachable("it was lost repeatedly")

    def _add(self, facts: Message, fds: list[int]) -> PtyTerminal:
        terminal = self._terminals[facts["id"]] = PtyTerminal(self, facts, fds)
        status = self._early.pop(terminal.session_id, None)
        if facts.get("exit") is not None:
            status = ExitStatus(facts["exit"]["code"], facts["exit"]["signal"])
        if status is not None:
            terminal.ended(status)
        return terminal

    async def adopt(self) -> Sequence[PtyTerminal]:
        if self._link is None and not is_alive(self._directory):
            return []
        link = await self._connect()
        adopted: list[PtyTerminal] = []
        try:
            for facts in (await link.ask("list"))[0]["sessions"]:
                if facts["id"] not in self._terminals:
                    reply, fds = await link.ask("take", id=facts["id"])
                    if not fds:
                        link.notify("release", id=facts["id"])
                        raise exhausted("this process has no descriptor left for the terminals to adopt")
                    adopted.append(self._add(reply, fds))
        except BaseException:
            for terminal in adopted:
                terminal.detach()
            raise
        return adopted

    async def aclose(self) -> None:
        with contextlib.suppress(HolderLost, BackendUnavailable):
            if self._terminals and self._link is not None:
                # A holder that has just died is replaced first.
                await self._link.ask("version")
        await self._await_recovery()
        self._release_all()
        self._disconnect()

    async def stop(self) -> None:
        await self._await_recovery()
        self._release_all()
        try:
            if self._link is not None or is_alive(self._directory):
                with contextlib.suppress(HolderLost):
                    await (await self._connect()).ask("stop")
        finally:
            self._disconnect()

    def _release_all(self) -> None:
        for terminal in self._terminals.values():
            terminal.release_descriptors()
        self._terminals.clear()

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def release(self, terminal: PtyTerminal) -> None:
        self._terminals.pop(terminal.session_id, None)
        if self._link is not None:
            self._link.notify("release", id=terminal.session_id)

    async def free(self, terminal: PtyTerminal) -> None:
        self._terminals.pop(terminal.session_id, None)
        await self._await_recovery()
        if self._link is not None:
            await asyncio.wait([self._link.notify("free", id=terminal.session_id)], timeout=FREE_SECONDS)
        self._early.pop(terminal.session_id, None)

    def _on_event(self, message: Message) -> None:
        if message.get("event") != "exit":
            return
        status = ExitStatus(message["code"], message["signal"])
        terminal = self._terminals.get(message["id"])
        if terminal is None:
            self._early[message["id"]] = status
        else:
            terminal.ended(status)

    def _on_lost(self, link: HolderLink) -> None:
        if link is self._link:
            self._link = None
            if self._terminals and self._recovery is None:
                self._recovery = asyncio.get_running_loop().create_task(self._recover())

    async def _recover(self) -> None:
        try:
            await self._connect()
        except (AiSessionError, OSError):
            for terminal in self._terminals.values():
                terminal.watch_alone()
        finally:
            self._recovery = None

    async def _await_recovery(self) -> None:
        """Wait until a killed holder is replaced: closing masters before that would hang the terminals up."""
        if self._recovery is not None:
            await asyncio.wait([self._recovery])

    async def _connect(self) -> HolderLink:
        """Return the link, connecting if there is none. A new holder receives every terminal open here."""
        async with self._connecting:
            if self._link is not None:
                return self._link
            for _ in range(ATTEMPTS):
                self._link = link = await lease(self._directory, self._on_event, self._on_lost)
                with contextlib.suppress(HolderLost):
                    for terminal in list(self._terminals.values()):
                        await link.ask("adopt", terminal.descriptors(), **terminal.facts())
                        terminal.watch()
                if not link.closed:
                    return link
            raise unreachable("it was lost repeatedly")


def _ask_shell(master: int) -> str:
    """Let the shell on ``master`` compute a sum; return the versions of the drivers. Blocks: call it on a thread."""
    from pexpect import fdpexpect

    shell: fdpexpect.fdspawn[bytes] = fdpexpect.fdspawn(master, timeout=PROBE_SECONDS)
    shell.sendline("echo sum=$((40 + 2))")
    shell.expect_exact("sum=42")
    return ", ".join(f"{name} {version(name)}" for name in ("pexpect", "ptyprocess"))


PLUGIN = PtyBackend
