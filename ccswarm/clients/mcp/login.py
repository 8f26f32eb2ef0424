"""Login and logout at servers, for the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthFlowError

from ccswarm.clients._address import SecretScrubber
from ccswarm.clients.base import Person
from ccswarm.clients.mcp.bodies import read_whole
from ccswarm.clients.mcp.http import plain_client
from ccswarm.clients.mcp.login_store import Login, Logins
from ccswarm.clients.mcp.oauth import MAX_BODY_BYTES, Authority, challenge
from ccswarm.clients.mcp.redirect import listen_for_redirect
from ccswarm.clients.mcp.tokens import SCOPE_TOKEN
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerUnavailable, SwarmError, UsageInvalid
from ccswarm.models import LoginFacts


async def log_in(
    settings: ServerSettings,
    env: Mapping[str, str],
    state_directory: Path,
    person: Person,
    *,
    scopes: Sequence[str] = (),
    seconds: float = 600.0,
) -> LoginFacts:
    """Log a person in within ``seconds``, or ccswarm itself with grant client_credentials. ``scopes`` are requested in
    addition to those granted before. Raises UsageInvalid for a server without a url, LoginNeeded if the login fails,
    and ServerUnavailable."""
    _require_url(settings)
    logins, scrubber = Logins(settings, state_directory), SecretScrubber()
    async with plain_client(settings) as http:
        authority = Authority(settings, env, http, scrubber)
        try:
            answer = await _refusal(settings, authority, http, scopes)
            former = await logins.read()
            if settings.auth.grant == "client_credentials":
                login = await authority.request_token(answer, former)
            else:
                async with asyncio.timeout(seconds):
                    login = await _authorize(settings, authority, answer, former, person)
            async with logins.locked():
                await logins.write(login)
        except TimeoutError:
            raise LoginNeeded(f"the login to {settings.name} was not completed within {seconds:g} s") from None
        except SwarmError:
            raise
        except Exception as error:  # servers' metadata may break any step
            words = scrubber.text(str(error) or type(error).__name__)[:500]
            raise LoginNeeded(
                f"the login to {settings.name} failed: {words}", suggestion="ai-session docs ccswarm-http: auth"
            ) from error
    return facts(login)


async def log_out(settings: ServerSettings, env: Mapping[str, str], state_directory: Path) -> tuple[bool, bool]:
    """Remove a login. Return whether there was one, and whether the authorization server revoked it. Raises
    UsageInvalid for a server without a url."""
    _require_url(settings)
    logins = Logins(settings, state_directory)
    async with logins.locked():
        login = await logins.read()
        await logins.forget()
    revoked = False
    if login:
        async with plain_client(settings) as http:
            with suppress(Exception):  # the login is removed here even if that fails
                revoked = await Authority(settings, env, http, SecretScrubber()).revoke(login)
    return login is not None, revoked


async def stored_login(settings: ServerSettings, state_directory: Path) -> LoginFacts | None:
    """Return the stored login at a server, without contacting it."""
    login = await Logins(settings, state_directory).read() if settings.url else None
    return login and facts(login)


def facts(login: Login) -> LoginFacts:
    """Return what may be shown of the login."""
    issuer = str(login.metadata.issuer) if login.metadata else ""
    scopes = tuple((login.tokens.scope or "").split())
    return LoginFacts(issuer, scopes, login.expires_at, bool(login.tokens.refresh_token))


def _require_url(settings: ServerSettings) -> None:
    if not settings.url:
        raise UsageInvalid(
            f"server {settings.name} is started here and has no login", suggestion="pass its credentials with env"
        )


async def _refusal(
    settings: ServerSettings, authority: Authority, http: httpx2.AsyncClient, scopes: Sequence[str]
) -> httpx2.Response:
    """Return the server's response to a request without a login, as if ``scopes`` were missing."""
    try:
        async with asyncio.timeout(settings.connect_seconds):
            answer = await http.send(authority.request(), stream=True)
            with suppress(httpx2.TransportError):
                await read_whole(answer, MAX_BODY_BYTES)
    except (httpx2.TransportError, TimeoutError) as error:
        words = str(error) or type(error).__name__
        raise ServerUnavailable(f"server {settings.name} cannot be reached: {words}") from error
    wanted = [*settings.auth.scopes, *scopes]
    if not all(map(SCOPE_TOKEN.fullmatch, wanted)):
        raise UsageInvalid("a scope must not contain spaces, quotation marks or backslashes")
    if wanted:
        return challenge(answer, wanted, "insufficient_scope")
    # A server that accepts anonymous requests may still name an authorization server.
    return answer if answer.status_code == 401 else challenge(answer, ())


async def _authorize(
    settings: ServerSettings, authority: Authority, answer: httpx2.Response, former: Login | None, person: Person
) -> Login:
    ports = [settings.auth.redirect_port] if settings.auth.redirect_port else [*_former_ports(former), 0]
    try:
        async with listen_for_redirect(person, ports) as redirect:
            return await authority.authorize(answer, former, redirect.uri, redirect.go, redirect.answer)
    except OSError as error:
        raise OAuthFlowError(f"no port for the browser to return to: {error}") from error


def _former_ports(login: Login | None) -> list[int]:
    uris = (login.client.redirect_uris if login and login.client else None) or ()
    return [port for uri in uris if (port := urlsplit(str(uri)).port)]
