"""One interpreter that has all imported, and a fork of it wherever the suite or the bridge starts a program: importing
takes a second, and there are a hundred.

    conformance_forks.py SOCKET client|server    answers at the socket until its standard input ends
    conformance_forks.py SOCKET client URL       has conformance_client work with our standard input, output and error
    conformance_forks.py SOCKET server stdio     the same with conformance_server
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

BYTES = 1 << 20
TOLD = "MCP_CONFORMANCE_"
IMPORTED = {
    "client": ("ccswarm.clients.mcp.http", "ccswarm.clients.mcp.login"),
    "server": ("ai_session.servers.mcp.dispatch", "tests.clients.conformance_server"),
}
"""But for conformance_client, which reads what it is told where it is imported."""


def ask(path: str, words: list[str]) -> int:
    """Has a fork do the work; its exit status."""
    reported = {name: value for name, value in os.environ.items() if name.startswith(TOLD)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        socket.send_fds(link, [b"\n"], [0, 1, 2])
        link.sendall(json.dumps([words, reported]).encode())
        link.shutdown(socket.SHUT_WR)
        return int(link.recv(16) or b"70")


def serve(path: str, kind: str) -> None:
    import importlib
    import selectors
    import signal

    for name in IMPORTED[kind]:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as ready:
        listener.bind(path)
        listener.listen(64)
        for source in (listener, sys.stdin):
            ready.register(source, selectors.EVENT_READ)
        print("serving", flush=True)
        while sys.stdin not in [key.fileobj for key, _ in ready.select()]:
            link, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(link)
            link.close()


def _answer(link: socket.socket) -> None:
    import asyncio

    _, descriptors, _, _ = socket.recv_fds(link, 1, 3)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    (kind, word), reported = json.loads(link.makefile("rb").read(BYTES))
    os.environ.update(reported)
    status = 1
    try:
        asyncio.run(_work(kind, word))
        status = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        link.sendall(str(status).encode())
        os._exit(status)


def _work(kind: str, word: str) -> Coroutine[Any, Any, None]:
    if kind == "client":
        from tests.clients.conformance_client import main

        return main(word)
    from tests.clients.conformance_server import main as serve_fixtures

    return serve_fixtures(word)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(*sys.argv[1:])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
