"""Runs the benchmarks named on the command line, or all of them; with ``--tiny`` only to see that each still runs."""

from __future__ import annotations

import asyncio
import compileall
import os
import shutil
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path

from benchmarks.report import Report
from benchmarks.size import TINY

ALL = (
    *("latency", "startup", "throughput", "scale", "clean_text"),
    *("task_scripts", "flood", "boxes", "opening", "gate", "audit", "redaction", "network", "telemetry"),
    *("http_load", "api", "streams", "console"),
    *("swarm_toolbox", "swarm_http", "swarm_engine", "swarm_scale", "swarm_brains", "swarm_tokens"),
)


def main(words: list[str]) -> int:
    """Each benchmark module has ``run(report, directory)``; its directory is a HOME of its own. One that fails does not
    keep the others from being run; then the exit code is 1."""
    if words[:1] == ["--tiny"]:
        os.environ[TINY] = "1"
        words = words[1:]
    else:
        for package in ("agentwire", "ai_session", "ccswarm"):  # as they are once installed
            compileall.compile_dir(Path(__file__).parents[1] / package, quiet=1)
    report, failed = Report(), list[str]()
    for name in words or ALL:
        home, environment = Path(tempfile.mkdtemp(prefix="aisb-")), dict(os.environ)
        os.environ["HOME"] = str(home)
        try:
            asyncio.run(import_module(f"benchmarks.{name}").run(report, home))
        except Exception:
            traceback.print_exc()
            failed.append(name)
        finally:
            # With settings in the environment the verbs that another one measures would take longer.
            os.environ.clear()
            os.environ.update(environment)
            shutil.rmtree(home, ignore_errors=True)
    print(f"\ntargets missed: {report.missed}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
