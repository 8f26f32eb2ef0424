"""ccswarm's client and the front of the real ai-session, over HTTP: people's logins, machines', scopes, a restart."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from ccswarm.clients.mcp.plugin import McpClients, McpToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerLost, ServerUnavailable
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.oauth_servers import PASSWORD, Form
from tests.conftest import UNBOXED_VARIABLES
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
READ_ONLY = ("sessions:read",)


@asynccontextmanager
async def fronted(line: CommandLine, port: int = 0) -> AsyncIterator[tuple[str, Process]]:
    """The front as a process; its address."""
    words = [sys.executable, "-m", "ai_session", "mcp-server", "--http", "--port", str(port)]
    environ = {**line.env, **UNBOXED_VARIABLES}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=line.home, env=environ, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            while "Serving MCP at " not in (said := (await process.stdout.readline()).decode()):
                assert said, "it ended"
        rest = asyncio.create_task(process.stdout.read())
        yield said.partition("Serving MCP at ")[2].split()[0], process
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@dataclass
class Alice:
    """A person at a browser, who signs in and grants ``scopes`` of what is asked for."""

    scopes: tuple[str, ...] = READ_ONLY
    walks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def go_to(self, url: str) -> None:
        self.walks.add(asyncio.create_task(self._walk(url)))

    async def _walk(self, url: str) -> None:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as http:

            async def send(page: httpx2.Response, action: str, **fields: Any) -> httpx2.Response:
                form = {**Form(page.text).fields, "action": action, **fields}
                return await http.post(f"{origin}/authorize", data=form, headers={"Origin": origin})

            page = await send(await http.get(url), "sign-in", name="alice", password=PASSWORD)
            answer = await send(page, "allow", scope=list(self.scopes))
            assert answer.status_code == 303, answer.text
            assert (await http.get(answer.headers["location"])).status_code == 200

    def show(self, message: str) -> None:
        raise AssertionError(message)

    async def pasted(self) -> str:
        return await asyncio.get_running_loop().create_future()


@pytest.fixture
def line(home: Path) -> Any:
    with CommandLine(home) as line:
        line.run("http", "user", "add", "alice", input=f"{PASSWORD}\n")
        yield line


@asynccontextmanager
async def client_of(settings: ServerSettings, state: Path, **env: str) -> AsyncIterator[McpToolClient]:
    client = McpToolClient(settings, env=env, era_cache={}, state_directory=state)
    try:
        yield client
    finally:
        await client.close()


async def structured(client: McpToolClient, name: str, /, **arguments: Any) -> dict[str, Any]:
    answer = await client.call(name, arguments, meta={}, timeout_seconds=BOUND_SECONDS)
    assert not answer.is_error, answer.text
    return dict(answer.structured or {})


@pytest.mark.torture
async def test_a_person_logs_in_and_grants_more_later(line: CommandLine, tmp_path: Path) -> None:
    async with fronted(line) as (url, process):
        settings = ServerSettings(name="shell", url=url, trusted=True)
        async with client_of(settings, tmp_path) as client:
            with pytest.raises(LoginNeeded, match="ccswarm login shell"):
                await client.list_tools()
            found = await McpClients().log_in(settings, {}, tmp_path, Alice(), seconds=BOUND_SECONDS)
            assert set(found.scopes) >= set(READ_ONLY)
            assert (await structured(client, "list_sessions"))["sessions"] == []
            with pytest.raises(LoginNeeded, match="sessions:execute") as caught:
                await client.call("create_session", {"name": "a"}, meta={})
            assert "ccswarm login shell --scope" in caught.value.suggestion
            more = ("sessions:read", "sessions:write", "sessions:execute")
            await McpClients().log_in(settings, {}, tmp_path, Alice(more), scopes=more, seconds=BOUND_SECONDS)
            session = (await structured(client, "create_session", name="a"))["session_id"]
            arguments = {"session_id": session, "command": "echo $((6 * 7)) >> ran; cat ran", "call_key": "one"}
            first = await structured(client, "execute_command", **arguments)
            assert (first["exit_code"], first["output"].strip()) == (0, "42")
            process.terminate()
            await process.wait()
            async with fronted(line, urlsplit(url).port or 0):
                again = await repeated(client, arguments)
                assert again["output"].strip() == "42"
            await McpClients().log_out(settings, {}, tmp_path)


async def repeated(client: McpToolClient, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same call, with the same key, where the connection of before may be dead."""
    try:
        return await structured(client, "execute_command", **arguments)
    except (ServerLost, ServerUnavailable):
        return await structured(client, "execute_command", **arguments)


@pytest.mark.torture
async def test_a_machine_logs_in_by_itself(line: CommandLine, tmp_path: Path) -> None:
    made = json.loads(line.out("http", "client", "add", "nightly", "--scope", "sessions:read", "--json"))
    async with fronted(line) as (url, _):
        issuer = url.removesuffix("/mcp")
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as http:
            reported = (await http.get(f"{issuer}/.well-known/oauth-protected-resource/mcp")).json()
        auth: dict[str, Any] = {
            "grant": "client_credentials",
            "client_id": made["client_id"],
            "client_secret": "env:NIGHTLY",
        }
        auth |= {"scopes": ["sessions:read"]}
        auth["issuer"] = reported["authorization_servers"][0]
        settings = ServerSettings.model_validate({"name": "shell", "url": url, "auth": auth})
        async with client_of(settings, tmp_path, NIGHTLY=made["client_secret"]) as client:
            assert (await structured(client, "list_sessions"))["sessions"] == []
            with pytest.raises(ServerUnavailable, match=r"which failed: .*invalid_scope"):
                await client.call("create_session", {"name": "a"}, meta={})
        assert made["client_secret"] not in next((tmp_path / "logins").glob("*.json")).read_text()
