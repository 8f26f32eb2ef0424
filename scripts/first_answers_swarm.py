"""Record the MCP server's answers to a client's first requests in ccswarm/servers/mcp/first_answers.json.

Run it after a change to tools, instructions or the SDK; with --check it only reports whether the file is up to date.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agentwire.mcp import first_answers
from ccswarm import __version__
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp import dispatch
from ccswarm.servers.mcp.plugin import FIRST_ANSWERS

LISTS = ("tools/list", "resources/templates/list", "prompts/list")
ENVELOPE: dict[str, Any] = {
    first_answers.ENVELOPE_VERSION: first_answers.MODERN_VERSION,
    first_answers.ENVELOPE_CAPABILITIES: {},
}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "first", "version": "1"}}


async def answers() -> dict[str, Any]:
    sent: list[dict[str, Any]] = []
    done = asyncio.Event()

    def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) == len(requests):
            done.set()

    conversation = dispatch.Conversation(ServerOptions(), send)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", HANDSHAKE),
        ("ping", {}),
        *((method, {}) for method in LISTS),
    ]
    requests += [(method, {"_meta": ENVELOPE}) for method in ("server/discover", *LISTS)]
    for number, (method, params) in enumerate(requests):
        conversation.receive({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    await done.wait()
    results = {answer["id"]: answer["result"] for answer in sent}
    exchanges = [(method, "_meta" in params, results[number]) for number, (method, params) in enumerate(requests)]
    (_, _, initialize), *others = exchanges
    return {
        "initialize": {name: value for name, value in initialize.items() if name != "protocolVersion"},
        "handshake": {method: result for method, modern, result in others if not modern},
        "modern": {method: result for method, modern, result in others if modern},
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
