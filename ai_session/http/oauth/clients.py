"""The programs that request tokens: their metadata, and where codes may be sent to.

There are three kinds: registered by themselves (RFC 7591), named by the URL of a document that describes them, and
machines to which a person gave a secret. Nothing in a client's metadata except its redirect URIs is relied on.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection, Row
from typing import Any, Literal, cast

from ai_session.errors import InvalidArguments
from ai_session.http.oauth.fetch import Fetcher, Unreachable
from ai_session.http.oauth.grants import end_grants
from ai_session.http.oauth.redirects import MAX_URI_CHARS, Redirects, split
from ai_session.http.oauth.scopes import known
from ai_session.http.oauth.store import Refused, digest, new_secret, writing

Kind = Literal["registered", "document", "machine"]

MAX_NAME_CHARS = 80
MAX_REGISTERED = 1000
UNUSED_SECONDS = 86_400
"""A registered client that never got a token is removed after a day."""

SIGN_IN_SECONDS = 600
"""A client has so long to get a token; later it is removed if another one needs its room. No more can register in that
time than there is room for, so that endless registrations block no other client."""

DOCUMENT_SECONDS = 900
MAX_DOCUMENTS = 100

AUTH_METHODS = ("none", "client_secret_post", "client_secret_basic")
MACHINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Client:
    """``secret_hash`` is empty for a client without a secret; ``scopes`` are a machine's."""

    client_id: str
    kind: Kind
    name: str
    redirect_uris: tuple[str, ...] = ()
    auth_method: str = "none"
    secret_hash: str = ""
    grant_types: tuple[str, ...] = ("authorization_code", "refresh_token")
    scopes: tuple[str, ...] = ()


class Clients:
    """Finds a client by its id. With ``documents``, ids may be URLs; with ``loopback``, also of this machine.
    ``redirects`` decides where codes for any client may be sent."""

    def __init__(self, fetcher: Fetcher, redirects: Redirects, *, documents: bool, loopback: bool = False) -> None:
        self._fetcher = fetcher
        self.redirects = redirects
        self._documents = documents
        self._loopback = loopback
        self._read: OrderedDict[str, tuple[float, Client]] = OrderedDict()

    def is_document(self, client_id: str) -> bool:
        """Report whether the id is a document's URL; such clients are not in the store."""
        return client_id.startswith("https://")

    def remembers(self, client_id: str) -> bool:
        """Report whether its document is cached."""
        found = self._read.get(client_id)
        return found is not None and time.monotonic() < found[0]

    async def read(self, client_id: str) -> Client:
        """Return the client a document describes, cached for a quarter of an hour. Raises Refused."""
        if not self._documents:
            raise Refused("invalid_client", "clients named by a URL are not accepted here")
        if self.remembers(client_id):
            return self._read[client_id][1]
        problem = _problem_of_document_url(client_id)
        if problem:
            raise Refused("invalid_client", f"client_id {problem}")
        try:
            document: Any = await self._fetcher.stranger(client_id, loopback_too=self._loopback)
        except Unreachable as error:
            raise Refused("invalid_client", f"the client's document: {error}") from None
        client = client_from_document(client_id, document, self.redirects)
        self._read[client_id] = (time.monotonic() + DOCUMENT_SECONDS, client)
        while len(self._read) > MAX_DOCUMENTS:
            self._read.popitem(last=False)
        return client


def client_from_document(client_id: str, document: Any, redirects: Redirects) -> Client:
    """Return the client described by a metadata document. Raises Refused."""
    if not isinstance(document, dict):
        raise Refused("invalid_client", "the client's document is not an object")
    facts = cast("Mapping[str, Any]", document)
    if facts.get("client_id") != client_id:
        raise Refused("invalid_client", "the client's document names another client_id")
    if "client_secret" in facts or facts.get("token_endpoint_auth_method", "none") != "none":
        raise Refused("invalid_client", "the client's document asks for an authentication that is not offered here")
    uris = redirects.checked(facts.get("redirect_uris"))
    return Client(client_id, "document", checked_client_name(facts.get("client_name")), uris)


def client_from_registration(facts: Any, redirects: Redirects) -> Client:
    """Return the client that a registration requests, without id and secret. Raises Refused."""
    if not isinstance(facts, dict):
        raise Refused("invalid_client_metadata", "the request is not a JSON object")
    grant_request = cast("Mapping[str, Any]", facts)
    uris = redirects.checked(grant_request.get("redirect_uris"))
    method = grant_request.get("token_endpoint_auth_method") or "none"
    if method not in AUTH_METHODS:
        raise Refused("invalid_client_metadata", f"token_endpoint_auth_method must be one of {', '.join(AUTH_METHODS)}")
    wanted = grant_request.get("grant_types") or ["authorization_code", "refresh_token"]
    offered = ("authorization_code", "refresh_token")
    if not isinstance(wanted, list) or "authorization_code" not in wanted:
        raise Refused("invalid_client_metadata", "grant_types must include authorization_code")
    responses = grant_request.get("response_types") or ["code"]
    if not isinstance(responses, list) or "code" not in responses:
        raise Refused("invalid_client_metadata", "response_types must include code")
    grants = tuple(grant for grant in offered if grant in wanted)
    name = checked_client_name(grant_request.get("client_name"))
    return Client("", "registered", name, uris, auth_method=method, grant_types=grants)


def register(db: Connection, now: float, client: Client) -> tuple[Client, str]:
    """Store a registration; return it with its id, and its secret or "". Raises Refused if there are too many."""
    writing(db)
    db.execute(
        "DELETE FROM clients WHERE kind = 'registered' AND used_at IS NULL AND created_at < ?", (now - UNUSED_SECONDS,)
    )
    if _is_full(db):
        db.execute(
            "DELETE FROM clients WHERE client_id IN (SELECT client_id FROM clients WHERE kind = 'registered'"
            " AND used_at IS NULL AND created_at < ? ORDER BY created_at LIMIT 1)",
            (now - SIGN_IN_SECONDS,),
        )
    if _is_full(db):
        raise Refused("temporarily_unavailable", "too many clients are registered")
    secret = new_secret("cs") if client.auth_method != "none" else ""
    return _insert(db, now, client, "c_" + secrets.token_hex(12), secret), secret


def _is_full(db: Connection) -> bool:
    return db.execute("SELECT count(*) FROM clients WHERE kind = 'registered'").fetchone()[0] >= MAX_REGISTERED


def add_machine(db: Connection, now: float, name: str, scopes: tuple[str, ...]) -> tuple[Client, str]:
    """Add a machine client and return it with its secret. Raises InvalidArguments for an invalid or existing name."""
    if not MACHINE_NAME.match(name):
        raise InvalidArguments(f"{name[:80]!r} cannot be a client's name", suggestion="use letters, digits, . _ -")
    writing(db)
    if db.execute("SELECT 1 FROM clients WHERE kind = 'machine' AND name = ?", (name,)).fetchone():
        raise InvalidArguments(
            f"client {name} exists already", suggestion=f"ai-session http clients revoke {name!r} first"
        )
    secret = new_secret("cs")
    grant_request = Client(
        "", "machine", name, auth_method="client_secret_basic", grant_types=("client_credentials",), scopes=scopes
    )
    return _insert(db, now, grant_request, "m_" + secrets.token_hex(12), secret), secret


def _insert(db: Connection, now: float, client: Client, client_id: str, secret: str) -> Client:
    secret_hash = digest(secret) if secret else ""
    db.execute(
        "INSERT INTO clients (client_id, kind, name, secret_hash, auth_method, redirect_uris, grant_types, scopes,"
        " created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(client_id, client.kind, client.name, secret_hash, client.auth_method),
            *(json.dumps(client.redirect_uris), " ".join(client.grant_types), " ".join(client.scopes), now),
        ),
    )
    return Client(
        client_id,
        client.kind,
        client.name,
        client.redirect_uris,
        client.auth_method,
        secret_hash,
        client.grant_types,
        client.scopes,
    )


def find(db: Connection, client_id: str) -> Client | None:
    """Return a registered or machine client, or None."""
    row = db.execute("SELECT * FROM clients WHERE client_id = ?", (client_id,)).fetchone()
    return _from_row(row) if row else None


def _from_row(row: Row) -> Client:
    return Client(
        row["client_id"],
        row["kind"],
        row["name"],
        tuple(json.loads(row["redirect_uris"])),
        row["auth_method"],
        row["secret_hash"],
        tuple(row["grant_types"].split()),
        known(row["scopes"].split()),
    )


def remove(db: Connection, now: float, name_or_id: str) -> int:
    """Remove a client and end its grants; return how many of both there were."""
    writing(db)
    rows = db.execute(
        "SELECT client_id FROM clients WHERE client_id = ? OR (kind = 'machine' AND name = ?)", (name_or_id, name_or_id)
    ).fetchall()
    ids = dict.fromkeys([row["client_id"] for row in rows] + [name_or_id])
    ended = sum(end_grants(db, now, "client_id", each, "the client was removed") for each in ids)
    for row in rows:
        db.execute("DELETE FROM clients WHERE client_id = ?", (row["client_id"],))
    return len(rows) + ended


def listed(db: Connection) -> list[dict[str, Any]]:
    """List every client in the store, oldest first, without secrets."""
    rows = db.execute("SELECT * FROM clients ORDER BY created_at").fetchall()
    return [
        {
            "client_id": row["client_id"],
            "name": row["name"],
            "kind": row["kind"],
            "scopes": row["scopes"].split(),
            "redirect_uris": json.loads(row["redirect_uris"]),
            "created_at": row["created_at"],
            "used_at": row["used_at"],
        }
        for row in rows
    ]


def checked_client_name(name: Any) -> str:
    """Return what a consent page may show of a name: one short line without control or bidirectional characters."""
    text = name if isinstance(name, str) else ""
    return " ".join("".join(char for char in text if char.isprintable()).split())[:MAX_NAME_CHARS]


def _problem_of_document_url(url: str) -> str:
    parts = split(url)
    if len(url) > MAX_URI_CHARS or not url.isascii() or not url.isprintable() or " " in url or parts is None:
        return "is not a URL"
    if "#" in url or "@" in parts.netloc or not parts.hostname or parts.path in ("", "/"):
        return "must be an https URL with a path and without user info or a fragment"
    if any(part in (".", "..") for part in parts.path.split("/")):
        return "must be an https URL without . and .. in its path"
    return ""
