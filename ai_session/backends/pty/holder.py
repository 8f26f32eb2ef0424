"""The holder, which keeps the terminals of one runtime directory alive while no daemon runs.

Run as ``python -I -S holder.py DIRECTORY IMPORT_PATH...`` in a process session of its own: it binds
``DIRECTORY/holder.sock`` and continues in the background; the started process ends with status 0. If two are started at
once, one remains. It needs only the standard library and ptyprocess, has one thread, and never blocks on a peer.

The wire format is ``channel``'s. The response to a request ``{"n": 1, "op": ..., ...}`` is ``{"n": 1, ...}`` or
``{"n": 1, "error": {"kind", "text"}}``; ``{"event": "exit", "id", "code", "signal"}`` is sent without a request. ::

    version                                               {protocol, pid, sessions}; for any connection, at any time
    own                                                   {protocol}; answered once no other connection owns
    spawn   id argv env cwd rows cols directory retain    {pid, tty} and the master [, a pidfd]
    list                                                  {sessions: [{id, pid, tty, directory, retain, exit}]}
    take    id                                            {pid, tty, exit} and the master [, a pidfd]
    release id                                            the holder reads it again
    adopt   id pid tty directory retain exit, master [, pidfd]   an owner's terminal after a holder was killed
    free    id                                            forget it; closing the last master hangs it up
    stop                                                  hang up everything, remove the socket, end

Ops may be added, never changed; the response to an unknown one is an error of kind ``unknown_op``. The owning
connection is a lease: when it closes, the output of each terminal goes to ``directory/log`` (see terminal/log), which
keeps its newest ``retain`` bytes. So commands do not wait for a reader until that much, or BACKLOG_BYTES, was not read
by an owner, or the disk is full. Then the terminal blocks its writers: nothing is lost, and a runaway program does not
fill the disk. A terminal that was taken is read by its owner only.
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
    # -S shortens the start and -I ignores the caller's environment, so the import path is passed as arguments.
    sys.path.extend(sys.argv[2:])

from agentwire.system import inherited_signals
from ai_session.backends.pty import child as pty_child
from ai_session.backends.pty.channel import PROTOCOL, Channel, Message
from ai_session.system.log_tail import RETAIN_BYTES, WINDOW, LogTail

LINGER_SECONDS = 3600.0

Reply = tuple[Message, Sequence[int]]


class Refused(Exception):
    """A request that cannot be carried out: ``kind`` is for the program, the text for a person."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.answer: Message = {"error": {"kind": kind, "text": text}}


class OpenTerminal:
    """One terminal. ``slave`` stays open so that a child that closes its tty for a while does not hang it up.

    With ``own_child`` this process reaps the child; otherwise ``pidfd`` reports its end.
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
    """The event loop, and the methods that carry out the ops."""

    def __init__(self, directory: str, listener: socket.socket) -> None:
        self.directory = directory
        self.listener = listener
        self.inode = os.stat(socket_path(directory)).st_ino
        self.selector = selectors.DefaultSelector()
        self.terminals: dict[str, OpenTerminal] = {}
        self.peers: set[Channel] = set()
        self.owner: Channel | None = None
        self.waiting: deque[tuple[Channel, int]] = deque()
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
            idle = not self.peers and all(terminal.exit for terminal in self.terminals.values())
            if idle and self.was_owned and not self.terminals:
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
            # Out of descriptors: the spare one serves to reject the caller, or this loop would spin on it.
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
            # Closed, broken or sending nonsense: other peers are not affected.
            self.drop(peer)

    def answer(self, peer: Channel, request: Message, fds: list[int]) -> None:
        op, number = request["op"], request["n"]
        if op == "own":
            self.waiting.append((peer, number))
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
            # The holder survives its own defects: when it ends, every terminal without an owner ends.
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
        self.waiting = deque(entry for entry in self.waiting if entry[0] is not peer)
        if peer is self.owner:
            self.owner = None
            for terminal in self.terminals.values():
                self.start_logging(terminal)
            self.grant()

    def grant(self) -> None:
        if self.owner is None and self.waiting:
            self.owner, number = self.waiting.popleft()
            self.was_owned = True
            self.send(self.owner, {"n": number, "protocol": PROTOCOL})

    def start_logging(self, terminal: OpenTerminal) -> None:
        """Append its output to the log from now on, because it has no owner."""
        if terminal.taken:
            terminal.taken = False
            with contextlib.suppress(OSError):
                terminal.tail = LogTail(terminal.directory, terminal.retain)
                self.watch(terminal.child.master, lambda: self.drain(terminal))

    def drain(self, terminal: OpenTerminal) -> None:
        try:
            data = os.read(terminal.child.master, WINDOW) if terminal.tail is not None and terminal.tail.room() else b""
            if data and terminal.tail is not None:
                terminal.tail.append(data)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.unwatch(terminal.child.master)

    def stop_logging(self, terminal: OpenTerminal) -> None:
        if terminal.tail is not None:
            self.unwatch(terminal.child.master)
            terminal.tail.close()
            terminal.tail = None
        terminal.taken = True

    def reap(self, wake: int) -> None:
        os.read(wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                for terminal in self.terminals.values():
                    if terminal.own_child and terminal.child.pid == pid and terminal.exit is None:
                        self.exited(terminal, os.waitstatus_to_exitcode(status))

    def exited(self, terminal: OpenTerminal, code: int | None) -> None:
        killed = code is not None and code < 0
        terminal.exit = {"code": None if killed else code, "signal": -code if code is not None and killed else None}
        if terminal.taken and self.owner is not None:
            self.send(self.owner, {"event": "exit", "id": terminal.session_id, **terminal.exit})

    def find(self, request: Message) -> OpenTerminal:
        terminal = self.terminals.get(request["id"])
        if terminal is None:
            raise Refused("no_session", f"the holder has no terminal for {request['id']!r}")
        return terminal

    def version(self, request: Message, fds: list[int]) -> Reply:
        return {"protocol": PROTOCOL, "pid": os.getpid(), "sessions": len(self.terminals)}, ()

    def spawn(self, request: Message, fds: list[int]) -> Reply:
        if request["id"] in self.terminals:
            raise Refused("exists", f"the holder already has a terminal for {request['id']!r}")
        try:
            size = (request["rows"], request["cols"])
            child = pty_child.start(request["argv"], request["env"], request["cwd"], *size)
        except pty_child.StartFailed as failure:
            raise Refused(failure.kind, str(failure)) from None
        terminal = self.terminals[request["id"]] = OpenTerminal(request, child, own_child=True)
        return terminal.describe(), terminal.descriptors()

    def list_terminals(self, request: Message, fds: list[int]) -> Reply:
        return {"sessions": [terminal.describe() for terminal in self.terminals.values()]}, ()

    def take(self, request: Message, fds: list[int]) -> Reply:
        terminal = self.find(request)
        self.stop_logging(terminal)
        return terminal.describe(), terminal.descriptors()

    def release(self, request: Message, fds: list[int]) -> Reply:
        self.start_logging(self.find(request))
        return {}, ()

    def adopt(self, request: Message, fds: list[int]) -> Reply:
        earlier = self.terminals.get(request["id"])
        if earlier is not None:
            self.stop_logging(earlier)
            for fd in fds:
                os.close(fd)
            return {}, ()
        child = pty_child.PtyChild(request["pid"], fds[0], fds[1] if len(fds) > 1 else -1)
        terminal = self.terminals[request["id"]] = OpenTerminal(request, child, own_child=False)
        if child.pidfd >= 0 and terminal.exit is None:
            self.watch(child.pidfd, lambda: self.adopted_exited(terminal))
        return {}, ()

    def adopted_exited(self, terminal: OpenTerminal) -> None:
        self.unwatch(terminal.child.pidfd)
        self.exited(terminal, pty_child.foreign_exit_code(terminal.child.pid, terminal.child.pidfd))

    def free(self, request: Message, fds: list[int]) -> Reply:
        terminal = self.find(request)
        self.stop_logging(terminal)
        self.unwatch(terminal.child.pidfd)
        del self.terminals[terminal.session_id]
        terminal.close()
        return {}, ()

    def stop(self, request: Message, fds: list[int]) -> Reply:
        for session_id in list(self.terminals):
            self.free({"id": session_id}, [])
        self.stopped = True
        return {}, ()


OPS: dict[str, Callable[[Holder, Message, list[int]], Reply]] = {
    "version": Holder.version,
    "spawn": Holder.spawn,
    "list": Holder.list_terminals,
    "take": Holder.take,
    "release": Holder.release,
    "adopt": Holder.adopt,
    "free": Holder.free,
    "stop": Holder.stop,
}


def _ignore(number: int, frame: object) -> None:
    """Do nothing. Without a handler, the signal would not reach the wakeup descriptor."""


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
    """Return the listening socket, or None if another holder already listens."""
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
