"""A provider that others made: django-oauth-toolkit signs people in, the front asks it about every token."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from ai_session.config.settings import OauthSettings
from tests.ai_session.support.oauth_other_issuer import Person, say_who
from tests.ai_session.support.oauth_servers import Clock, Memory, opened, running
from tests.support.bounds import BOUND_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.torture]
PASSWORD, SECRET = "carol's own password", "front's own secret"


@asynccontextmanager
async def provider(folder: Path) -> AsyncIterator[str]:
    """Its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.ai_session.torture.django_issuer",
        str(folder),
        cwd=Path(__file__).parents[3],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
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


def asked_at(url: str) -> OauthSettings:
    return OauthSettings(
        mode="external",
        issuer=url,
        introspection_url=f"{url}/introspect/",
        client_id="front",
        client_secret_variable="SECRET",
    )


async def test_the_sdks_client_signs_in_at_another_issuer(tmp_path: Path) -> None:
    async with provider(tmp_path) as url:
        clock = Clock(time.time())
        async with opened(tmp_path, asked_at(url), environ={"SECRET": SECRET}, clock=clock) as front, running(front):
            memory, person = Memory(), Person(username="carol", password=PASSWORD, allow="Authorize")
            said = await say_who(front, person, memory)
            location = url.removeprefix("http://")
            assert said == f"carol@{location} sessions:read sessions:write sessions:execute"

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
    async with (
        provider(tmp_path) as url,
        opened(tmp_path, asked_at(url), environ={"SECRET": SECRET}) as front,
        running(front),
    ):
        async with httpx2.AsyncClient(trust_env=False) as http:
            for resource in ({}, {"resource": "https://other.example/mcp"}):
                form = {"grant_type": "client_credentials", "scope": "sessions:read", **resource}
                made = await http.post(f"{url}/token/", data=form, auth=("front", SECRET))
                assert made.status_code == 200, made.text
                assert (await front.whoami(made.json()["access_token"])).status_code == 401
        assert [facts["reason"] for facts in front.noted("token_refused")] == ["it is for another audience"] * 2
