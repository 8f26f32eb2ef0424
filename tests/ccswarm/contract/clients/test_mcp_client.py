"""Calls and lists of tools against real small servers, of both eras where it makes a difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccswarm.clients.mcp.framing import read_message
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ToolFilter
from ccswarm.errors import CallTimedOut, InvalidArguments, ServerUnavailable, UnknownTool
from tests.ccswarm.support.mcp_servers import BOUND_SECONDS, client_of, facts, held, use

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["legacy", "modern"])
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[McpToolClient]:
    async with client_of("plain", request.param) as client:
        yield client


async def test_a_call_carries_arguments_and_meta_and_brings_everything_back(plain: McpToolClient) -> None:
    arguments = {"text": "ü\n☃", "nothing": None, "deep": {"list": [1, 2.5, None]}}
    answer = await plain.call("echo", arguments, meta={"key": {"a": None}})
    assert answer.text == "ü\n☃"
    assert answer.structured is not None
    sent = answer.structured["params"]
    assert (sent["arguments"], sent["_meta"]["key"]) == (arguments, {"a": None})
    assert answer.meta == {"call": 7}
    assert not answer.is_error


@pytest.mark.either("plain")
async def test_text_is_joined_and_other_content_stays_as_it_is(plain: McpToolClient) -> None:
    answer = await use(plain, "pictures")
    assert answer.text == "one\ntwo"
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert list(answer.other_content) == [image, {"type": "hologram"}]


@pytest.mark.either("plain")
async def test_a_tool_that_fails_is_an_answer(plain: McpToolClient) -> None:
    answer = await use(plain, "fail")
    assert (answer.is_error, answer.text) == (True, "it did not work")


@pytest.mark.either("plain")
async def test_progress_is_reported_in_order(plain: McpToolClient) -> None:
    reported: list[tuple[float, float | None, str]] = []
    await plain.call("progress", {"steps": 20}, meta={}, on_progress=lambda *step: reported.append(step))
    assert reported == [(float(step), 20.0, f"step {step}") for step in range(20)]


@pytest.mark.either("plain")
async def test_a_progress_callback_that_raises_harms_nothing(plain: McpToolClient) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("not my day")

    assert (await plain.call("progress", {"steps": 2}, meta={}, on_progress=broken)).text == "done"
    assert (await use(plain, "echo", text="on")).text == "on"


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(plain: McpToolClient) -> None:
    task = await held(plain, "a", timeout_seconds=1.0)
    with pytest.raises(CallTimedOut, match=r"did not answer hold within 1 s"):
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
        second = asyncio.create_task(client.call("echo", {"text": "late"}, meta={}, timeout_seconds=1.0))
        async with asyncio.timeout(BOUND_SECONDS):
            async with client_of("plain") as other:
                with pytest.raises(CallTimedOut):
                    await other.call("hold", {"name": "clock"}, meta={}, timeout_seconds=1.2)
            assert not second.done()
            first.cancel()
            assert (await second).text == "late"


@pytest.mark.either("plain")
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


@pytest.mark.either("plain")
async def test_other_errors_of_the_protocol_are_answers(plain: McpToolClient) -> None:
    answer = await use(plain, "refuse", code=429)
    assert (answer.is_error, answer.text) == (True, "no, thanks")
    assert answer.meta == {"ccswarm/problem": {"code": 429, "message": "no, thanks"}}
    assert (await use(plain, "refuse", code=-32000)).is_error


@pytest.mark.either("plain")
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
            == "the tool did not finish: it answered 'input_required' (elicitation/create), which cannot be supplied"
            " here"
        )


async def test_a_server_that_asks_is_refused_and_was_told_before() -> None:
    async with client_of("plain", "legacy") as client:
        assert "Elicitation not supported" in (await use(client, "elicit")).text
        assert (await facts(client))["client"]["capabilities"] == {}
    async with client_of("plain", "modern") as client:
        assert (await facts(client))["client"]["io.modelcontextprotocol/clientCapabilities"] == {}


async def test_a_large_answer_holds_up_no_other() -> None:
    async with client_of("plain") as client:
        other = await held(client, "other")
        assert len((await use(client, "big", size=5_000_000)).text) == 5_000_000
        await use(client, "release", name="other")
        assert (await other).text == "other"


@pytest.mark.torture
@pytest.mark.parametrize("id_first", [True, False])
async def test_an_answer_of_50_megabytes_and_one_that_is_too_large(id_first: bool) -> None:
    """The larger one costs its call only."""
    async with client_of("plain", "legacy" if id_first else "modern") as client:
        other = await held(client, "other")
        assert len((await use(client, "big", size=50_000_000, id_first=id_first)).text) == 50_000_000
        answer = await use(client, "big", size=70_000_000, id_first=id_first)
        assert answer.is_error
        assert "the limit is 67108864" in answer.text
        await use(client, "release", name="other")
        assert (await other).text == "other"


@pytest.mark.parametrize("number", ["7.5", "7e2", "7.0", "1e999"])
async def test_a_broken_answer_whose_id_is_no_integer_is_nobodys(number: str) -> None:
    def read(text: str) -> object:
        line = bytearray(text.encode())
        return read_message(line, len(line))

    for broken in ('{"jsonrpc":"2.0","id":%s,"result":{', '{"result":{,"id":%s}'):
        assert read(broken % number) is None
        assert read(broken % "7") is not None


@pytest.mark.either("plain")
@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.torture)])
async def test_a_thousand_calls_at_once(plain: McpToolClient, count: int) -> None:
    answers = await asyncio.gather(*(use(plain, "echo", text=str(number)) for number in range(count)))
    assert [answer.text for answer in answers] == [str(number) for number in range(count)]


@pytest.mark.either("plain")
async def test_what_is_no_message_is_passed_over(plain: McpToolClient) -> None:
    assert (await use(plain, "chatter")).text == "said"
    assert (await use(plain, "echo", text="on")).text == "on"


@pytest.mark.either("plain")
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
        assert "repeats itself" in client.notes[0]
    async with client_of("strange_lists", "endless") as client:
        assert len(await client.list_tools()) == 200
        assert client.notes == ("its list of tools has more than 200 pages: the rest is left out",)


async def test_a_server_without_tools() -> None:
    async with client_of("strange_lists", "none") as client:
        assert await client.list_tools() == ()
        assert client.notes == ("it has no tools",)
        assert client.problem == ""


async def test_a_list_that_changes_while_it_is_read_is_not_kept() -> None:
    async with client_of("strange_lists", "restless") as client:
        assert [(await client.list_tools())[0].name for _ in range(3)] == ["tool_1", "tool_2", "tool_3"]


async def test_a_list_that_does_not_come() -> None:
    async with client_of("strange_lists", "slow", timeout_seconds=0.2) as client:
        with pytest.raises(ServerUnavailable, match=r"server small did not list its tools within 0.2 s"):
            await client.list_tools()
        assert (await use(client, "other")).text == "other"
    async with client_of("strange_lists", "deadly") as client:
        with pytest.raises(ServerUnavailable, match=r"server small ended with exit code 4(.|\n)*no list today"):
            await client.list_tools()
        assert "exit code 4" in client.problem
        assert (await use(client, "other")).text == "other"


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
            "null_properties",
            "",
            "?",
            "?",
            "named_by_number",
        ]
        assert named == [f"tool {name}" for name in left_out]
        assert client.notes[3].endswith("its schema refers to https://example.com/a.json, which is not part of it")
        assert (await use(client, "also_good")).text == "also_good"


async def test_a_server_that_asks_is_answered_where_somebody_is() -> None:
    asked: list[str] = []

    async def agree(message: str, _: Any) -> dict[str, Any]:
        asked.append(message)
        return {"sure": True}

    async with client_of("plain", "legacy", ask=agree) as client:
        assert "Elicitation not supported" not in (await use(client, "elicit")).text
        assert "elicitation" in (await facts(client))["client"]["capabilities"]
    async with client_of("plain", "modern", ask=agree) as client:
        answer = await use(client, "wants_input")
        assert answer.is_error  # it asks for ever
    assert len(asked) == 11
