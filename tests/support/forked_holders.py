"""Holders of terminals, forked from a process that has loaded the holder: 2 ms instead of 50.

``python -I -S -X utf8 tests/support/forked_holders.py FD ROOT...`` is that process, one for each process of tests, with
which it ends. Each connection to the listening socket ``FD`` requests one holder: it passes the holder's arguments and
standard error, and receives the pid and the wait status of the process that starts it in the background.
``test_holder.py`` executes the holder instead, as does each daemon that was not forked itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

LINE_BYTES = 1 << 10
"""The room for a holder's arguments in /proc, by which holders are found."""
MESSAGE_BYTES = 1 << 14
NUMBER, PEER = struct.Struct("i"), struct.Struct("3i")
PR_SET_DUMPABLE = 4
HOLDER = "backends/pty/holder.py"
OPTIONS = ["-I", "-S", "-X", "utf8"]


class Holders:
    """The forking of holders for this process and those forked from it."""

    def __init__(self, address: bytes = b"") -> None:
        self._address = address

    def address(self) -> bytes:
        """Return the address of the process that forks, starting it if needed. It ends with this process."""
        import atexit
        import subprocess
        from importlib.util import find_spec
        from pathlib import Path

        if self._address:
            return self._address
        ptyprocess = find_spec("ptyprocess")
        assert ptyprocess
        assert ptyprocess.origin
        roots = [str(Path(__file__).parents[2]), str(Path(ptyprocess.origin).parents[1])]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(b"\0ais-holders-%d" % os.getpid())
            listener.listen(64)
            process = subprocess.Popen(
                [sys.executable, *OPTIONS, __file__, str(listener.fileno()), *roots, " " * LINE_BYTES],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                cwd="/",
                env={},
                start_new_session=True,
            )
            self._address, self._process = listener.getsockname(), process  # kept where no exit handler is, in a fork

        def end() -> None:
            assert process.stdin
            process.stdin.close()
            process.wait()

        atexit.register(end)
        return self._address

    def use(self) -> None:
        """Patch ``subprocess.run`` so that it forks holders. Its ``__wrapped__`` executes them."""
        import subprocess

        execute = subprocess.run

        def run(words: Sequence[str], *given: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
            if list(words[1:5]) == OPTIONS and words[5].endswith(HOLDER):
                return self._run(words, options["timeout"])
            return execute(words, *given, **options)

        run.__wrapped__ = execute  # type: ignore[attr-defined]
        subprocess.run = run  # type: ignore[assignment]

    def _run(self, words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Fork a holder as ``subprocess.run`` with ``check`` would execute it."""
        import subprocess

        sys.audit("subprocess.Popen", words[0], words, "/", {})
        errors, theirs = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link, open(errors, "rb") as said:
            try:
                link.connect(self.address())
                socket.send_fds(link, [json.dumps(words).encode()], [theirs])
            finally:
                os.close(theirs)
            (pid,) = NUMBER.unpack(link.recv(NUMBER.size))
            if not select.select([link], [], [], seconds)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, seconds)
            if status := os.waitstatus_to_exitcode(NUMBER.unpack(link.recv(NUMBER.size))[0]):
                raise subprocess.CalledProcessError(status, words, b"", said.read())
        return subprocess.CompletedProcess(words, 0)


HOLDERS = Holders()


def fork_holders(listener: socket.socket) -> None:
    """Fork holders for connections until standard input ends."""
    asking: dict[int, socket.socket] = {}  # connections that have not sent their request
    running: dict[int, tuple[int, socket.socket]] = {}  # pidfd → pid, and the connection that requested it
    ready = select.poll()
    for fd in (0, listener.fileno()):
        ready.register(fd, select.POLLIN)
    while True:
        for fd, _ in ready.poll():
            if fd == 0:
                return
            if fd == listener.fileno():
                link = listener.accept()[0]
                asking[link.fileno()] = link
                ready.register(link, select.POLLIN)
                continue
            ready.unregister(fd)
            if fd in asking:
                with_link = asking.pop(fd)
                if begun := begin(with_link):
                    ready.register(begun[0], select.POLLIN)
                    running[begun[0]] = begun[1], with_link
                else:
                    with_link.close()
            else:
                pid, link = running.pop(fd)
                os.close(fd)
                tell(link, os.waitpid(pid, 0)[1])
                link.close()


def begin(link: socket.socket) -> tuple[int, int] | None:
    """Fork the requested process and return its pidfd and pid; None if the connection has closed."""
    message, fds, _, _ = socket.recv_fds(link, MESSAGE_BYTES, 1)
    if not message:
        return None
    if (pid := os.fork()) == 0:
        become(
            json.loads(message), fds[0], *PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        )
    os.close(fds[0])
    tell(link, pid)
    return os.pidfd_open(pid), pid


def tell(link: socket.socket, number: int) -> None:
    try:
        link.sendall(NUMBER.pack(number))
    except OSError:
        return  # the caller does not wait any more


def become(words: Sequence[str], errors: int, _: int, user: int, group: int) -> NoReturn:
    """Set the forked process up for the user that requested it, and run the holder in it."""
    os.setsid()
    if user != os.getuid():
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
        # Like a program that the user executes, it may be inspected by that user's other processes.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)
    null = os.open(os.devnull, os.O_RDWR)
    for number, fd in enumerate((null, null, errors)):
        os.dup2(fd, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    name_it(words, {})
    sys.argv = list(words[5:])
    try:
        from ai_session.backends.pty import holder

        holder.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def name_it(words: Sequence[str], env: Mapping[str, str]) -> None:
    """Overwrite the arguments and the environment of this process that /proc shows."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    for texts, begin, end in (
        (words, int(fields[45]), int(fields[46])),
        ((f"{name}={value}" for name, value in env.items()), int(fields[47]), int(fields[48])),
    ):
        said = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - begin]
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, said, len(said))


def load() -> None:
    """Import what each holder runs, before the fork."""
    import ai_session.backends.pty.holder  # noqa: F401  # pyright: ignore[reportUnusedImport]

    gc.freeze()


if __name__ == "__main__":
    sys.path.extend(sys.argv[2:4])
    load()
    fork_holders(socket.socket(fileno=int(sys.argv[1])))
