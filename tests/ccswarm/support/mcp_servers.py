"""Small MCP servers, and clients of them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ccswarm.clients.mcp.elicitation import Ask
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.models import ServerAnswer
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
SERVERS = ROOT / "tests/data/swarm_servers"


def settings(script: str, *args: str, **more: Any) -> ServerSettings:
    given = {"cwd": "/", **more}  # in a workspace, a person would have to agree to it first
    return ServerSettings(name="small", command=f"{sys.executable} {SERVERS / script}.py", args=args, **given)


@asynccontextmanager
async def client_of(
    script: str,
    *args: str,
    eras: MutableMapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    env_of_server: dict[str, str] | None = None,
    ask: Ask | None = None,
    **more: Any,
) -> AsyncIterator[McpToolClient]:
    client = McpToolClient(
        settings(script, *args, env=env_of_server or {}, **more),
        env=os.environ if env is None else env,
        era_cache={} if eras is None else eras,
        ask=ask,
    )
    try:
        yield client
    finally:
        await client.close()


async def use(client: McpToolClient, name: str, /, **arguments: Any) -> ServerAnswer:
    return await client.call(name, arguments, meta={}, timeout_seconds=BOUND_SECONDS)


async def facts(client: McpToolClient) -> dict[str, Any]:
    return dict((await use(client, "facts")).structured or {})


async def held(client: McpToolClient, name: str, **options: Any) -> asyncio.Task[ServerAnswer]:
    """Begin a call that lasts until it is released, and wait until it has reached the server."""
    arrived = asyncio.Event()
    task = asyncio.create_task(
        client.call("hold", {"name": name}, meta={}, on_progress=lambda *_: arrived.set(), **options)
    )
    await asyncio.wait_for(arrived.wait(), BOUND_SECONDS)
    return task
