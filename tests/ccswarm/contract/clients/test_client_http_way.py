"""The way to a server over HTTP: certificates, proxies, servers that are busy, sessions that are gone."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from ccswarm.clients.mcp.http import retry_pause
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import ServerLost, ServerUnavailable
from tests.ccswarm.support.http_servers import endpoint, response, sleepy, web
from tests.ccswarm.support.mcp_servers import BOUND_SECONDS, use

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]


@asynccontextmanager
async def client_of(url: str, era: str = "legacy", **more: Any) -> AsyncIterator[McpToolClient]:
    settings = ServerSettings.model_validate({"name": "web", "url": url, **more})
    client = McpToolClient(settings, env={"KEY": "open-sesame"}, era_cache=Always(era))
    try:
        yield client
    finally:
        await client.close()


class Always(dict[str, str]):
    """An era cache that says the same of every server."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self._era = era

    def get(self, *_: Any) -> Any:
        return self._era


def busy(*answers: bytes) -> Callable[[str, dict[str, Any]], bytes | None]:
    """A server that answers the first calls of a tool so, and the others as it should."""
    left = list(answers)

    def answer(method: str, body: dict[str, Any]) -> bytes | None:
        if body.get("method") != "tools/call":
            return sleepy(method, body) or response("204 No Content", b"")
        if left:
            return left.pop(0)
        result = {"content": [{"type": "text", "text": "done"}]}
        message = {"jsonrpc": "2.0", "id": body["id"], "result": result}
        return response("200 OK", json.dumps(message).encode())

    return answer


def refusal(status: str, after: str) -> bytes:
    return response(f"{status}\r\nRetry-After: {after}" if after else status, b"", "text/plain")


async def nap(answers: list[bytes], **more: Any) -> str:
    async with endpoint(busy(*answers)) as port, client_of(f"http://127.0.0.1:{port}/mcp", **more) as client:
        async with asyncio.timeout(BOUND_SECONDS):
            return (await client.call("nap", {}, meta={})).text


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    assert await nap([refusal("429 Too Many Requests", "0"), refusal("503 Service Unavailable", "1")]) == "done"


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
async def test_a_server_that_wants_too_long_a_pause_is_not_waited_for(status: str) -> None:
    with pytest.raises(ServerUnavailable, match=f"HTTP {status}, retry in 3600 s"):
        await nap([refusal(status, "3600")])
    with pytest.raises(ServerUnavailable, match="retry in 1 s"):
        await nap([refusal(status, "1")], retry_after_seconds=0.5)


async def test_a_server_that_is_always_busy_is_given_up() -> None:
    with pytest.raises(ServerUnavailable, match="HTTP 429"):
        await nap([refusal("429 Too Many Requests", "0")] * 6)


async def test_what_says_nothing_of_another_time_is_not_asked_again() -> None:
    with pytest.raises(ServerUnavailable, match="HTTP 429 Too Many Requests"):
        await nap([refusal("429 Too Many Requests", "")])
    with pytest.raises(ServerLost, match="HTTP 503 Service Unavailable"):
        await nap([refusal("503 Service Unavailable", "")])


async def test_a_connection_that_breaks_is_no_reason_to_call_again() -> None:
    asked: list[str] = []
    well = busy()

    def answer(method: str, body: dict[str, Any]) -> bytes | None:
        if body.get("method") == "tools/call":
            asked.append("call")
            return b""
        return well(method, body)

    async with endpoint(answer) as port, client_of(f"http://127.0.0.1:{port}/mcp") as client:
        with pytest.raises(ServerLost):
            await client.call("nap", {}, meta={})
    assert asked == ["call"]


@pytest.mark.parametrize(
    ("status", "after", "seconds"),
    [
        (429, "7", 7.0),
        (503, " 0 ", 0.0),
        (503, "Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        (429, "soon", None),
        (429, "-1", None),
        (429, "٣", None),
        (429, "", None),
        (500, "7", None),
        (200, "7", None),
    ],
)
async def test_when_a_server_wants_to_be_asked(status: int, after: str, seconds: float | None) -> None:
    headers = [(b"retry-after", after.encode())]
    assert retry_pause(httpx2.Response(status, headers=headers)) == seconds


async def test_a_date_in_the_future() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    pause = retry_pause(httpx2.Response(503, headers={"retry-after": when}))
    assert pause is not None
    assert 50 < pause <= 60


async def test_tools_are_listed_again_after_the_server_forgot_the_session() -> None:
    async with web("stream") as port, client_of(f"http://127.0.0.1:{port}/mcp") as client:
        assert await client.list_tools()
        await client.list_tools()
        with pytest.raises(ServerLost):
            await use(client, "die")
        async with web("stream", port):
            assert [tool.name for tool in await client.list_tools(fresh=True)]
            assert (await use(client, "echo", text="a")).text == "a"


async def test_a_server_cannot_repeat_a_secret_in_an_error() -> None:
    message = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no open-sesame for you"}}
    said = response("400 Bad Request", json.dumps(message).encode())
    headers = {"X-Api-Key": "env:KEY"}
    async with (
        endpoint(lambda *_: said) as port,
        client_of(f"http://127.0.0.1:{port}/mcp", headers=headers) as client,
    ):
        with pytest.raises(ServerUnavailable) as caught:
            await client.list_tools()
    assert "no [REDACTED:X-Api-Key] for you" in str(caught.value)


def certificates(folder: Path, *names: str) -> Path:
    """A certificate that vouches for itself, and its key, of a server with these names."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    alternatives: list[x509.GeneralName] = [
        x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = folder / "server.pem"
    file.write_bytes(pem + certificate.public_bytes(Encoding.PEM))
    return file


@asynccontextmanager
async def safe(file: Path) -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    async with endpoint(busy(), context) as port:
        yield port


async def test_certificates_are_looked_at(tmp_path: Path) -> None:
    file = certificates(tmp_path, "127.0.0.1")
    async with safe(file) as port:
        async with client_of(f"https://127.0.0.1:{port}/mcp") as client:
            with pytest.raises(ServerUnavailable, match="certificate verify failed"):
                await client.list_tools()
        async with client_of(f"https://127.0.0.1:{port}/mcp", ca_file=str(file)) as client:
            assert (await client.call("nap", {}, meta={})).text == "done"
        async with client_of(f"https://localhost:{port}/mcp", ca_file=str(file), connect_seconds=5) as client:
            with pytest.raises(ServerUnavailable, match="Hostname mismatch"):
                await client.list_tools()


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    async with client_of("https://127.0.0.1:1/mcp", ca_file=str(file)) as client:
        with pytest.raises(ServerUnavailable, match="its ca_file cannot be used"):
            await client.list_tools()


LIST = """
import asyncio, sys
from pathlib import Path
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ServerSettings
async def main():
    client = McpToolClient(ServerSettings(name="web", url=sys.argv[1]), env={}, era_cache={})
    try:
        print([tool.name for tool in await client.list_tools()])
    except Exception as error:
        print(type(error).__name__)
    await client.close()
asyncio.run(main())
"""


@pytest.mark.torture
async def test_proxies_are_used_for_other_machines_only() -> None:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode().strip())
        writer.close()

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    through = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    environ = {"HTTPS_PROXY": through, "HTTP_PROXY": through, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}

    async def listed(url: str) -> str:
        words = [sys.executable, "-c", LIST, url]
        process = await asyncio.create_subprocess_exec(*words, env=environ, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(BOUND_SECONDS * 2):
            return (await process.communicate())[0].decode().strip()

    async with endpoint(busy()) as port, proxy:
        assert await listed(f"http://127.0.0.1:{port}/mcp") == "['nap']"
        assert asked == []
        assert await listed("https://tools.example/mcp") == "ServerUnavailable"
    assert asked[0] == "CONNECT tools.example:443 HTTP/1.1"


async def test_nobody_listens_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with client_of(f"http://127.0.0.1:{port}/mcp", auth={"grant": "browser"}) as client:
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            await client.list_tools()
