"""`ai-session mcp-server --http` as a person starts it: where it may listen, what it says, how it ends."""

from __future__ import annotations

import datetime as dt
import ipaddress
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ai_session.config.settings import HttpSettings
from ai_session.errors import ConfigInvalid
from ai_session.http.server import bind
from tests.ai_session.support.command_line import CommandLine, finish
from tests.ai_session.support.http_servers import running
from tests.ai_session.support.mcp_client import BOUND_SECONDS, stop_daemons
from tests.conftest import UNBOXED, new_home


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    yield home
    stop_daemons(home)


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that signed itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "both.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


@pytest.mark.either("number")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_ends_when_told_to(daemon_home: Path, number: int) -> None:
    line = CommandLine(daemon_home)
    with line.start("mcp-server", "--http", "--port", "0", "--no-auth") as process:
        assert process.stdout
        first = process.stdout.readline().decode()
        url = first.removeprefix("Serving MCP at ").strip()
        assert url.startswith("http://127.0.0.1:"), first
        assert httpx2.get(url.removesuffix("mcp") + "health", timeout=BOUND_SECONDS, verify=False).json() == {
            "status": "ok"
        }
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].removesuffix("/mcp")))):
            process.send_signal(number)  # somebody who says nothing does not keep it
            out, err = finish(process)
        assert (process.returncode, err) == (0, "")
        assert f"claude mcp add --transport http ai-session {url}" in out
        assert f'"url": "{url}"' in out


def test_it_signs_people_in_unless_told_otherwise(daemon_home: Path) -> None:
    line = CommandLine(daemon_home)
    with line.start("mcp-server", "--http", "--port", "0") as process:
        assert process.stdout
        url = process.stdout.readline().decode().split()[-1]
        answer = httpx2.post(url, json={}, timeout=BOUND_SECONDS, verify=False)
        assert answer.status_code == 401
        where = answer.headers["www-authenticate"].partition('resource_metadata="')[2].partition('"')[0]
        reported = httpx2.get(where, timeout=BOUND_SECONDS, verify=False).json()
        assert reported["resource"] == url
        issuer = reported["authorization_servers"][0]
        known = httpx2.get(
            f"{issuer}/.well-known/oauth-authorization-server", timeout=BOUND_SECONDS, verify=False
        ).json()
        assert known["code_challenge_methods_supported"] == ["S256"]
        process.send_signal(signal.SIGTERM)
        finish(process)
        assert process.returncode == 0


def test_what_cannot_be_is_said_in_words(daemon_home: Path) -> None:
    line = CommandLine(daemon_home)
    open_to_all = line.run("mcp-server", "--http", "--no-auth", "--host", "0.0.0.0", code=1)
    assert "would let anybody" in open_to_all.stderr
    line.run("mcp-server", "--http", "--stdio", code=2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = line.run("mcp-server", "--http", "--port", port, code=1)
        assert f"cannot listen on 127.0.0.1 port {port}" in busy.stderr


@pytest.mark.parametrize(
    ("settings", "authenticated"),
    [
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "192.0.2.1", "public_url": "https://mcp.example.org"}, False),
        ({"public_url": "https://mcp.example.org"}, False),
        ({"tls_certificate": "/nowhere.pem"}, True),
        ({"host": "no.such.host.invalid"}, True),
    ],
)
def test_where_it_will_not_listen(settings: dict[str, Any], authenticated: bool) -> None:
    with pytest.raises(ConfigInvalid):
        bind(HttpSettings(port=0, **settings), authenticated=authenticated)


def test_behind_a_proxy_it_is_found_where_the_proxy_is() -> None:
    settings = HttpSettings(host="0.0.0.0", port=0, public_url="https://mcp.example.org/")
    location = bind(settings, authenticated=True)
    location.listener.close()
    assert location.url == "https://mcp.example.org/mcp"


@pytest.mark.anyio
async def test_tls_by_a_certificate(daemon_home: Path, tmp_path: Path) -> None:
    file = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(file))
    async with running(daemon_home, tls_certificate=str(file)) as here:
        assert here.url.startswith("https://")
        async with httpx2.AsyncClient(verify=trusting, timeout=BOUND_SECONDS) as client:
            assert (await client.get(f"{here.address.base_url}/health")).status_code == 200
        plain = await here.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", over=True)
        assert plain == b""
