"""One tool call as an agent makes it, over `ai-session mcp-server --stdio`. Prints the text of the answer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(tool: str, arguments: str) -> str:
    params: dict[str, Any] = {"name": tool, "arguments": json.loads(arguments), "_meta": ENVELOPE}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    server = ["ai-session", "mcp-server", "--stdio"]
    # A process group of its own, as hosts create: otherwise every process of this shell would count as the agent's.
    with subprocess.Popen(
        server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, process_group=0
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        while "id" not in (message := json.loads(process.stdout.readline())):
            pass
        process.stdin.close()
    answer: dict[str, Any] = message.get("result") or message["error"]
    return "\n".join(block.get("text", "") for block in answer.get("content", [{"text": str(answer)}]))


print(call(*sys.argv[1:3]))
