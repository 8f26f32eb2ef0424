"""A certified provider that others made, oidc-provider: its signed tokens are read with the keys it publishes."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64decode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ai_session.config.settings import OauthSettings
from tests.ai_session.support.oauth_other_issuer import Person, say_who
from tests.ai_session.support.oauth_servers import BASE, Clock, Memory, opened, running
from tests.clients.node import FOLDERS, HERE, node
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def provider() -> AsyncIterator[str]:
    """Its URL."""
    process = await asyncio.create_subprocess_exec(
        node(),
        str(HERE / "issuer.mjs"),
        str(FOLDERS[0]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            url = (await process.stdout.readline()).decode().strip()
        assert url, "it did not start; run first: scripts/bootstrap test"
        yield url
    finally:
        process.stdin.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await process.wait()


async def test_the_sdks_client_signs_in_and_the_token_is_read_here(tmp_path: Path) -> None:
    async with provider() as url:
        settings = OauthSettings(mode="external", issuer=url)
        async with opened(tmp_path, settings, clock=Clock(time.time())) as front, running(front):
            memory, person = Memory(), Person(login="carol", password="any")
            location = url.removeprefix("http://")
            said = await say_who(front, person, memory)
            assert said == f"carol@{location} sessions:read sessions:write sessions:execute"
            await person.http.aclose()

            assert memory.tokens is not None
            header, claims, signature = memory.tokens.access_token.split(".")
            said_in_it = json.loads(urlsafe_b64decode(claims + "=="))
            assert (said_in_it["iss"], said_in_it["aud"]) == (url, f"{BASE}/mcp")
            assert not await front.holds(f"{header}.{claims}.{signature[:-6]}AAAAAA")
            front.clock.now += 3700
            assert not await front.holds(memory.tokens.access_token)

        other = OauthSettings(mode="external", issuer=url, audience="https://other.example/mcp")
        async with opened(tmp_path, other, clock=Clock(time.time())) as front:
            assert not await front.holds(memory.tokens.access_token)
            assert front.noted("token_refused")[0]["reason"] == "it is for another audience"
