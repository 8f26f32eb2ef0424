"""A daemon that tells a collector of its calls: what arrives, what never does, and what a collector cannot do to it."""

from __future__ import annotations

import json
import logging
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentwire.extras import install
from ai_session.client import relay
from ai_session.config.settings import TelemetrySettings
from ai_session.gate.telemetry.base import Telemetry
from ai_session.gate.telemetry.factory import open_telemetry
from tests.ai_session.support.mcp_client import BOUND_SECONDS, Client, Message, living_in, runtime, stop_daemons
from tests.ai_session.support.planted_secrets import GIVEN, VARIABLES, SeenOutput, lines, one_line
from tests.conftest import environment
from tests.support.collector import Collector

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "AI_SESSION_TELEMETRY_METRICS_SECONDS": "0.2"}
SERVER, ERROR = 2, 2
"""Of the protocol: a span's kind and its status."""


@contextmanager
def client(home: Path, **variables: str) -> Iterator[Client]:
    """Of a daemon that it starts, and that ends with it."""
    with Client(env={**living_in(home), **SOON, **variables}, cwd=home) as one:
        try:
            one.initialize(name="claude")
            yield one
        finally:
            stop_daemons(home)


def call(one: Client, tool: str, meta: Message | None = None, **arguments: Any) -> Message:
    params: Message = {"name": tool, "arguments": arguments}
    return one.result("tools/call", params | ({"_meta": meta} if meta else {}))


def warnings(home: Path) -> list[str]:
    return [line for line in (runtime(home) / "daemon.log").read_text().splitlines() if "WARNING" in line]


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_calls_arrive_in_the_clients_trace_with_their_parts_and_are_counted(home: Path) -> None:
    config = home / ".config/ai-session/config.toml"
    with Collector() as collector:
        reported = f'[telemetry]\nendpoint = "{collector.url}/"\nheaders = {{ x-team = "terminals" }}\n'
        config.write_text(config.read_text() + reported)
        agent = {"ai-session/agent": "writer"}
        meta = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "v=1", **agent}
        with client(home, OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test") as one:
            made = call(one, "create_session", agent, name="s", backend="pty")["structuredContent"]
            ran = call(one, "execute_command", meta, session_id="s", command="echo hello; (exit 7)")
            assert not ran.get("isError"), ran
            assert call(one, "execute_command", session_id="nobody", command=":")["isError"]
            call(one, "execute_command", agent, session_id="s", command="cat", timeout_seconds=0)
            (span,) = collector.until(lambda: [s for s in collector.spans if s.trace == TRACE and s.parent == SPAN])
            collector.until(lambda: collector.total("ai_session.commands.running") == 1)
            collector.until(lambda: collector.total("mcp.server.operation.duration") == 4)
            assert collector.total("ai_session.sessions.open") == 1
            assert collector.total("ai_session.calls", **{"gen_ai.tool.name": "execute_command"}) == 3
            outcomes = {one["ai_session.outcome"] for one, _ in collector.points["ai_session.calls"]}
            assert outcomes == {"ok", "tool_error"}
            wrong = collector.until(lambda: [s for s in collector.spans if s.status == ERROR])[0]
        assert collector.headers[0]["x-team"] == "terminals"
    assert (span.name, span.kind, span.status) == ("tools/call execute_command", SERVER, 0)
    wanted = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "pipe",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "execute_command",
        "gen_ai.agent.name": "writer",
        "ai_session.client.name": "claude",
        "ai_session.session.id": made["session_id"],
        "ai_session.command.id": ran["structuredContent"]["command_id"],
        "ai_session.call.id": ran["_meta"]["ai-session/call_id"],
        "process.exit.code": 7,
        "ai_session.output.size": len(ran["content"][0]["text"]),
    }
    assert span.attributes.items() >= wanted.items()
    assert {s.name for s in collector.spans if s.parent == span.id} == {"audit.begin", "tool.run"}
    assert wrong.attributes["error.type"] == "tool_error"
    assert wrong.attributes["ai_session.error.code"] == "session_not_found"
    resource = span.resource
    assert (resource["service.name"], resource["deployment.environment"]) == ("ai-session", "test")
    assert not warnings(home)


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.torture)])
def test_no_planted_secret_arrives(home: Path, step: int) -> None:
    """Commands, output, arguments, names and claims, with all secrets of a client that is full of them; as names and
    claims one in ``step``."""
    work = home / "work"
    work.mkdir()
    (work / "all.txt").write_text("\n".join(lines()) + "\n")
    with Collector() as collector, client(home, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **VARIABLES) as one:
        call(one, "create_session", name="s", backend="pty", env=GIVEN, working_directory=str(work))
        call(one, "execute_command", session_id="s", command="cat all.txt; env", max_output_chars=200_000)
        words = " ".join(map(shlex.quote, one_line()))
        call(
            one,
            "execute_command",
            session_id="s",
            command=f"printf '%s\\n' {words}",
            call_key=VARIABLES["COMPANY_TOKEN"],
        )
        call(one, "execute_command", session_id="s", command="cat", stdin="\n".join(lines()))
        count = 4
        for secret in one_line()[::step]:
            said = {"ai-session/agent": secret, "ai-session/client_call_id": secret, "tracestate": f"v={secret}"}
            meta = {"traceparent": f"00-{TRACE}-{SPAN}-01", "baggage": f"k={secret}", **said}
            call(one, "get_session_info", meta, session_id=secret)
            assert "error" in one.ask("tools/call", {"name": secret, "arguments": {}, "_meta": meta})
            count += 2
        collector.until(lambda: len([s for s in collector.spans if s.kind == SERVER]) == count)
        collector.until(lambda: collector.total("ai_session.calls") == count)
        assert collector.total("ai_session.redactions") > len(lines())
    places = SeenOutput()
    for body in collector.bodies:
        places.add("export", body)
    assert not places.revealed()


@pytest.mark.torture
def test_a_collector_that_does_not_listen_costs_one_warning(home: Path) -> None:
    with client(home, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://user:secret@127.0.0.1:{closed_port()}") as one:
        call(one, "create_session", name="s", backend="pty")
        log = runtime(home) / "daemon.log"
        deadline = time.monotonic() + BOUND_SECONDS
        while not log.read_text() and time.monotonic() < deadline:
            assert not call(one, "execute_command", session_id="s", command=":").get("isError")
        for _ in range(5):
            assert not call(one, "execute_command", session_id="s", command=":").get("isError")
        left = time.monotonic()
    assert time.monotonic() - left < BOUND_SECONDS / 2, "leaving waits for a second at most"
    (warning,) = warnings(home)
    assert "telemetry to http://127.0.0.1:" in warning
    assert "secret" not in warning
    assert len(log.read_text().splitlines()) == 1


@pytest.mark.torture  # by day test_first_session.py sees all that is loaded until a session is open
def test_off_is_not_there(home: Path) -> None:
    """Python itself says what a daemon imports."""
    variables = {"PYTHONPROFILEIMPORTTIME": "1"}
    with environment({**living_in(home), **variables}):
        relay.connect("control").close()  # it is executed, not forked from one that has loaded all
    with client(home, **variables) as one:
        call(one, "create_session", name="s", backend="pty")
        call(one, "execute_command", session_id="s", command="true")
        one.ask("resources/list")  # for which the SDK is imported
    found = {line.rpartition("|")[2].strip() for line in (runtime(home) / "daemon.log").read_text().splitlines()}
    assert {"ai_session.gate.gate", "ai_session.gate.telemetry.base", "mcp.server.lowlevel.server"} <= found
    assert not {
        name for name in found if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "google.prot"))
    }
    assert "ai_session.gate.telemetry.spans" not in found


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"endpoint": "http://x", "protocol": "grpc"}, "the protocol 'grpc' is not supported, only http/protobuf"),
        ({}, ""),
        ({"endpoint": "http://x", "traces_endpoint": "none", "metrics_endpoint": "none"}, ""),
    ],
)
def test_facts_that_cannot_be_determined_are_reported_as_such(
    given: Message, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = open_telemetry(TelemetrySettings.model_validate(given), [], str, {})
    assert type(found) is Telemetry
    assert word in caplog.text
    assert bool(word) == bool(caplog.text)


def test_without_its_packages_it_says_how_to_get_them() -> None:
    code = """
import logging, sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk") or name.startswith("opentelemetry.exporter"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Without())
from ai_session.config.settings import TelemetrySettings
from ai_session.gate.telemetry.factory import open_telemetry
print(type(open_telemetry(TelemetrySettings(endpoint="http://x"), [], str, {})).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert done.stdout == "Telemetry\n", done.stderr
    assert "is not installed; nothing is exported: " + install("otel") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_standard_variables_set_what_the_file_does_not(home: Path) -> None:
    from ai_session.config import config

    def read(**variables: str) -> dict[str, Any]:
        return config.load(environ={"HOME": str(home), **variables}).telemetry.model_dump(exclude_defaults=True)

    assert read() == {}
    assert read(OTEL_EXPORTER_OTLP_ENDPOINT="http://a") == {"endpoint": "http://a"}
    assert read(OTEL_EXPORTER_OTLP_ENDPOINT="http://a", OTEL_SDK_DISABLED="true") == {}
    assert read(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://t/x", OTEL_METRICS_EXPORTER="none") == {
        "traces_endpoint": "http://t/x",
        "metrics_endpoint": "none",
    }
    assert (
        read(OTEL_EXPORTER_OTLP_ENDPOINT="http://a", AI_SESSION_TELEMETRY_ENDPOINT="http://b")["endpoint"] == "http://b"
    )
    file = home / ".config/ai-session/config.toml"
    file.write_text('[telemetry]\nendpoint = "http://file"\n')
    assert read(OTEL_EXPORTER_OTLP_ENDPOINT="http://a")["endpoint"] == "http://file"
    origins = config.resolve(environ={"HOME": str(home), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).origins
    assert origins["telemetry.protocol"] == "OTEL_EXPORTER_OTLP_PROTOCOL"
    assert json.dumps(dict(origins))
