"""Spans and metrics of calls, by OpenTelemetry's conventions for MCP and generative AI.

Names, numbers and outcomes are exported, never the arguments or results of a call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import Any

from opentelemetry import context as current
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentwire.telemetry.export import Providers
from ai_session import __version__
from ai_session.errors import UnknownTool
from ai_session.gate.telemetry.base import CallRecord, Ended, Telemetry
from ai_session.models import ToolCall, ToolResult

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The bucket boundaries of a histogram, those of the conventions."""

CLAIM_CHARS = 200
LEVEL_SECONDS = 1.0
OTHER = "_OTHER"
INVALID_PARAMS = "-32602"
"""The error code for a call of an unknown tool."""

OF_METRICS = ("mcp.method.name", "mcp.protocol.version", "network.transport")
OF_SPANS = (*OF_METRICS, "mcp.session.id", "mcp.resource.uri", "jsonrpc.request.id", "network.protocol.name")
AMBIENT = "ambient.traceparent"
"""The trace context of the HTTP request that carried a message, if the message has another one."""

_TRACE, _BAGGAGE = TraceContextTextMapPropagator(), W3CBaggagePropagator()

log = logging.getLogger(__name__)


class LiveTelemetry(Telemetry):
    """Exports to ``providers``. See ``telemetry.open_telemetry``."""

    def __init__(
        self,
        providers: Providers,
        tools: Collection[str],
        masked: Callable[[str], str],
        levels: Mapping[str, Callable[[], int]],
    ) -> None:
        self._providers = providers
        self.tools = frozenset(tools)
        self.masked = masked
        self._loop: asyncio.AbstractEventLoop | None = None
        self.tracer = providers.traces.get_tracer("ai_session", __version__)
        meter = providers.metrics.get_meter("ai_session", __version__)
        self.seconds = meter.create_histogram(
            "mcp.server.operation.duration",
            "s",
            "From a call's arrival to its result.",
            explicit_bucket_boundaries_advisory=SECONDS,
        )
        self.calls = meter.create_counter("ai_session.calls", "{call}", "Calls, by outcome.")
        self.output = meter.create_counter("ai_session.output", "By", "Text of results.")
        self.denials = meter.create_counter("ai_session.denials", "{call}", "Calls the policy or a person denied.")
        self.limited = meter.create_counter("ai_session.rate_limited", "{call}", "Calls refused by a rate limit.")
        self.redactions = meter.create_counter("ai_session.redactions", "{secret}", "Secrets masked in results.")
        for name, read in levels.items():
            meter.create_observable_gauge(name, [partial(self._level, read)])

    def call(self, call: ToolCall, trace: CallRecord) -> AbstractContextManager[Ended]:
        return _Call(self, call, trace)

    def part(self, name: str) -> AbstractContextManager[object]:
        return self.tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        await self._providers.close()

    def _level(self, read: Callable[[], int], options: CallbackOptions) -> Iterable[Observation]:
        """Called in the exporter's thread; the values belong to the loop."""
        if self._loop is None:
            return []
        answer = concurrent.futures.Future[int]()

        def ask() -> None:
            try:
                answer.set_result(read())
            except Exception as error:
                answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(ask)
            return [Observation(answer.result(LEVEL_SECONDS))]
        except Exception:  # the loop is busy or has ended, so there is no value now
            return []


class _Call:
    """One call: a span, and the metrics when it ends."""

    def __init__(self, telemetry: LiveTelemetry, call: ToolCall, trace: CallRecord) -> None:
        self._telemetry = telemetry
        self._call = call
        self._trace = trace
        self._tool = call.name if call.name in telemetry.tools else OTHER
        self._result: ToolResult | None = None
        self._span: Span
        self._token: Token[Context]
        self._began: float

    def __enter__(self) -> Ended:
        parent = parent_of(self._call.trace, self._telemetry.masked)
        method = self._call.trace.get("mcp.method.name") or "execute_tool"
        target = "" if self._tool == OTHER or method == "resources/read" else f" {self._tool}"
        self._began = time.perf_counter()
        self._span = self._telemetry.tracer.start_span(
            method + target, parent, SpanKind.SERVER, links=links_of(self._call.trace)
        )
        self._token = current.attach(set_span_in_context(self._span, parent))
        return self._ended

    def _ended(self, result: ToolResult) -> ToolResult:
        self._result = result
        return result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, context: TracebackType | None
    ) -> None:
        current.detach(self._token)
        try:
            self._export(error)
        except Exception:
            log.exception("a call could not be exported")
        self._span.end()

    def _export(self, error: BaseException | None) -> None:
        call = self._call
        trace = self._trace
        telemetry = self._telemetry
        error_name = error_type(self._result, error)
        shared: dict[str, str] = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": self._tool}
        known = {name: call.trace[name] for name in OF_METRICS if name in call.trace}
        failed = {"error.type": error_name} if error_name else {}
        if self._span.is_recording():
            claims = self._claims()
            self._span.set_attributes(shared | known | failed | claims | self._facts())
            if error_name:
                self._span.set_status(StatusCode.ERROR, trace.code or None)
        telemetry.seconds.record(time.perf_counter() - self._began, shared | known | failed)
        outcome = {"gen_ai.tool.name": self._tool, "ai_session.outcome": self._outcome()}
        telemetry.calls.add(1, outcome)
        of_tool = {"gen_ai.tool.name": self._tool}
        if self._result:
            telemetry.output.add(size_of(self._result), of_tool)
        if outcome["ai_session.outcome"] == "denied":
            telemetry.denials.add(1, of_tool)
        if trace.outcome == "limited":
            telemetry.limited.add(1, of_tool)
        if count := trace.facts.get("redactions"):
            telemetry.redactions.add(count, of_tool)

    def _outcome(self) -> str:
        """Return the audit log's outcome; a call whose question is returned to the client has not been denied yet."""
        return "asked" if self._result and self._result.question else self._trace.outcome

    def _claims(self) -> dict[str, str]:
        """Return what the client claims about itself, masked."""
        call = self._call
        claims = {name: call.trace[name] for name in OF_SPANS if name not in OF_METRICS and name in call.trace}
        claims |= {
            "user.id": call.principal.subject or str(call.principal.uid),
            "gen_ai.agent.name": call.agent,
            "ai_session.client.name": call.principal.client,
            "ai_session.client.call_id": call.client_call_id,
        }
        return {name: self._telemetry.masked(value)[:CLAIM_CHARS] for name, value in claims.items() if value}

    def _facts(self) -> dict[str, Any]:
        facts, result = self._trace.facts, self._result
        decision: Mapping[str, Any] = facts.get("decision") or {}
        attributes = {
            "ai_session.call.id": self._call.call_id,
            "ai_session.principal.kind": self._call.principal.kind,
            "ai_session.outcome": self._outcome(),
            "ai_session.error.code": self._trace.code,
            "ai_session.policy.decision": decision.get("verdict"),
            "ai_session.policy.rule": self._telemetry.masked(self._trace.rule)[:CLAIM_CHARS],
            "ai_session.session.id": facts.get("session"),
            "ai_session.sandbox.level": facts.get("level"),
            "ai_session.sandbox.profile": facts.get("profile"),
            "ai_session.command.id": facts.get("command_id"),
            "ai_session.command.status": facts.get("status"),
            "ai_session.redactions": facts.get("redactions"),
            "process.exit.code": facts.get("exit_code"),
            "ai_session.output.size": size_of(result) if result else None,
        }
        return {name: value for name, value in attributes.items() if value not in (None, "")}


def parent_of(carried: Mapping[str, str], masked: Callable[[str], str]) -> Context:
    """Return the client's span that a call belongs to, with its baggage, or an empty context. Vendors' data in a
    ``tracestate`` is passed on with the trace, so a ``tracestate`` with a secret is left out."""
    state = carried.get("tracestate", "")
    carrier = {name: value for name, value in carried.items() if name != "tracestate" or masked(state) == state}
    return _BAGGAGE.extract(carrier, _TRACE.extract(carrier, Context()))


def links_of(carried: Mapping[str, str]) -> list[Link]:
    """Return a link to the HTTP request's own span, if the message has another one."""
    ambient = carried.get(AMBIENT, "")
    context: SpanContext = get_current_span(_TRACE.extract({"traceparent": ambient}, Context())).get_span_context()
    return [Link(context)] if context.is_valid else []


def error_type(result: ToolResult | None, error: BaseException | None) -> str:
    """Return the error's type by the conventions; empty if nothing failed."""
    if isinstance(error, UnknownTool):
        return INVALID_PARAMS
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if error is not None:
        return type(error).__name__
    return "tool_error" if result and result.is_error else ""


def size_of(result: ToolResult) -> int:
    """Return the size of the result's text in bytes of UTF-8."""
    return len(result.text) if result.text.isascii() else len(result.text.encode(errors="surrogatepass"))
