"""Looking at runs loads no engine, writes nothing, and is about the project where one looks."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ccswarm.cli import quick
from tests.ccswarm.support.runs import BASE, TWO, RunVerbs
from tests.ccswarm.support.verbs import LINE
from tests.conftest import client_environment, environment
from tests.support.bounds import BOUND_SECONDS
from tests.support.processor_time import once_within

LOOKS = (
    ("status",),
    ("ps",),
    ("runs", "list"),
    ("runs", "show", "last"),
    ("logs", "last"),
    ("logs", "last", "--task=one", "--json"),
    ("transcript",),
    ("result", "last", "one"),
    ("approvals", "--json"),
    ("diff",),
)
COMPUTING_SECONDS = 0.15
HEAVY = {"asyncio", "typer", "rich", "pydantic", "dbos", "sqlalchemy", "ccswarm.config.settings", "ccswarm.cli.main"}


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> Iterator[RunVerbs]:
    """Where one run is over."""
    with environment(client_environment(shared_home)):
        made = RunVerbs(shared_home, BASE + TWO)
        made.run("run")
        yield made


@pytest.fixture(autouse=True)
def at_home(home: Path, verbs: RunVerbs) -> Iterator[None]:
    """Every test's HOME is the one of the run."""
    with environment(client_environment(verbs.home)):
        yield


def looked(
    verbs: RunVerbs, words: Sequence[str], *, room: bool = True
) -> tuple[subprocess.CompletedProcess[str], float]:
    """A verb in a process of its own, and its processor time. Without ``room`` it can write to no file."""

    def before() -> None:
        if not room:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [*LINE, *words],
        cwd=verbs.home,
        env=verbs.env,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        preexec_fn=before,
    )
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ran, now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.either("words")
def test_a_look_takes_little_and_says_what_it_says_where_nothing_can_be_written(
    verbs: RunVerbs, words: Sequence[str]
) -> None:
    once_within(COMPUTING_SECONDS, lambda: looked(verbs, words)[1])
    said = verbs.run(*words)
    changed = (verbs.state / "engine.db").stat().st_mtime_ns
    for name in ("engine.db-wal", "engine.db-shm"):  # as where nobody has the store open
        (verbs.state / name).unlink(missing_ok=True)
    ran, _ = looked(verbs, words, room=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (said.code, said.out, said.err)
    assert (verbs.state / "engine.db").stat().st_mtime_ns == changed


def test_a_look_loads_nothing_heavy(verbs: RunVerbs) -> None:
    words = [list(one) for one in (*LOOKS, ("diff", "last", "--stat"))]
    assert {one[0] for one in words} <= quick.QUICK.keys()
    program = "import json, sys; from ccswarm.cli import quick\nfor words in json.loads(sys.argv[1]):\n"
    program += "    try: quick.main(words)\n    except SystemExit: print('\\n', *words, *sys.modules, file=sys.stderr)"
    ran = subprocess.run(
        [sys.executable, "-c", program, json.dumps(words)],
        cwd=verbs.home,
        env=verbs.env,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=True,
    )
    loaded = [line.split() for line in ran.stderr.splitlines() if "sys" in line.split()]
    assert [one[: len(line)] for one, line in zip(loaded, words, strict=True)] == words
    assert [line[:3] for line in loaded if HEAVY & set(line)] == []


def test_last_is_the_last_run_of_the_project(verbs: RunVerbs, tmp_path: Path) -> None:
    here = verbs.json("status")["run"]
    (tmp_path / "other").mkdir()
    other = RunVerbs(tmp_path / "other")
    other.state = verbs.state
    said = other.json("status", code=2)["error"]
    assert (said["code"], said["message"]) == ("run_not_found", f"there are no runs in {other.home}")
    for verb in ("resume", "cancel", "logs"):
        assert "error run_not_found: there are no runs in" in other.run(verb, "last", code=2).err
    assert other.json("status", here[:12])["run"] == here, "an id names a run from anywhere"
    assert other.json("status", "last", "--config", str(verbs.file))["run"] == here
    other.rewrite(BASE + TWO)
    there = other.run("run", "--detach").out.strip()
    assert [other.json("status")["run"], verbs.json("status")["run"]] == [there, here]
    assert [row["run"] for row in verbs.json("runs", "list")] == [there, here]
    other.file.unlink()
    assert other.run("status").rows[0][1] == there, "it works in this directory"


def test_an_invalid_store_is_reported_by_the_engine(home: Path) -> None:
    with environment(client_environment(home)):
        verbs = RunVerbs(home, BASE + TWO, stored=False)
        assert verbs.json("runs", "list") == []
        assert not (verbs.state / "engine.db").exists()
        (verbs.state / "engine.db").write_text("no database, and longer than its head: " + "x" * 100)
        assert verbs.run("status", code=1).err.startswith("error engine_unavailable: the store of the runs cannot be")
