"""Who may reach the HTTP front: the verifier of its requests' tokens, and the routes by which clients get them."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import cors_middleware
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from starlette.routing import Route, request_response
from starlette.types import ASGIApp

from agentwire.system.user import user_name
from ai_session.config.settings import OauthSettings
from ai_session.errors import ConfigInvalid
from ai_session.gate.rate_limits import RateLimiter
from ai_session.http.oauth import grants
from ai_session.http.oauth.authority import PER_MINUTE, Authority, Event, answering_json
from ai_session.http.oauth.authorize import Authorization
from ai_session.http.oauth.challenges import Challenged, Challenges, FailClosedVerifier
from ai_session.http.oauth.claims import MAX_TOKEN_CHARS, Expected
from ai_session.http.oauth.clients import Clients
from ai_session.http.oauth.fetch import Fetcher, acceptable
from ai_session.http.oauth.grants import TokenLifetimes
from ai_session.http.oauth.introspection import IntrospectionVerifier
from ai_session.http.oauth.jwt import JwtVerifier, KeyCache
from ai_session.http.oauth.redirects import Redirects
from ai_session.http.oauth.scopes import SCOPES, USUAL
from ai_session.http.oauth.store import FILE, Store
from ai_session.http.oauth.token import Endpoints
from ai_session.http.oauth.users import TerminalCode

MCP_PATH = "/mcp"
MAX_BODY_BYTES = 64 << 10
PRM_PATH = "/.well-known/oauth-protected-resource"
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Access:
    """What the front needs: ``verifier`` and ``auth`` for ``streamable_http_app``, ``routes`` before its own.

    ``verifier`` never raises. ``close`` closes the store. A token's ``subject`` is the name of one of our people,
    ``client:NAME`` of a machine, or ``SUB@ISSUER`` of an external issuer's people.
    """

    verifier: TokenVerifier
    auth: AuthSettings
    routes: list[Route]
    challenges: Challenges
    close: Callable[[], None]

    def with_challenges(self, app: ASGIApp) -> ASGIApp:
        """Return ``app`` with full challenges in its 401s, or 503s instead while no token can be verified."""
        return Challenged(app, self.challenges)


@dataclass(frozen=True, slots=True)
class OAuthDependencies:
    """What this part uses of the front. ``event`` logs what happened, never a secret; ``announce`` shows a line on the
    terminal; ``clock`` returns UTC seconds, ``steady`` monotonic ones."""

    directory: Path
    variables: Mapping[str, str]
    event: Event
    announce: Callable[[str], None]
    fetcher: Fetcher
    clock: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


def access(settings: OauthSettings, base_url: str, dependencies: OAuthDependencies, path: str = MCP_PATH) -> Access:
    """Return the access to a front at ``base_url``: scheme, host and port; tokens are for what it serves at ``path``.

    Raises ConfigInvalid, OperatorError.
    """
    parts = urlsplit(base_url)
    if not acceptable(base_url) or parts.path or parts.query or parts.fragment:
        raise ConfigInvalid(
            f"{base_url!r} is not an address at which clients can sign in",
            suggestion="use https://HOST[:PORT], or http on this machine, without a path",
        )
    resource = base_url + path
    issuer = base_url if settings.mode == "builtin" else _external_issuer(settings)
    routes = [_resource_metadata(resource, issuer, path)]
    if settings.mode == "builtin":
        authority = _authority(settings, base_url, resource, dependencies)
        verifier: TokenVerifier = OwnVerifier(authority)
        routes += _authority_routes(authority, registration=settings.registration, documents=settings.cimd)
        close = authority.store.close
    else:
        verifier, close = _external_verifier(settings, resource, dependencies), _nothing
    auth = AuthSettings.model_validate(
        {"issuer_url": issuer, "resource_server_url": resource, "validate_token_resource": True}
    )
    fail_closed = FailClosedVerifier(verifier, lambda why: dependencies.event("unreachable", {"reason": why}))
    return Access(fail_closed, auth, routes, Challenges(f"{base_url}{PRM_PATH}{path}"), close)


class OwnVerifier:
    """Verifies tokens of the built-in authorization server."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the content of a valid token, or None. Raises OperatorError if the store fails."""
        if len(token) > MAX_TOKEN_CHARS:
            return None
        store = self._authority.store
        now = store.clock()
        found = await store.run(lambda db: grants.verify(db, now, token))
        if found is None:
            self._authority.event("token_refused", {"reason": "it is unknown, expired or revoked"})
            return None
        if found.to_be_touched:
            await store.run(lambda db: grants.touch(db, now, found.grant_id))
        return AccessToken(
            token=token,
            client_id=found.client_id,
            scopes=list(found.scopes),
            expires_at=int(found.expires_at),
            resource=found.resource,
            subject=found.subject,
            claims={"iss": self._authority.issuer, "grant": found.grant_id},
        )


def _resource_metadata(resource: str, issuer: str, path: str) -> Route:
    metadata = ProtectedResourceMetadata.model_validate(
        {
            "resource": resource,
            "authorization_servers": [issuer],
            "scopes_supported": list(USUAL),
            "resource_name": "ai-session",
        }
    )
    handler = cors_middleware(ProtectedResourceMetadataHandler(metadata).handle, ["GET", "OPTIONS"])
    return Route(PRM_PATH + path, handler, methods=["GET", "OPTIONS"])


def _authority(settings: OauthSettings, base_url: str, resource: str, dependencies: OAuthDependencies) -> Authority:
    lifetimes = TokenLifetimes(settings.access_token_seconds, settings.refresh_days * DAY_SECONDS)
    return Authority(
        store=Store(dependencies.directory / FILE, dependencies.clock),
        clients=Clients(
            dependencies.fetcher,
            Redirects.of(settings.redirect_schemes),
            documents=settings.cimd,
            loopback=settings.cimd_loopback,
        ),
        issuer=base_url,
        resource=resource,
        lifetimes=lifetimes,
        owner=user_name(),
        terminal_code=TerminalCode(dependencies.announce, time.monotonic),
        limits=RateLimiter(PER_MINUTE, dependencies.steady),
        event=dependencies.event,
    )


def _authority_routes(authority: Authority, *, registration: bool, documents: bool) -> list[Route]:
    base, endpoints = authority.issuer, Endpoints(authority)
    methods = ["none", "client_secret_post", "client_secret_basic"]
    facts: dict[str, Any] = {
        "issuer": base,
        "authorization_endpoint": f"{base}/authorize",
        "token_endpoint": f"{base}/token",
        "revocation_endpoint": f"{base}/revoke",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": documents,
        "authorization_response_iss_parameter_supported": True,
    }
    programs = {"/token": endpoints.token, "/revoke": endpoints.revoke}
    if registration:
        programs["/register"] = endpoints.register
        facts["registration_endpoint"] = f"{base}/register"
    metadata = cors_middleware(MetadataHandler(OAuthMetadata.model_validate(facts)).handle, ["GET", "OPTIONS"])
    # Some clients know only the older of the two paths; the content is the same.
    paths = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
    routes = [Route(path, metadata, methods=["GET", "OPTIONS"]) for path in paths]
    people = _limited(request_response(Authorization(authority).answer))
    routes.append(Route("/authorize", people, methods=["GET", "POST"]))
    for path, answer in programs.items():
        handler = cors_middleware(answering_json(authority, path[1:], answer), ["POST", "OPTIONS"])
        routes.append(Route(path, _limited(handler), methods=["POST", "OPTIONS"]))
    return routes


def _limited(app: ASGIApp) -> ASGIApp:
    return RequestBodyLimitMiddleware(app, MAX_BODY_BYTES)


def _external_issuer(settings: OauthSettings) -> str:
    for name in ("issuer", "jwks_url", "introspection_url"):
        url: str = getattr(settings, name)
        if (url or name == "issuer") and not acceptable(url):
            raise ConfigInvalid(
                f"oauth.{name}: {url!r} is neither https nor on this machine", suggestion="ai-session docs oauth"
            )
    return settings.issuer


def _external_verifier(settings: OauthSettings, resource: str, dependencies: OAuthDependencies) -> TokenVerifier:
    expected = Expected(settings.issuer, settings.audience or resource, resource)

    def refused(why: str) -> None:
        dependencies.event("token_refused", {"reason": why})

    if not settings.introspection_url:
        keys = KeyCache(dependencies.fetcher, settings.issuer, settings.jwks_url)
        return JwtVerifier(keys, expected, settings.algorithms, dependencies.clock, refused)
    client = (settings.client_id, _client_secret(settings, dependencies.variables))
    return IntrospectionVerifier(
        dependencies.fetcher, settings.introspection_url, client, expected, dependencies.clock, refused
    )


def _client_secret(settings: OauthSettings, variables: Mapping[str, str]) -> str:
    if settings.client_secret_variable:
        secret = variables.get(settings.client_secret_variable, "")
    elif settings.client_secret_file:
        path = Path(settings.client_secret_file).expanduser()
        try:
            with path.open() as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                    raise ConfigInvalid(f"{path} is open to others", suggestion=f"chmod 600 {path}")
                secret = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigInvalid(f"oauth.client_secret_file: {error}", suggestion="ai-session docs oauth") from None
    else:
        secret = ""
    if not settings.client_id or not secret:
        raise ConfigInvalid(
            "the HTTP server has no client ID or secret for introspecting tokens",
            suggestion="set oauth.client_id, and oauth.client_secret_file or oauth.client_secret_variable",
        )
    return secret


def _nothing() -> None:
    """Close nothing: with an external issuer there is no store."""
