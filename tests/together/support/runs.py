"""A project with three agents, each with terminals and a clone, whose work a person accepts before it is merged."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.verbs import Process
from tests.support import forked
from tests.together.support.swarms import AI_SESSION, QUICK

AGENTS = "".join(
    f'[[agents]]\nname = "{name}"\ngrants = ["ai-session.*"]\nworkspace = "clone"\nMORE\n'
    for name in ("ada", "bob", "eve")
)
SWARM = '[swarm]\nname = "release-24"\nmerge = "ask"\nbudget = { calls = 90, seconds = 2700 }\n'


def work(name: str, agent: str, command: str, more: str = "", waits: str = "") -> str:
    """Return a task with one command in a terminal, which must succeed; ``waits`` are the steps of a long command."""
    opened = '{ name = "NAME-${run.id}", shell = "bash", working_directory = "${workspace}" }'.replace("NAME", name)
    return f"""
[[tasks]]
id = "{name}"
agent = "{agent}"
{more}
[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = {opened}
[[tasks.steps]]
id = "do"
tool = "ai-session.execute_command"
args = {{ session_id = "${{steps.open.session_id}}", command = {json.dumps(command)} }}
{waits or SUCCEEDS}
"""


SUCCEEDS = "expect = { exit_code = 0 }\ngate = true"
FINISHES = """
[[tasks.steps]]
id = "wait"
tool = "ai-session.read_output"
args = { session_id = "${steps.open.session_id}", wait_for = "finish", timeout_seconds = 45 }
retry = { times = 50, seconds = 0 }
expect = { status = "finished" }
"""
API = r"""if mkdir ~/tried-$(basename "$(dirname "$PWD")") 2>/dev/null
then printf '  FAIL test_due_dates: "due_at" is missing\n'; exit 3; fi
printf '## 2.4.0\n\n- Invoices carry a due date; old ones get it from their terms.\n' >CHANGELOG.md
printf 'def due(invoice):\n    return invoice.sent + invoice.terms\n' >billing.py; echo '214 passed in 2 m 18 s'"""
CAREFUL = """needs = ["plan"]
text = "Invoices carry a due date."
retry = { times = 1, seconds = 0.1 }
gates = [{ command = "grep -q due billing.py" }]
"""
PLAN = (
    work("plan", "ada", "echo 'three parts: api, web, docs'", 'text = "Say what belongs to the release."')
    + work("api", "ada", f"({API})", CAREFUL)
    + work("web", "bob", "echo '3 pages look as they did'", 'needs = ["plan"]\ntext = "Show the due date."')
    + work("docs", "eve", "echo 'INFO - Documentation built in 1.84 s'", 'needs = ["plan"]')
    + work("integrate", "bob", "echo merged", 'needs = ["api", "web", "docs"]')
    + work("publish", "ada", "echo published", 'needs = ["integrate"]')
)


class Shop(RunVerbs):
    """A RunVerbs whose verbs run in the repository ``project``; ``more`` is added to each agent."""

    def __init__(self, daemon_home: Path, plan: str = PLAN, more: str = "") -> None:
        self.project = daemon_home / "shop"
        self.project.mkdir()
        (self.project / "CHANGELOG.md").write_text("## Unreleased\n")
        (self.project / ".gitignore").write_text("ccswarm.toml\n")
        for words in (
            ("init", "-q", "-b", "main"),
            ("config", "user.name", "Ana"),
            ("config", "user.email", "ana@example.com"),
            ("add", "."),
            ("commit", "-qm", "first"),
        ):
            subprocess.run(["git", *words], cwd=self.project, check=True)
        super().__init__(daemon_home)
        self.file = self.project / "ccswarm.toml"
        self.rewrite(QUICK + SWARM + AI_SESSION + AGENTS.replace("MORE", more) + plan)
        self.home = self.project

    @contextmanager
    def running(self) -> Iterator[Process]:
        """Yield ``ccswarm run`` as a process, which is killed afterwards if it has not ended."""
        out = self.project.parent / "run.out"
        with out.open("wb") as said:
            streams = (os.open(os.devnull, os.O_RDONLY), said.fileno(), said.fileno())
            process = forked.Forked("ccswarm", ["run", "--json"], cwd=self.project, env=self.env, streams=streams)
            os.close(streams[0])
        try:
            yield Process(process)
        finally:
            process.close()
