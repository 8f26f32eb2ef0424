"""The swarm's Python API, blocking and awaited: its names, and the examples of its page with the real ai-session."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

import ccswarm
from ccswarm.api import aio, blocking
from ccswarm.errors import ConfigChanged, RunNotFound, UsageInvalid
from tests.conftest import UNBOXED, client_environment, end_leftovers, environment, new_home
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto/python-swarm.md").read_text()
NAMES = {
    "CallOutcome",
    "McpClient",
    "PlanInvalid",
    "Run",
    "RunEvent",
    "RunInfo",
    "SwarmError",
    "ToolInfo",
    "WorkDiff",
    "aio",
    "check",
    "find_run",
    "list_runs",
    "submit",
    "working",
}
EXAMPLES = r"""
import contextlib, io, json, re, sys

names, failed = {"__name__": "example"}, []
for code in re.findall(r"^```python\n(.*?)^```$", open(sys.argv[1]).read(), re.MULTILINE | re.DOTALL):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(code, sys.argv[1], "exec"), names)
    wanted = re.findall(r"print\(.*\)  # (.*)$", code, re.MULTILINE)
    if said.getvalue().splitlines() != wanted:
        sys.exit(f"{code}\nprinted {said.getvalue()!r}")
ccswarm = names["ccswarm"]
with ccswarm.working():
    try:
        with ccswarm.working():
            sys.exit("two blocks at a time")
    except ccswarm.SwarmError as error:
        assert error.code == "usage_invalid", error
    run = ccswarm.submit("note.toml")
    assert next(run.events()).event == "run.started"
    run.wait()
"""


@pytest.fixture
def project_home(homes: Path) -> Iterator[Path]:
    """One with a repository in it, which is current and has the files of the page."""
    home = new_home(homes, UNBOXED)
    project = home / "project"
    project.mkdir()
    for name, text in re.findall(r'^```toml title="([^"]*)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL):
        (project / name).write_text(text)
    with environment(client_environment(home)), chdir(project):
        yield home


def test_its_names_are_these_and_cost_nothing_until_they_are_used() -> None:
    assert set(ccswarm.__all__) == NAMES
    assert all(hasattr(ccswarm, name) for name in NAMES)
    script = "import sys; before = set(sys.modules); import ccswarm; print(*set(sys.modules) - before)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == ["ccswarm"]
    with pytest.raises(AttributeError, match="no attribute 'start'"):
        getattr(ccswarm, "start")  # noqa: B009


@pytest.mark.parametrize("name", ["check", "submit", "find_run", "list_runs", "working", "Run", "McpClient"])
def test_what_is_awaited_has_the_same_names_and_arguments(name: str) -> None:
    one, other = getattr(blocking, name), getattr(aio, name)
    if not inspect.isclass(one):
        assert arguments(one) == arguments(other)
        return
    shared = {what for what in vars(one) if not what.startswith("_")}
    assert shared <= {what for what in dir(other) if not what.startswith("_")} | {"available_tools"}
    for what in shared:
        if callable(getattr(one, what)):
            assert arguments(getattr(one, what)) == arguments(getattr(other, what)), what


def arguments(function: object) -> list[str]:
    return [str(parameter) for parameter in inspect.signature(function).parameters.values()]  # type: ignore[arg-type]


def test_what_cannot_be_done_is_said_in_errors_of_the_tree(project_home: Path) -> None:
    assert ccswarm.check("note.toml", offline=True) == []
    note = Path("note.toml").read_text()
    Path("wrong.toml").write_text(note.replace('agent = "writer"', 'agent = "nobody"'))
    (problem,) = ccswarm.check("wrong.toml", offline=True)
    assert "nobody" in problem
    with pytest.raises(ccswarm.PlanInvalid, match="nobody"):
        ccswarm.submit("wrong.toml")
    with pytest.raises(UsageInvalid, match="is not a directory"):
        ccswarm.submit("note.toml", workspace=project_home / "nowhere")
    Path("note.toml").write_text(note + "\n# more\n")
    with pytest.raises(ConfigChanged) as changed:
        ccswarm.submit("note.toml")
    assert isinstance(changed.value, ccswarm.SwarmError)
    assert "ccswarm trust" in changed.value.suggestion
    with pytest.raises(RunNotFound):
        ccswarm.find_run()
    with pytest.raises(UsageInvalid, match="not open"):
        ccswarm.McpClient("true").discover_tools()


def test_a_queued_run_is_waited_for_no_longer_than_one_says(project_home: Path) -> None:
    run = ccswarm.submit("note.toml", name="later")
    found = ccswarm.find_run(run.id[:12])
    assert ([one.id for one in ccswarm.list_runs()], found.id) == ([run.id], run.id)
    reported = run.wait(timeout=0.01)
    assert (reported.status, reported.name, reported.ok, reported.tasks["note"].status) == (
        "queued",
        "later",
        False,
        "queued",
    )
    assert (list(run.events(follow=False)), run.diff()) == ([], [])
    with pytest.raises(UsageInvalid, match="has no task"):
        run.diff("other")
    run.cancel()
    assert run.wait().status == "cancelled"
    with pytest.raises(UsageInvalid, match="is over"):
        run.pause()


@pytest.mark.torture  # two runs, carried out
def test_the_pages_examples_do_what_they_say(project_home: Path) -> None:
    """In a process of their own, in order and in one namespace; a comment behind a print is what it prints."""
    git = "git -c init.defaultBranch=main init -q; git add .; git -c user.name=A -c user.email=a@b commit -qm Begin"
    subprocess.run(git, shell=True, check=True)
    subprocess.run(["git", "config", "user.name", "Ada"], check=True)
    subprocess.run(["git", "config", "user.email", "ada@example.org"], check=True)
    programs = project_home / "bin"
    programs.mkdir()
    program = programs / "ai-session"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ai_session "$@"\n')
    program.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{programs}:{os.environ['PATH']}"}
    try:
        words = [sys.executable, "-c", EXAMPLES, str(ROOT / "docs/howto/python-swarm.md")]
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS)
    finally:
        subprocess.run([program, "daemon", "stop", "--yes"], env=env, check=True, capture_output=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not end_leftovers(project_home)
