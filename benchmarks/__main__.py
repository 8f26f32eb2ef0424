"""The runner of the benchmarks named on the command line, or of all; ``--tiny`` only shows that each still runs."""

from __future__ import annotations

import ast
import asyncio
import compileall
import os
import shutil
import sys
import tempfile
import textwrap
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


def usage() -> str:
    """Return how the program is called, with each benchmark and what it measures."""
    lines = ["usage: python -m benchmarks [-h] [--tiny] [BENCHMARK …]", ""]
    lines += ["Run these benchmarks, or all. --tiny, given first, only shows that each still runs.", ""]
    for name in ALL:
        summary = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text())) or ""
        text = " ".join(summary.partition("\n\n")[0].split())
        lines.append(
            textwrap.fill(text, 100, initial_indent=f"{name:<15}", subsequent_indent=" " * 15, break_on_hyphens=False)
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run each benchmark, ``run(report, directory)``, in a HOME of its own, and return the exit code. A failing one
    does not keep the others from running; then the code is 1. A wrong option is reported with code 2."""
    options = {one for one in arguments if one.startswith("-")}
    if {"-h", "--help"} & options:
        print(usage())
        return 0
    if unknown := sorted(options - {"--tiny"}):
        print(f"unknown option {unknown[0]}; python -m benchmarks --help lists them", file=sys.stderr)
        return 2
    if arguments[:1] == ["--tiny"]:
        os.environ[TINY] = "1"
        arguments = arguments[1:]
    else:
        for package in ("agentwire", "ai_session", "ccswarm"):  # as in an installation
            compileall.compile_dir(Path(__file__).parents[1] / package, quiet=1)
    report, failed = Report(), list[str]()
    for name in arguments or ALL:
        home, environment = Path(tempfile.mkdtemp(prefix="aisb-")), dict(os.environ)
        os.environ["HOME"] = str(home)
        try:
            asyncio.run(import_module(f"benchmarks.{name}").run(report, home))
        except Exception:
            traceback.print_exc()
            failed.append(name)
        finally:
            # Settings left in the environment would slow down the verbs of the next benchmark.
            os.environ.clear()
            os.environ.update(environment)
            shutil.rmtree(home, ignore_errors=True)
    print(f"\ntargets missed: {report.missed}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
