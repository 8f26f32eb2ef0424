"""Opens the telemetry that the settings configure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from agentwire.telemetry.settings import start_export
from ai_session import __version__
from ai_session.config.settings import TelemetrySettings
from ai_session.gate.telemetry.base import Telemetry


def open_telemetry(
    settings: TelemetrySettings,
    tools: Collection[str],
    masked: Callable[[str], str],
    levels: Mapping[str, Callable[[], int]],
) -> Telemetry:
    """Return the configured telemetry. If it cannot start, that is logged and nothing else is affected.

    ``tools`` are the names that may be exported; ``masked`` removes secrets from what clients report about themselves;
    ``levels`` are gauges by the name of their metric, read on the loop.
    """

    def live() -> Telemetry:
        # The packages are an extra, and take 0.2 s to import.
        from agentwire.telemetry.export import Providers
        from ai_session.gate.telemetry.spans import LiveTelemetry

        providers = Providers.exporting("ai-session", __version__, settings, masked)
        return LiveTelemetry(providers, tools=tools, masked=masked, levels=levels)

    return start_export(settings, masked, live, Telemetry())
