"""Signing in by the SDK's client if the issuer is another server, with its person and both transports."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from tests.ai_session.support.oauth_servers import BASE, CALL, CALL_HEADERS, CALLBACK, Front, Memory
from tests.support.bounds import BOUND_SECONDS


class Inputs(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.action = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        if tag == "form":
            self.action = facts.get("action") or ""
        if tag == "input" and facts.get("name"):
            self.fields[str(facts["name"])] = facts.get("value") or ""


class Person:
    """A person at a browser, who fills ``words`` into each form until redirected to the client."""

    def __init__(self, **words: str) -> None:
        self.http = httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS, verify=False)
        self._words = words

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
            inputs = Inputs(page.text)
            form = {name: self._words.get(name, value) for name, value in inputs.fields.items()}
            location = urljoin(str(page.url), inputs.action)
            page = await self.http.post(location, data=form, headers={"Referer": str(page.url)})
        raise AssertionError("it never redirects to the client")


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
    """A transport to the front in this process and to other servers over the network."""

    def __init__(self, front: Front) -> None:
        self._front = httpx2.ASGITransport(front.app)
        self._network = httpx2.AsyncHTTPTransport(verify=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        inner = str(request.url).startswith(BASE)
        return await (self._front if inner else self._network).handle_async_request(request)

    async def aclose(self) -> None:
        await self._network.aclose()


async def say_who(front: Front, person: Person, memory: Memory) -> str:
    """Return what the front responds to the SDK's client, which lets ``person`` sign in for it."""
    auth = client_of(front, person, memory)
    async with httpx2.AsyncClient(transport=Both(front), base_url=BASE, auth=auth) as client:
        answer = await client.post("/mcp", json=CALL, headers=CALL_HEADERS)
    assert answer.status_code == 200, (answer.text, front.events)
    return answer.json()["result"]["content"][0]["text"]
