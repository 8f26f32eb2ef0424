"""Events that the kernel reports instead of polling: a file was written, a process ended. Standard library only."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import select
import signal
import struct
import sys
from collections.abc import Callable, Generator
from pathlib import Path

_IN_MODIFY = 2
_OVERFLOW = -1
"""The watch in an event that reports dropped events."""
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_EVENT = struct.Struct("iIII")
_USED_UP = (errno.ENOSPC, errno.ENOMEM)
_POLL_SECONDS = 0.05
_Snapshot = tuple[int, int, int, bytes]


class FileGrowth:
    """Calls back on the running loop when a watched file was written to, truncated or had a hole punched.

    It uses inotify on Linux, kqueue elsewhere. All programs of a user share the watches of Linux: a file for which none
    is left is polled.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._keys: dict[str, int] = {}
        self._polled: dict[str, tuple[_Snapshot, Callable[[], None]]] = {}
        self._next_poll: asyncio.TimerHandle | None = None
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        else:
            self._queue = select.kqueue()
            self._fd = self._queue.fileno()
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def add(self, path: str, callback: Callable[[], None]) -> None:
        """Watch an existing file until ``remove`` or ``close``. Raises OSError if it does not exist."""
        if sys.platform == "linux":
            key = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY) if self._fd >= 0 else -1
            if key < 0 and (self._fd < 0 or ctypes.get_errno() in _USED_UP):
                self._polled[path] = _snapshot(path), callback
                self._schedule_poll()
                return
            if key < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
        else:
            key = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            flags = select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND
            event = select.kevent(key, select.KQ_FILTER_VNODE, select.KQ_EV_ADD | select.KQ_EV_CLEAR, flags)
            self._queue.control([event], 0)
        self._keys[path] = key
        self._callbacks[key] = callback

    def remove(self, path: str) -> None:
        """Stop watching; a file that is not watched is not an error."""
        self._polled.pop(path, None)
        key = self._keys.pop(path, None)
        if key is None:
            return
        del self._callbacks[key]
        if sys.platform == "linux":
            self._libc.inotify_rm_watch(self._fd, key)
        else:
            os.close(key)

    def close(self) -> None:
        for path in list(self._keys):
            self.remove(path)
        self._polled.clear()
        if self._next_poll is not None:
            self._next_poll.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
        if sys.platform != "linux":
            self._queue.close()
        elif self._fd >= 0:
            os.close(self._fd)

    def _schedule_poll(self) -> None:
        if self._next_poll is None and self._polled:
            self._next_poll = self._loop.call_later(_POLL_SECONDS, self._poll_unwatched)

    def _poll_unwatched(self) -> None:
        self._next_poll = None
        grown: list[Callable[[], None]] = []
        for path, (before, callback) in list(self._polled.items()):
            now = before
            try:
                now = _snapshot(path)
            except OSError:
                grown.append(callback)  # its name was removed: a reader that has it open should check
            if now != before:
                self._polled[path] = now, callback
                grown.append(callback)
        self._schedule_poll()
        for callback in grown:
            callback()

    def _readable(self) -> None:
        grown = self._grown()
        if _OVERFLOW in grown:
            grown = dict.fromkeys(self._callbacks)
        for key in grown:
            callback = self._callbacks.get(key)
            if callback is not None:
                callback()

    def _grown(self) -> dict[int, None]:
        if sys.platform != "linux":
            return {event.ident: None for event in self._queue.control(None, 64, 0)}
        grown: dict[int, None] = {}
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            position = 0
            while position < len(data):
                key, _, _, name_bytes = _EVENT.unpack_from(data, position)
                position += _EVENT.size + name_bytes
                grown[key] = None
        return grown


def _snapshot(path: str) -> _Snapshot:
    """Return facts about a file that change when it is written to. Raises OSError."""
    facts = os.stat(path)
    # The kernel's own files have neither a size nor a modification time.
    content = b"" if facts.st_size else Path(path).read_bytes()
    return facts.st_size, facts.st_mtime_ns, facts.st_blocks, content


class Lifeline:
    """The reading end of a FIFO that other processes hold open for writing, ``<>``, as long as they live.

    A reader without any writer so far gets no end of file: open it before the process it is to watch.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def held(self) -> bool:
        """Report whether a process holds it now."""
        return self._read() != b""

    async def word(self) -> bool:
        """Wait until a holder writes something, and return True; return False once all holders have ended."""
        readable = asyncio.Event()
        # Systems other than Linux report the end of a FIFO that never had a writer.
        guard = os.open(self._path, os.O_WRONLY | os.O_NONBLOCK) if sys.platform != "linux" else -1
        self._loop.add_reader(self._fd, readable.set)
        try:
            await readable.wait()
            return self._read() != b""
        finally:
            self._loop.remove_reader(self._fd)
            if guard >= 0:
                os.close(guard)

    async def end(self) -> None:
        """Wait until the last holder has ended."""
        ended = asyncio.Event()
        self.watch(ended.set)
        try:
            await ended.wait()
        finally:
            self._loop.remove_reader(self._fd)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call back once when the last holder has ended."""

        def readable() -> None:
            if self._read() == b"":
                self._loop.remove_reader(self._fd)
                on_end()

        self._loop.add_reader(self._fd, readable)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> bytes | None:
        try:
            return os.read(self._fd, 64)
        except BlockingIOError:
            return None


class Process:
    """Another process, child or not. Raises ProcessLookupError if there is none with that id."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        if sys.platform == "linux":
            self._fd = os.pidfd_open(pid)
        else:
            self._queue = select.kqueue()
            self._fd = self._queue.fileno()
            event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            self._queue.control([event], 0)
        self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        self._loop.remove_reader(self._fd)
        self._ended.set()

    async def ended(self) -> None:
        """Wait until the process has ended, whether or not its parent has collected its status."""
        await self._ended.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to exactly this process; one that has ended is not an error."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "linux":
                signal.pidfd_send_signal(self._fd, number)
            elif not self._ended.is_set():
                os.kill(self.pid, number)

    def reaped(self) -> bool:
        """Report whether its parent has collected its status."""
        try:
            if sys.platform == "linux":
                signal.pidfd_send_signal(self._fd, 0)
            else:
                os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if sys.platform == "linux":
            os.close(self._fd)
        else:
            self._queue.close()


async def process_ended(pid: int) -> None:
    """Wait until any process, child or not, has ended; return immediately if there is none."""
    try:
        process = Process(pid)
    except ProcessLookupError:
        return
    try:
        await process.ended()
    finally:
        process.close()


def traces_descendants_only() -> bool:
    """Report whether this process may trace only its own descendants: Yama's default on Ubuntu."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as scope:
            return scope.read().strip() == "1" and os.geteuid() != 0
    except OSError:
        return False


@contextlib.contextmanager
def parent_of_orphans() -> Generator[None]:
    """Make daemons that start during the block children of this process instead of init's."""
    if sys.platform != "linux":
        yield
        return
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
