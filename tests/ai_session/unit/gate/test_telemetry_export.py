"""What is on its way to a collector, and a collector that does not take it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentwire.telemetry.export import Providers, warn_once
from agentwire.telemetry.settings import of_signal
from ai_session.config.settings import TelemetrySettings
from ai_session.gate.telemetry.factory import open_telemetry
from ai_session.gate.telemetry.spans import LiveTelemetry
from ai_session.models import Effect
from tests.ai_session.support.gates import GateSetup
from tests.conftest import environment
from tests.support.bounds import BOUND_SECONDS
from tests.support.collector import Collector

pytestmark = pytest.mark.anyio
QUEUE, BATCH = 2048, 512


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Where OpenTelemetry's packages complain, as it was before.

    Threads that nobody waits for would try on for a minute, and draw random numbers under tests that count on theirs.
    """
    logger = logging.getLogger("opentelemetry")
    before = (logger.handlers, logger.propagate)
    with environment({"OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}):
        yield
    for thread in threading.enumerate():
        if thread.name.startswith("Otel"):
            thread.join(BOUND_SECONDS)
            assert not thread.is_alive()
    logger.handlers, logger.propagate = before


async def live(collector: Collector, levels: dict[str, Callable[[], int]] | None = None) -> LiveTelemetry:
    """Opened in a thread, as the daemon's app is."""
    settings = TelemetrySettings(endpoint=collector.url, metrics_seconds=60)
    names = [str(e) for e in Effect]
    telemetry = await asyncio.to_thread(open_telemetry, settings, names, str, levels or {})
    assert isinstance(telemetry, LiveTelemetry)
    telemetry.start()
    return telemetry


async def test_a_collector_that_does_not_answer_holds_up_no_call_and_no_end(tmp_path: Path) -> None:
    with Collector() as collector:
        collector.go.clear()
        telemetry = await live(collector, {"level": lambda: 1})
        setup = GateSetup(tmp_path, telemetry=telemetry)
        await setup.call("read")
        await asyncio.to_thread(collector.until, lambda: collector.bodies)
        for _ in range(3):
            await setup.call("execute")
        ticks: list[float] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: ticks.append(loop.time()))
        began = loop.time()
        async with asyncio.timeout(BOUND_SECONDS):
            await telemetry.close()
        assert ticks
        assert ticks[0] < loop.time(), f"the loop went on in the {loop.time() - began:.1f} s"
    assert len(setup.ran) == 4


async def test_a_collector_that_does_not_listen_costs_one_complaint(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector:
        pass
    telemetry = await live(collector, {"level": lambda: 1})
    said = threading.Event()
    handler = logging.getLogger("opentelemetry").handlers[0]
    handler.addFilter(lambda _: said.set() or True)
    telemetry.tracer.start_span("lost").end()
    assert await asyncio.to_thread(said.wait, BOUND_SECONDS)
    async with asyncio.timeout(BOUND_SECONDS):
        telemetry.tracer.start_span("lost too").end()
        await telemetry.close()
    assert [record.levelname for record in caplog.records if "telemetry" in record.name] == ["WARNING"]


async def test_what_waits_is_bounded() -> None:
    with Collector() as collector:
        collector.go.clear()
        telemetry = await live(collector)
        telemetry.tracer.start_span("first").end()
        await asyncio.to_thread(collector.until, lambda: collector.bodies)
        for _ in range(3 * QUEUE):
            telemetry.tracer.start_span("more").end()
        collector.go.set()
        await asyncio.to_thread(collector.until, lambda: len(collector.named("more")) >= QUEUE)
        async with asyncio.timeout(BOUND_SECONDS):
            await telemetry.close()
        assert QUEUE <= len(collector.named("more")) <= QUEUE + BATCH
        assert len(collector.spans) - len(collector.named("more")) == 1


async def test_closing_sends_what_is_left_of_both() -> None:
    with Collector() as collector:
        telemetry = await live(collector, {"level": lambda: 7})
        telemetry.tracer.start_span("last").end()
        async with asyncio.timeout(BOUND_SECONDS):
            await telemetry.close()
        # Nobody waits for it longer than a second; it goes on.
        await asyncio.to_thread(collector.until, lambda: collector.spans and collector.points)
        assert [span.name for span in collector.spans] == ["last"]
        assert collector.points["level"] == [({}, 7)]


@pytest.mark.parametrize(
    ("given", "traces", "metrics"),
    [
        ({"endpoint": "http://c:4318"}, "http://c:4318/v1/traces", "http://c:4318/v1/metrics"),
        ({"endpoint": "http://c/x/"}, "http://c/x/v1/traces", "http://c/x/v1/metrics"),
        ({"traces_endpoint": "http://t/in"}, "http://t/in", ""),
        ({"endpoint": "http://c", "metrics_endpoint": "none"}, "http://c/v1/traces", ""),
        ({}, "", ""),
    ],
)
def test_where_each_goes(given: dict[str, str], traces: str, metrics: str) -> None:
    settings = TelemetrySettings(**given)  # type: ignore[arg-type]
    assert (of_signal(settings, "traces"), of_signal(settings, "metrics")) == (traces, metrics)


async def test_only_one_of_both_is_sent_where_only_one_is_wanted() -> None:
    with Collector() as collector:
        settings = TelemetrySettings(traces_endpoint=f"{collector.url}/v1/traces")
        providers = await asyncio.to_thread(Providers.exporting, "ai-session", "1", settings, str)
        providers.traces.get_tracer("x").start_span("one").end()
        providers.metrics.get_meter("x").create_counter("two").add(1)
        async with asyncio.timeout(BOUND_SECONDS):
            await providers.close(BOUND_SECONDS)
        assert [span.name for span in collector.spans] == ["one"]
        assert collector.points == {}


def test_one_complaint_is_passed_on_without_what_is_secret(caplog: pytest.LogCaptureFixture) -> None:
    warn_once("https://user:pass@c.example:4318/v1/traces?key=k", lambda text: text.replace("hunter2", "[X]"))
    logger = logging.getLogger("opentelemetry.exporter.anything")
    logger.info("fine")
    logger.warning("no way to %s", "hunter2")
    logger.error("no way again")
    (record,) = [record for record in caplog.records if record.name.startswith("agentwire")]
    said = record.getMessage()
    assert "to https://c.example:4318 failed" in said
    assert said.endswith("no way to [X]")
    assert "pass@" not in said
    assert "key=k" not in said


def test_variables_that_the_packages_refuse_cost_only_the_telemetry(caplog: pytest.LogCaptureFixture) -> None:
    with environment({"OTEL_BSP_MAX_QUEUE_SIZE": "0"}):
        found = open_telemetry(TelemetrySettings(endpoint="http://127.0.0.1:1"), [], str, {})
    assert not isinstance(found, LiveTelemetry)
    assert "telemetry is configured, but cannot start" in caplog.text
