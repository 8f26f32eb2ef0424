"""Requests carry the token of a login, which is renewed when it ends; where a person has to log in, that is said."""

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
    """Of one server. Raises LoginNeeded where a request needs a login that there is not, and ServerUnavailable where
    an authorization server cannot be reached."""

    def __init__(
        self, settings: ServerSettings, authority: Authority, logins: Logins, scrubber: SecretScrubber
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._logins = logins
        self._scrubber = scrubber
        self._one_at_a_time = asyncio.Lock()
        self._login: Login | None = None
        self._read = False

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        login = await self._current()
        used = self._carry(request, login)
        response = yield request
        for _ in range(2):  # a token that ended, and one that may do too little
            wanted = scopes_wanted(response)
            if response.status_code != 401 and wanted is None:
                return
            await read_whole(response, MAX_BODY_BYTES)
            login = await self._renewed(used, response)
            if login is None or login.token == used:
                raise self._needed(used, wanted)
            used = self._carry(request, login)
            response = yield request
        wanted = scopes_wanted(response)
        if response.status_code == 401 or wanted is not None:
            await read_whole(response, MAX_BODY_BYTES)
            raise self._needed(used, wanted)

    def _carry(self, request: httpx2.Request, login: Login | None) -> str:
        if login is None:
            return ""
        request.headers["Authorization"] = f"Bearer {login.token}"
        return login.token

    async def _current(self) -> Login | None:
        if not self._read:
            self._keep(await self._logins.read())
            self._read = True
        if self._login and self._login.ends_soon:
            with suppress(ServerUnavailable):  # it is not over yet; the server will say so
                await self._renewed(self._login.token, None)
        return self._login

    async def _renewed(self, used: str, answer: httpx2.Response | None) -> Login | None:
        """A login with another token than ``used``, where one is to be had without a person. Without an ``answer`` that
        refused it, it is only about to end."""
        async with self._one_at_a_time:
            if self._login and self._login.token != used:
                return self._login
            async with self._logins.held():
                found = await self._logins.read()
                if found and found.token != used:  # another process did it
                    return self._keep(found)
                try:
                    renewed = await self._another(found, answer)
                except SwarmError:
                    raise
                except Exception as error:  # what servers say of themselves may break any of it
                    raise self._failed(error) from error
                if renewed is None:
                    return self._login
                await self._logins.write(renewed)
            return self._keep(renewed)

    async def _another(self, login: Login | None, answer: httpx2.Response | None) -> Login | None:
        itself = self._settings.auth.grant == "client_credentials"
        if login and (answer is None or answer.status_code == 401):
            refreshed = await self._authority.refreshed(login)
            if refreshed:
                return refreshed
        return await self._authority.granted(answer, login) if itself and answer else None

    def _keep(self, login: Login | None) -> Login | None:
        self._login = login
        if login:
            self._scrubber.add("access_token", login.token)
            self._scrubber.add("refresh_token", login.tokens.refresh_token)
            self._scrubber.add("client_secret", login.client and login.client.client_secret)
        return login

    def _failed(self, error: Exception) -> LoginNeeded:
        name = self._settings.name
        words = self._scrubber.text(str(error) or type(error).__name__)[:500]
        return LoginNeeded(
            f"server {name} requires a login, which failed: {words}", suggestion=f"ccswarm login {name} tries again"
        )

    def _needed(self, used: str, wanted: str | None) -> LoginNeeded:
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
    """The scopes that a request lacked; None where it was refused for another reason, or not at all."""
    if response.status_code != 403 or extract_field_from_www_auth(response, "error") != "insufficient_scope":
        return None
    named = (extract_scope_from_www_auth(response) or "").split()
    return " ".join(scope for scope in named if SCOPE_TOKEN.fullmatch(scope))
