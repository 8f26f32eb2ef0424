"""A provider that others made: django-oauth-toolkit signs people in, the front asks it about every token."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from ai_session.settings import OauthSettings
from tests.ai_session.contract.oauth_world import (
    BASE,
    CALL,
    CALL_HEADERS,
    CALLBACK,
    Clock,
    Front,
    Memory,
    opened,
    running,
)

pytestmark = [pytest.mark.anyio, pytest.mark.torture]
PASSWORD, SECRET = "carol's own password", "front's own secret"
BOUND_SECONDS = 60


@asynccontextmanager
async def provider(folder: Path) -> AsyncIterator[str]:
    """Its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ai_session.torture.django_issuer", str(folder), cwd=Path(__file__).parents[3],
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            url = (await process.stdout.readline()).decode().strip()
        assert url, "it did not start; is django-oauth-toolkit installed?"
        yield url
    finally:
        process.stdin.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await process.wait()


class Inputs(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        if tag == "input" and facts.get("name"):
            self.fields[str(facts["name"])] = facts.get("value") or ""


class Person:
    """Carol at her browser: fills whatever form is shown, until the way leads back to the client."""

    def __init__(self) -> None:
        self.http = httpx2.AsyncClient(trust_env=False)

    async def answer(self, url: str) -> Mapping[str, list[str]]:
        page = await self.http.get(url)
        for _ in range(8):
            if "location" in page.headers:
                url = urljoin(str(page.url), page.headers["location"])
                if url.startswith(CALLBACK):
                    return parse_qs(urlsplit(url).query)
                page = await self.http.get(url)
                continue
            assert page.status_code == 200, page.text
            said = {"username": "carol", "password": PASSWORD, "allow": "Authorize"}
            form = {name: said.get(name, value) for name, value in Inputs(page.text).fields.items()}
            page = await self.http.post(str(page.url), data=form, headers={"Referer": str(page.url)})
        raise AssertionError("the way does not lead back")


def client_of(front: Front, person: Person, memory: Memory) -> OAuthClientProvider:
    answers: list[Mapping[str, list[str]]] = []

    async def redirect(url: str) -> None:
        answers.append(await person.answer(url))

    async def callback() -> AuthorizationCodeResult:
        answer = answers.pop()
        return AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0], iss=answer["iss"][0])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], client_name="The SDK")
    return OAuthClientProvider(f"{front.base}/mcp", metadata, memory, redirect, callback)


class Both(httpx2.AsyncBaseTransport):
    """The front in this process, the provider over the network."""

    def __init__(self, front: Front) -> None:
        self._front = httpx2.ASGITransport(front.app)
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        inner = str(request.url).startswith(BASE)
        return await (self._front if inner else self._network).handle_async_request(request)


async def test_the_sdks_client_signs_in_at_another_issuer(tmp_path: Path) -> None:
    async with provider(tmp_path) as url:
        settings = OauthSettings(
            mode="external", issuer=url, introspection_url=f"{url}/introspect/",
            client_id="front", client_secret_variable="SECRET",
        )  # fmt: skip
        clock = Clock(time.time())
        async with opened(tmp_path, settings, environ={"SECRET": SECRET}, clock=clock) as front, running(front):
            memory, person = Memory(), Person()
            auth = client_of(front, person, memory)
            async with httpx2.AsyncClient(transport=Both(front), base_url=BASE, auth=auth) as client:
                answer = await client.post("/mcp", json=CALL, headers=CALL_HEADERS)
            said: Any = answer.json()["result"]["content"][0]["text"]
            place = url.removeprefix("http://")
            assert said == f"carol@{place} sessions:read sessions:write sessions:execute", front.events

            assert memory.tokens is not None
            assert memory.client is not None
            token, registered = memory.tokens.access_token, memory.client
            form = {"token": token, "client_id": registered.client_id}
            form |= {"client_secret": registered.client_secret} if registered.client_secret else {}
            assert (await person.http.post(f"{url}/revoke_token/", data=form)).status_code == 200
            clock.now += 31
            assert (await front.whoami(token)).status_code == 401
            assert front.noted("token_refused")
            await person.http.aclose()


async def test_tokens_it_made_for_somebody_else_are_refused(tmp_path: Path) -> None:
    async with provider(tmp_path) as url:
        settings = OauthSettings(
            mode="external", issuer=url, introspection_url=f"{url}/introspect/",
            client_id="front", client_secret_variable="SECRET",
        )  # fmt: skip
        async with opened(tmp_path, settings, environ={"SECRET": SECRET}) as front, running(front):
            async with httpx2.AsyncClient(trust_env=False) as http:
                for resource in ({}, {"resource": "https://other.example/mcp"}):
                    form = {"grant_type": "client_credentials", "scope": "sessions:read", **resource}
                    made = await http.post(f"{url}/token/", data=form, auth=("front", SECRET))
                    assert made.status_code == 200, made.text
                    assert (await front.whoami(made.json()["access_token"])).status_code == 401
            assert [facts["reason"] for facts in front.noted("token_refused")] == [
                "it was made for another audience"
            ] * 2
