"""Rounds in which work is cloned, judged, merged and delegated while a process is killed or stopped."""

from __future__ import annotations

from typing import Any

from ccswarm.models import Execution
from tests.together.support.rounds import Round
from tests.together.support.swarms import SwarmHome, git

FILES = ("one", "two", "three", "part")
"""Each successful task, and the delegated one, adds a line of its run to the file of its name."""

CREW = """
[swarm]
topology = "star"
[[agents]]
name = "cleo"
type = "coordinator"
grants = ["swarm.delegate", "ai-session.*"]
"""
CREW += "".join(
    f'[[agents]]\nname = "{name}"\nworkspace = "clone"\ngrants = ["ai-session.*"]\n' for name in ("ann", "bob", "dee")
)
WRITE = (
    "count=$(grep -l ${run.id} one.txt two.txt | wc -l); "
    "grep -q ${run.id} %(name)s.txt || echo ${run.id} $count >> %(name)s.txt"
)
"""Writes, once for all attempts, how many of the first two files have a line of this run in the task's workspace."""


def steps(name: str, table: str = "tasks.steps") -> str:
    """Return steps that open a terminal in the task's workspace, write there and close it."""
    return f"""
[[{table}]]
id = "open"
tool = "ai-session.create_session"
args = {{ name = "${{run.id}}-{name}", working_directory = "${{workspace}}" }}
gate = true
[[{table}]]
id = "write"
tool = "ai-session.execute_command"
retry = {{ times = 3, seconds = 0.1 }}
args = {{ session_id = "${{steps.open.session_id}}", command = '''{WRITE % {"name": name}}''' }}
gate = true
[[{table}]]
id = "close"
tool = "ai-session.close_session"
args = {{ session_id = "${{steps.open.session_id}}" }}
"""


def task(name: str, agent: str, needs: tuple[str, ...] = (), gate: str = "") -> str:
    gate = gate or f"tail -n 1 {name}.txt | grep -q run_"
    retry = "retry = { times = 6, seconds = 0.2, factor = 1 }\n" if gate != "false" else ""
    return f"""
[[tasks]]
id = "{name}"
agent = "{agent}"
needs = {list(needs)}
rounds = 1
gates = [{{ command = "{gate}" }}]
{retry}{steps(name)}"""


def handed_on() -> str:
    """Return a task that delegates a part to another agent, whose work is cloned, judged and merged, too."""
    write = WRITE.replace("${", "$${") % {"name": "part"}
    opened = "{ name = '$${run.id}-part', working_directory = '$${workspace}' }"
    again = "retry = { times = 3, seconds = 0.1 }, gate = true"
    session = "session_id = '$${steps.open.session_id}'"
    parts = f"""[
  {{ id = "open", tool = "ai-session.create_session", args = {opened}, gate = true }},
  {{ id = "write", tool = "ai-session.execute_command", args = {{ {session}, command = '{write}' }}, {again} }},
  {{ id = "close", tool = "ai-session.close_session", args = {{ {session} }} }},
]"""
    return f"""
[[tasks]]
id = "lead"
agent = "cleo"
retry = {{ times = 6, seconds = 0.2, factor = 1 }}
[[tasks.steps]]
id = "hand"
tool = "swarm.delegate"
[[tasks.steps.args.tasks]]
id = "part"
text = "your part"
agent = "dee"
gates = [{{ command = "tail -n 1 part.txt | grep -q run_" }}]
steps = {parts.replace(chr(10), " ")}
"""


PLAN = (
    task("one", "ann") + task("two", "bob") + task("three", "ann", ("one", "two")) + task("bad", "bob", gate="false")
) + handed_on()
ENDINGS = dict.fromkeys(("one", "two", "three", "lead"), "succeeded") | {"bad": "failed"}


def repository(swarm_home: SwarmHome) -> None:
    """Make the project a repository with a commit of all the files."""
    git(swarm_home.project, "init", "-q", "-b", "main")
    git(swarm_home.project, "config", "user.name", "Host")
    git(swarm_home.project, "config", "user.email", "host@example.org")
    for name in FILES:
        (swarm_home.project / f"{name}.txt").touch()
    git(swarm_home.project, "add", "--all")
    git(swarm_home.project, "commit", "-q", "-m", "nothing yet")


class WorkRound(Round):
    """A round after which the checked-out branch must have all accepted work, once each."""

    def wrong(self, run: Execution, alone: Execution, most_seconds: float) -> str:
        result: dict[str, Any] = run.result or {"tasks": {}}
        if (found := {name: one["status"] for name, one in result["tasks"].items()}) != ENDINGS:
            return f"it ended otherwise: {result or run.error}"
        if self.recovery > most_seconds:
            return f"recovery took {self.recovery:.1f} s: {found}"
        lines = {name: [one for one in self.swarm_home.lines(f"{name}.txt") if self.run_id in one] for name in FILES}
        seen = {name: len(those) for name, those in lines.items()}
        if seen != dict.fromkeys(FILES, 1):
            return f"lines of this run: {seen}"
        if lines["three"] != [f"{self.run_id} 2"]:
            return f"the task saw something else than what it needs: {lines['three']}"
        if status := git(self.swarm_home.project, "status", "--porcelain"):
            return f"not committed: {status}"
        return "" if "bad.txt" not in git(self.swarm_home.project, "ls-files") else "refused work was merged"
