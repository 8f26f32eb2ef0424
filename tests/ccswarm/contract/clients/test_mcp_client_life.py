"""How servers start, which era they speak, and how they end: real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.clients.mcp.plugin import PLUGIN, McpToolClient
from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.errors import ServerLost, ServerUnavailable
from ccswarm.models import CallRequest
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.toolboxes import Toolboxes
from tests.ccswarm.support.mcp_servers import BOUND_SECONDS, ROOT, client_of, facts, held, settings, use
from tests.support.forked_awaited import awaited
from tests.support.process_ends import ended
from tests.support.products import first

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["legacy", "modern"])
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[McpToolClient]:
    async with client_of("plain", request.param) as client:
        yield client


@pytest.mark.either("plain")
async def test_first_users_share_one_start(plain: McpToolClient) -> None:
    found = await asyncio.gather(*(facts(plain) for _ in range(20)))
    assert len({one["pid"] for one in found}) == 1


async def test_a_user_who_gives_up_does_not_end_the_start_of_others() -> None:
    async with client_of("plain") as client:
        leaving = asyncio.create_task(client.list_tools())
        second = asyncio.create_task(facts(client))
        await asyncio.sleep(0)
        leaving.cancel()
        assert (await second)["pid"]


async def test_a_server_gets_the_environment_it_is_meant_to_have() -> None:
    env = {name: name.lower() for name in ("HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")}
    env |= {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": "/run", "XDG_STATE_HOME": "/state"}
    secret = {"API_KEY": "hunter2", "PYTHONPATH": "/nowhere", "AWS_PROFILE": "x"}
    async with client_of("plain", env=env | secret, cwd="/usr", env_of_server={"TERM": "own", "TOKEN": "t"}) as client:
        found = await facts(client)
        assert found["environment"] == env | {"TERM": "own", "TOKEN": "t"}
        assert found["directory"] == "/usr"
        assert found["pid"] == found["group"]


async def test_where_agents_work_a_server_starts_behind_no_link(tmp_path: Path) -> None:
    """One that took the place of the directory, or of one above it, leads no server elsewhere; a directory that the
    person configured for a server may be a link."""
    for location in ("work/deep", "outside/deep"):
        (tmp_path / location).mkdir(parents=True)
    agent = AgentSettings(name="ada", grants=("small.*",))
    request = CallRequest("run_1", "t", "s", "ada", "small.facts", {})
    server = settings("plain", cwd="")

    async def started_in(directory: str, *servers: ServerSettings) -> Any:
        toolboxes = Toolboxes(servers, tmp_path / "state", {"PATH": os.environ["PATH"]}, "w")
        try:
            call = await toolboxes.call(ToolScope({"ada": agent}, directory))
            return await call(request)
        finally:
            await toolboxes.close()

    deep = str(tmp_path / "work/deep")
    assert deep in str(await started_in(deep, server))
    (tmp_path / "work").rename(tmp_path / "moved")
    (tmp_path / "work").symlink_to(tmp_path / "outside")
    reported = str(await started_in(deep, server))
    assert "cannot be entered without following a link" in reported
    assert "outside/deep" not in reported
    assert "outside/deep" in str(await started_in(deep, server.model_copy(update={"cwd": deep})))


@pytest.mark.parametrize("kind", ["banner", "half_banner"])
async def test_a_banner_does_not_disturb(kind: str) -> None:
    async with client_of("no_server", kind) as client:
        assert (await use(client, "hello")).text == "hello"


async def test_a_mute_server_is_given_up_in_time() -> None:
    async with client_of("no_server", "mute", connect_seconds=1.5) as client:
        with pytest.raises(ServerUnavailable, match=r"small did not answer within 1.5 s. Its last output:\nthinking"):
            await use(client, "hello")
        assert client.problem.startswith("server small did not answer within 1.5 s")


async def test_a_server_that_fails_to_start_is_reported_with_its_words() -> None:
    async with client_of("no_server", "crash") as client:
        with pytest.raises(ServerUnavailable) as caught:
            await client.list_tools()
        assert "server small ended with exit code 3. Its last output:" in caught.value.message
        assert caught.value.message.endswith("no licence found")
        assert caught.value.suggestion
        assert len(caught.value.message) < 4200
    async with client_of("no_server", "chatty_crash") as client:
        with pytest.raises(ServerUnavailable, match=r"exit code 1\. Its last output:\nError: cannot find module"):
            await client.list_tools()


@pytest.mark.parametrize(
    ("kind", "problem"),
    [("nonsense", "protocolVersion"), ("old_fashioned", "Unsupported protocol version from the server: 1999-01-01")],
)
async def test_a_program_that_does_not_speak_the_protocol(kind: str, problem: str) -> None:
    async with client_of("no_server", kind) as client:
        with pytest.raises(ServerUnavailable, match=f"server small does not speak the protocol: (.|\n)*{problem}"):
            await client.list_tools()


async def test_a_server_that_reads_no_more_is_lost() -> None:
    """Before what it leaves unread fills the memory."""
    async with client_of("no_server", "full") as client:
        await use(client, "hello")
        calls = (use(client, "hello", text="x" * 8_000_000) for _ in range(9))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {str(end).partition(", ")[2] for end in ends} == {"server small does not read its input"}
        assert (await use(client, "hello")).text == "full"


@pytest.mark.parametrize("command", ["/nonexistent/program", "nonexistent-program", "/etc/passwd", "cat\0x"])
async def test_a_command_that_cannot_be_run(command: str) -> None:
    settings = ServerSettings(name="small", command=command)
    client = McpToolClient(settings, env=os.environ, era_cache={})
    with pytest.raises(ServerUnavailable, match="small cannot be started"):
        await client.list_tools()
    await client.close()


async def test_after_close_nothing_starts_any_more() -> None:
    async with client_of("plain") as client:
        await client.list_tools()
    with pytest.raises(ServerUnavailable, match="was closed"):
        await client.list_tools()


async def test_the_era_is_kept() -> None:
    eras: dict[str, str] = {}
    for kind, era in (("legacy", "legacy"), ("modern", "modern"), ("both", "modern")):
        async with client_of("plain", kind, eras=eras) as client:
            await client.list_tools()
        assert list(eras.values())[-1] == era
    assert len(eras) == 3


async def test_a_deaf_server_is_probed_once(tmp_path: Path) -> None:
    """Its first start takes the time of the probe, later ones do not ask."""
    for requests in (["server/discover", "initialize"], ["initialize"]):
        client = PLUGIN.open(settings("plain", "deaf"), env=os.environ, state_directory=tmp_path / "state")
        answer = await client.call("facts", {}, meta={})
        assert answer.structured is not None
        assert answer.structured["requests"][:-1] == requests
        await client.close()


@pytest.mark.torture
async def test_a_server_that_dies_of_the_probe_is_started_again_without() -> None:
    eras: dict[str, str] = {}
    async with client_of("no_server", "probe_dies", eras=eras) as client:
        assert (await use(client, "hello")).text == "hello"
    assert list(eras.values()) == ["legacy"]


@pytest.mark.parametrize("kind", first(["late", "late_both", "late_last"], "late_both"))
async def test_a_server_that_starts_late_is_asked_both_and_speaks_what_it_speaks(kind: str) -> None:
    eras: dict[str, str] = {}
    async with client_of("no_server", kind, eras=eras) as client:
        assert (await use(client, "hello")).text == "hello"
    assert list(eras.values()) == ["modern"]


async def test_an_era_that_is_no_longer_right_is_found_again() -> None:
    eras: dict[str, str] = {}
    for kind in ("legacy", "modern"):
        async with client_of("plain", kind, eras=eras) as client:
            await client.list_tools()
    legacy, modern = eras
    swapped = {legacy: "modern", modern: "legacy"}
    for kind in ("legacy", "modern"):
        async with client_of("plain", kind, eras=swapped) as client:
            assert (await use(client, "echo", text=kind)).text == kind
    assert swapped == eras


@pytest.mark.parametrize("content", first(["", "{", "[]", '{"x": 1}', "\0"], "{"))
async def test_a_broken_cache_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "eras.json").write_text(content)
    client = PLUGIN.open(settings("plain", "both"), env=os.environ, state_directory=tmp_path)
    assert await client.list_tools()
    await client.close()


@pytest.mark.parametrize("spawned", [False, True])
@pytest.mark.corners
async def test_a_server_that_dies_in_a_call_is_lost_at_once_and_starts_again(
    plain: McpToolClient, spawned: bool
) -> None:
    """Also when a child of it keeps its pipes open."""
    await plain.list_tools()
    child = (await use(plain, "spawn")).structured if spawned else None
    others = [await held(plain, str(number)) for number in range(3)]
    with pytest.raises(ServerLost, match="while die was called, server small ended with exit code 9") as caught:
        await use(plain, "die", code=9, words="goodbye")
    assert "goodbye" in caught.value.message
    for other in others:
        with pytest.raises(ServerLost):
            await other
    assert "exit code 9" in plain.problem
    assert (await facts(plain))["requests"][-1] == "tools/call"
    assert plain.problem == ""
    if child:
        await ended(child["pid"])


@pytest.mark.either("plain")
async def test_a_server_killed_between_calls_starts_again_and_is_listed_again(plain: McpToolClient) -> None:
    await use(plain, "change", name="newcomer")
    assert "newcomer" in {tool.name for tool in await plain.list_tools()}
    pid = (await facts(plain))["pid"]
    os.kill(pid, signal.SIGKILL)
    await ended(pid)
    assert "newcomer" not in {tool.name for tool in await plain.list_tools()}
    assert (await facts(plain))["pid"] != pid


@pytest.mark.either("plain")
async def test_the_last_answer_of_a_server_that_ends_counts(plain: McpToolClient) -> None:
    reported: list[Any] = []
    for _ in range(2):
        pid = (await facts(plain))["pid"]
        answer = await plain.call("last", {}, meta={}, on_progress=lambda *step: reported.append(step))
        assert answer.text == "the last answer"
        await ended(pid)
    assert len(reported) == 2 * 500


@pytest.mark.either("plain")
async def test_a_server_that_closes_its_output_is_lost_and_ended(plain: McpToolClient) -> None:
    pid = (await facts(plain))["pid"]
    with pytest.raises(ServerLost, match="closed its output"):
        await use(plain, "shut")
    await ended(pid)
    assert (await use(plain, "echo", text="on")).text == "on"


@pytest.mark.either("plain")
async def test_close_ends_the_whole_group_and_calls_under_way(plain: McpToolClient) -> None:
    pids = [(await facts(plain))["pid"], int((await use(plain, "spawn")).text)]
    call = await held(plain, "a")
    await asyncio.wait_for(plain.close(), BOUND_SECONDS)
    with pytest.raises(ServerLost, match="server small was closed"):
        await call
    for pid in pids:
        await ended(pid)


@pytest.mark.parametrize("impatient", [False, True])
async def test_close_ends_servers_that_do_not_want_to_end(impatient: bool) -> None:
    """Also where it is closed again meanwhile: nothing of it stays open, which would be a warning."""
    heard, said = "", asyncio.Event()

    def hear(words: str) -> None:
        nonlocal heard
        heard += words
        if re.search(r"child \d+\n", heard):
            said.set()

    client = McpToolClient(settings("no_server", "stubborn"), env=os.environ, era_cache={}, on_stderr=hear)
    start = asyncio.create_task(client.list_tools())
    await asyncio.wait_for(said.wait(), BOUND_SECONDS)
    closing = asyncio.create_task(client.close())
    for _ in range(8 if impatient else 0):
        await asyncio.sleep(0)
    await client.close()
    await closing
    with pytest.raises(ServerUnavailable, match="was closed"):
        await start
    await ended(int(heard.partition("child ")[2]))


async def test_close_while_it_starts() -> None:
    async with client_of("no_server", "mute") as client:
        start = asyncio.create_task(client.list_tools())
        await asyncio.sleep(0)
        await asyncio.wait_for(client.close(), BOUND_SECONDS)
        with pytest.raises(ServerUnavailable, match="was closed"):
            await start


KILLED = """
import asyncio, os, sys
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ServerSettings

settings = ServerSettings(name="small", command=sys.argv[1])
client = McpToolClient(settings, env=os.environ, era_cache={}, on_stderr=lambda words: print(words, end="", flush=True))
asyncio.run(client.list_tools())
"""


async def test_no_orphan_when_the_client_is_killed(tmp_path: Path) -> None:
    """Neither the server, which ignores the end of its input and SIGTERM, nor its child, which does so too."""
    words, script = [f"{settings('no_server', 'stubborn').command} stubborn"], tmp_path / "killed.py"
    script.write_text(KILLED)
    async with awaited("ccswarm", words, cwd=ROOT, env=os.environ, script=str(script)) as process:
        async with asyncio.timeout(BOUND_SECONDS):
            while not (line := await process.stdout.readline()).startswith(b"child "):
                pass
        child = int(line.split()[1])
        server = os.getpgid(child)
        process.kill()
        await process.wait()
    await ended(server)
    await ended(child)
