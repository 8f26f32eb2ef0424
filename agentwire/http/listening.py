"""Listening sockets, and a server that stops on signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator

import uvicorn


def open_listener(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket that listens: other programs can take a port that is only bound. Raises OSError."""
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
    """A server that stops in order on SIGINT and SIGTERM; neither is raised again afterwards."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle the signals during the block. uvicorn's own version would raise them again at its end."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Request the end of the server, which takes seconds at most. Returns immediately."""
        self.should_exit = True
