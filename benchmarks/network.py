"""The proxy of a box, compared with a direct connection: TLS requests, and one long response, with a client in a
process of its own.

``python -m benchmarks.network PEM`` is the origin; followed by ``ORIGIN_PORT PROXY_PORT`` it is the client.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ai_session.sandbox.network.proxy import SessionProxy
from ai_session.sandbox.network.rules import NetworkRules
from benchmarks.children import output, serving
from benchmarks.report import Report
from benchmarks.size import sized
from tests.ai_session.support.networks import NAME, certificate, listener

REQUESTS, CURLS, DOWNLOADS = sized((150, 60, 8), (2, 1, 1))
LONG_BYTES = sized(100_000_000, 1_000_000)
PIECE = bytes(1 << 18)


async def serve_origin(pem: str) -> None:
    """Answer ``GET /BYTES`` with as many bytes; print the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = int((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1][1:])
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while left > 0:
            writer.write(PIECE[:left])
            left -= len(PIECE)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def fetch(context: ssl.SSLContext, origin: int, proxy: int, count: int) -> float:
    """Return the seconds from the connection's first packet to the response's last byte. ``proxy`` 0: directly."""
    room = bytearray(1 << 18)
    begin = time.perf_counter()
    with socket.create_connection(("127.0.0.1", proxy or origin)) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if proxy:
            plain.sendall(f"CONNECT {NAME}:{origin} HTTP/1.1\r\nHost: {NAME}:{origin}\r\n\r\n".encode())
            assert plain.recv(4096).startswith(b"HTTP/1.1 200")
        with context.wrap_socket(plain, server_hostname=NAME) as wrapped:
            wrapped.sendall(f"GET /{count} HTTP/1.1\r\n\r\n".encode())
            while wrapped.recv_into(room):
                pass
    return time.perf_counter() - begin


def client(pem: str, origin: int, proxy: int) -> None:
    """Alternate between both, so that other load affects both."""
    context = ssl.create_default_context(cafile=pem)
    seconds: dict[str, list[tuple[float, float]]] = {"curl": []}
    for name, rounds, count in (("request", REQUESTS, 1000), ("download", DOWNLOADS, LONG_BYTES)):
        seconds[name] = [
            (fetch(context, origin, 0, count), fetch(context, origin, proxy, count)) for _ in range(rounds)
        ]
    url, common = f"https://{NAME}:{origin}/1000", ("curl", "--silent", "--output", "/dev/null", "--cacert", pem)
    direct = (*common, "--noproxy", "*", "--resolve", f"{NAME}:{origin}:127.0.0.1", url)
    proxied = (*common, "--proxy", f"http://127.0.0.1:{proxy}", url)
    if shutil.which("curl"):
        seconds["curl"] = [(run_seconds(direct), run_seconds(proxied)) for _ in range(CURLS)]
    print(json.dumps(seconds))


def run_seconds(command: Sequence[str]) -> float:
    """Return the seconds a program takes."""
    begin = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - begin


async def run(report: Report, directory: Path) -> None:
    """Measure with one origin, one proxy in this process, and one client."""
    pem = certificate(directory)
    program = (sys.executable, "-m", "benchmarks.network", str(pem))

    async def here(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with serving(*program) as line:
        port = int(line)
        proxy, listening = SessionProxy(NetworkRules([NAME], [port], ["127.0.0.1"]), resolve=here), listener()
        proxy.serve(listening)
        try:
            printed = await asyncio.to_thread(output, [*program, str(port), str(listening.getsockname()[1])])
        finally:
            await proxy.aclose()
    seconds: dict[str, list[tuple[float, float]]] = json.loads(printed)
    report.title("network: TLS through a box's proxy (floor: a direct connection)")
    # A hop through another process is most of a request on the loopback, and little of one through a network.
    direct, proxied = (statistics.median(column) * 1e3 for column in zip(*seconds["request"], strict=True))
    report.row("request on a new connection, median", proxied, "ms", floor=direct, note="(no target: loopback)")
    if seconds["curl"]:
        direct, proxied = (statistics.median(column) * 1e3 for column in zip(*seconds["curl"], strict=True))
        report.row("curl, start to end, median", proxied, "ms", floor=direct, most_ratio=1.2)
    direct, proxied = (min(column) * 1e3 for column in zip(*seconds["download"], strict=True))
    report.row(
        "100 MB, best", proxied, "ms", floor=direct, most_ratio=1.2, note=f"{LONG_BYTES / proxied / 1e3:.0f} MB/s"
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        client(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        asyncio.run(serve_origin(sys.argv[1]))
