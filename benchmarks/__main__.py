"""Runs the benchmarks named on the command line, or all of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.report import Report

ALL = (
    *("latency", "startup", "throughput", "scale", "clean_text"),
    *("boxes", "gate", "audit", "redaction", "network", "telemetry"),
    "http_load",
    *("swarm_toolbox", "swarm_http", "swarm_engine", "swarm_scale", "swarm_brains"),
)


def main() -> int:
    """Each benchmark module has ``run(report, directory)``; its directory is a HOME of its own."""
    report = Report()
    for name in sys.argv[1:] or ALL:
        home = Path(tempfile.mkdtemp(prefix="aisb-", dir="/tmp"))
        os.environ["HOME"] = str(home)
        try:
            asyncio.run(import_module(f"benchmarks.{name}").run(report, home))
        finally:
            shutil.rmtree(home, ignore_errors=True)
    print(f"\ntargets missed: {report.missed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
