"""One interpreter that has all of ccswarm's client imported, and a fork of it for each scenario of the suite: importing
takes a second, and there are fifty. The suite starts this file with a socket's path and a server's address."""

from __future__ import annotations

import array
import json
import os
import socket
import sys

BYTES = 1 << 20
TOLD = "MCP_CONFORMANCE_"


def ask(path: str, url: str) -> int:
    """Has the client run with our standard output and error; its exit status."""
    told = {name: value for name, value in os.environ.items() if name.startswith(TOLD)}
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        descriptors = array.array("i", [1, 2])
        link.sendmsg([b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        link.sendall(json.dumps([url, told]).encode())
        link.shutdown(socket.SHUT_WR)
        return int(link.recv(16) or b"70")


def serve(path: str) -> None:
    """Until standard input ends, whose writer is the test."""
    import importlib
    import selectors
    import signal

    for name in ("mcp", "mcp_http", "mcp_login"):
        importlib.import_module(f"ccswarm.clients.{name}")
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
    _, descriptors, _, _ = socket.recv_fds(link, 1, 2)
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
    url, told = json.loads(link.makefile("rb").read(BYTES))
    os.environ.update(told)
    status = 1
    try:
        import asyncio

        from tests.clients.conformance_client import main

        asyncio.run(main(url))
        status = 0
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stderr.flush()
        link.sendall(str(status).encode())
        os._exit(status)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.exit(ask(sys.argv[1], sys.argv[2]))
    serve(sys.argv[1])
