"""Answers to a client's first requests while the SDK is still being imported (0.5 s; one client waits 1 s in all).

A script records in a file what the SDK answers; a test compares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentwire.json_lines import Message

VERSION_MARK = "@VERSION@"
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION = "2026-07-28"
ENVELOPE_VERSION = "io.modelcontextprotocol/protocolVersion"
ENVELOPE_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ENVELOPE_CLIENT = "io.modelcontextprotocol/clientInfo"


class FirstAnswers:
    """The recorded answers of one version of a server."""

    def __init__(self, file: Path, version: str) -> None:
        self._recorded: dict[str, Any] = json.loads(file.read_text().replace(VERSION_MARK, version))

    def answer(self, request: Message) -> Message | None:
        """Return the response to a request, None for one that only the SDK can answer."""
        result = self._result(request["method"], request.get("params", {}))
        return None if result is None else {"jsonrpc": "2.0", "id": request["id"], "result": result}

    def _result(self, method: str, params: Message) -> Message | None:
        if method == "initialize":
            wanted, info = params.get("protocolVersion"), params.get("clientInfo")
            capabilities = params.get("capabilities")
            if not (isinstance(wanted, str) and isinstance(capabilities, dict) and isinstance(info, dict)):
                return None
            version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            return {"protocolVersion": version, **self._recorded["initialize"]}
        if params.get("cursor") is not None:  # no valid cursor exists: each of these lists has one page
            return None
        meta: Any = params.get("_meta")
        if not isinstance(meta, dict) or ENVELOPE_VERSION not in meta:
            return self._recorded["handshake"].get(method)
        envelope: Any = params["_meta"]
        if envelope[ENVELOPE_VERSION] != MODERN_VERSION or not isinstance(envelope.get(ENVELOPE_CAPABILITIES), dict):
            return None
        return self._recorded["modern"].get(method)
