"""Which telemetry there is: what the settings say, if it can be had."""

from __future__ import annotations

from collections.abc import Callable

from agentwire.telemetry.settings import ExportSettings, opened
from ccswarm import __version__
from ccswarm.telemetry.base import Telemetry


def open_telemetry(settings: ExportSettings, masked: Callable[[str], str]) -> Telemetry:
    """The telemetry that is configured. What keeps it from starting is logged, and keeps nothing else from it.

    ``masked`` takes secrets out of names and messages.
    """

    def live() -> Telemetry:
        # The packages are an extra, and take 0.2 s to import.
        from agentwire.telemetry.export import Providers
        from ccswarm.telemetry.spans import Ids, LiveTelemetry

        return LiveTelemetry(Providers.exporting("ccswarm", __version__, settings, masked, Ids()), masked)

    return opened(settings, masked, live, Telemetry())
