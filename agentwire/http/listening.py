"""Where a server listens, and how it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator

import uvicorn


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens: until then others could still take the port. Raises OSError."""
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class SignalledServer(uvicorn.Server):
    """Ends on SIGINT and SIGTERM in order; neither is raised again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """As uvicorn's, without what it does on its own."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Asks it to leave, which takes seconds at most."""
        self.should_exit = True
