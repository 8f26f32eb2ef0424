"""Which telemetry there is: what the settings say, if it can be had."""

from __future__ import annotations

import logging
from collections.abc import Callable

from agentwire.extras import install
from ccswarm.config.settings import TelemetrySettings
from ccswarm.telemetry.base import Telemetry

PROTOCOL = "http/protobuf"

log = logging.getLogger(__name__)


def open_telemetry(settings: TelemetrySettings, masked: Callable[[str], str]) -> Telemetry:
    """The telemetry that is configured. What keeps it from starting is logged, and keeps nothing else from it.

    ``masked`` takes secrets out of names and messages.
    """
    if not any(of_signal(settings, one) for one in ("traces", "metrics")):
        return Telemetry()
    try:
        if settings.protocol != PROTOCOL:
            raise ValueError(f"the protocol {settings.protocol[:40]!r} is not known here, only {PROTOCOL}")
        # The packages are an extra, and take 0.2 s to import.
        from ccswarm.telemetry.export import Providers
        from ccswarm.telemetry.spans import Ids, LiveTelemetry

        return LiveTelemetry(Providers.exporting(settings, of_signal, masked, Ids()), masked)
    except ImportError as error:
        log.warning(
            "telemetry is configured, but %s is not installed; nothing is exported: %s", error.name, install("otel")
        )
    except Exception as error:  # of settings and variables that the packages refuse
        log.warning("telemetry is configured, but cannot start: %s: %s", type(error).__name__, masked(str(error)))
    return Telemetry()


def of_signal(settings: TelemetrySettings, signal: str) -> str:
    """The address that ``traces`` or ``metrics`` go to; empty: nowhere."""
    own: str = getattr(settings, f"{signal}_endpoint")
    if own:
        return "" if own == "none" else own
    return f"{settings.endpoint.rstrip('/')}/v1/{signal}" if settings.endpoint else ""
