"""What the official conformance suite drives as a client of the server whose address it is told. All it does, it does
with ccswarm's own client; for a person it goes to the address of a login and follows where that leads."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ccswarm.clients.mcp.plugin import McpClients, McpToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, SwarmError
from ccswarm.models import ToolInfo
from tests.support.bounds import BOUND_SECONDS

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
DOCUMENT = "https://conformance-test.local/client-metadata.json"
MOST_LOGINS = 3
SAMPLES: dict[str, Any] = {"integer": 1, "number": 1, "boolean": False, "object": {}, "array": [], "null": None}

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "request-metadata": [("add_numbers", {"a": 5, "b": 3})],
    "http-standard-headers": [("add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("test_reconnection", {})],
    "elicitation-sep1034-client-defaults": [("test_client_elicitation_defaults", {})],
    "http-custom-headers": [(call["name"], call.get("arguments") or {}) for call in GIVEN.get("toolCalls", ())],
    "sep-2322-client-request-state": [
        ("test_mrtr_echo_state", {}),
        ("test_mrtr_unrelated", {}),
        ("test_mrtr_no_state", {}),
        ("test_mrtr_no_result_type", {}),
    ],
}
UNHURRIED = {"connect_seconds": BOUND_SECONDS, "timeout_seconds": BOUND_SECONDS}
LISTED_ONLY = ("initialize", "json-schema-ref-no-deref")


ASKED = ("elicitation-sep1034-client-defaults", "sep-2322-client-request-state", "request-metadata")


async def agrees(_: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fills in what has no default."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {name: one.get("type") == "boolean" for name, one in properties.items() if "default" not in one}


class Walker:
    """Agrees to everything, as a browser would that is told to."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def go_to(self, url: str) -> None:
        self.tasks.add(asyncio.create_task(self._walk(url)))

    async def _walk(self, url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as browser:
            answer = await browser.get(url)
            await browser.get(answer.headers["location"])

    def show(self, message: str) -> None:
        print(message, file=sys.stderr)

    async def pasted(self) -> str:
        return await asyncio.get_running_loop().create_future()


async def issuer_of(url: str) -> str:
    """The authorization server a secret belongs to: elsewhere it is configured, the suite tells it by the server."""
    address = httpx2.URL(url)
    async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as http:
        for path in (f"/.well-known/oauth-protected-resource{address.path}", "/.well-known/oauth-protected-resource"):
            answer = await http.get(address.copy_with(path=path, query=None))
            if answer.status_code == 200:
                return str(answer.json()["authorization_servers"][0])
    raise AssertionError("the server does not say who gives tokens for it")


async def settings_of(url: str) -> tuple[ServerSettings, dict[str, str]]:
    auth: dict[str, Any] = {"client_metadata_url": DOCUMENT} if SCENARIO.startswith("auth/") else {}
    env = {name: str(GIVEN[name]) for name in ("client_secret", "private_key_pem") if name in GIVEN}
    if "client_id" in GIVEN and env:
        auth |= {"client_id": GIVEN["client_id"], "issuer": await issuer_of(url)}
    if "client_secret" in env:
        auth["client_secret"] = "env:client_secret"
    if "private_key_pem" in env:
        auth |= {"private_key": "env:private_key_pem", "algorithm": GIVEN.get("signing_algorithm", "ES256")}
    if "client-credentials" in SCENARIO:
        auth["grant"] = "client_credentials"
    return ServerSettings.model_validate({"name": "suite", "url": url, "auth": auth, **UNHURRIED}), env


def sample(tool: ToolInfo) -> dict[str, Any]:
    """Arguments that a tool takes."""
    properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
    return {
        name: SAMPLES.get(properties.get(name, {}).get("type"), "x") for name in tool.input_schema.get("required", ())
    }


async def work(client: McpToolClient) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    if SCENARIO == "json-schema-2020-12-preservation":
        schema = tools["json_schema_2020_12_tool"].input_schema
        await client.call("json_schema_echo", {"schema": schema}, meta={})
        return
    calls = [call for call in CALLS.get(SCENARIO, ()) if call[0] in tools]
    if SCENARIO not in CALLS and SCENARIO not in LISTED_ONLY:
        calls = [(tool.name, sample(tool)) for tool in tools.values()]
    for name, arguments in calls:
        answer = await client.call(name, arguments, meta={})
        print(name, answer, file=sys.stderr)


async def main(url: str) -> None:
    settings, env = await settings_of(url)
    clients, walker = McpClients(), Walker()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(MOST_LOGINS):
            era = "modern" if VERSION in MODERN_PROTOCOL_VERSIONS else "legacy"
            asks = {"ask": agrees} if SCENARIO in ASKED else {}
            client = McpToolClient(settings, env=env, era_cache=Known(era), state_directory=Path(folder), **asks)
            try:
                await work(client)
                return
            except LoginNeeded as error:
                print(error, error.suggestion, file=sys.stderr)
                scopes = error.suggestion.partition(" --scope ")[2].strip("'").split()
                await clients.log_in(settings, env, Path(folder), walker, scopes=scopes, seconds=BOUND_SECONDS)
            except SwarmError as error:
                print(repr(error), file=sys.stderr)
                raise
            finally:
                await client.close()


class Known(dict[str, str]):
    """An era cache that says the same of every server."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self._era = era

    def get(self, *_: Any) -> Any:
        return self._era
