"""The export of spans and metrics: they are queued, and sent to a collector by threads of their own.

A collector that does not respond costs the oldest spans in the queue and one warning, never a call.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator

from agentwire.telemetry.settings import ExportSettings, of_signal

FLUSH_SECONDS = 1.0
"""The longest delay of the process's end by data that is not sent yet."""

SHOWN_CHARS = 300

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Providers:
    """The sources of spans and metrics. Call ``close`` once."""

    traces: TracerProvider
    metrics: MeterProvider

    @classmethod
    def exporting(
        cls,
        service: str,
        version: str,
        settings: ExportSettings,
        masked: Callable[[str], str],
        ids: IdGenerator | None = None,
    ) -> Providers:
        """Return providers that send to the configured addresses. OpenTelemetry's own variables apply, too; any
        exception that these cause is raised. ``ids`` generates the ids of spans."""
        traces_to, metrics_to = of_signal(settings, "traces"), of_signal(settings, "metrics")
        warn_once(traces_to or metrics_to, masked)
        resource, headers = _resource(service, version), dict(settings.headers) or None
        traces = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        if traces_to:
            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(traces_to, headers=headers)))
        readers: list[MetricReader] = []
        if metrics_to:
            exporter = OTLPMetricExporter(metrics_to, headers=headers)
            readers.append(PeriodicExportingMetricReader(exporter, settings.metrics_seconds * 1000))
        return cls(traces, MeterProvider(readers, resource, shutdown_on_exit=False))

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Send what is queued, and drop what takes longer than ``seconds``. The loop is not blocked."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def work(shut: Callable[[], None], last: bool) -> None:
            try:
                shut()
            finally:
                if last and not loop.is_closed():
                    loop.call_soon_threadsafe(over.set)

        # At the same time, for either may block; not in the executor, whose threads the interpreter waits for at exit.
        metrics = threading.Thread(target=work, args=(self.metrics.shutdown, False), daemon=True)
        metrics.start()

        def shut_both() -> None:
            self.traces.shutdown()
            metrics.join()

        threading.Thread(target=work, args=(shut_both, True), daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await over.wait()
        except TimeoutError:
            log.info("telemetry that could not be sent within %g s is dropped", seconds)


def _resource(service: str, version: str) -> Resource:
    """Return the resource of all exports; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it or override it."""
    own = {
        "service.name": service,
        "service.version": version,
        "service.instance.id": str(uuid.uuid4()),
        "host.name": platform.node(),
    }
    return Resource.create().merge(Resource(own)).merge(OTELResourceDetector().detect())


def warn_once(address: str, masked: Callable[[str], str]) -> None:
    """Log only the first warning or error of OpenTelemetry's packages."""
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.handlers = [_FirstOnly(address, masked)]


class _FirstOnly(logging.Handler):
    def __init__(self, address: str, masked: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        where = urlsplit(address)  # its user name and query may contain keys
        self._address = f"{where.scheme}://{where.hostname}:{where.port}" if where.port else where.hostname
        self._masked = masked
        self._logged = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._logged:
            self._logged = True
            why = self._masked(record.getMessage())[:SHOWN_CHARS]
            log.warning("telemetry to %s failed (logged once; calls are not affected): %s", self._address, why)
