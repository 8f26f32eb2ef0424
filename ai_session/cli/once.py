"""`ai-session mcp-server --once`: answers one question from the documentation, in FluxLoop's envelope."""

from __future__ import annotations

import json

from agentwire.cli.output import EXIT_ERROR
from ai_session.cli.output import write_text
from ai_session.client import relay
from ai_session.client.connection import error_from
from ai_session.errors import DaemonUnavailable


def ask(query: str) -> int:
    """Print the answer as one line and return the exit code. Finding nothing counts as an answer."""
    try:
        link = relay.connect("fluxloop")
    except relay.Unreachable as error:
        raise error_from({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None
    request = {"type": "request", "id": 1, "tool": "faq", "params": {"query": query}}
    with link, link.makefile("rwb") as lines:
        lines.readline()  # the daemon's hello
        lines.write(json.dumps(request).encode() + b"\n")
        lines.flush()
        line = lines.readline()
    if not line:
        raise DaemonUnavailable("the daemon ended before it answered", suggestion="try again, or: ai-session doctor")
    answer = json.loads(line)
    del answer["id"]
    write_text(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")
    return 0 if answer["type"] == "response" else EXIT_ERROR
