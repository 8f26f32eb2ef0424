"""Let the swarm of config/ccswarm.toml survey a clone of this project, then verify its journal.

Exits with 1 if the run fails, the report is missing, or the journal and the audit log disagree about a call.
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
    """Return a clone of this project, or, if it is not a repository, a new repository with its files."""
    project = directory / "project"
    if (ROOT / ".git").exists():
        subprocess.run([*GIT, "clone", "--quiet", str(ROOT), str(project)], check=True)
        return project
    left_out = shutil.ignore_patterns(".venv", "__pycache__", "*.egg-info", "dist", "build")
    shutil.copytree(ROOT, project, ignore=left_out)
    for argv in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "as it is")):
        subprocess.run([*GIT, *argv], cwd=project, check=True)
    return project


class Demo:
    """A HOME of its own in which commands run as a person would run them."""

    def __init__(self, home: Path, project: Path) -> None:
        keep = ("PATH", "TERM", "LANG", "LC_ALL", "USER", "LOGNAME", "SHELL")
        self.environ = {name: os.environ[name] for name in keep if name in os.environ} | {"HOME": str(home)}
        self.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environ['PATH']}"
        self.environ["CCSWARM_CONFIG"] = str(CONFIG)
        self.project = project

    def show(self, *argv: str) -> int:
        """Run a command whose output goes to the terminal, and return its exit code."""
        print(f"\n$ {shlex.join(argv)}", flush=True)
        return subprocess.run(argv, cwd=self.project, env=self.environ, timeout=BOUND_SECONDS).returncode

    def ask(self, *argv: str) -> Any:
        """Return the JSON document that a command prints."""
        done = subprocess.run(
            [*argv, "--json"], cwd=self.project, env=self.environ, capture_output=True, timeout=BOUND_SECONDS
        )
        return json.loads(done.stdout)


def main() -> int:
    """Show one run from its plan to the verification of its journal."""
    home = Path(tempfile.mkdtemp(prefix="ccs-", dir="/tmp"))
    wrong: list[str] = []
    try:
        (home / "home").mkdir()
        demo = Demo(home / "home", repository(home))
        audit = home / "home/.local/state/ai-session/audit"
        commands = (
            ("ccswarm", "tasks"),
            ("ccswarm", "run"),
            ("ccswarm", "journal", "verify", "--audit", str(audit)),
            ("ai-session", "audit", "verify"),
        )
        wrong += [f"{shlex.join(argv)}: exit code {code}" for argv in commands if (code := demo.show(*argv))]
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
