"""Logging in at a server and out again, for the command line."""

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
from ccswarm.clients.mcp.redirect import listening
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
    """A person logs in, within ``seconds``; of grant client_credentials ccswarm itself does. ``scopes`` are asked for
    beside what was granted before. Raises UsageInvalid for a server that is not at a url, LoginNeeded where it fails,
    ServerUnavailable."""
    _at_a_url(settings)
    logins, scrubber = Logins(settings, state_directory), SecretScrubber()
    async with plain_client(settings) as http:
        authority = Authority(settings, env, http, scrubber)
        try:
            answer = await _refusal(settings, authority, http, scopes)
            former = await logins.read()
            if settings.auth.grant == "client_credentials":
                login = await authority.granted(answer, former)
            else:
                async with asyncio.timeout(seconds):
                    login = await _agreed(settings, authority, answer, former, person)
            async with logins.held():
                await logins.write(login)
        except TimeoutError:
            raise LoginNeeded(f"nobody logged in to {settings.name} within {seconds:g} s") from None
        except SwarmError:
            raise
        except Exception as error:  # what servers say of themselves may break any of it
            words = scrubber.text(str(error) or type(error).__name__)[:500]
            raise LoginNeeded(
                f"the login to {settings.name} failed: {words}", suggestion="ai-session docs ccswarm-http: auth"
            ) from error
    return facts(login)


async def log_out(settings: ServerSettings, env: Mapping[str, str], state_directory: Path) -> tuple[bool, bool]:
    """Forgets a login. Returns whether there was one, and whether the authorization server was informed. Raises
    UsageInvalid for a server that is not at a url."""
    _at_a_url(settings)
    logins = Logins(settings, state_directory)
    async with logins.held():
        login = await logins.read()
        await logins.forget()
    revoked = False
    if login:
        async with plain_client(settings) as http:
            with suppress(Exception):  # whatever prevents informing it: the login is forgotten here
                revoked = await Authority(settings, env, http, SecretScrubber()).revoke(login)
    return login is not None, revoked


async def kept(settings: ServerSettings, state_directory: Path) -> LoginFacts | None:
    """Of the login at a server, as it is kept; nobody is asked."""
    login = await Logins(settings, state_directory).read() if settings.url else None
    return login and facts(login)


def facts(login: Login) -> LoginFacts:
    """What may be shown of the login."""
    issuer = str(login.metadata.issuer) if login.metadata else ""
    scopes = tuple((login.tokens.scope or "").split())
    return LoginFacts(issuer, scopes, login.expires_at, bool(login.tokens.refresh_token))


def _at_a_url(settings: ServerSettings) -> None:
    if not settings.url:
        raise UsageInvalid(
            f"server {settings.name} is started here and has no login", suggestion="pass its credentials with env"
        )


async def _refusal(
    settings: ServerSettings, authority: Authority, http: httpx2.AsyncClient, scopes: Sequence[str]
) -> httpx2.Response:
    """How the server refuses who has not logged in; where ``scopes`` are wanted, as if they were what was missing."""
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
        raise UsageInvalid("a scope has no spaces, quotation marks or backslashes in it")
    if wanted:
        return challenge(answer, wanted, "insufficient_scope")
    # A server that lets strangers in as far as it goes may still know whom to log in at.
    return answer if answer.status_code == 401 else challenge(answer, ())


async def _agreed(
    settings: ServerSettings, authority: Authority, answer: httpx2.Response, former: Login | None, person: Person
) -> Login:
    ports = [settings.auth.redirect_port] if settings.auth.redirect_port else [*_former_ports(former), 0]
    try:
        async with listening(person, ports) as redirect:
            return await authority.agreed(answer, former, redirect.uri, redirect.go, redirect.answer)
    except OSError as error:
        raise OAuthFlowError(f"no port for the browser to return to: {error}") from error


def _former_ports(login: Login | None) -> list[int]:
    """Where the client that was registered before lets the browser return to."""
    uris = (login.client.redirect_uris if login and login.client else None) or ()
    return [port for uri in uris if (port := urlsplit(str(uri)).port)]
