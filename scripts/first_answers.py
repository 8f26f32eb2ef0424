"""Record the MCP server's answers to a client's first requests in ai_session/servers/mcp/first_answers.json.

Run it after a change to tools, instructions or the SDK; with --check it only reports whether the file is up to date.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agentwire import plugins
from agentwire.mcp import first_answers
from ai_session import __version__
from ai_session.models import Principal
from ai_session.servers.mcp import dispatch
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.conversation import Conversation
from ai_session.servers.mcp.plugin import FIRST_ANSWERS

ENVELOPE: dict[str, Any] = {
    first_answers.ENVELOPE_VERSION: first_answers.MODERN_VERSION,
    first_answers.ENVELOPE_CAPABILITIES: {},
}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "first", "version": "1"}}

LISTS = ("prompts/list", "resources/templates/list", "tools/list")
"""The lists that are the same for every client."""


class AllTools:
    """A gate that only lists tools, and the function that finds it."""

    def __init__(self) -> None:
        tools = [
            tool
            for name in plugins.names("ai_session.tools")
            for tool in plugins.load("ai_session.tools", name)
            if tool.listed
        ]
        self._tools = sorted(tools, key=lambda tool: tool.name)

    async def gate(self) -> Any:
        return self

    async def list_tools(self, principal: Principal) -> list[Any]:
        return self._tools


async def ask(requests: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the answers to ``requests`` in one conversation, with all tools installed."""
    sent: list[dict[str, Any]] = []
    caller = Caller(AllTools().gate, Principal(kind="mcp", uid=0))

    async def sdk() -> Any:
        return dispatch

    conversation = Conversation(caller, sent.append, 10, sdk)
    for number, (method, params) in enumerate(requests):
        conversation.receive({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        await conversation.quiet()
    await conversation.ended()
    return sorted(sent, key=lambda answer: answer["id"])


async def answers() -> dict[str, Any]:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", HANDSHAKE),
        *((method, {}) for method in ("ping", *LISTS)),
    ]
    requests += [(method, {"_meta": ENVELOPE}) for method in ("server/discover", *LISTS)]
    results = [answer["result"] for answer in await ask(requests)]
    initialize = {name: value for name, value in results[0].items() if name != "protocolVersion"}
    handshake, modern = results[1 : 2 + len(LISTS)], results[2 + len(LISTS) :]
    return {
        "initialize": initialize,
        "handshake": dict(zip(("ping", *LISTS), handshake, strict=True)),
        "modern": dict(zip(("server/discover", *LISTS), modern, strict=True)),
    }


def main() -> None:
    text = json.dumps(asyncio.run(answers()), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    text = text.replace(f'"version": "{__version__}"', f'"version": "{first_answers.VERSION_MARK}"')
    if "--check" not in sys.argv:
        FIRST_ANSWERS.write_text(text)
    elif FIRST_ANSWERS.read_text() != text:
        sys.exit(f"{FIRST_ANSWERS} is out of date: run {sys.argv[0]}")


if __name__ == "__main__":
    main()
