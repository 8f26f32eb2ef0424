"""The verb doctor: checks everything a run needs, and says how to fix what is wrong."""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentwire.cli.output import EXIT_ERROR, leave, say, show_json, show_rows
from agentwire.cli.refusals import next_step
from agentwire.counts import counted
from agentwire.system import program_path
from ccswarm import __version__
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, load
from ccswarm.errors import SwarmError

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded, Supplied
    from ccswarm.config.settings import Settings

OLDEST_SQLITE = (3, 35)
"""The first with RETURNING, which dbos needs."""

MERGING_GIT = (2, 38)
"""The first that merges without a work tree."""

LEAST_FREE_BYTES = 256 << 20
GIT_SECONDS = 10.0
SHOWN_PROBLEMS = 3

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report."""

    check: str
    state: State
    detail: str
    advice: str = ""


def doctor(config: Config = None, as_json: Json = False) -> None:
    """Check everything a run needs: configuration, plan, servers, git, state directory, store, journal, workers.

    Starts every server and asks for its tools. Exit codes: 0 all that is needed works, 1 something does not.
    """
    findings: list[Finding] = []
    begun = time.monotonic()
    with suppress(SwarmError):  # the checks report it
        load(config)  # ask the person once about a configuration that has changed
    for check in CHECKS:
        try:
            findings += check(config)
        except SwarmError as error:
            # Several checks may report the same cause.
            if error.message not in [finding.detail for finding in findings]:
                findings.append(Finding(check.__name__, "fail", error.message, error.suggestion))
        except Exception as error:
            findings.append(Finding(check.__name__, "fail", f"{type(error).__name__}: {error}", "report this"))
    failed = list(dict.fromkeys(finding.check for finding in findings if finding.state == "fail"))
    if as_json:
        checks = [asdict(finding) for finding in findings]
        seconds = round(time.monotonic() - begun, 3)
        show_json({"healthy": not failed, "version": __version__, "seconds": seconds, "checks": checks})
    else:
        show_rows([asdict(finding) for finding in findings], ("state", "check", "detail", "advice"))
        say(f"Not working: {', '.join(failed)}." if failed else "Everything required works.")
    leave(EXIT_ERROR if failed else 0)


def _loaded_with_defaults(config: Path | None) -> Loaded:
    """Return the configuration with the agents and the server that ``ccswarm run "…"`` uses if none are configured."""
    from ccswarm.config import config as files

    loaded = files.load(config)
    return replace(loaded, settings=_supplied(loaded.settings).settings)


def _supplied(settings: Settings) -> Supplied:
    from ccswarm.config import config as files
    from ccswarm.config import starters

    return files.supplied(settings, starters.TYPES[:1], files.server_environment())


def program(_: Path | None) -> Iterator[Finding]:
    """Check the versions of Python and SQLite."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()}, ccswarm {__version__}")
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= OLDEST_SQLITE:
        yield Finding("sqlite", "ok", version)
    else:
        advice = "use a newer Python, or PostgreSQL: engine.database_url"
        yield Finding("sqlite", "fail", f"{version} is older than {'.'.join(map(str, OLDEST_SQLITE))}", advice)


def configuration(config: Path | None) -> Iterator[Finding]:
    """Check the configuration, and its tasks as far as possible without servers."""
    from ccswarm.config import config as files
    from ccswarm.plan.check import plan_problems
    from ccswarm.runs.checks import brain_problems

    loaded = files.load(config)
    settings, supplied = loaded.settings, _supplied(loaded.settings)
    if loaded.path is None:
        yield Finding("configuration", "ok", "no file; the defaults apply", "ccswarm init writes one")
    else:
        parts = {"server": settings.mcp.servers, "agent": settings.agents, "task": settings.tasks}
        counts = ", ".join(counted(len(all_of), what) for what, all_of in parts.items())
        yield Finding("configuration", "ok", f"{loaded.path}: {counts}")
    if supplied.note:
        yield Finding("agents", "ok", supplied.note, 'try it: ccswarm run "list the files"')
    for problem in plan_problems(settings, None):
        yield Finding("plan", "fail", problem, "fix it: ccswarm plan check")
    for problem in brain_problems(supplied.settings):
        yield Finding("brains", "fail", problem, "fix it, or give the agent another brain")


def servers(config: Path | None) -> Iterator[Finding]:
    """Check each server, by starting it and listing its tools."""
    from ccswarm.cli.configured_servers import workspace_of
    from ccswarm.toolbox.discovery import listings

    loaded = _loaded_with_defaults(config)
    configured = loaded.settings.mcp.servers
    if not configured:
        yield Finding(
            "servers",
            "warn",
            "no server is configured: agents have no tools",
            "ccswarm init, or add one to [mcp] servers",
        )
        return
    for one in asyncio.run(listings(configured, workspace_of(loaded))):
        check = f"server {one.server}"
        if one.problem:
            yield Finding(check, "fail", one.problem, one.suggestion or "try its command by hand")
        else:
            listed = f"{counted(len(one.tools), 'tool')} in {one.seconds * 1000:.0f} ms"
            what = f"{one.about}, {listed}" if one.about else listed
            yield Finding(check, "ok" if one.tools else "warn", what, "" if one.tools else "see its tools.allow")
        for note in one.notes:
            yield Finding(check, "warn", note, "fix the server, or leave the tool out: tools.deny")


def logins(config: Path | None) -> Iterator[Finding]:
    """Report the stored logins at servers; only the servers know whether they are valid."""
    from agentwire import plugins
    from ccswarm.cli.login import login_facts
    from ccswarm.config import config as files

    remote = [one for one in _loaded_with_defaults(config).settings.mcp.servers if one.url]
    for server in remote:
        found = asyncio.run(plugins.load("ccswarm.clients", "mcp").login(server, files.state_directory()))
        if found:
            facts = {
                name.replace("_", " "): value for name, value in login_facts(found).items() if value not in (None, "")
            }
            yield Finding(f"login {server.name}", "ok", ", ".join(f"{name} {value}" for name, value in facts.items()))


def git(config: Path | None) -> Iterator[Finding]:
    """Check git, which agents' clones of the workspace need."""
    from ccswarm.cli.configured_servers import workspace_of
    from ccswarm.config import config as files

    loaded = _loaded_with_defaults(config)
    cloning = [one.name for one in loaded.settings.agents if one.workspace == "clone"]
    directory = workspace_of(loaded)
    environ = program_path.environment(files.server_environment(), (directory,))
    if shutil.which("git", path=environ["PATH"]) is None:
        yield Finding("git", "fail" if cloning else "warn", "there is none", "install git: agents' clones need it")
        return
    code, output = _git("--version", cwd=".", env=environ)
    old = (version := re.search(r"(\d+)\.(\d+)", output)) and (int(version[1]), int(version[2])) < MERGING_GIT
    if old:
        yield Finding(
            "git", "warn", output, "install git 2.38 or newer: with this version, agents' work must be merged by hand"
        )
    else:
        yield Finding("git", "ok" if code == 0 else "fail", output)
    if cloning:
        code, output = _git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=directory, env=environ)
        if code:
            who = f"{', '.join(cloning)} cannot have a clone of {directory}"
            yield Finding(
                "git", "fail", f"{who}: {output or 'the repository has no commits'}", "run git init and make a commit"
            )


def state(_: Path | None) -> Iterator[Finding]:
    """Check the directory of runs and journal: it is private and writable."""
    from ccswarm.config import config

    directory = config.state_directory()
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        problem = f"{directory} cannot be written: {error.strerror}"
        yield Finding("state", "fail", problem, f"{next_step(error, 'fix it')}, or set XDG_STATE_HOME")
        return
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE_BYTES:
        yield Finding("state", "warn", f"{free >> 20} MB free in {directory}", "free disk space: runs are stored there")
    else:
        yield Finding("state", "ok", f"{directory}, private")


def engine(config: Path | None) -> Iterator[Finding]:
    """Check the store of runs, its workers, and whether a worker executes what waits."""
    loaded = _loaded_with_defaults(config)
    began = time.monotonic()
    health = asyncio.run(_health(loaded.settings))
    took = time.monotonic() - began
    yield Finding("store", "ok", f"{health['store']}, opened in {took * 1000:.0f} ms")
    lost_after = loaded.settings.engine.lost_after_seconds
    ages: dict[str, float] = health["workers"]
    alive = [worker for worker, age in ages.items() if age < lost_after]
    for worker, age in ages.items():
        if age >= lost_after:
            detail = f"{worker} was last heard from {age:.0f} s ago"
            advice = "" if alive else "ccswarm worker takes over its work"
            yield Finding("workers", "warn", detail, advice or "the others take over its work")
    waiting = f"{counted(health['running'], 'execution')} in progress, {health['queued']} queued"
    if (health["queued"] or health["running"]) and not alive:
        yield Finding("workers", "warn", f"no worker runs: {waiting}", "ccswarm resume RUN, or ccswarm worker")
    else:
        yield Finding("workers", "ok", f"{', '.join(alive) or 'none runs'}; {waiting}")


def journal(_: Path | None) -> Iterator[Finding]:
    """Check that the journal is unchanged."""
    from ccswarm.config import config
    from ccswarm.journal.files import directory_of
    from ccswarm.journal.writer import verify

    directory = directory_of(config.state_directory())
    report = verify(directory)
    for problem in report.problems[:SHOWN_PROBLEMS]:
        yield Finding(
            "journal", "fail", f"{problem.location}: {problem.what}", "ccswarm journal verify; keep the files"
        )
    if report.broken > SHOWN_PROBLEMS:
        yield Finding(
            "journal", "fail", counted(report.broken - SHOWN_PROBLEMS, "more problem"), "ccswarm journal verify"
        )
    if report.sound:
        yield Finding(
            "journal",
            "ok",
            f"{counted(report.records, 'record')} in {counted(report.files, 'file')}: unchanged",
        )


def clones(config: Path | None) -> Iterator[Finding]:
    """Report the clones of work that was not merged."""
    from ccswarm.clones import kept
    from ccswarm.config import files

    root = files.clones_directory(files.state_directory())
    if found := kept.list_kept(root):
        size = sum(kept.sizes(root, found).values())
        most = _loaded_with_defaults(config).settings.engine.clone_bytes
        bound = f" of at most {most >> 20}" if most else ""
        age = counted(round(found[0].days), "day")
        detail = f"clones of {counted(len(found), 'run')}, {size >> 20}{bound} MB; the oldest is {age} old"
        yield Finding("clones", "warn" if 0 < most < size else "ok", detail, "ccswarm clean")


def notices(_: Path | None) -> Iterator[Finding]:
    """Check the ways in which the person is notified of runs; nothing is sent."""
    from agentwire.notices.settings import missing_programs, ways
    from ccswarm.config import config as files

    configured = files.notify_settings()
    path = program_path.environment(files.server_environment())["PATH"]
    if missing := missing_programs(configured, path):
        yield Finding("notices", "warn", f"{', '.join(missing)} cannot be run", f"correct [notify] of {files.own()}")
    elif named := ways(configured):
        yield Finding("notices", "ok", f"{', '.join(named)}; ccswarm notify test tries them")


CHECKS = (program, state, configuration, git, clones, logins, servers, engine, journal, notices)


def _git(*output: str, cwd: str, env: dict[str, str]) -> tuple[int, str]:
    try:
        ran = subprocess.run(
            ["git", *output], cwd=cwd, env=env, capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return ran.returncode, (ran.stdout if ran.returncode == 0 else ran.stderr).strip()


async def _health(settings: Settings) -> Any:
    from ccswarm.config import config
    from ccswarm.runs import app

    async with app.submitting(settings, config.state_directory()) as opened:
        return await opened.engine.health()
