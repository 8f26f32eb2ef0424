"""What every endpoint of the built-in authorization server uses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_session.errors import AiSessionError, RateLimited
from ai_session.gate.rate_limits import RateLimiter
from ai_session.http.oauth import clients as oauth_clients
from ai_session.http.oauth.clients import Client, Clients
from ai_session.http.oauth.grants import TokenLifetimes
from ai_session.http.oauth.store import Refused, Store
from ai_session.http.oauth.tries import EVERYBODY
from ai_session.http.oauth.users import TerminalCode

PER_MINUTE = {
    "pages": 60,
    "sign_ins": 10,
    "sign_ins_of_name": 30,
    "sign_ins_of_all": 60,
    "registrations": 10,
    "registrations_of_all": 60,
    "documents_of_all": 30,
    "tokens": 120,
}
"""The limits for each address, user of this machine or browser; ``…_of_name`` for each person, ``…_of_all`` for all
together, tokens for each client. Only failed sign-ins count: see tries."""

NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
DEFAULT_PORTS = {"http": 80, "https": 443}

Event = Callable[[str, Mapping[str, Any]], None]
Answer = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Authority:
    """One issuer for one resource. ``owner`` is the person whom a terminal's code signs in."""

    store: Store
    clients: Clients
    issuer: str
    resource: str
    lifetimes: TokenLifetimes
    owner: str
    terminal_code: TerminalCode
    limits: RateLimiter
    event: Event

    async def described(self, client_id: str) -> Client:
        """Return the client with that id and all its metadata. Raises Refused (invalid_client), RateLimited."""
        if self.clients.is_document(client_id):
            if not self.clients.remembers(client_id):
                self.limits.acquire(EVERYBODY, "documents_of_all")
            return await self.clients.read(client_id)
        return await self.known(client_id)

    async def known(self, client_id: str) -> Client:
        """Return the client that sends a code or token. Fetches nothing: a document was checked before the code."""
        if self.clients.is_document(client_id):
            return Client(client_id, "document", "")
        found = await self.store.run(lambda db: oauth_clients.find(db, client_id))
        if found is None:
            raise Refused("invalid_client", "no client has that client_id")
        return found

    def is_resource(self, named: Iterable[str]) -> bool:
        """Report whether every resource indicator is ours; tokens are issued for only one resource."""
        return all(_normal(each) == _normal(self.resource) for each in named)


def _normal(url: str) -> tuple[str, str | None, int | None, str, str]:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return ("", None, None, url, "")
    return (parts.scheme, parts.hostname, port, parts.path.removesuffix("/"), parts.query + parts.fragment)


def single(parameters: ImmutableMultiDict[str, Any], *repeatable: str) -> dict[str, str]:
    """Return parameters by name. Raises Refused if one that must be unique is repeated, or is a file."""
    values: dict[str, str] = {}
    for name, value in parameters.multi_items():
        if not isinstance(value, str):
            raise Refused("invalid_request", f"{name[:80]} is a file")
        if name in values and name not in repeatable:
            raise Refused("invalid_request", f"{name[:80]} is given twice")
        values.setdefault(name, value)
    return values


async def parse_form(request: Request) -> ImmutableMultiDict[str, Any]:
    """Parse the body of a form. Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise Refused("invalid_request", "the body must be application/x-www-form-urlencoded")
    return await request.form(max_fields=100)


def address_of(request: Request) -> str:
    """Return the address of a request's client, for limits and the log."""
    return request.client.host if request.client else "unknown"


def answering_json(authority: Authority, what: str, answer: Answer) -> Answer:
    """Wrap ``answer`` so that exceptions become errors of RFC 6749 and are logged."""

    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except Refused as refused:
            facts = {"endpoint": what, "error": refused.error, "address": address_of(request)}
            authority.event("refused", facts | ({"note": refused.note} if refused.note else {}))
            basic = refused.error == "invalid_client" and "authorization" in request.headers
            headers = {**NO_STORE, **({"WWW-Authenticate": 'Basic realm="ai-session"'} if basic else {})}
            return JSONResponse(
                {"error": refused.error, "error_description": refused.description},
                {"invalid_client": 401, "temporarily_unavailable": 503}.get(refused.error, 400),
                headers,
            )
        except RateLimited as limited:
            authority.event("throttled", {"endpoint": what, "address": address_of(request)})
            headers = {**NO_STORE, "Retry-After": str(int(limited.retry_after_seconds) + 1)}
            problem = {"error": "temporarily_unavailable", "error_description": "too many requests"}
            return JSONResponse(problem, 429, headers)
        except AiSessionError as error:
            authority.event("failed", {"endpoint": what, "error": error.code, "message": error.message})
            problem = {"error": "server_error", "error_description": "the server cannot answer now"}
            return JSONResponse(problem, 503, NO_STORE)

    return guarded


async def parse_json(request: Request) -> Any:
    """Parse the body as JSON. Raises Refused."""
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):
        raise Refused("invalid_client_metadata", "the body is not JSON") from None
