"""What a swarm tells of runs: one trace each, whoever executes them, and nothing twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from agentwire.telemetry.export import Providers
from ccswarm.config import config
from ccswarm.config.masks import Masks
from ccswarm.config.settings import Settings
from ccswarm.models import CallOutcome, CallRequest, CallStatus
from ccswarm.swarm.swarm import Swarm, sent_to_workers
from ccswarm.toolbox.telemetry.base import Telemetry
from ccswarm.toolbox.telemetry.factory import open_telemetry
from ccswarm.toolbox.telemetry.spans import Ids, LiveTelemetry, span_id_of, trace_id_of
from ccswarm.toolbox.toolbox import Toolbox
from tests.ccswarm.support.engine_double import MemoryStore
from tests.ccswarm.support.swarms import Hanging, MemoryWorker, settings, steps
from tests.ccswarm.support.toolboxes import SECRET, ToolboxSetup, invoke_tool, nobody_agrees
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


class Noting(LiveTelemetry):
    """Says when somebody waits for a person."""

    def __init__(self, providers: Providers, masked: Callable[[str], str]) -> None:
        super().__init__(providers, masked)
        self.heard = asyncio.Event()

    async def await_answer(self, number: str, answer: Awaitable[Any]) -> Any:
        self.heard.set()
        return await super().await_answer(number, answer)


@dataclass
class TelemetryRecorder:
    """Telemetry into memory."""

    sampler: Sampler = field(default_factory=lambda: ParentBased(ALWAYS_ON))

    def __post_init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        traces = TracerProvider(self.sampler, id_generator=Ids(), shutdown_on_exit=False)
        traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        metrics = MeterProvider([self.reader], shutdown_on_exit=False)
        self.telemetry = Noting(Providers(traces, metrics), Masks({"DB_TOKEN": SECRET}))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def total(self, metric: str) -> float:
        data = self.reader.get_metrics_data()
        scopes = [scope for group in (data.resource_metrics if data else ()) for scope in group.scope_metrics]
        points = [point for s in scopes for m in s.metrics if m.name == metric for point in m.data.data_points]
        return sum(getattr(point, "count", None) or getattr(point, "value", 0) for point in points)


def above(span: ReadableSpan) -> int:
    return span.parent.span_id if span.parent else 0


def own(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


class TracedWorker(MemoryWorker):
    """A swarm that tells ``recorder``; each of its tools is called through a toolbox that does too."""

    def __init__(self, recorder: TelemetryRecorder, store: MemoryStore | None = None, process: str = "one") -> None:
        super().__init__(store, process)
        self.recorder = recorder
        self.swarm = Swarm(self.engine, self.task_worker, recorder.telemetry)


async def test_a_run_its_tasks_and_thoughts_are_one_trace(tmp_path: Path) -> None:
    recorder = TelemetryRecorder()
    worker = TracedWorker(recorder)
    worker.tool("srv.do")
    done = await worker.run({"tasks": [{"id": name, "steps": steps("a")} for name in ("one", "two")]})
    assert done.result["status"] == "succeeded"
    run, tasks = recorder.named("invoke_workflow"), [span for span in recorder.spans if span.name == "invoke_agent ada"]
    assert {span.get_span_context().trace_id for span in recorder.spans} == {trace_id_of("run_1")}
    assert run.parent is None
    assert [above(task) for task in tasks] == [own(run)] * 2
    assert {own(task) for task in tasks} == {span_id_of("run_1.one"), span_id_of("run_1.two")}
    assert run.attributes
    assert dict(run.attributes) == {
        "gen_ai.operation.name": "invoke_workflow",
        "ccswarm.run.id": "run_1",
        "ccswarm.execution.id": "run_1",
        "ccswarm.status": "succeeded",
        "ccswarm.calls": 2,
        "ccswarm.tokens": 0,
        "ccswarm.dollars": 0.0,
    }
    assert run.start_time
    assert run.start_time == int(done.created_at * 1e9)
    assert (recorder.total("ccswarm.run.duration"), recorder.total("ccswarm.task.duration")) == (1, 2)


async def test_a_call_is_a_client_span_within_its_task_and_is_carried_on(tmp_path: Path) -> None:
    recorder, worker = TelemetryRecorder(), ToolboxSetup(tmp_path)
    toolbox = Toolbox(worker.clients, worker.agents, worker.journal, telemetry=recorder.telemetry)
    request = CallRequest("r1", "r1.t", "s1", "free", "one.echo", {"text": SECRET}, key="k")
    outcome = await toolbox.call(request, budget=None, approved=nobody_agrees)
    assert outcome.ok
    span = recorder.named("tools/call one.echo")
    assert span.kind is SpanKind.CLIENT
    assert (span.get_span_context().trace_id, above(span)) == (trace_id_of("r1"), span_id_of("r1.t"))
    meta = worker.one.received[-1].meta
    assert meta["traceparent"] == f"00-{trace_id_of('r1'):032x}-{own(span):016x}-01"
    assert meta["ai-session/agent"] == "free"
    assert span.attributes
    assert span.attributes["ccswarm.call.id"] == meta["ai-session/client_call_id"]
    assert SECRET not in span.to_json()
    assert recorder.total("mcp.client.operation.duration") == 1


async def test_a_call_outside_any_run_is_a_trace_of_its_own(tmp_path: Path) -> None:
    recorder, worker = TelemetryRecorder(), ToolboxSetup(tmp_path)
    toolbox = Toolbox(worker.clients, worker.agents, worker.journal, telemetry=recorder.telemetry)
    assert (await invoke_tool(toolbox, "free", "one.echo", {})).ok
    assert recorder.named("tools/call one.echo").parent is None


async def test_what_was_not_sent_is_an_error_of_no_tool(tmp_path: Path) -> None:
    recorder, worker = TelemetryRecorder(), ToolboxSetup(tmp_path)
    toolbox = Toolbox(worker.clients, worker.agents, worker.journal, telemetry=recorder.telemetry)
    assert not (await invoke_tool(toolbox, "nothing", f"one.{SECRET}", {})).ok
    (span,) = recorder.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes
    assert (span.attributes["ccswarm.call.sent"], span.attributes["ccswarm.call.status"]) == (False, "invalid")
    assert SECRET not in span.to_json()
    assert recorder.total("mcp.client.operation.duration") == 0
    assert recorder.total("ccswarm.calls") == 1


async def test_no_telemetry_sends_nothing_along(tmp_path: Path) -> None:
    worker = ToolboxSetup(tmp_path)
    await worker.call()
    assert "traceparent" not in worker.one.received[-1].meta
    assert type(open_telemetry(Settings().telemetry, str)) is Telemetry


async def test_whoever_takes_a_run_over_tells_the_same_trace_and_nothing_twice() -> None:
    """One process is killed in the middle of the second step; the other answers the first from the record."""
    store, first, second = MemoryStore(), TelemetryRecorder(), TelemetryRecorder()
    one, two = TracedWorker(first, store, "one"), TracedWorker(second, store, "two")
    hang = Hanging()
    for worker in (one, two):
        worker.tool("srv.do")
        worker.tool("srv.hang")
    one.tool("srv.hang", hang)
    plan = {"tasks": [{"id": "t", "steps": [*steps("a"), *steps("b", tool="srv.hang")]}]}
    async with asyncio.timeout(BOUND_SECONDS):
        async with one.working("w1"):
            await one.swarm.submit(settings(plan), "run_1", "/project")
            await hang.called.wait()
            one.engine.kill()
        async with two.working("w2"):
            done = await two.engine.wait("run_1")
    assert done.result["status"] == "succeeded"
    assert first.spans == [], "what is not over is not told"
    names = [span.name for span in second.spans]
    assert sorted(names) == ["invoke_agent ada", "invoke_workflow"]
    assert second.total("ccswarm.run.duration") == 1
    assert own(second.named("invoke_agent ada")) == span_id_of("run_1.t")


async def test_a_run_that_fails_is_an_error() -> None:
    recorder = TelemetryRecorder()
    worker = TracedWorker(recorder)

    async def fail(_: CallRequest) -> CallOutcome:
        return CallOutcome(CallStatus.TOOL_ERROR, code="broken", message=SECRET)

    worker.tool("srv.do", fail)
    await worker.run({"tasks": [{"id": "t", "steps": steps("a", gate=True)}]})
    for name in ("invoke_workflow", "invoke_agent ada"):
        span = recorder.named(name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes
        assert span.attributes["error.type"] == "failed"
        assert SECRET not in span.to_json()


async def test_who_waits_for_a_person_is_counted_until_the_answer() -> None:
    recorder = TelemetryRecorder()
    worker = TracedWorker(recorder)
    worker.tool("srv.do")
    worker.task_worker.asks.add("srv.do")
    async with worker.working(), asyncio.timeout(BOUND_SECONDS):
        await worker.swarm.submit(settings({"tasks": [{"id": "t", "steps": steps("a")}]}), "run_1", "/project")
        await recorder.telemetry.heard.wait()
        assert recorder.total("ccswarm.approvals.waiting") == 1
        assert recorder.total("ccswarm.executions.running") == 2
        (question,) = await worker.swarm.approvals()
        await worker.swarm.answer(question["id"], approved=True, by="me", task_id="run_1.t")
        await worker.engine.wait("run_1")
    assert recorder.total("ccswarm.approvals.waiting") == 0
    assert recorder.total("ccswarm.executions.running") == 0


async def test_thoughts_count_what_they_used_once() -> None:
    recorder = TelemetryRecorder()
    request = CallRequest("r1", "r1.t", "s1", "ada", "", {})

    async def think(key: str) -> Mapping[str, Any]:
        return {"usage": {"tokens": 12, "dollars": 0.5}, "said": SECRET}

    assert (await recorder.telemetry.trace_thought(request, think)("k"))["said"] == SECRET
    span = recorder.named("think")
    assert above(span) == span_id_of("r1.t")
    assert (recorder.total("ccswarm.tokens"), recorder.total("ccswarm.dollars")) == (12, 0.5)
    assert SECRET not in span.to_json()

    async def fail(key: str) -> Mapping[str, Any]:
        raise ValueError(SECRET)

    with pytest.raises(ValueError, match=SECRET):
        await recorder.telemetry.trace_thought(request, fail)("k")
    assert SECRET not in "".join(span.to_json() for span in recorder.spans)


async def test_a_sampler_decides_for_a_run_as_a_whole(tmp_path: Path) -> None:
    """Calls are told where their run will be, though that is not over yet."""
    names = [f"r{number}" for number in range(100)]
    kept = next(name for name in names if trace_id_of(name) % 2**64 < 2**63)
    left = next(name for name in names if trace_id_of(name) % 2**64 >= 2**63)
    recorder, worker = TelemetryRecorder(ParentBased(TraceIdRatioBased(0.5))), ToolboxSetup(tmp_path)
    toolbox = Toolbox(worker.clients, worker.agents, worker.journal, telemetry=recorder.telemetry)
    for root in (kept, left):
        request = CallRequest(root, f"{root}.t", "s", "free", "one.echo", {})
        await toolbox.call(request, budget=None, approved=nobody_agrees)
    assert [span.get_span_context().trace_id for span in recorder.spans] == [trace_id_of(kept)]
    assert worker.one.received[-1].meta["traceparent"].endswith("-00")


def test_what_is_sent_to_workers_has_no_headers() -> None:
    given = settings({"telemetry": {"endpoint": "http://x", "headers": {"k": SECRET}}, "tasks": [{"id": "t"}]})
    assert SECRET not in str(sent_to_workers(given))


def test_the_standard_variables_set_what_the_file_does_not(tmp_path: Path) -> None:
    file = tmp_path / "ccswarm.toml"
    file.write_text('[telemetry]\nmetrics_endpoint = "http://file/m"\n')

    def read(path: Path | None, **variables: str) -> dict[str, Any]:
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
        return config.load(path, {**home, **variables}).settings.telemetry.model_dump(exclude_defaults=True)

    own = {"metrics_endpoint": "http://file/m"}
    assert read(file) == own
    assert read(file, OTEL_EXPORTER_OTLP_ENDPOINT="http://a") == {"endpoint": "http://a", **own}
    assert read(file, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="http://b", OTEL_METRICS_EXPORTER="none") == own
    assert read(file, OTEL_TRACES_EXPORTER="none") == {"traces_endpoint": "none", **own}
    assert read(file, OTEL_EXPORTER_OTLP_ENDPOINT="http://a", OTEL_SDK_DISABLED="True") == own


def test_off_is_not_there(tmp_path: Path) -> None:
    script = tmp_path / "off.py"
    script.write_text("""
import sys
from ccswarm.runs import app; from ccswarm.config import config
from ccswarm.clients.mcp import plugin as mcp
from ccswarm.engines.dbos import plugin as dbos
from ccswarm.config.settings import TelemetrySettings
from ccswarm.toolbox.telemetry.factory import open_telemetry
open_telemetry(TelemetrySettings(), str)
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
""")
    done = forked.run("ccswarm", [], cwd=tmp_path, env=os.environ, script=str(script))
    assert done == (0, b"[]\n", b"")
