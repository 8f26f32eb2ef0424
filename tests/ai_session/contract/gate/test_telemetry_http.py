"""A call that comes in over HTTP joins its client's trace through the front, by its message or its headers."""

from __future__ import annotations

import json
import os
import select
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.server.context import ServerRequestContext

from ai_session.servers.mcp.trace import trace_of
from tests.ai_session.support.mcp_client import BOUND_SECONDS, ENVELOPE, living_in, stop_daemons
from tests.support import forked
from tests.support.collector import Collector, Seen

TRACE, OTHER = "4bf92f3577b34da6a3ce929d0e0e4736", "5" * 32
SPAN, AROUND = "00f067aa0ba902b7", "1" * 16
IN_MESSAGE, IN_HEADER = f"00-{TRACE}-{SPAN}-01", f"00-{OTHER}-{AROUND}-01"


@contextmanager
def front(home: Path) -> Iterator[str]:
    """One that asks nobody for tokens; its URL."""
    words = ["mcp-server", "--http", "--no-auth", "--port", "0"]
    process = forked.piped("ai_session", words, env=living_in(home), cwd=home)
    assert process.stdout
    try:
        said = b""
        while b"/mcp\n" not in said:
            assert select.select([process.stdout], [], [], BOUND_SECONDS)[0], said
            said += os.read(process.stdout.fileno(), 4096) or pytest.fail(said.decode())
        yield said.decode().split("Serving MCP at ")[1].split()[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        process.close()
        stop_daemons(home)


def call(url: str, number: int, meta: dict[str, str], headers: dict[str, str]) -> dict[str, Any]:
    params = {"name": "list_sessions", "arguments": {}, "_meta": {**ENVELOPE, **meta}}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
    known = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    known |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "list_sessions"}
    request = urllib.request.Request(url, body, {**known, **headers})
    with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as answer:
        text = answer.read().decode()
    line = next((line[6:] for line in text.splitlines() if line.startswith("data: {")), text)
    return json.loads(line)["result"]


def test_calls_over_http_join_by_message_or_header(home: Path) -> None:
    with Collector() as collector:
        config = home / ".config/ai-session/config.toml"
        config.write_text(f'{config.read_text()}[telemetry]\nendpoint = "{collector.url}"\n')
        with front(home) as url:
            for number, (meta, headers) in enumerate(
                (
                    ({"traceparent": IN_MESSAGE}, {}),
                    ({}, {"traceparent": IN_HEADER}),
                    ({"traceparent": IN_MESSAGE}, {"traceparent": IN_HEADER}),
                )
            ):
                assert not call(url, number, meta, headers).get("isError")
        spans: dict[str, Seen] = {span.attributes.get("jsonrpc.request.id", ""): span for span in collector.spans}
    by_message, by_header, by_both = (spans[str(number)] for number in range(3))
    assert (by_message.trace, by_message.parent, by_message.link) == (TRACE, SPAN, "")
    assert (by_header.trace, by_header.parent, by_header.link) == (OTHER, AROUND, "")
    assert (by_both.trace, by_both.parent, by_both.link) == (TRACE, SPAN, AROUND)
    assert by_message.name == "tools/call list_sessions"
    wanted = {"network.transport": "tcp", "network.protocol.name": "http", "mcp.protocol.version": "2026-07-28"}
    assert by_message.attributes.items() >= wanted.items()


def context(
    params: Any, headers: dict[str, str] | None = None, method: str = "tools/call"
) -> ServerRequestContext[Any]:
    request = None if headers is None else SimpleNamespace(headers=headers)
    known: Any = {"session": None, "lifespan_context": None, "request_id": 7, "request": request}
    return ServerRequestContext(protocol_version="2025-11-25", method=method, params=params, **known)


KNOWN = {"mcp.method.name": "tools/call", "mcp.protocol.version": "2025-11-25", "jsonrpc.request.id": "7"}


@pytest.mark.parametrize(
    ("meta", "carried"),
    [
        ({"traceparent": IN_MESSAGE, "tracestate": "a=b", "baggage": "c=d", "other": "x"}, 3),
        ({"traceparent": IN_MESSAGE, "tracestate": 5, "baggage": "ü"}, 1),
        ({"traceparent": IN_MESSAGE, "tracestate": "a" * 2049, "baggage": "a" * 8193}, 1),
        ({"traceparent": "0" * 201}, 0),
        ({"traceparent": ""}, 0),
        ({"traceparent": None}, 0),
        ({"tracestate": "a=b"}, 0),
        ({}, 0),
        (None, 0),
        ("traceparent", 0),
        (["traceparent"], 0),
    ],
)
def test_only_what_can_be_a_trace_is_taken_of_a_message(meta: Any, carried: int) -> None:
    found = trace_of(context({"_meta": meta}))
    assert {name: found.pop(name) for name in (*KNOWN, "network.transport")} == {**KNOWN, "network.transport": "pipe"}
    assert len(found) == carried
    assert found.items() <= (meta.items() if isinstance(meta, dict) else {}.items())


def test_of_a_session_and_a_resource_the_name_is_taken() -> None:
    ctx = context({"uri": "session://s/screen"}, {"mcp-session-id": "abc"}, "resources/read")
    found = trace_of(ctx)
    assert (found["mcp.session.id"], found["mcp.resource.uri"]) == ("abc", "session://s/screen")
    assert found["network.transport"] == "tcp"
    assert trace_of(context(None))["mcp.method.name"] == "tools/call"
