"""Spans and metrics of runs, tasks, thoughts and calls, by the conventions of OpenTelemetry for MCP and generative AI.

Names, numbers and outcomes are exported, never the arguments or results of a call.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as current
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentwire.telemetry.export import Providers
from ccswarm import __version__
from ccswarm.errors import SwarmError
from ccswarm.models import CallRequest, CallStatus, Json
from ccswarm.toolbox.telemetry.base import Function, KnownExecution, SentCall, Status, Telemetry

SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The bucket boundaries of histograms, as the conventions have them."""

NAME_CHARS = 200
RUN = "run"
OTHER = "_OTHER"
GOOD = frozenset({"succeeded", "ok"})

_TRACE = TraceContextTextMapPropagator()
_next_ids: ContextVar[tuple[int, int]] = ContextVar("_known", default=(0, 0))
"""The ids of the trace and the span about to begin; 0 for random ones."""

log = logging.getLogger(__name__)


class Ids(RandomIdGenerator):
    """A generator of random ids, except for spans whose ids are known beforehand."""

    def generate_trace_id(self) -> int:
        return _next_ids.get()[0] or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return _next_ids.get()[1] or super().generate_span_id()


def trace_id_of(root: str) -> int:
    """Return the trace id of a run and all its parts, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"trace {root}".encode()).digest()[:16]) or 1


def span_id_of(execution_id: str) -> int:
    """Return the span id of a run or a task."""
    return int.from_bytes(hashlib.sha256(f"span {execution_id}".encode()).digest()[:8]) or 1


class LiveTelemetry(Telemetry):
    """Telemetry that exports to ``providers``, whose id generator is ``Ids``."""

    def __init__(self, providers: Providers, masked: Callable[[str], str]) -> None:
        self._providers = providers
        self._masked = masked
        self._waiting: set[str] = set()
        self._running: dict[str, int] = {}
        self._tracer = providers.traces.get_tracer("ccswarm", __version__)
        meter = providers.metrics.get_meter("ccswarm", __version__)

        def histogram(name: str, what: str) -> Any:
            return meter.create_histogram(name, "s", what, explicit_bucket_boundaries_advisory=SECONDS)

        self._call_seconds = histogram("mcp.client.operation.duration", "From sending a call to its answer.")
        self._run_seconds = histogram("ccswarm.run.duration", "From a run's submission to its end.")
        self._task_seconds = histogram("ccswarm.task.duration", "From queueing a task to its end.")
        self._calls = meter.create_counter("ccswarm.calls", "{call}", "Calls, by outcome.")
        self._tokens = meter.create_counter("ccswarm.tokens", "{token}", "Tokens used by brains.")
        self._dollars = meter.create_counter("ccswarm.dollars", "USD", "Cost of these, if prices are known.")
        meter.create_observable_gauge("ccswarm.approvals.waiting", [self._approvals], "{approval}", "In this process.")
        meter.create_observable_gauge(
            "ccswarm.executions.running", [self._executions], "{execution}", "Runs and tasks."
        )

    @contextmanager
    def call(self, request: CallRequest, sent: SentCall) -> Generator[Mapping[str, str]]:
        parent = self._parent(request.run_id, request.task_id)
        span = self._tracer.start_span(f"tools/call {self._name(request.tool)}", parent, SpanKind.CLIENT)
        inside = set_span_in_context(span, parent)
        carried: dict[str, str] = {}
        _TRACE.inject(carried, inside)
        token = current.attach(inside)
        try:
            yield carried
        finally:
            current.detach(token)
            try:
                self._end_call(span, request, sent)
            except Exception:
                log.exception("a call could not be exported")
            span.end()

    def trace_thought(self, request: CallRequest, function: Function) -> Function:
        async def traced(key: str) -> Any:
            parent = self._parent(request.run_id, request.task_id)
            about = {"gen_ai.agent.name": self._name(request.agent), "ccswarm.run.id": request.run_id}
            with self._tracer.start_as_current_span(
                "think", parent, attributes=about, record_exception=False, set_status_on_exception=False
            ) as span:
                try:
                    facts = await function(key)
                except BaseException as error:
                    self._mark_failed(span, error.code if isinstance(error, SwarmError) else type(error).__name__)
                    raise
                try:
                    self._count_usage(span, request.agent, facts)
                except Exception:
                    log.exception("a thought could not be exported")
            return facts

        return traced

    async def await_answer(self, number: str, answer: Awaitable[Json | None]) -> Json | None:
        self._waiting.add(number)
        try:
            return await answer
        finally:
            self._waiting.discard(number)

    async def execution(self, execution_id: str, root: str, work: Coroutine[Any, Any, Json], status: Status) -> Json:
        kind = RUN if execution_id == root else "task"
        self._running[kind] = self._running.get(kind, 0) + 1
        result: Any = None
        try:
            result = await work
        except asyncio.CancelledError:
            raise  # paused, handed back, or cancelled: it may continue elsewhere
        except BaseException as error:
            await self._export_ended(execution_id, root, status, {"status": "failed", "error": type(error).__name__})
            raise
        finally:
            self._running[kind] -= 1
        await self._export_ended(execution_id, root, status, result)
        return result

    async def close(self) -> None:
        await self._providers.close()

    def _parent(self, root: str, execution_id: str) -> Context:
        """Return the context of a run or task, which another process may export, or an empty one if ``root`` is."""
        if not root:
            return Context()
        trace = trace_id_of(root)
        sampled = self._providers.traces.sampler.should_sample(Context(), trace, RUN).decision
        flags = TraceFlags(TraceFlags.SAMPLED if sampled is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return set_span_in_context(
            NonRecordingSpan(SpanContext(trace, span_id_of(execution_id), True, flags)), Context()
        )

    async def _export_ended(self, execution_id: str, root: str, status: Status, result: Mapping[str, Any]) -> None:
        try:
            self._export(await status(execution_id), root, result)
        except Exception:
            log.exception("%s could not be exported", execution_id)

    def _export(self, found: KnownExecution, root: str, result: Mapping[str, Any]) -> None:
        """Export a run or task from its submission on, so that the result does not depend on takeovers."""
        ended = time.time()
        outcome = str(result.get("status", ""))
        is_run = found.kind == RUN
        agent = self._name(found.agent)
        name = "invoke_workflow" if is_run else f"invoke_agent {agent}".strip()
        usage: Mapping[str, Any] = result.get("usage") or {}
        about: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_workflow" if is_run else "invoke_agent",
            "gen_ai.agent.name": agent,
            "ccswarm.run.id": root,
            "ccswarm.execution.id": found.id,
            "ccswarm.status": outcome,
            "error.type": result.get("error") or ("" if outcome in GOOD else outcome),
            "ccswarm.calls": usage.get("calls"),
            "ccswarm.tokens": usage.get("tokens"),
            "ccswarm.dollars": usage.get("dollars"),
        }
        token = _next_ids.set((trace_id_of(root), span_id_of(found.id)))
        try:
            parent = self._parent(root, found.parent) if found.parent else Context()
            span = self._tracer.start_span(name, parent, start_time=int(found.created_at * 1e9))
        finally:
            _next_ids.reset(token)
        span.set_attributes({name: value for name, value in about.items() if value not in ("", None)})
        if outcome not in GOOD:
            span.set_status(StatusCode.ERROR)
        span.end(int(ended * 1e9))
        seconds = self._run_seconds if is_run else self._task_seconds
        labels = {"ccswarm.status": outcome} | ({} if is_run else {"gen_ai.agent.name": agent})
        seconds.record(max(0.0, ended - found.created_at), labels)

    def _end_call(self, span: Span, request: CallRequest, sent: SentCall) -> None:
        outcome, tool = sent.outcome, self._name(request.tool)
        failed = {"error.type": "tool_error" if outcome.status is CallStatus.TOOL_ERROR else str(outcome.status)}
        shared = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        shared |= {} if outcome.ok else failed
        exit_code = (outcome.structured or {}).get("exit_code")
        about: dict[str, Any] = {
            **shared,
            "gen_ai.agent.name": self._name(request.agent),
            "ccswarm.run.id": request.run_id,
            "ccswarm.execution.id": request.task_id,
            "ccswarm.step.id": self._name(request.step_id),
            "ccswarm.call.id": sent.call_id,
            "ccswarm.call.sent": sent.begun,
            "ccswarm.call.status": str(outcome.status),
            "ccswarm.error.code": self._name(outcome.code),
            "ai_session.call.id": self._name(outcome.call_id),
            "process.exit.code": exit_code if isinstance(exit_code, int) else None,
        }
        span.set_attributes({name: value for name, value in about.items() if value not in ("", None)})
        if not outcome.ok:
            span.set_status(StatusCode.ERROR)
        # The name in a call that was not sent may be of no tool.
        counted = {"gen_ai.tool.name": tool if sent.begun else OTHER, "ccswarm.call.status": str(outcome.status)}
        self._calls.add(1, counted)
        if sent.begun:
            self._call_seconds.record(outcome.duration_seconds, shared)

    def _count_usage(self, span: Span, agent: str, facts: Mapping[str, Any]) -> None:
        usage: Mapping[str, Any] = facts.get("usage") or {}
        labels = {"gen_ai.agent.name": self._name(agent)}
        for name, counter in (("tokens", self._tokens), ("dollars", self._dollars)):
            if amount := usage.get(name):
                counter.add(amount, labels)
                span.set_attribute(f"ccswarm.{name}", amount)

    def _mark_failed(self, span: Span, why: str) -> None:
        span.set_attribute("error.type", why)
        span.set_status(StatusCode.ERROR)

    def _name(self, text: str) -> str:
        return self._masked(text)[:NAME_CHARS]

    def _approvals(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(len(self._waiting))]

    def _executions(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(count, {"ccswarm.kind": kind}) for kind, count in tuple(self._running.items())]
