"""Keeps the terminals of one runtime directory alive while no daemon is there.

Run as ``python -I -S holder.py DIRECTORY IMPORT_PATH...`` in a process session of its own: it binds
``DIRECTORY/holder.sock``, goes to the background and the started process ends with status 0. Two started at once
end with one. Needs the standard library and ptyprocess only, has one thread, and never blocks on a peer.

Wire: ``channel``. A request ``{"n": 1, "op": ..., ...}`` is answered by ``{"n": 1, ...}`` or
``{"n": 1, "error": {"kind", "text"}}``; ``{"event": "exit", "id", "code", "signal"}`` comes unasked. ::

    version                                               {protocol, pid, sessions}; for anybody, at any time
    own                                                   {protocol}; answered once no other connection owns
    spawn   id argv env cwd rows cols directory retain    {pid, tty} and the master [, a pidfd]
    list                                                  {sessions: [{id, pid, tty, directory, retain, exit}]}
    take    id                                            {pid, tty, exit} and the master [, a pidfd]
    release id                                            the holder reads it again
    adopt   id pid tty directory retain exit, master [, pidfd]   what an owner kept when an earlier holder was killed
    free    id                                            forget it; closing the last master hangs it up
    stop                                                  hang up everything, remove the socket, end

Ops may be added, never changed; an unknown one is answered by kind ``unknown_op``. The connection that owns is a
lease: when it closes, each terminal's output goes to ``directory/log`` (format: see terminal/log), which keeps its
newest ``retain`` bytes. So commands do not wait for a reader until that much, or BACKLOG_BYTES, was not read by an
owner, or the disk is full; from there on the terminal blocks its writers, so nothing is lost and the disk is not filled
by a runaway. Nobody reads a terminal that is taken but its owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

if __name__ == "__main__":
    # -S keeps the start short and -I keeps the caller's environment out, so the folders to import from are named.
    sys.path.extend(sys.argv[2:])

from agentwire.system import inherited_signals
from ai_session.backends.pty import child as pty_child
from ai_session.backends.pty.channel import Channel, Message
from ai_session.system.log_tail import RETAIN_BYTES, WINDOW, LogTail

PROTOCOL = 1
LINGER_SECONDS = 3600.0

Reply = tuple[Message, Sequence[int]]


class Refused(Exception):
    """A request that cannot be done: ``kind`` is for the program, the text for a person."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.answer: Message = {"error": {"kind": kind, "text": text}}


class OpenTerminal:
    """One terminal. ``slave`` is kept open so that a child which closes its tty for a while does not hang it up.

    ``own_child``: this process will reap it; else its end shows on ``pidfd``.
    """

    def __init__(self, request: Message, child: pty_child.PtyChild, *, own_child: bool) -> None:
        self.session_id: str = request["id"]
        self.directory: str = request["directory"]
        self.retain: int = request.get("retain", RETAIN_BYTES)
        self.child = child
        self.own_child = own_child
        self.slave = pty_child.open_tty(child.tty) if own_child or child.pidfd >= 0 else -1
        self.exit: Message | None = request.get("exit")
        self.taken = True
        self.tail: LogTail | None = None

    def describe(self) -> Message:
        facts = {"pid": self.child.pid, "tty": self.child.tty}
        return {"id": self.session_id, **facts, "directory": self.directory, "retain": self.retain, "exit": self.exit}

    def descriptors(self) -> list[int]:
        return [fd for fd in (self.child.master, self.child.pidfd) if fd >= 0]

    def close(self) -> None:
        for fd in [*self.descriptors(), self.slave]:
            if fd >= 0:
                os.close(fd)


class Holder:
    """The event loop and the ops."""

    def __init__(self, directory: str, listener: socket.socket) -> None:
        self.directory = directory
        self.listener = listener
        self.inode = os.stat(socket_path(directory)).st_ino
        self.selector = selectors.DefaultSelector()
        self.held: dict[str, OpenTerminal] = {}
        self.peers: set[Channel] = set()
        self.owner: Channel | None = None
        self.line: deque[tuple[Channel, int]] = deque()
        self.was_owned = False
        self.stopped = False
        self.spare = os.open(os.devnull, os.O_RDONLY)

    def run(self) -> None:
        wake, wakeup = os.pipe()
        for fd in (wake, wakeup):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        self.watch(wake, lambda: self.reap(wake))
        self.watch(self.listener, self.accept)
        while not self.stopped:
            idle = not self.peers and all(held.exit for held in self.held.values())
            if idle and self.was_owned and not self.held:
                break
            ready = self.selector.select(LINGER_SECONDS if idle else None)
            if idle and not ready:
                break
            for key, _ in ready:
                current = self.selector.get_map().get(key.fd)
                if current is not None and current.data is key.data:
                    key.data()
        with lock(self.directory):
            self.listener.close()
            with contextlib.suppress(FileNotFoundError):
                if os.stat(socket_path(self.directory)).st_ino == self.inode:
                    os.unlink(socket_path(self.directory))

    def watch(self, fd: Any, callback: Callable[[], None]) -> None:
        self.selector.register(fd, selectors.EVENT_READ, callback)

    def unwatch(self, fd: Any) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(fd)

    def accept(self) -> None:
        try:
            sock, _ = self.listener.accept()
        except OSError:
            # Out of descriptors: one is kept back to turn the caller away, or this loop would spin on it.
            os.close(self.spare)
            with contextlib.suppress(OSError):
                self.listener.accept()[0].close()
            self.spare = os.open(os.devnull, os.O_RDONLY)
            return
        if peer_uid(sock) != os.getuid():
            sock.close()
            return
        peer = Channel(sock)
        self.peers.add(peer)
        self.watch(peer, lambda: self.serve(peer))

    def serve(self, peer: Channel) -> None:
        try:
            if peer.flush():
                self.wait_for(peer, selectors.EVENT_READ)
            for request, fds in peer.receive():
                self.answer(peer, request, fds)
        except Exception:
            # Closed, broken or talking nonsense: only this peer is to suffer.
            self.drop(peer)

    def answer(self, peer: Channel, request: Message, fds: list[int]) -> None:
        op, number = request["op"], request["n"]
        if op == "own":
            self.line.append((peer, number))
            self.grant()
            return
        passed: Sequence[int] = ()
        try:
            if op not in OPS:
                raise Refused("unknown_op", f"this holder has no operation {op!r}")
            if op != "version" and peer is not self.owner:
                raise Refused("not_owner", "another connection owns the terminals")
            reply, passed = OPS[op](self, request, fds)
        except Refused as refused:
            reply = refused.answer
        except Exception as error:
            # The holder outlives its own faults: when it ends, so does every terminal nobody owns.
            reply = Refused("internal", repr(error)).answer
        if "error" in reply:
            for fd in fds:
                os.close(fd)
        self.send(peer, {"n": number, **reply}, passed)

    def send(self, peer: Channel, message: Message, fds: Sequence[int] = ()) -> None:
        try:
            if not peer.send(message, fds):
                self.wait_for(peer, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:
            self.drop(peer)

    def wait_for(self, peer: Channel, events: int) -> None:
        self.selector.modify(peer, events, self.selector.get_key(peer).data)

    def drop(self, peer: Channel) -> None:
        if peer not in self.peers:
            return
        self.peers.discard(peer)
        self.unwatch(peer)
        peer.close()
        self.line = deque(entry for entry in self.line if entry[0] is not peer)
        if peer is self.owner:
            self.owner = None
            for held in self.held.values():
                self.read_on(held)
            self.grant()

    def grant(self) -> None:
        if self.owner is None and self.line:
            self.owner, number = self.line.popleft()
            self.was_owned = True
            self.send(self.owner, {"n": number, "protocol": PROTOCOL})

    def read_on(self, held: OpenTerminal) -> None:
        """Nobody owns it: from here its output goes to the log."""
        if held.taken:
            held.taken = False
            with contextlib.suppress(OSError):
                held.tail = LogTail(held.directory, held.retain)
                self.watch(held.child.master, lambda: self.drain(held))

    def drain(self, held: OpenTerminal) -> None:
        try:
            data = os.read(held.child.master, WINDOW) if held.tail is not None and held.tail.room() else b""
            if data and held.tail is not None:
                held.tail.append(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.unwatch(held.child.master)

    def stop_reading(self, held: OpenTerminal) -> None:
        if held.tail is not None:
            self.unwatch(held.child.master)
            held.tail.close()
            held.tail = None
        held.taken = True

    def reap(self, wake: int) -> None:
        os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for held in self.held.values():
                    if held.own_child and held.child.pid == pid and held.exit is None:
                        self.exited(held, os.waitstatus_to_exitcode(status))

    def exited(self, held: OpenTerminal, code: int | None) -> None:
        killed = code is not None and code < 0
        held.exit = {"code": None if killed else code, "signal": -code if code is not None and killed else None}
        if held.taken and self.owner is not None:
            self.send(self.owner, {"event": "exit", "id": held.session_id, **held.exit})

    def find(self, request: Message) -> OpenTerminal:
        held = self.held.get(request["id"])
        if held is None:
            raise Refused("no_session", f"no terminal is kept for {request['id']!r}")
        return held

    def version(self, request: Message, fds: list[int]) -> Reply:
        return {"protocol": PROTOCOL, "pid": os.getpid(), "sessions": len(self.held)}, ()

    def spawn(self, request: Message, fds: list[int]) -> Reply:
        if request["id"] in self.held:
            raise Refused("exists", f"a terminal is already kept for {request['id']!r}")
        try:
            size = (request["rows"], request["cols"])
            child = pty_child.start(request["argv"], request["env"], request["cwd"], *size)
        except pty_child.StartFailed as failure:
            raise Refused(failure.kind, str(failure)) from None
        held = self.held[request["id"]] = OpenTerminal(request, child, own_child=True)
        return held.describe(), held.descriptors()

    def list_held(self, request: Message, fds: list[int]) -> Reply:
        return {"sessions": [held.describe() for held in self.held.values()]}, ()

    def take(self, request: Message, fds: list[int]) -> Reply:
        held = self.find(request)
        self.stop_reading(held)
        return held.describe(), held.descriptors()

    def release(self, request: Message, fds: list[int]) -> Reply:
        self.read_on(self.find(request))
        return {}, ()

    def adopt(self, request: Message, fds: list[int]) -> Reply:
        earlier = self.held.get(request["id"])
        if earlier is not None:
            self.stop_reading(earlier)
            for fd in fds:
                os.close(fd)
            return {}, ()
        child = pty_child.PtyChild(request["pid"], fds[0], fds[1] if len(fds) > 1 else -1)
        held = self.held[request["id"]] = OpenTerminal(request, child, own_child=False)
        if child.pidfd >= 0 and held.exit is None:
            self.watch(child.pidfd, lambda: self.gone(held))
        return {}, ()

    def gone(self, held: OpenTerminal) -> None:
        self.unwatch(held.child.pidfd)
        self.exited(held, pty_child.foreign_exit_code(held.child.pid, held.child.pidfd))

    def free(self, request: Message, fds: list[int]) -> Reply:
        held = self.find(request)
        self.stop_reading(held)
        self.unwatch(held.child.pidfd)
        del self.held[held.session_id]
        held.close()
        return {}, ()

    def stop(self, request: Message, fds: list[int]) -> Reply:
        for session_id in list(self.held):
            self.free({"id": session_id}, [])
        self.stopped = True
        return {}, ()


OPS: dict[str, Callable[[Holder, Message, list[int]], Reply]] = {
    "version": Holder.version,
    "spawn": Holder.spawn,
    "list": Holder.list_held,
    "take": Holder.take,
    "release": Holder.release,
    "adopt": Holder.adopt,
    "free": Holder.free,
    "stop": Holder.stop,
}


def _ignore(number: int, frame: object) -> None:
    """A handler must be there for the signal to reach the wakeup descriptor."""


def peer_uid(sock: socket.socket) -> int:
    if sys.platform == "linux":
        return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
    local_peercred = 1
    return struct.unpack_from("=II", sock.getsockopt(0, local_peercred, 76))[1]


def socket_path(directory: str) -> str:
    return os.path.join(directory, "holder.sock")


@contextlib.contextmanager
def lock(directory: str) -> Generator[None]:
    fd = os.open(os.path.join(directory, "holder.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def listen(directory: str) -> socket.socket | None:
    """The listening socket, or None when another holder already answers on it."""
    path = socket_path(directory)
    with lock(directory):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            try:
                other.connect(path)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            else:
                return None
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(16)
        listener.setblocking(False)
        return listener


def main() -> None:
    directory = sys.argv[1]
    inherited_signals.keep_from_programs()
    os.chdir("/")
    listener = listen(directory)
    if listener is None or os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    Holder(directory, listener).run()


if __name__ == "__main__":
    main()
