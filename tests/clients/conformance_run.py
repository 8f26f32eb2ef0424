"""Runs the official conformance suite against the product's ways in, and reads what it found."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.clients.node import COMPILED, FOLDERS, program
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
EXCLUDED = json.loads(Path(__file__).with_name("conformance_excluded.json").read_text())
REVISIONS = ("2025-11-25", "2026-07-28")
TRANSPORTS = ("http", "relay", "stdio")
PASSED = ("SUCCESS", "INFO", "SKIPPED", "WARNING")

REQUIREMENTS = FOLDERS[0] / "node_modules/@modelcontextprotocol/conformance/requirements"

FIXTURES, BRIDGE, FORKS = (Path(__file__).with_name(f"conformance_{name}.py") for name in ("server", "bridge", "forks"))
RELAY = [sys.executable, "-m", "ai_session", "mcp-server", "--stdio"]


@dataclass(frozen=True, order=True)
class Check:
    """One thing the suite looked at. ``excluded`` is the reason why its failure is expected."""

    scenario: str
    name: str
    status: str
    message: str
    excluded: str = ""

    @property
    def passed(self) -> bool:
        return self.status in PASSED


@dataclass(frozen=True)
class Run:
    """All checks of one revision over one transport; ``required`` are the names of the scenarios that must pass."""

    transport: str
    revision: str
    required: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def scenarios(self) -> dict[str, list[Check]]:
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            found.setdefault(check.scenario, []).append(check)
        return found

    @property
    def passed(self) -> list[str]:
        return [name for name, checks in self.scenarios.items() if all(check.passed for check in checks)]


@contextmanager
def started(
    script: Path, words: Sequence[str], environment: Mapping[str, str], package: str = "ai_session"
) -> Iterator[str]:
    """A program of ours that says a word when it is ready, and ends with its standard input."""
    env, errors = {**environment, "PYTHONPATH": str(ROOT)}, Path(environment["HOME"], f"{script.stem}.log")
    process = forked.piped(package, words, cwd=ROOT, env=env, reads=True, errors=errors, script=str(script))
    try:
        assert process.stdout
        assert process.stdin
        assert select.select([process.stdout], [], [], BOUND_SECONDS)[0]
        word = os.read(process.stdout.fileno(), 100).decode().strip()
        assert word, errors.read_text()
        yield word
        process.stdin.close()
        process.wait(BOUND_SECONDS)
    finally:
        process.close()


@contextmanager
def forks(environment: Mapping[str, str], kind: str) -> Iterator[list[str]]:
    """The command of a program that is imported already, a client or a server; its last word is to be added."""
    package = {"client": "ccswarm", "server": "ai_session"}[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "socket")
        with started(FORKS, [path, kind], environment, package) as word:
            assert word == "serving"
            yield [sys.executable, "-S", "-E", str(FORKS), path, kind]


@contextmanager
def served(transport: str, environment: dict[str, str]) -> Iterator[str]:
    """The address at which the fixtures are served by that way in."""
    with ExitStack() as stack:
        if transport == "http":
            program, words = FIXTURES, ["http"]
        elif transport == "relay":
            assert stack.enter_context(started(FIXTURES, ["daemon"], environment)) == "serving"
            program, words = BRIDGE, RELAY
        else:
            program, words = BRIDGE, [*stack.enter_context(forks(environment, "server")), "stdio"]
        yield f"http://127.0.0.1:{stack.enter_context(started(program, words, environment))}/mcp"


def suite(*words: str, environment: dict[str, str] | None = None) -> str:
    """What the suite's program prints. Whether checks fail is told by its files, not by its exit status."""
    ran = subprocess.run(
        [*program("conformance"), *words],
        env={**(environment or os.environ), **COMPILED},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2.5 * BOUND_SECONDS,  # that of each scenario is shorter
        check=False,
    )
    assert ran.returncode in (0, 1), ran.stderr
    return ran.stdout


def installed() -> str:
    """The suite's version, as it is pinned."""
    pinned = json.loads(Path(__file__).with_name("clients.json").read_text())
    return pinned["dependencies"]["@modelcontextprotocol/conformance"]


def requirements(revision: str) -> Mapping[str, Any]:
    """What the suite has frozen for a revision: scenarios by whom they are for, and those that are not scored."""
    return yaml.safe_load((REQUIREMENTS / f"{revision}.yaml").read_text())


def run(transport: str, revision: str, environment: dict[str, str]) -> Run:
    """The whole suite of a revision: what it requires, and what it looks at besides."""
    with tempfile.TemporaryDirectory() as folder, served(transport, environment) as url:
        words = ["server", "--url", url, "--requirements", revision, "-o", folder]
        suite(*words, environment=environment)
        files = sorted(Path(folder).glob("server-*/checks.json"))
        checks = [check for path in files for check in read(path, transport, revision)]
    return Run(transport, revision, tuple(requirements(revision)["server"]), tuple(checks))


def scenario(url: str, name: str, revision: str) -> list[Check]:
    """One scenario against a server that runs already."""
    with tempfile.TemporaryDirectory() as folder:
        suite("server", "--url", url, "--scenario", name, "--spec-version", revision, "-o", folder)
        files = sorted(Path(folder).glob("server-*/checks.json"))
        return [check for path in files for check in read(path, "relay", revision)]


def read(path: Path, transport: str, revision: str) -> Iterator[Check]:
    scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT[\d-]+Z$", r"\1", path.parent.name)
    reasons: dict[str, str] = EXCLUDED.get(transport, {}).get(revision, {}).get(scenario, {})
    for found in json.loads(path.read_text()):
        facts: dict[str, Any] = found
        name = facts["id"]
        yield Check(scenario, name, facts["status"], facts.get("errorMessage", ""), reasons.get(name, ""))
