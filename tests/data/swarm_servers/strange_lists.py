"""Servers whose list of tools is unusual. Argument: many, pages, circle, endless, bad, twice, none, restless,
slow or deadly."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from wire import Refused, Server, text, tool

GOOD = {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}}, "$defs": {"at": {"$id": "at:1"}}}
BAD: list[Any] = [
    tool("good", inputSchema=GOOD),
    tool("text_schema", inputSchema="object"),
    tool("no_schema", inputSchema=None),
    tool("array_schema", inputSchema={"type": "array"}),
    tool("net_reference", inputSchema={"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}),
    tool("file_reference", inputSchema={"type": "object", "allOf": [{"$ref": "other.json#/a"}]}),
    tool("null_properties", inputSchema={"type": "object", "properties": None}),
    tool(""),
    "not a tool",
    {"description": "nameless", "inputSchema": {"type": "object"}},
    tool("named_by_number", title=5),
    tool("also_good", inputSchema={"type": "object", "properties": {"$ref": {"type": "string"}}}),
]


class Strange(Server):
    def __init__(self, kind: str) -> None:
        super().__init__("legacy")
        self.kind = kind

    def list_tools(self, cursor: str | None) -> dict[str, Any]:
        at = int(cursor or 0)
        if self.kind == "many":
            return {"tools": [tool(f"tool_{number:03}") for number in range(300)]}
        if self.kind == "pages":
            page = {"tools": [tool(f"tool_{at * 10 + number:02}") for number in range(10)]}
            return page if at == 4 else {**page, "nextCursor": str(at + 1)}
        if self.kind == "circle":
            return {"tools": [tool(f"tool_{at}")], "nextCursor": str(1 - at)}
        if self.kind == "endless":
            return {"tools": [tool(f"tool_{at}")], "nextCursor": str(at + 1)}
        if self.kind == "twice":
            return {"tools": [tool("same", title="first"), tool("same", title="second")]}
        if self.kind == "none":
            raise Refused(-32601, "Method not found")
        if self.kind == "restless":
            self.changed()
            return {"tools": [tool(f"tool_{self.requests.count('tools/list')}")]}
        if self.kind == "slow":
            threading.Event().wait()
        if self.kind == "deadly":
            os.write(2, b"no list today")
            os._exit(4)
        return {"tools": BAD}

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        return text(params["name"])


if __name__ == "__main__":
    Strange(*sys.argv[1:]).run()
