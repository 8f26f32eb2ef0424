"""Requests tokens from an authorization server, by the SDK's flows driven one step at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth, is_valid_client_metadata_url
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import AnyUrl, ValidationError

from ccswarm.clients._address import SecretScrubber, read_secret
from ccswarm.clients.mcp.bodies import read_whole
from ccswarm.clients.mcp.login_store import Login
from ccswarm.config.settings import ServerSettings, in_clear
from ccswarm.errors import ServerUnavailable

MAX_BODY_BYTES = 1 << 20
"""The largest response of an authorization server."""

ALWAYS_EXPIRED = 1.0
"""A Unix time in the past. With 0 the SDK would take the token to have no end."""

Redirect = Callable[[str], Awaitable[None]]
Callback = Callable[[], Awaitable[AuthorizationCodeResult]]
Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


class MemoryTokenStorage:
    """The SDK's storage during one of its flows."""

    def __init__(self, login: Login | None, client: OAuthClientInformationFull | None) -> None:
        self.tokens = login.tokens if login else None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Authority:
    """The authorization server of one server, reached with ``http``. Methods raise ServerUnavailable if it cannot be
    reached, and OAuthFlowError if it or the configuration does not allow the request."""

    def __init__(
        self, settings: ServerSettings, env: Mapping[str, str], http: httpx2.AsyncClient, scrubber: SecretScrubber
    ) -> None:
        self._settings = settings
        self._auth = settings.auth
        self._env = env
        self._http = http
        self._scrubber = scrubber

    async def refresh(self, login: Login) -> Login | None:
        """Return the login with a new token, or None if it has no refresh token or that is rejected."""
        if not (login.tokens.refresh_token and login.client):
            return None
        storage = MemoryTokenStorage(login, self._with_secret(login.client))
        provider = OAuthClientProvider(self._settings.url, self._metadata(None), storage)
        self._restore(provider, login)
        provider.context.token_expiry_time = ALWAYS_EXPIRED
        request = self.request()
        flow: Flow = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                response = await self._send(outgoing)
                if response.status_code >= 500 or response.status_code == 429:
                    raise ServerUnavailable(
                        f"the authorization server of {self._settings.name} answers HTTP {response.status_code}"
                    )
                outgoing = await flow.asend(response)
        finally:
            await flow.aclose()
        return self._login(provider, storage) if provider.context.is_token_valid() else None

    async def request_token(self, answer: httpx2.Response, login: Login | None) -> Login:
        """Request a token for ccswarm itself, after ``answer`` rejected a request."""
        auth, url = self._auth, self._settings.url
        storage = MemoryTokenStorage(login, None)
        scope = " ".join(auth.scopes) or None
        key = read_secret(self._settings, "private_key", self._env)
        if key:
            signed = SignedJWTParameters(
                issuer=auth.client_id, subject=auth.client_id, signing_key=key, signing_algorithm=auth.algorithm
            )
            provider: OAuthClientProvider = PrivateKeyJWTOAuthProvider(
                url, storage, auth.client_id, signed.create_assertion_provider(), scope=scope, issuer=auth.issuer
            )
        else:
            secret = read_secret(self._settings, "client_secret", self._env)
            self._scrubber.add("client_secret", secret)
            provider = ClientCredentialsOAuthProvider(
                url, storage, auth.client_id, secret, scope=scope, issuer=auth.issuer
            )
        await self._drive(provider, challenge(answer, auth.scopes) if scope and answer.status_code == 401 else answer)
        return self._login(provider, storage)

    async def authorize(
        self, answer: httpx2.Response, login: Login | None, redirect_uri: str, redirect: Redirect, callback: Callback
    ) -> Login:
        """Request a token that a person authorizes, after ``answer`` rejected a request. ``redirect`` takes the person
        to an address; ``callback`` returns what came back to ``redirect_uri``."""
        storage = MemoryTokenStorage(login, self._own_client(redirect_uri) or _reusable_client(login, redirect_uri))
        document = self._auth.client_metadata_url or None
        if document and not is_valid_client_metadata_url(document):
            raise OAuthFlowError("auth.client_metadata_url should be an https address with a path")

        async def checked(url: str) -> None:
            metadata = provider.context.oauth_metadata
            if metadata and "S256" not in (metadata.code_challenge_methods_supported or ()):
                raise OAuthFlowError("the authorization server does not advertise PKCE with S256")
            self._refuse_in_clear(url)
            await redirect(url)

        provider = OAuthClientProvider(
            self._settings.url, self._metadata(redirect_uri), storage, checked, callback, client_metadata_url=document
        )
        await self._drive(provider, answer)
        return self._login(provider, storage)

    async def revoke(self, login: Login) -> bool:
        """Revoke the login's tokens if the authorization server supports that; return whether it did."""
        endpoint = login.metadata and login.metadata.revocation_endpoint
        if not endpoint or not login.client:
            return False
        provider = OAuthClientProvider(self._settings.url, self._metadata(None), MemoryTokenStorage(login, None))
        provider.context.client_info = self._with_secret(login.client)
        token = login.tokens.refresh_token or login.token
        data, headers = provider.context.prepare_token_auth({"token": token, "client_id": login.client.client_id}, {})
        response = await self._send(httpx2.Request("POST", str(endpoint), data=data, headers=headers))
        return response.status_code < 400

    def request(self) -> httpx2.Request:
        """Return a request without effect that a server which requires a login rejects."""
        version = LATEST_MODERN_VERSION
        meta: dict[str, Any] = {"protocolVersion": version, "clientCapabilities": {}}
        params = {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": version,
            "mcp-method": "server/discover",
        }
        return httpx2.Request("POST", self._settings.url, json=body, headers=headers)

    async def _drive(self, provider: OAuthClientProvider, answer: httpx2.Response) -> None:
        """Run the SDK's flow as if a request had been answered so, up to where it would be sent again. The repeated
        request may take any time, and would block all others meanwhile."""
        request = self.request()
        flow: Flow = provider.async_auth_flow(request)
        fed = False
        try:
            outgoing = await anext(flow)
            while not (fed and outgoing is request):
                if outgoing is request:
                    response, fed = answer, True
                else:
                    response = await self._send(outgoing)
                    self._fit_secret(provider, outgoing, response)
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            raise OAuthFlowError("there is no token") from None
        finally:
            await flow.aclose()

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        self._refuse_in_clear(str(request.url))
        request.headers["Accept-Encoding"] = "identity"
        where = f"the authorization server of {self._settings.name}"
        try:
            async with asyncio.timeout(self._settings.connect_seconds):
                response = await self._http.send(request, stream=True, auth=None, follow_redirects=False)
                await read_whole(response, MAX_BODY_BYTES)
        except TimeoutError:
            raise ServerUnavailable(f"{where} did not answer in time: {request.url.host}") from None
        except httpx2.TransportError as error:
            words = str(error) or type(error).__name__
            raise ServerUnavailable(f"{where} cannot be reached: {request.url.host}: {words}") from error
        return response

    def _refuse_in_clear(self, url: str) -> None:
        """Reject unencrypted addresses: a server names them, but our secrets are sent there."""
        if in_clear(url) and not self._settings.insecure:
            raise OAuthFlowError(f"{url.partition('?')[0]} is plain http to another machine")

    def _metadata(self, redirect_uri: str | None) -> OAuthClientMetadata:
        return OAuthClientMetadata(
            client_name="ccswarm",
            redirect_uris=[AnyUrl(redirect_uri)] if redirect_uri else None,
            scope=None,
        )

    def _own_client(self, redirect_uri: str) -> OAuthClientInformationFull | None:
        auth = self._auth
        if not auth.client_id:
            return None
        secret = read_secret(self._settings, "client_secret", self._env) or None
        self._scrubber.add("client_secret", secret)
        return OAuthClientInformationFull(
            client_id=auth.client_id,
            client_secret=secret,
            redirect_uris=[AnyUrl(redirect_uri)],
            token_endpoint_auth_method="client_secret_basic" if secret else "none",
            issuer=auth.issuer or None,
        )

    def _with_secret(self, client: OAuthClientInformationFull) -> OAuthClientInformationFull:
        """Add the configured secret, which is stored only in the configuration."""
        secret = read_secret(self._settings, "client_secret", self._env)
        ours = secret and client.client_id == self._auth.client_id
        return client.model_copy(update={"client_secret": secret}) if ours else client

    def _without_secret(self, client: OAuthClientInformationFull | None) -> OAuthClientInformationFull | None:
        ours = client and client.client_id == self._auth.client_id
        return client.model_copy(update={"client_secret": None}) if client and ours else client

    def _fit_secret(self, provider: OAuthClientProvider, request: httpx2.Request, response: httpx2.Response) -> None:
        """Select how the configured secret is sent, by the authorization server's metadata. It runs before the SDK
        reads that metadata: the SDK's next request may contain the secret already."""
        client = provider.context.client_info
        if request.method != "GET" or response.status_code != 200 or not (client and client.client_secret):
            return
        with suppress(ValidationError):
            supported = OAuthMetadata.model_validate_json(response.content).token_endpoint_auth_methods_supported
            if supported and client.client_id == self._auth.client_id:
                ways = ("client_secret_basic", "client_secret_post")
                client.token_endpoint_auth_method = next((way for way in ways if way in supported), ways[0])

    def _restore(self, provider: OAuthClientProvider, login: Login) -> None:
        context = provider.context
        context.oauth_metadata = login.metadata
        context.protected_resource_metadata = login.resource
        if login.resource:
            context.auth_server_url = str(login.resource.authorization_servers[0])

    def _login(self, provider: OAuthClientProvider, storage: MemoryTokenStorage) -> Login:
        context = provider.context
        assert storage.tokens
        self._scrubber.add("access_token", storage.tokens.access_token)
        self._scrubber.add("refresh_token", storage.tokens.refresh_token)
        seconds = storage.tokens.expires_in
        return Login(
            tokens=storage.tokens,
            expires_at=None if seconds is None else time.time() + seconds,
            client=self._without_secret(context.client_info),
            metadata=context.oauth_metadata,
            resource=context.protected_resource_metadata,
        )


def challenge(answer: httpx2.Response, scopes: Sequence[str], error: str = "") -> httpx2.Response:
    """Return ``answer`` as if it had requested ``scopes``; with ``error``, as if they were missing."""
    fields = [f'error="{error}"'] if error else []
    if answer.status_code in (401, 403) and (where := extract_resource_metadata_from_www_auth(answer)):
        fields.append(f'resource_metadata="{where}"')
    if scopes:
        fields.append(f'scope="{" ".join(dict.fromkeys(scopes))}"')
    return httpx2.Response(403 if error else 401, headers={"www-authenticate": f"Bearer {', '.join(fields)}".strip()})


def _reusable_client(login: Login | None, redirect_uri: str) -> OAuthClientInformationFull | None:
    """Return the client that was registered before if it allows this redirect address."""
    client = login.client if login else None
    uris: list[Any] = list((client and client.redirect_uris) or ())
    return client if redirect_uri in [str(uri) for uri in uris] else None
