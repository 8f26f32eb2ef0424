"""A server whose tool answers what comes out of the named pipe at ``path``, when nobody writes there any longer. Reader
and writer both make the pipe: either may be first."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from wire import Server, text, tool

TYPE_CHECKING = False  # which is all that typing would be loaded for
if TYPE_CHECKING:
    from typing import Any


class Pipes(Server):
    def list_tools(self, cursor: str | None) -> dict[str, Any]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        return {"tools": [tool("read", inputSchema=schema, annotations={"readOnlyHint": True})]}

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        pipe = params["arguments"]["path"]
        with suppress(FileExistsError):
            os.mkfifo(pipe)
        with open(pipe) as reader:
            return text(reader.read())


if __name__ == "__main__":
    Pipes(*sys.argv[1:]).run()
