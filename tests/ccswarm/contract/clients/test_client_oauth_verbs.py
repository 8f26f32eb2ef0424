"""The verbs login and logout, and what other verbs say where a login is missing: real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ccswarm.config import config
from ccswarm.errors import LoginNeeded
from ccswarm.runs import app, service
from tests.ccswarm.support.oauth_servers import LoginServers, login_servers
from tests.ccswarm.support.verbs import Verbs
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked_awaited import Awaited, awaited

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]
PLAN = """
[[agents]]
name = "ada"
grants = ["web.*"]
[[steps]]
id = "one"
tool = "web.echo"
"""


@dataclass
class LoginHome:
    """A home with a configuration of one server that wants a login."""

    home: Path
    servers: LoginServers

    @asynccontextmanager
    async def begun(self, *words: str, **more: Any) -> AsyncGenerator[Awaited]:
        environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **more}
        async with awaited("ccswarm", words, cwd=self.home, env=environ, reads=True) as process:
            yield process

    async def say(self, *words: str, code: int = 0) -> Any:
        """What a verb tells in JSON that needs no process of its own."""
        said = await asyncio.to_thread(Verbs(self.home).run, *words, "--json", code=code)
        return json.loads(said.out)

    async def run(self, *words: str, **more: Any) -> tuple[int, str, str]:
        async with self.begun(*words, **more) as process, asyncio.timeout(BOUND_SECONDS):
            out, err = await process.communicate()
            return await process.wait(), out.decode(), err.decode()


@pytest.fixture
async def login_home(home: Path) -> AsyncIterator[LoginHome]:
    async with login_servers(home / "state") as made:
        server = f'[[mcp.servers]]\nname = "web"\nurl = "{made.guarded.url}"\n'
        (home / "ccswarm.toml").write_text(server + PLAN)
        yield LoginHome(home, made)


async def address(process: Awaited) -> str:
    """The one that a person is to go to."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not (line := (await process.stderr.readline()).decode()).startswith("http"):
            assert line, "it ended"
    return line.strip()


async def log_in(login_home: LoginHome) -> dict[str, Any]:
    async with login_home.begun("login", "web", "--no-browser", "--json") as process:
        url = await address(process)
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as browser:
            back = (await browser.get(url)).headers["location"]
        async with asyncio.timeout(BOUND_SECONDS):
            out, _ = await process.communicate(f"{back}\n".encode())
        assert await process.wait() == 0
    return json.loads(out)


async def test_what_needs_a_login_does_not_begin(login_home: LoginHome) -> None:
    settings = config.load(login_home.home / "ccswarm.toml").settings
    async with app.working(settings, config.state_directory(), config.server_environment()) as opened:
        with pytest.raises(LoginNeeded, match="server web requires a login: ccswarm login web") as caught:
            await service.check(opened, settings, str(login_home.home))
        assert caught.value.suggestion == "ccswarm login web"
        ada = settings.agents[0].model_copy(update={"grants": ("a.*",)})
        with pytest.raises(LoginNeeded):  # a step calls it
            await service.check(opened, settings.model_copy(update={"agents": (ada,)}), str(login_home.home))


@pytest.mark.torture
async def test_a_run_that_needs_a_login_does_not_begin(login_home: LoginHome) -> None:
    code, _, err = await login_home.run("run")
    assert code == 1
    assert "error login_needed: server web requires a login: ccswarm login web" in err
    assert "next: ccswarm login web" in err
    assert await login_home.say("runs", "list") == []


async def test_from_login_to_logout(login_home: LoginHome) -> None:
    facts = await log_in(login_home)
    assert (facts["server"], facts["scopes"], facts["renews_itself"]) == ("web", "tools:read", True)
    code, out, err = await login_home.run("run", "--json")
    assert code == 0, err
    assert login_home.servers.guarded.calls == [("echo", {})]
    secrets = [*login_home.servers.authorities.tokens, *login_home.servers.authorities.refreshing]
    assert not any(secret in out + err for secret in secrets)
    journal = b"".join(
        path.read_bytes() for path in (login_home.home / ".local/state/ccswarm/journal").rglob("*.jsonl")
    )
    assert journal
    assert not any(secret.encode() in journal for secret in secrets)
    checks = {check["check"]: check["detail"] for check in (await login_home.say("doctor"))["checks"]}
    assert "scopes tools:read" in checks["login web"]
    refused = await login_home.say("call", "web.write", code=1)
    assert "ccswarm login web --scope tools:write" in json.dumps(refused)
    assert await login_home.say("logout", "web") == {"server": "web", "was_logged_in": True, "revoked": True}
    assert login_home.servers.authorities.refreshing == {}


@pytest.mark.torture
async def test_a_browser_is_opened(login_home: LoginHome) -> None:
    browser = login_home.home / "browser"
    browser.write_text(
        f"#!{sys.executable}\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1], timeout=30).read()\n"
    )
    browser.chmod(0o755)
    code, out, err = await login_home.run("login", "web", BROWSER=f"{browser} %s")
    assert code == 0, err
    assert "tools:read" in out
    assert (await login_home.say("call", "web.echo"))["status"] == "ok"


async def test_names_of_no_such_server(login_home: LoginHome) -> None:
    reported = await login_home.say("login", "wep", code=2)
    assert reported["error"]["suggestion"] == "did you mean web?"
