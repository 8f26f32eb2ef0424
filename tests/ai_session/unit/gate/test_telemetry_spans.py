"""What spans and metrics say of calls, and that they say nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from agentwire.telemetry.export import Providers
from ai_session.errors import Denied, UnknownTool
from ai_session.gate.consent.consent import Deferred
from ai_session.gate.telemetry.spans import LiveTelemetry, size_of
from ai_session.models import Effect, ToolCall, ToolResult
from tests.ai_session.support.gates import ASK, CLIENT, DENY, SECRET, GateSetup
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@dataclass
class Seen:
    """A gate that tells into memory."""

    setup: GateSetup
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader
    telemetry: LiveTelemetry

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    async def call(self, name: str = "execute", /, **more: Any) -> ToolResult:
        given: dict[str, Any] = {"trace": {"mcp.method.name": "tools/call"}, **more}
        arguments = {"text": "x"} | given.pop("arguments", {})
        return await self.setup.gate.call(ToolCall(CLIENT, name, arguments, "call_1", **given))

    async def points(self) -> dict[str, list[Any]]:
        """Collected in a thread of its own, as the exporter does."""
        data = await asyncio.to_thread(self.reader.get_metrics_data)
        scopes = [scope for group in (data.resource_metrics if data else ()) for scope in group.scope_metrics]
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}


@pytest.fixture
def seeing(home: Path) -> Callable[..., Seen]:
    def make(*rules: Any, **levels: Callable[[], int]) -> Seen:
        exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
        traces = TracerProvider(shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(exporter))
        providers = Providers(traces, MeterProvider([reader], shutdown_on_exit=False))
        masks: list[Callable[[str], str]] = []
        telemetry = LiveTelemetry(providers, [str(e) for e in Effect], lambda text: masks[0](text), levels)
        setup = GateSetup(home, *rules, telemetry=telemetry)
        masks.append(setup.gate.parts.masking.masked)
        return Seen(setup, exporter, reader, telemetry)

    return make


async def test_a_call_is_a_server_span_by_the_conventions(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    await seen.call(
        agent="writer",
        trace={"mcp.method.name": "tools/call", "network.transport": "pipe", "jsonrpc.request.id": "7"},
    )
    span = seen.spans["tools/call execute"]
    assert span.kind is SpanKind.SERVER
    assert span.parent is None
    assert span.status.status_code is StatusCode.UNSET
    assert {k: v for k, v in (span.attributes or {}).items() if k != "ai_session.policy.rule"} == {
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "jsonrpc.request.id": "7",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "execute",
        "gen_ai.agent.name": "writer",
        "user.id": str(CLIENT.uid),
        "process.exit.code": 0,
        "ai_session.call.id": "call_1",
        "ai_session.client.name": "test",
        "ai_session.principal.kind": "mcp",
        "ai_session.outcome": "ok",
        "ai_session.policy.decision": "allow",
        "ai_session.sandbox.level": "none",
        "ai_session.sandbox.profile": "trusted",
        "ai_session.output.size": 4,
    }


async def test_what_takes_long_is_a_span_within(seeing: Callable[..., Seen]) -> None:
    seen = seeing(ASK)
    await seen.call()
    parts = [span for span in seen.exporter.get_finished_spans() if span.parent]
    assert [span.name for span in parts] == ["audit.begin", "consent.wait", "tool.run"]
    whole = seen.spans["tools/call execute"].get_span_context()
    assert {span.parent and span.parent.span_id for span in parts} == {whole.span_id}


async def test_the_span_joins_the_clients_trace(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    await seen.call(trace={"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "a=b"})
    span = seen.spans["execute_tool execute"]
    assert span.parent
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, SPAN)
    assert span.get_span_context().trace_state.to_header() == "vendor=1"


async def test_a_client_without_sampling_is_not_mentioned(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    await seen.call(trace={"traceparent": PARENT[:-1] + "0"})
    assert not seen.spans
    assert sum(point.count for point in (await seen.points())["mcp.server.operation.duration"]) == 1


@pytest.mark.parametrize(
    "parent", ["", "nonsense", PARENT[:-4], "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ff" + PARENT]
)
async def test_a_wrong_parent_is_none(seeing: Callable[..., Seen], parent: str) -> None:
    seen = seeing()
    await seen.call(trace={"traceparent": parent})
    assert seen.spans["execute_tool execute"].parent is None


async def test_the_http_request_around_is_a_link(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    other = PARENT.replace(SPAN, "1111111111111111")
    await seen.call(trace={"traceparent": PARENT, "ambient.traceparent": other})
    (link,) = seen.spans["execute_tool execute"].links
    assert f"{link.context.span_id:016x}" == "1" * 16


@pytest.mark.parametrize(
    ("rules", "problem", "outcome", "code"),
    [((DENY,), None, "denied", "denied"), ((ASK,), Denied("no"), "denied", "denied")],
)
async def test_a_refusal_is_an_error_and_is_counted(
    seeing: Callable[..., Seen], rules: Any, problem: Exception | None, outcome: str, code: str
) -> None:
    seen = seeing(*rules)
    seen.setup.consent.word = problem
    result = await seen.call()
    assert result.is_error
    span = seen.spans["tools/call execute"]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes
    assert (span.attributes["error.type"], span.attributes["ai_session.error.code"]) == ("tool_error", code)
    assert span.attributes["ai_session.outcome"] == outcome
    points = await seen.points()
    assert [point.value for point in points["ai_session.denials"]] == [1]
    assert dict(points["ai_session.calls"][0].attributes)["ai_session.outcome"] == "denied"


async def test_what_waits_for_a_form_was_not_denied(seeing: Callable[..., Seen]) -> None:
    seen = seeing(ASK)
    seen.setup.consent.word = Deferred("sealed", question=None)  # type: ignore[arg-type]
    assert (await seen.call()).question
    span = seen.spans["tools/call execute"]
    assert span.attributes
    assert span.attributes["ai_session.outcome"] == "asked"
    assert span.status.status_code is StatusCode.UNSET
    assert "ai_session.denials" not in await seen.points()


async def test_an_unknown_tool_is_not_named(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    with pytest.raises(UnknownTool):
        await seen.call("no_such_" + SECRET)
    span = seen.spans["tools/call"]
    assert span.attributes
    assert span.attributes["gen_ai.tool.name"] == "_OTHER"
    assert span.attributes["error.type"] == "-32602"


async def test_a_call_that_is_given_up_ends_its_span(seeing: Callable[..., Seen]) -> None:
    seen = seeing(ASK)
    seen.setup.consent.word = None
    task = asyncio.create_task(seen.call())
    async with asyncio.timeout(BOUND_SECONDS):
        await seen.setup.consent.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    span = seen.spans["tools/call execute"]
    assert span.attributes
    assert (span.attributes["error.type"], span.attributes["ai_session.outcome"]) == ("cancelled", "cancelled")


async def test_side_by_side_calls_keep_their_own_parts(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    await asyncio.gather(*(seen.call(name) for name in ("read", "write", "execute", "network") * 5))
    spans = seen.exporter.get_finished_spans()
    wholes = {span.get_span_context().span_id for span in spans if not span.parent}
    parts = [span.parent.span_id for span in spans if span.parent and span.name == "tool.run"]
    assert len(wholes) == len(parts) == len(set(parts)) == 20
    assert set(parts) == wholes


async def test_metrics_count_calls_output_and_masks(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    seen.setup.text = f"zwölf {SECRET}"
    result = await seen.call()
    points = await seen.points()
    assert [point.value for point in points["ai_session.output"]] == [len(result.text.encode())]
    assert [point.value for point in points["ai_session.redactions"]] == [1]
    (duration,) = points["mcp.server.operation.duration"]
    assert duration.count == 1
    assert dict(duration.attributes) == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "execute",
    }


async def test_a_call_that_comes_too_often_is_counted(seeing: Callable[..., Seen]) -> None:
    seen = seeing()
    for _ in range(seen.setup.rates["effect"]):
        await seen.call()
    assert (await seen.call()).is_error
    points = await seen.points()
    assert [point.value for point in points["ai_session.rate_limited"]] == [1]


async def test_levels_are_read_on_the_loop(seeing: Callable[..., Seen]) -> None:
    where: list[asyncio.AbstractEventLoop] = []

    def level() -> int:
        where.append(asyncio.get_running_loop())
        return 3

    seen = seeing(level=level)
    assert "level" not in await seen.points(), "nobody said yet on which loop"
    seen.telemetry.start()
    assert [point.value for point in (await seen.points())["level"]] == [3]
    assert where == [asyncio.get_running_loop()]


async def test_a_level_that_cannot_be_read_is_none_and_the_others_are(seeing: Callable[..., Seen]) -> None:
    def broken() -> int:
        raise RuntimeError("no")

    seen = seeing(broken=broken, level=lambda: 1)
    seen.telemetry.start()
    assert set(await seen.points()) == {"level"}


async def test_nothing_masked_is_shown(seeing: Callable[..., Seen]) -> None:
    """Arguments, results, and each claim a client can make, with a secret in all of them."""
    seen = seeing()
    seen.setup.text = SECRET
    principal = replace(CLIENT, client=SECRET, subject=SECRET)
    names = ("mcp.session.id", "mcp.resource.uri", "jsonrpc.request.id")
    carried = {
        "traceparent": PARENT,
        "tracestate": f"v={SECRET}",
        "baggage": f"b={SECRET}",
        **dict.fromkeys(names, SECRET),
    }
    call = ToolCall(
        principal, "execute", {"text": SECRET}, "c1", agent=SECRET, run=SECRET, client_call_id=SECRET, trace=carried
    )
    await seen.setup.gate.call(call)
    reported = "".join(span.to_json() for span in seen.exporter.get_finished_spans()) + str(await seen.points())
    assert "execute_tool execute" in reported
    assert SECRET[:40] not in reported
    assert "A" * 12 not in reported


async def test_a_mask_that_fails_costs_no_call(seeing: Callable[..., Seen], caplog: pytest.LogCaptureFixture) -> None:
    seen = seeing()

    def broken(text: str) -> str:
        raise RuntimeError("no")

    seen.telemetry.masked = broken
    assert not (await seen.call(agent="x", trace={})).is_error
    assert len(seen.spans) == 3
    assert "could not be exported" in caplog.text


def test_size_is_in_bytes() -> None:
    assert [size_of(ToolResult(text, {})) for text in ("", "abc", "ü", "\udc80")] == [0, 3, 2, 3]
