"""Other servers on this machine: an issuer with keys and introspection, and a host of documents with TLS."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import jwt
import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
OTHER_KEY = rsa.generate_private_key(65537, 2048)
WEAK_KEY = rsa.generate_private_key(65537, 1024)


def public_jwk(key: Any, key_id: str, **facts: Any) -> dict[str, Any]:
    algorithms = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    algorithm = next(each for kind, each in algorithms.items() if isinstance(key, kind))
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": key_id, "use": "sig", **facts}


@dataclass
class Issuer:
    """An issuer, whose responses can be changed at any time; ``asked`` counts the requests by path."""

    url: str
    keys: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    credentials: tuple[str, str] = ("front", "front's secret")
    asked: dict[str, int] = field(default_factory=dict)
    status: int = 200

    def reset(self) -> None:
        """Restore the initial state."""
        self.keys = [public_jwk(RSA_KEY, "rsa"), public_jwk(EC_KEY, "ec"), public_jwk(ED_KEY, "ed")]
        self.metadata = {}
        self.tokens = {}
        self.asked = {}
        self.credentials = ("front", "front's secret")
        self.status = 200

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.asked[request.url.path] = self.asked.get(request.url.path, 0) + 1
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if self.status != 200:
            return Response(status_code=self.status, headers={"Location": f"{self.url}/jwks"})
        if request.url.path == "/.well-known/oauth-authorization-server":
            return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **self.metadata})
        if request.url.path == "/jwks":
            return JSONResponse({"keys": self.keys})
        if request.url.path == "/introspect":
            named = base64.b64encode(":".join(self.credentials).encode()).decode()
            if request.headers.get("authorization") != f"Basic {named}":
                return Response(status_code=401)
            form = await request.form()
            return JSONResponse(self.tokens.get(str(form["token"]), {"active": False}))
        return Response(status_code=404)

    def claims(self, now: float, audience: Any, **changes: Any) -> dict[str, Any]:
        claims = {
            "iss": self.url,
            "aud": audience,
            "sub": "carol",
            "client_id": "app",
            "iat": int(now),
            "exp": int(now) + 600,
            "scope": "openid sessions:read sessions:execute",
            **changes,
        }
        return {name: value for name, value in claims.items() if value is not None}


def listening() -> tuple[socket.socket, int]:
    """Return a socket that already accepts connections, so that clients need not wait for the server, and its port."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    return sock, sock.getsockname()[1]


@asynccontextmanager
async def serving(app: Any, sock: socket.socket, **options: Any) -> AsyncIterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", **options))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = server.force_exit = True
        await task
        sock.close()


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    sock, port = listening()
    made = Issuer(
        f"http://127.0.0.1:{port}", [public_jwk(RSA_KEY, "rsa"), public_jwk(EC_KEY, "ec"), public_jwk(ED_KEY, "ed")]
    )
    async with serving(made, sock):
        yield made


def sign(claims: Mapping[str, Any], key: Any = RSA_KEY, algorithm: str = "RS256", **header: Any) -> str:
    return jwt.encode(dict(claims), key, algorithm, headers={"kid": "rsa", **header})


def by_hand(header: Mapping[str, Any], claims: Mapping[str, Any], key: rsa.RSAPrivateKey) -> str:
    """Return a signed token that no library would create."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims)]
    signature = key.sign(b".".join(parts), padding.PKCS1v15(), hashes.SHA256())
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@dataclass
class Documents:
    """Files over https on this machine, and the authority that certifies it."""

    base: str
    trust: ssl.SSLContext
    answers: dict[str, tuple[int, bytes, dict[str, str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """Responses wait until this is set."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.asked.append(request.url.path)
        self.hosts.append(request.headers["host"])
        await self.gate.wait()
        status, body, headers = self.answers.get(request.url.path, (404, b"", {}))
        await Response(body, status, headers)(scope, receive, send)

    def put(self, path: str, facts: Any = None, *, status: int = 200, body: bytes = b"", **headers: str) -> str:
        """Set the response for a path and return its URL."""
        content = json.dumps(facts).encode() if facts is not None else body
        self.answers[path] = (status, content, {"Content-Type": "application/json", **headers})
        return self.base + path


@asynccontextmanager
async def documents(directory: Path, host: str = "127.0.0.1") -> AsyncIterator[Documents]:
    sock, port = listening()
    certificate, key = authority(directory, host)
    trust = ssl.create_default_context(cafile=str(certificate))
    made = Documents(f"https://{host}:{port}", trust)
    made.gate.set()
    async with serving(made, sock, ssl_certfile=str(certificate), ssl_keyfile=str(key)):
        yield made
        made.gate.set()


def authority(directory: Path, host: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for ``host`` and its key, and return their paths."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = dt.datetime.now(dt.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("client.example")]
    try:
        names.append(x509.IPAddress(ip_address(host)))
    except ValueError:
        names.append(x509.DNSName(host))
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "tls.pem", directory / "tls.key"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
