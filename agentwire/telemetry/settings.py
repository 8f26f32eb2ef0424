"""The settings of an export, and its start if the packages for it are installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from agentwire.extras import install

PROTOCOL = "http/protobuf"

log = logging.getLogger(__name__)


class ExportSettings(Protocol):
    """The addresses of traces and metrics, and how they are sent."""

    @property
    def endpoint(self) -> str: ...
    @property
    def traces_endpoint(self) -> str: ...
    @property
    def metrics_endpoint(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def metrics_seconds(self) -> float: ...


Telemetry = TypeVar("Telemetry")


def start_export(
    settings: ExportSettings, masked: Callable[[str], str], live: Callable[[], Telemetry], none: Telemetry
) -> Telemetry:
    """Return the result of ``live``, which imports the packages of the extra; ``none`` if no endpoint is configured or
    the start fails. A failure is logged, without the secrets that ``masked`` removes, and has no other effect."""
    if not any(of_signal(settings, one) for one in ("traces", "metrics")):
        return none
    try:
        if settings.protocol != PROTOCOL:
            raise ValueError(f"the protocol {settings.protocol[:40]!r} is not supported, only {PROTOCOL}")
        return live()
    except ImportError as error:
        log.warning(
            "telemetry is configured, but %s is not installed; nothing is exported: %s", error.name, install("otel")
        )
    except Exception as error:  # the packages refuse some settings and variables
        log.warning("telemetry is configured, but cannot start: %s: %s", type(error).__name__, masked(str(error)))
    return none


def of_signal(settings: ExportSettings, signal: str) -> str:
    """Return the address for ``traces`` or ``metrics``; empty if they are not exported."""
    own: str = getattr(settings, f"{signal}_endpoint")
    if own:
        return "" if own == "none" else own
    return f"{settings.endpoint.rstrip('/')}/v1/{signal}" if settings.endpoint else ""
