"""What ccswarm's client asks by way of the SDK's dispatcher."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse

from ccswarm.clients._address import SecretScrubber
from ccswarm.clients.mcp.connection import Dispatcher

pytestmark = pytest.mark.anyio

SECONDS = 0.01


async def nothing(*_: Any) -> Any:
    raise AssertionError("the server asks nothing")


async def test_a_slow_answer_to_the_question_for_the_era_counts() -> None:
    answers, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](4)
    outgoing, asked = anyio.create_memory_object_stream[SessionMessage](4)
    dispatcher = Dispatcher(incoming, outgoing)
    dispatcher.left_out = []
    dispatcher.scrubber = SecretScrubber()
    async with answers, asked, anyio.create_task_group() as tasks:
        await tasks.start(dispatcher.run, nothing, nothing)
        discovered = asyncio.create_task(dispatcher.send_raw_request("server/discover", {}, {"timeout": SECONDS}))
        question: Any = (await asked.receive()).message
        with pytest.raises(MCPError, match="timed out"):  # asked later, given up as it says
            await dispatcher.send_raw_request("ping", {}, {"timeout": SECONDS})
        await answers.send(SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=question.id, result={"slow": True})))
        assert await discovered == {"slow": True}
        tasks.cancel_scope.cancel()
