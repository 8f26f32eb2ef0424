"""A collector of OTLP over HTTP on loopback, which stores what it receives, decoded and raw."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.bounds import BOUND_SECONDS

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """A received span. Ids are hexadecimal; ``parent`` and ``link`` may be empty."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    status: int
    attributes: Attributes
    resource: Attributes
    seconds: float
    link: str = ""


@dataclass
class Collector:
    """A collector that listens while entered. It responds with ``status``, but only while ``go`` is set."""

    status: int = 200
    spans: list[Seen] = field(default_factory=list[Seen])
    bodies: list[bytes] = field(default_factory=list[bytes])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    points: dict[str, list[tuple[Attributes, Any]]] = field(default_factory=dict[str, list[tuple[Attributes, Any]]])
    """The newest data points of each metric: attributes, and a number or a histogram."""

    def __enter__(self) -> Self:
        self.go = threading.Event()
        self.go.set()
        self._changed = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                packed = self.headers.get("content-encoding") == "gzip"
                collector.take(self.path, gzip.decompress(body) if packed else body)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                collector.go.wait(BOUND_SECONDS)
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address, which is known also after the collector has stopped."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path: str, body: bytes) -> None:
        """Store one request."""
        with self._changed:
            self.bodies.append(body)
            if path.endswith("/v1/traces"):
                self.spans += spans_of(body)
            else:
                self.points |= points_of(body)
            self._changed.notify_all()

    def until(self, holds: Callable[[], Any]) -> Any:
        """Wait until ``holds`` returns a true value and return it. Raises AssertionError with all that was received."""
        with self._changed:
            assert self._changed.wait_for(holds, BOUND_SECONDS), (self.spans, self.points)
            return holds()

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    def total(self, metric: str, **wanted: Any) -> float:
        """Return the sum of a metric's points with these attributes; a histogram counts its values."""
        found = [value for attributes, value in self.points.get(metric, ()) if attributes.items() >= wanted.items()]
        return sum(getattr(value, "count", value) for value in found)


def spans_of(body: bytes) -> list[Seen]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Seen(
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.kind,
            span.status.code,
            attributes_of(span.attributes),
            attributes_of(group.resource.attributes),
            (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
            span.links[0].span_id.hex() if span.links else "",
        )
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def points_of(body: bytes) -> dict[str, list[tuple[Attributes, Any]]]:
    request = ExportMetricsServiceRequest.FromString(body)
    return {
        metric.name: [
            (attributes_of(point.attributes), value_of(point))
            for point in getattr(metric, metric.WhichOneof("data") or "gauge").data_points
        ]
        for group in request.resource_metrics
        for scope in group.scope_metrics
        for metric in scope.metrics
    }


def attributes_of(pairs: Any) -> Attributes:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def value_of(point: Any) -> Any:
    return point if hasattr(point, "bucket_counts") else getattr(point, point.WhichOneof("value"))
