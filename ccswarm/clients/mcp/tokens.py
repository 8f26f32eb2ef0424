"""Adds the token of a login to requests, renews it when it ends, and reports when a person has to log in."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import suppress

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth

from ccswarm.clients._address import SecretScrubber
from ccswarm.clients.mcp.bodies import read_whole
from ccswarm.clients.mcp.login_store import Login, Logins
from ccswarm.clients.mcp.oauth import MAX_BODY_BYTES, Authority
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerUnavailable, SwarmError

SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


class TokenAuth(httpx2.Auth):
    """The authentication at one server. Raises LoginNeeded if a request needs a login that does not exist, and
    ServerUnavailable if an authorization server cannot be reached."""

    def __init__(
        self, settings: ServerSettings, authority: Authority, logins: Logins, scrubber: SecretScrubber
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._logins = logins
        self._scrubber = scrubber
        self._renewing = asyncio.Lock()
        self._login: Login | None = None
        self._read = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        login = await self._current()
        used = self._add_token(request, login)
        response = yield request
        for _ in range(2):  # one for an expired token, one for missing scopes
            wanted = scopes_wanted(response)
            if response.status_code != 401 and wanted is None:
                return
            await read_whole(response, MAX_BODY_BYTES)
            login = await self._renew(used, response)
            if login is None or login.token == used:
                raise self._login_needed(used, wanted)
            used = self._add_token(request, login)
            response = yield request
        wanted = scopes_wanted(response)
        if response.status_code == 401 or wanted is not None:
            await read_whole(response, MAX_BODY_BYTES)
            raise self._login_needed(used, wanted)

    def _add_token(self, request: httpx2.Request, login: Login | None) -> str:
        if login is None:
            return ""
        request.headers["Authorization"] = f"Bearer {login.token}"
        return login.token

    async def _current(self) -> Login | None:
        if not self._read:
            self._set_login(await self._logins.read())
            self._read = True
        if self._login and self._login.ends_soon:
            with suppress(ServerUnavailable):  # it is still valid; the server rejects it when it is not
                await self._renew(self._login.token, None)
        return self._login

    async def _renew(self, used: str, answer: httpx2.Response | None) -> Login | None:
        """Return a login with another token than ``used``, if it can be had without a person. Without an ``answer``
        that rejected it, the token is only about to end."""
        async with self._renewing:
            if self._login and self._login.token != used:
                return self._login
            async with self._logins.locked():
                found = await self._logins.read()
                if found and found.token != used:  # another process renewed it
                    return self._set_login(found)
                try:
                    renewed = await self._request_new(found, answer)
                except SwarmError:
                    raise
                except Exception as error:  # servers' metadata may break any step
                    raise self._login_failed(error) from error
                if renewed is None:
                    return self._login
                await self._logins.write(renewed)
            return self._set_login(renewed)

    async def _request_new(self, login: Login | None, answer: httpx2.Response | None) -> Login | None:
        itself = self._settings.auth.grant == "client_credentials"
        if login and (answer is None or answer.status_code == 401):
            refreshed = await self._authority.refresh(login)
            if refreshed:
                return refreshed
        return await self._authority.request_token(answer, login) if itself and answer else None

    def _set_login(self, login: Login | None) -> Login | None:
        self._login = login
        if login:
            self._scrubber.add("access_token", login.token)
            self._scrubber.add("refresh_token", login.tokens.refresh_token)
            self._scrubber.add("client_secret", login.client and login.client.client_secret)
        return login

    def _login_failed(self, error: Exception) -> LoginNeeded:
        name = self._settings.name
        words = self._scrubber.text(str(error) or type(error).__name__)[:500]
        return LoginNeeded(
            f"server {name} requires a login, which failed: {words}", suggestion=f"ccswarm login {name} tries again"
        )

    def _login_needed(self, used: str, wanted: str | None) -> LoginNeeded:
        name = self._settings.name
        command = f"ccswarm login {name}" + (f" --scope {shlex.quote(wanted)}" if wanted else "")
        if self._settings.auth.grant == "client_credentials":
            why = "rejects the token it was given"
            command = (
                f"check the permissions of client {self._settings.auth.client_id} and auth.scopes; {command} tries it"
            )
        elif wanted is not None:
            why = f"requires a login with more scopes ({wanted})" if wanted else "requires a login with more rights"
        else:
            why = "requires a new login" if used else "requires a login"
        return LoginNeeded(f"server {name} {why}: {command}", suggestion=command)


def scopes_wanted(response: httpx2.Response) -> str | None:
    """Return the scopes that a request lacked, or None if it was rejected for another reason or not at all."""
    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    named = (extract_scope_from_www_auth(response) or "").split()
    return " ".join(scope for scope in named if SCOPE_TOKEN.fullmatch(scope))
