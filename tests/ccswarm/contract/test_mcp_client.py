"""The MCP client against real small servers, of both eras where it makes a difference."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from ccswarm.clients.mcp import PLUGIN, McpToolClient
from ccswarm.errors import CallTimedOut, InvalidArguments, ServerLost, ServerUnavailable, SwarmError, UnknownTool
from ccswarm.models import ServerAnswer
from ccswarm.settings import ServerSettings, ToolFilter

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).parents[2] / "data/swarm_servers"
BOUND_SECONDS = 10.0


def settings(script: str, *args: str, **more: Any) -> ServerSettings:
    return ServerSettings(name="small", command=f"{sys.executable} {SERVERS / script}.py", args=args, **more)


@asynccontextmanager
async def client_of(
    script: str,
    *args: str,
    eras: MutableMapping[str, str] | None = None,
    env: Any = None,
    env_of_server: dict[str, str] = {},
    **more: Any,
) -> AsyncIterator[McpToolClient]:
    client = McpToolClient(
        settings(script, *args, env=env_of_server, **more),
        env=os.environ if env is None else env,
        era_cache={} if eras is None else eras,
    )
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture(params=["legacy", "modern"])
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[McpToolClient]:
    async with client_of("plain", request.param) as client:
        yield client


async def use(client: McpToolClient, name: str, /, **arguments: Any) -> ServerAnswer:
    return await client.call(name, arguments, meta={}, timeout_seconds=BOUND_SECONDS)


async def facts(client: McpToolClient) -> dict[str, Any]:
    return dict((await use(client, "facts")).structured or {})


async def held(client: McpToolClient, name: str, **options: Any) -> asyncio.Task[ServerAnswer]:
    """A call that has reached the server and goes on there until it is released."""
    arrived = asyncio.Event()
    task = asyncio.create_task(
        client.call("hold", {"name": name}, meta={}, on_progress=lambda *_: arrived.set(), **options)
    )
    await asyncio.wait_for(arrived.wait(), BOUND_SECONDS)
    return task


async def ended(pid: int) -> None:
    """Returns when the process is gone."""
    gone = asyncio.Event()
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    asyncio.get_running_loop().add_reader(fd, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), BOUND_SECONDS)
    finally:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


# Calls


async def test_a_call_carries_arguments_and_meta_and_brings_everything_back(plain: McpToolClient) -> None:
    arguments = {"text": "ü\n☃", "nothing": None, "deep": {"list": [1, 2.5, None]}}
    answer = await plain.call("echo", arguments, meta={"key": {"a": None}})
    assert answer.text == "ü\n☃"
    assert answer.structured is not None
    sent = answer.structured["params"]
    assert (sent["arguments"], sent["_meta"]["key"]) == (arguments, {"a": None})
    assert answer.meta == {"call": 7}
    assert not answer.is_error


async def test_text_is_joined_and_other_content_stays_as_it_is(plain: McpToolClient) -> None:
    answer = await use(plain, "pictures")
    assert answer.text == "one\ntwo"
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert list(answer.other_content) == [image, {"type": "hologram"}]


async def test_a_tool_that_fails_is_an_answer(plain: McpToolClient) -> None:
    answer = await use(plain, "fail")
    assert (answer.is_error, answer.text) == (True, "it did not work")


async def test_progress_is_told_in_order(plain: McpToolClient) -> None:
    told: list[tuple[float, float | None, str]] = []
    await plain.call("progress", {"steps": 20}, meta={}, on_progress=lambda *step: told.append(step))
    assert told == [(float(step), 20.0, f"step {step}") for step in range(20)]


async def test_a_progress_callback_that_raises_harms_nothing(plain: McpToolClient) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("not my day")

    assert (await plain.call("progress", {"steps": 2}, meta={}, on_progress=broken)).text == "done"
    assert (await use(plain, "echo", text="on")).text == "on"


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(plain: McpToolClient) -> None:
    task = await held(plain, "a", timeout_seconds=0.3)
    with pytest.raises(CallTimedOut, match="did not answer hold within 0.3 s"):
        await task
    assert (await use(plain, "cancelled", name="a")).text == "a"


async def test_cancelling_the_wait_cancels_the_call(plain: McpToolClient) -> None:
    task = await held(plain, "a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await use(plain, "cancelled", name="a")).text == "a"


async def test_not_more_calls_at_once_than_configured() -> None:
    async with client_of("plain", at_once=3) as client:
        answers = await asyncio.gather(*(use(client, "meet", together=3) for _ in range(12)))
        assert {answer.text for answer in answers} == {"at most 3"}


async def test_a_wait_for_a_free_place_is_not_the_servers_time() -> None:
    async with client_of("plain", at_once=1) as client:
        first = await held(client, "first")
        second = asyncio.create_task(client.call("echo", {"text": "late"}, meta={}, timeout_seconds=0.5))
        async with asyncio.timeout(BOUND_SECONDS):
            async with client_of("plain") as other:
                with pytest.raises(CallTimedOut):
                    await other.call("hold", {"name": "clock"}, meta={}, timeout_seconds=0.6)
            assert not second.done()
            first.cancel()
            assert (await second).text == "late"


async def test_what_json_cannot_hold_is_not_sent(plain: McpToolClient) -> None:
    for arguments in ({"text": object()}, {"text": "\ud800"}):
        with pytest.raises(InvalidArguments):
            await plain.call("echo", arguments, meta={})
    assert (await use(plain, "echo", text="on")).text == "on"


async def test_an_unknown_tool_and_arguments_a_server_refuses(plain: McpToolClient) -> None:
    with pytest.raises(UnknownTool, match="small has no tool nothing"):
        await use(plain, "nothing")
    with pytest.raises(InvalidArguments, match="small refuses the arguments of refuse: no, thanks"):
        await use(plain, "refuse", code=-32602)


async def test_other_errors_of_the_protocol_are_answers(plain: McpToolClient) -> None:
    answer = await use(plain, "refuse", code=429)
    assert (answer.is_error, answer.text) == (True, "no, thanks")
    assert answer.meta == {"ccswarm/problem": {"code": 429, "message": "no, thanks"}}
    assert (await use(plain, "refuse", code=-32000)).is_error


async def test_an_answer_that_does_not_fit_its_schema_is_delivered_with_a_note(plain: McpToolClient) -> None:
    await plain.list_tools()
    answer = await use(plain, "misfit")
    assert (answer.text, answer.structured) == ("misfit", {"count": "many"})
    assert answer.meta["ccswarm/problem"] == {"outputSchema": "count: 'many' is not of type 'integer'"}
    assert (await use(plain, "misfit", count=5)).meta == {}


async def test_a_server_that_wants_input_gets_none() -> None:
    async with client_of("plain", "modern") as client:
        answer = await use(client, "wants_input")
        assert answer.is_error
        assert (
            answer.text
            == "the tool did not finish: it answered 'input_required' (elicitation/create), which cannot be given here"
        )


async def test_a_server_that_asks_is_refused_and_was_told_before() -> None:
    async with client_of("plain", "legacy") as client:
        assert "Elicitation not supported" in (await use(client, "elicit")).text
        assert (await facts(client))["client"]["capabilities"] == {}
    async with client_of("plain", "modern") as client:
        assert (await facts(client))["client"]["io.modelcontextprotocol/clientCapabilities"] == {}


@pytest.mark.parametrize("id_first", [True, False])
async def test_an_answer_of_50_megabytes(plain: McpToolClient, id_first: bool) -> None:
    answer = await use(plain, "big", size=50_000_000, id_first=id_first)
    assert len(answer.text) == 50_000_000


@pytest.mark.parametrize("id_first", [True, False])
async def test_a_larger_one_is_refused_and_costs_its_call_only(plain: McpToolClient, id_first: bool) -> None:
    other = await held(plain, "other")
    answer = await use(plain, "big", size=70_000_000, id_first=id_first)
    assert answer.is_error
    assert "answers over 67108864 are not taken" in answer.text
    await use(plain, "release", name="other")
    assert (await other).text == "other"


async def test_a_thousand_calls_at_once(plain: McpToolClient) -> None:
    answers = await asyncio.gather(*(use(plain, "echo", text=str(number)) for number in range(1000)))
    assert [answer.text for answer in answers] == [str(number) for number in range(1000)]


async def test_what_is_no_message_is_passed_over(plain: McpToolClient) -> None:
    assert (await use(plain, "chatter")).text == "said"
    assert (await use(plain, "echo", text="on")).text == "on"


# Lists of tools


async def test_tools_are_described(plain: McpToolClient) -> None:
    tools = {tool.name: tool for tool in await plain.list_tools()}
    echo = tools["echo"]
    assert (echo.full_name, echo.title, echo.description) == ("small.echo", "Echo", "Does echo.")
    assert echo.keyed
    assert not tools["die"].keyed
    assert tools["misfit"].output_schema is not None


@pytest.mark.parametrize("trusted", [True, False])
async def test_hints_are_believed_of_a_trusted_server_only(trusted: bool) -> None:
    async with client_of("plain", trusted=trusted) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    echo, other = tools["echo"], tools["die"]
    believed = (echo.read_only, echo.destructive, echo.idempotent, echo.open_world)
    assert believed == ((True, False, True, False) if trusted else (False, True, False, True))
    assert (other.read_only, other.destructive, other.idempotent, other.open_world) == (False, True, False, True)


async def test_a_list_is_kept_until_the_server_says_that_it_changed(plain: McpToolClient) -> None:
    first = await plain.list_tools()
    assert await plain.list_tools() is first
    assert (await facts(plain))["requests"].count("tools/list") == 1
    await use(plain, "change", name="newcomer")
    assert "newcomer" in {tool.name for tool in await plain.list_tools()}
    assert (await facts(plain))["requests"].count("tools/list") == 2
    await plain.list_tools(fresh=True)
    assert (await facts(plain))["requests"].count("tools/list") == 3


async def test_tools_that_are_filtered_out_do_not_exist() -> None:
    seen = ToolFilter(allow=("e*", "fa*"), deny=("fail",))
    async with client_of("plain", tools=seen) as client:
        assert {tool.name for tool in await client.list_tools()} == {"echo", "elicit", "facts"}
        with pytest.raises(UnknownTool):
            await use(client, "fail")


async def test_three_hundred_tools() -> None:
    async with client_of("strange_lists", "many") as client:
        assert [tool.name for tool in await client.list_tools()] == [f"tool_{number:03}" for number in range(300)]


async def test_all_pages_in_order() -> None:
    async with client_of("strange_lists", "pages") as client:
        assert [tool.name for tool in await client.list_tools()] == [f"tool_{number:02}" for number in range(50)]
        assert client.notes == ()


async def test_lists_without_end_are_taken_as_far_as_they_make_sense() -> None:
    async with client_of("strange_lists", "circle") as client:
        assert [tool.name for tool in await client.list_tools()] == ["tool_0", "tool_1"]
        assert "goes in circles" in client.notes[0]
    async with client_of("strange_lists", "endless") as client:
        assert len(await client.list_tools()) == 200
        assert client.notes == ("its list of tools has more than 200 pages: the rest is left out",)


async def test_of_two_tools_with_one_name_the_first_counts() -> None:
    async with client_of("strange_lists", "twice") as client:
        assert [tool.title for tool in await client.list_tools()] == ["first"]
        assert client.notes == ("tool same is listed twice: the first counts",)


async def test_tools_nobody_can_call_are_left_out_and_named() -> None:
    async with client_of("strange_lists", "bad") as client:
        assert [tool.name for tool in await client.list_tools()] == ["good", "also_good"]
        named = [note.partition(" is left out: ")[0] for note in client.notes]
        left_out = [
            "text_schema",
            "no_schema",
            "array_schema",
            "net_reference",
            "file_reference",
            "?",
            "?",
            "named_by_number",
        ]
        assert named == [f"tool {name}" for name in left_out]
        assert client.notes[3].endswith("its schema refers to https://example.com/a.json, which is not part of it")
        assert (await use(client, "also_good")).text == "also_good"


# Starting


async def test_first_users_share_one_start(plain: McpToolClient) -> None:
    found = await asyncio.gather(*(facts(plain) for _ in range(20)))
    assert len({one["pid"] for one in found}) == 1


async def test_a_user_who_gives_up_does_not_end_the_start_of_others() -> None:
    async with client_of("plain") as client:
        first = asyncio.create_task(client.list_tools())
        second = asyncio.create_task(facts(client))
        await asyncio.sleep(0)
        first.cancel()
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


async def test_a_banner_does_not_disturb() -> None:
    async with client_of("no_server", "banner") as client:
        assert (await use(client, "hello")).text == "hello"


async def test_a_mute_server_is_given_up_in_time() -> None:
    async with client_of("no_server", "mute", connect_seconds=0.5) as client:
        began = perf_counter()
        with pytest.raises(ServerUnavailable, match=r"small did not answer within 0.5 s. Its last words:\nthinking"):
            await use(client, "hello")
        assert perf_counter() - began < 2
        assert client.problem.startswith("server small did not answer within 0.5 s")


async def test_a_server_that_fails_to_start_is_reported_with_its_words() -> None:
    async with client_of("no_server", "crash") as client:
        with pytest.raises(ServerUnavailable) as caught:
            await client.list_tools()
        assert "server small ended with exit code 3. Its last words:" in caught.value.message
        assert caught.value.message.endswith("no licence found")
        assert len(caught.value.message) < 4200
    async with client_of("no_server", "chatty_crash") as client:
        with pytest.raises(
            ServerUnavailable, match="exit code 1. Its last words:\nError: cannot find module 'left-pad'"
        ) as caught:
            await client.list_tools()


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


# Eras


async def test_the_era_is_kept() -> None:
    eras: dict[str, str] = {}
    for kind, era in (("legacy", "legacy"), ("modern", "modern"), ("both", "modern"), ("deaf", "legacy")):
        async with client_of("plain", kind, eras=eras) as client:
            await client.list_tools()
        assert list(eras.values())[-1] == era
    assert len(eras) == 4


async def test_a_deaf_server_is_probed_once(tmp_path: Path) -> None:
    """Its first start takes the time of the probe, later ones do not ask."""
    for requests in (["server/discover", "initialize"], ["initialize"]):
        client = PLUGIN.open(settings("plain", "deaf"), env=os.environ, state_directory=tmp_path / "state")
        answer = await client.call("facts", {}, meta={})
        assert answer.structured is not None
        assert answer.structured["requests"][:-1] == requests
        await client.close()


async def test_a_server_that_dies_of_the_probe_is_started_again_without() -> None:
    eras: dict[str, str] = {}
    async with client_of("no_server", "probe_dies", eras=eras) as client:
        assert (await use(client, "hello")).text == "hello"
    assert list(eras.values()) == ["legacy"]


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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', "\0"])
async def test_a_broken_cache_is_an_empty_one(tmp_path: Path, content: str) -> None:
    (tmp_path / "eras.json").write_text(content)
    client = PLUGIN.open(settings("plain", "both"), env=os.environ, state_directory=tmp_path)
    assert await client.list_tools()
    await client.close()


# Ending


@pytest.mark.parametrize("spawned", [False, True])
async def test_a_server_that_dies_in_a_call_is_lost_at_once_and_starts_again(
    plain: McpToolClient, spawned: bool
) -> None:
    """Also when a child of it keeps its pipes open."""
    await plain.list_tools()
    child = (await use(plain, "spawn")).structured if spawned else None
    others = [await held(plain, str(number)) for number in range(3)]
    began = perf_counter()
    with pytest.raises(ServerLost, match="while die was called, server small ended with exit code 9") as caught:
        await use(plain, "die", code=9, words="goodbye")
    assert perf_counter() - began < 0.2
    assert "goodbye" in caught.value.message
    for other in others:
        with pytest.raises(ServerLost):
            await other
    assert "exit code 9" in plain.problem
    assert (await facts(plain))["requests"][-1] == "tools/call"
    assert plain.problem == ""
    if child:
        await ended(child["pid"])


async def test_a_server_killed_between_calls_starts_again_and_is_listed_again(plain: McpToolClient) -> None:
    await use(plain, "change", name="newcomer")
    assert "newcomer" in {tool.name for tool in await plain.list_tools()}
    pid = (await facts(plain))["pid"]
    os.kill(pid, signal.SIGKILL)
    await ended(pid)
    assert "newcomer" not in {tool.name for tool in await plain.list_tools()}
    assert (await facts(plain))["pid"] != pid


async def test_the_last_answer_of_a_server_that_ends_counts(plain: McpToolClient) -> None:
    pid = (await facts(plain))["pid"]
    assert (await use(plain, "last")).text.endswith("the last answer")
    await ended(pid)
    assert (await use(plain, "echo", text="on")).text == "on"


async def test_a_server_that_closes_its_output_is_lost_and_ended(plain: McpToolClient) -> None:
    pid = (await facts(plain))["pid"]
    with pytest.raises(ServerLost, match="closed its output"):
        await use(plain, "shut")
    await ended(pid)
    assert (await use(plain, "echo", text="on")).text == "on"


async def test_close_ends_the_whole_group_and_calls_under_way(plain: McpToolClient) -> None:
    pids = [(await facts(plain))["pid"], int((await use(plain, "spawn")).text)]
    call = await held(plain, "a")
    await asyncio.wait_for(plain.close(), BOUND_SECONDS)
    with pytest.raises(ServerLost):
        await call
    for pid in pids:
        await ended(pid)


async def test_close_ends_servers_that_do_not_want_to_end() -> None:
    heard: list[str] = []
    client = McpToolClient(
        settings("no_server", "stubborn", connect_seconds=0.7), env=os.environ, era_cache={}, on_stderr=heard.append
    )
    with pytest.raises(ServerUnavailable):
        await client.list_tools()
    await client.close()
    await ended(int("".join(heard).partition("child ")[2]))


async def test_close_while_it_starts() -> None:
    async with client_of("no_server", "mute") as client:
        start = asyncio.create_task(client.list_tools())
        await asyncio.sleep(0)
        await asyncio.wait_for(client.close(), BOUND_SECONDS)
        with pytest.raises(ServerUnavailable, match="was closed"):
            await start


async def test_every_error_says_what_to_do() -> None:
    async with client_of("no_server", "crash") as client:
        with pytest.raises(SwarmError) as caught:
            await client.list_tools()
        assert caught.value.suggestion
