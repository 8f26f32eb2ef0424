"""The endpoints for programs: token, revocation, registration."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_session.http.oauth import clients, grants
from ai_session.http.oauth.authority import NO_STORE, Authority, address_of, parse_form, parse_json, single
from ai_session.http.oauth.clients import Client
from ai_session.http.oauth.grants import CodeRedemption, GrantRequest, Issued
from ai_session.http.oauth.scopes import SCOPES, known
from ai_session.http.oauth.store import Refused, digest
from ai_session.http.oauth.tries import EVERYBODY, source_of

VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Each method answers one endpoint; ``answering_json`` reports its exceptions."""

    authority: Authority

    async def token(self, request: Request) -> Response:
        """Exchange codes, refresh tokens and machine secrets for tokens (RFC 6749 §3.2)."""
        form = await parse_form(request)
        values = single(form, "resource")
        client = await self._authenticated(request, values)
        self.authority.limits.acquire(client.client_id, "tokens")
        grant = values.get("grant_type", "")
        if grant not in ("authorization_code", "refresh_token", "client_credentials"):
            raise Refused("unsupported_grant_type", "use authorization_code, refresh_token or client_credentials")
        if grant not in client.grant_types:
            raise Refused("unauthorized_client", f"the client may not use {grant}")
        if not self.authority.is_resource(_resources(form)):
            raise Refused("invalid_target", f"tokens are for {self.authority.resource}")
        issued = await {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh,
            "client_credentials": self._by_secret,
        }[grant](client, values)
        facts = {"grant_type": grant, "grant": issued.grant_id, "scopes": " ".join(issued.scopes)}
        self.authority.event("token", {**facts, "client": client.client_id, "subject": issued.subject})
        return JSONResponse(_document(issued), headers=NO_STORE)

    async def _by_code(self, client: Client, values: Mapping[str, str]) -> Issued:
        code, verifier = values.get("code", ""), values.get("code_verifier", "")
        if not code or not VERIFIER.match(verifier):
            raise Refused("invalid_request", "code and code_verifier (43 to 128 characters) are required")
        shown = CodeRedemption(code, client.client_id, values.get("redirect_uri", ""), verifier)
        now, lifetimes = self.authority.store.clock(), self.authority.lifetimes
        refresh = "refresh_token" in client.grant_types
        return await self.authority.store.run(lambda db: grants.redeem_code(db, now, lifetimes, shown, refresh=refresh))

    async def _by_refresh(self, client: Client, values: Mapping[str, str]) -> Issued:
        token = values.get("refresh_token", "")
        scopes = _requested_scopes(values) if values.get("scope", "").split() else None
        now = self.authority.store.clock()
        lifetimes = self.authority.lifetimes
        resource = self.authority.resource
        return await self.authority.store.run(
            lambda db: grants.refresh(db, now, lifetimes, token, client.client_id, resource, scopes)
        )

    async def _by_secret(self, client: Client, values: Mapping[str, str]) -> Issued:
        scopes = _requested_scopes(values) if values.get("scope", "").split() else client.scopes
        if not set(scopes) <= set(client.scopes):
            raise Refused("invalid_scope", "the client has not all of these scopes")
        subject = f"client:{client.name}"
        grant_request = GrantRequest(client.client_id, client.name, subject, scopes, self.authority.resource)
        now, lifetimes = self.authority.store.clock(), self.authority.lifetimes
        return await self.authority.store.run(lambda db: grants.machine_token(db, now, lifetimes, grant_request))

    async def revoke(self, request: Request) -> Response:
        """End the grant of a token (RFC 7009); an unknown token is not an error."""
        values = single(await parse_form(request))
        client = await self._authenticated(request, values)
        if not values.get("token"):
            raise Refused("invalid_request", "token is required")
        now = self.authority.store.clock()
        grant = await self.authority.store.run(
            lambda db: grants.revoke_token(db, now, values["token"], client.client_id)
        )
        if grant:
            self.authority.event("revoked", {"grant": grant, "client": client.client_id, "by": "the client"})
        return Response(headers=NO_STORE)

    async def register(self, request: Request) -> Response:
        """Register a program (RFC 7591). It may do nothing before a person agrees."""
        source = source_of(request)
        self.authority.limits.acquire(source.key, "registrations")
        if source.is_stranger:
            self.authority.limits.acquire(EVERYBODY, "registrations_of_all")
        grant_request = clients.client_from_registration(await parse_json(request), self.authority.clients.redirects)
        now = self.authority.store.clock()
        client, secret = await self.authority.store.run(lambda db: clients.register(db, now, grant_request))
        facts = {"client": client.client_id, "name": client.name, "redirect_uris": " ".join(client.redirect_uris)}
        self.authority.event("registered", {**facts, "address": address_of(request)})
        document: dict[str, Any] = {
            "client_id": client.client_id,
            "client_id_issued_at": int(now),
            "redirect_uris": client.redirect_uris,
            "token_endpoint_auth_method": client.auth_method,
            "grant_types": client.grant_types,
            "response_types": ["code"],
            "scope": " ".join(SCOPES),
        }
        document |= {"client_name": client.name} if client.name else {}
        document |= {"client_secret": secret, "client_secret_expires_at": 0} if secret else {}
        return JSONResponse(document, 201, NO_STORE)

    async def _authenticated(self, request: Request, values: Mapping[str, str]) -> Client:
        client_id, secret = _credentials(request, values)
        if not client_id:
            raise Refused("invalid_client", "client_id is required")
        client = await self.authority.known(client_id)
        secret_matches = hmac.compare_digest(digest(secret), client.secret_hash) if client.secret_hash else True
        if not secret_matches:
            raise Refused("invalid_client", "the client secret is wrong", note=f"client {client.client_id}")
        return client


def _credentials(request: Request, values: Mapping[str, str]) -> tuple[str, str]:
    """Return id and secret, from the header or from the form, never from both."""
    named = values.get("client_id", "")
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return named, values.get("client_secret", "")
    try:
        client_id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise Refused("invalid_client", "the Authorization header is not Basic") from None
    if not colon or values.get("client_secret") or (named and named != unquote_plus(client_id)):
        raise Refused("invalid_request", "the client authenticates in two ways")
    return unquote_plus(client_id), unquote_plus(secret)


def _resources(form: ImmutableMultiDict[str, Any]) -> list[str]:
    return [str(value) for value in form.getlist("resource")]


def _requested_scopes(values: Mapping[str, str]) -> tuple[str, ...]:
    words = values["scope"].split()
    found = known(words)
    if len(found) != len(set(words)):
        raise Refused("invalid_scope", f"valid scopes: {', '.join(SCOPES)}")
    return found


def _document(issued: Issued) -> dict[str, Any]:
    document: dict[str, Any] = {
        "access_token": issued.access_token,
        "token_type": "Bearer",
        "expires_in": issued.expires_in,
        "scope": " ".join(issued.scopes),
    }
    return document | ({"refresh_token": issued.refresh_token} if issued.refresh_token else {})
