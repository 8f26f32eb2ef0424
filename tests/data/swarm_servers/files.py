"""A server whose tool writes ``text`` to the file ``file`` in the directory it was started in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from wire import Server, text, tool


class Files(Server):
    def list_tools(self, cursor: str | None) -> dict[str, Any]:
        words = {"file": {"type": "string"}, "text": {"type": "string"}}
        schema = {"type": "object", "properties": words, "required": list(words)}
        return {"tools": [tool("write", inputSchema=schema)]}

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any]:
        given = params["arguments"]
        Path(given["file"]).write_text(given["text"])
        return text(str(Path.cwd()))


if __name__ == "__main__":
    Files(*sys.argv[1:]).run()
