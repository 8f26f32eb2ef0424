"""The choice of the telemetry that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable

from agentwire.telemetry.settings import ExportSettings, start_export
from ccswarm import __version__
from ccswarm.toolbox.telemetry.base import Telemetry


def open_telemetry(settings: ExportSettings, masked: Callable[[str], str]) -> Telemetry:
    """Return the configured telemetry. A failure to start it is logged, and nothing is exported then. ``masked``
    removes secrets from names and messages."""

    def live() -> Telemetry:
        # The packages are an extra, and take 0.2 s to import.
        from agentwire.telemetry.export import Providers
        from ccswarm.toolbox.telemetry.spans import Ids, LiveTelemetry

        return LiveTelemetry(Providers.exporting("ccswarm", __version__, settings, masked, Ids()), masked)

    return start_export(settings, masked, live, Telemetry())
