"""What is configured of telemetry, and whether it can be had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from agentwire.extras import install

PROTOCOL = "http/protobuf"

log = logging.getLogger(__name__)


class ExportSettings(Protocol):
    """Where traces and metrics go."""

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


def opened(
    settings: ExportSettings, masked: Callable[[str], str], live: Callable[[], Telemetry], none: Telemetry
) -> Telemetry:
    """What ``live`` makes, which imports the packages of the extra; ``none`` where nothing is configured. What keeps it
    from starting is logged, without the secrets that ``masked`` takes out, and keeps nothing else from it."""
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
    except Exception as error:  # of settings and variables that the packages refuse
        log.warning("telemetry is configured, but cannot start: %s: %s", type(error).__name__, masked(str(error)))
    return none


def of_signal(settings: ExportSettings, signal: str) -> str:
    """The address that ``traces`` or ``metrics`` go to; empty: nowhere."""
    own: str = getattr(settings, f"{signal}_endpoint")
    if own:
        return "" if own == "none" else own
    return f"{settings.endpoint.rstrip('/')}/v1/{signal}" if settings.endpoint else ""
