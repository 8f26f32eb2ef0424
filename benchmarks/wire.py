"""A bare MCP client for the real server process: JSON lines on blocking pipes, so that only the server is measured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SERVER = [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"]
KINDS = ("READ", "EFFECT", "SESSIONS", "OUTPUT_BYTES")
UNLIMITED = {f"AI_SESSION_RATES_{kind}_PER_MINUTE": str(1 << 40) for kind in KINDS}
"""The environment variables for starting the daemon."""


class Client:
    """A client with the 2025-11-25 handshake."""

    def __init__(self, server: Sequence[str] = SERVER, directory: Path | None = None) -> None:
        self.process = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=directory)
        self._number = 0
        self.request(
            "initialize",
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of one request."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if message.get("id") == self._number:
                return message["result"]
        raise EOFError("the server ended")

    def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the structured result of a tool. Raises RuntimeError for an error of the tool."""
        return _structured(self.request("tools/call", {"name": name, "arguments": arguments}))

    def call_tools(self, name: str, each: Sequence[dict[str, Any]]) -> None:
        """Send all calls of one tool before reading an answer. Raises RuntimeError for an error of the tool."""
        waiting: set[int] = set()
        for arguments in each:
            self._number += 1
            waiting.add(self._number)
            params = {"name": name, "arguments": arguments}
            self._send({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        assert self.process.stdout
        while waiting:
            message = json.loads(self.process.stdout.readline() or b"{}")
            if message.get("id") in waiting:
                waiting.discard(message["id"])
                _structured(message["result"])
            elif not message:
                raise EOFError("the server ended")

    def daemon(self) -> int:
        """Return the daemon's process ID."""
        status = [sys.executable, "-m", "ai_session", "daemon", "status", "--json"]
        return json.loads(subprocess.run(status, check=True, capture_output=True).stdout)["pid"]

    def close(self) -> None:
        """End the server process; the daemon stays."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def stop_daemon(self) -> None:
        """End the server process, the daemon and all its sessions."""
        self.close()
        subprocess.run([sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"], check=True, capture_output=True)


def _structured(result: dict[str, Any]) -> dict[str, Any]:
    if result.get("isError"):
        raise RuntimeError(result["content"][0]["text"])
    return result["structuredContent"]
