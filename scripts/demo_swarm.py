"""Lets the swarm of config/ccswarm.toml survey a clone of this project, then proves what it did.

Exits 1 when the run does not succeed, the report is not there, or journal and audit log do not agree call by call.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "config" / "ccswarm.toml"
REPORT = "ccswarm-report.md"
BOUND_SECONDS = 300
GIT = ("git", "-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "init.defaultBranch=main")


def repository(directory: Path) -> Path:
    """A clone of this project; where it is no repository, one that is made of its files."""
    project = directory / "project"
    if (ROOT / ".git").exists():
        subprocess.run([*GIT, "clone", "--quiet", str(ROOT), str(project)], check=True)
        return project
    left_out = shutil.ignore_patterns(".venv", "__pycache__", "*.egg-info", "dist", "build")
    shutil.copytree(ROOT, project, ignore=left_out)
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "as it is")):
        subprocess.run([*GIT, *words], cwd=project, check=True)
    return project


class Demo:
    """Runs commands as a person would, in a HOME of its own."""

    def __init__(self, home: Path, project: Path) -> None:
        keep = ("PATH", "TERM", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL")
        self.environ = {name: os.environ[name] for name in keep if name in os.environ} | {"HOME": str(home)}
        self.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environ['PATH']}"
        self.environ["CCSWARM_CONFIG"] = str(CONFIG)
        self.project = project

    def show(self, *words: str) -> int:
        """Runs a command whose output goes to the terminal; its exit code."""
        print(f"\n$ {shlex.join(words)}", flush=True)
        return subprocess.run(words, cwd=self.project, env=self.environ, timeout=BOUND_SECONDS).returncode

    def ask(self, *words: str) -> Any:
        """The JSON that a command prints."""
        done = subprocess.run(
            [*words, "--json"], cwd=self.project, env=self.environ, capture_output=True, timeout=BOUND_SECONDS
        )
        return json.loads(done.stdout)


def main() -> int:
    """Shows one run from its plan to its proof."""
    home = Path(tempfile.mkdtemp(prefix="ccs-", dir="/tmp"))
    wrong: list[str] = []
    try:
        (home / "home").mkdir()
        demo = Demo(home / "home", repository(home))
        audit = home / "home/.local/state/ai-session/audit"
        shown = (
            ("ccswarm", "tasks"),
            ("ccswarm", "run"),
            ("ccswarm", "journal", "verify", "--audit", str(audit)),
            ("ai-session", "audit", "verify"),
        )
        wrong += [f"{shlex.join(words)}: exit code {code}" for words in shown if (code := demo.show(*words))]
        report = demo.project / REPORT
        print(f"\n$ cat {REPORT}\n{report.read_text() if report.exists() else ''}")
        if not report.exists():
            wrong.append("there is no report")
        proof = demo.ask("ccswarm", "journal", "verify", "--audit", str(audit))
        print(f"calls in the journal and in the audit log, one record each way: {proof['audit']['joined']}")
        subprocess.run(["ai-session", "daemon", "stop", "--yes"], env=demo.environ, check=True, capture_output=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    for problem in wrong:
        print(f"✗ {problem}")
    print("the swarm did it, and can prove it" if not wrong else "the swarm failed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
