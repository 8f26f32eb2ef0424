"""The verb doctor: checks everything that ai-session needs, and suggests how to fix what is wrong."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agentwire.cli.options import Json
from agentwire.cli.output import EXIT_ERROR, leave, say, show_json, show_rows
from agentwire.cli.refusals import describe, next_step
from agentwire.counts import counted
from ai_session import __version__
from ai_session.client.connection import connect
from ai_session.errors import AiSessionError, DaemonUnavailable

ANSWER_SECONDS = 10.0
SLOW_SECONDS = 1.0
"""Codex continues without our tools after this."""

MOST_NOTICES = 10
IGNORE_SUBMODULES = "git config --global diff.ignoreSubmodules all"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    advice: str = ""


def doctor(as_json: Json = False) -> None:
    """Check everything ai-session needs.

    Exit code 1 when something does not work. Checks Python, runtime directory, configuration, shells, backends,
    sandbox, daemon, workspaces of sessions, policy, notices, an MCP handshake, clients.
    """
    findings: list[Finding] = []
    checks = (
        python,
        directory,
        configuration,
        shells,
        backends,
        sandbox,
        daemon,
        workspaces,
        policy,
        notices,
        handshake,
        clients,
    )
    for check in checks:
        try:
            findings += check()
        except AiSessionError as error:
            findings.append(Finding(check.__name__, "fail", error.message, error.suggestion))
        except OSError as error:
            findings.append(Finding(check.__name__, "fail", describe(error), next_step(error, "report this")))
        except Exception as error:
            findings.append(Finding(check.__name__, "fail", f"{type(error).__name__}: {error}", "report this"))
    failed = [finding.check for finding in findings if finding.state == "fail"]
    if as_json:
        show_json({"healthy": not failed, "version": __version__, "checks": [asdict(f) for f in findings]})
    else:
        show_rows([asdict(finding) for finding in findings], ("state", "check", "detail", "advice"))
        say(f"Not working: {', '.join(failed)}." if failed else "Everything required works.")
    leave(EXIT_ERROR if failed else 0)


def python() -> Iterator[Finding]:
    """Check interpreter and platform."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.platform == "linux":
        yield Finding("python", "ok", f"{version} on {sys.platform}, ai-session {__version__}")
    else:
        yield Finding(
            "python", "warn", f"{version} on {sys.platform}", "Linux shows more of what a session's programs do"
        )


def directory() -> Iterator[Finding]:
    """Check the runtime directory and its mode."""
    from ai_session.config import config

    home = config.home_directory()
    found = config.runtime_directory(home, os.getuid())
    first = config.runtime_directories(home, os.getuid())[0]
    if found == first:
        yield Finding("runtime directory", "ok", str(found))
    else:
        yield Finding(
            "runtime directory", "warn", str(found), f"sessions do not outlive a reboot: {first} cannot be created"
        )
    free = shutil.disk_usage(found).free
    if free < 256 << 20:
        yield Finding(
            "disk", "warn", f"{free >> 20} MB free under {found}", "free some: output of sessions is stored there"
        )


def configuration() -> Iterator[Finding]:
    """Check file and variables."""
    from ai_session.config import config

    loaded = config.resolve()
    where = str(loaded.path) if loaded.path.exists() else "defaults"
    yield Finding("configuration", "ok", where + (f", {len(loaded.origins)} set" if loaded.origins else ""))


def shells() -> Iterator[Finding]:
    """Check which shells sessions can run."""
    from agentwire import plugins

    kind = "ai_session.shells"
    known: list[str] = []
    for plugin in plugins.names(kind):
        known += plugins.load(kind, plugin).names
    found = [path for name in known if (path := shutil.which(name))]
    if any(path.endswith("/bash") for path in found):
        yield Finding("shells", "ok", " ".join(found))
    else:
        yield Finding("shells", "warn", " ".join(found) or "none", "install bash, or set session.shell")


def backends() -> Iterator[Finding]:
    """Try each backend; one has to work."""
    import asyncio

    from agentwire import plugins
    from ai_session.config import config

    runtime = config.runtime_directory(config.home_directory(), os.getuid())
    wanted = config.load().session.backend
    found = [
        asyncio.run(plugins.load("ai_session.backends", name)(runtime).probe())
        for name in plugins.names("ai_session.backends")
    ]
    usable = {status.name for status in found if status.usable}
    for status in found:
        if status.usable:
            yield Finding(f"backend {status.name}", "ok", status.version or "works")
        else:
            needed = wanted == status.name or not usable
            yield Finding(f"backend {status.name}", "fail" if needed else "warn", status.reason, status.suggestion)


def sandbox() -> Iterator[Finding]:
    """Check the box of new sessions by creating one, and what is missing for a stronger one."""
    from ai_session.config import config
    from ai_session.models import SandboxLevel
    from ai_session.sandbox.probe import probe

    wanted, order = config.load().sandbox, list(SandboxLevel)
    status, _ = probe()
    enough = order.index(status.level) <= order.index(SandboxLevel(wanted.minimum_level))
    versions = f"bubblewrap {status.bubblewrap or 'missing'}, Landlock ABI {status.landlock_abi or 'missing'}"
    detail = f"level {status.level}" + (f" ({versions})" if sys.platform == "linux" else "")
    explained = f"{detail}: {EXPLAINED[status.level]}"
    if wanted.profile == "trusted":
        yield Finding("sandbox", "warn", f"{detail}; new sessions are not boxed", "set sandbox.profile = 'workspace'")
    elif not enough:
        advice = f"fix the following, or lower sandbox.minimum_level, which is {wanted.minimum_level}"
        yield Finding("sandbox", "fail", f"{explained}; no session starts", advice)
    elif status.level in (SandboxLevel.BWRAP, SandboxLevel.SEATBELT):
        yield Finding("sandbox", "ok", explained)
    else:
        yield Finding("sandbox", "warn", explained, "fix the following to get a stronger one")
    for reason in status.reasons:
        what, _, advice = reason.rpartition(": ")
        yield Finding("sandbox", "warn", what, advice)
    if sys.platform == "linux" and enough and wanted.profile != "trusted":
        yield from sandbox_limits()


def sandbox_limits() -> Iterator[Finding]:
    """Check how the limits of boxes are enforced."""
    from ai_session.sandbox import advice as sandbox_advice
    from ai_session.sandbox.limits.cgroup import delegated

    here = sandbox_advice.machine()
    if parent := delegated():
        yield Finding("sandbox limits", "ok", f"enforced by the kernel, in cgroups below {parent}")
    else:
        advice = sandbox_advice.limits(here)
        how = "enforced by polling ten times a second, because no cgroup with memory and pids is delegated to this user"
        yield Finding("sandbox limits", "warn" if advice else "ok", how, advice)
    if here.root:
        risk = "root: in a box, permissions of root's own files do not restrict root"
        yield Finding("sandbox user", "warn", risk, "run ai-session as an ordinary user")


EXPLAINED = {
    "bwrap": "own processes and network, system read-only, home empty; settings and secrets in the workspace protected",
    "bwrap-noproc": "as bwrap, but other users' processes are visible inside, and ps does not work",
    "landlock": "only the workspace can be written to, and there is no network, but nothing in the workspace is"
    " protected: .env can be read, settings of git, editors and agents be changed; modes and times of your files"
    " outside can be changed (chmod, touch); processes outside be seen; there is no list of domains",
    "seatbelt": "as bwrap, but processes outside can be seen inside",
    "none": "no box can be created",
}
"""The protection of each level, and what it lacks."""


def daemon() -> Iterator[Finding]:
    """Check the running daemon, if any."""
    try:
        with connect(start=False) as client:
            version, pid = client.hello["version"], client.hello["pid"]
    except DaemonUnavailable as error:
        if listens():
            yield Finding("daemon", "fail", error.message, "end its process; sessions continue under the next one")
        else:
            yield Finding("daemon", "ok", "none runs; the first client starts one")
        return
    if version == __version__:
        yield Finding("daemon", "ok", f"{version}, pid {pid}")
    else:
        yield Finding("daemon", "warn", f"{version}, pid {pid}; this is {__version__}", "ai-session daemon restart")


def workspaces() -> Iterator[Finding]:
    """Check what is protected in workspaces, and in those of sessions what is not and what appeared there."""
    from agentwire.system.protected_names import PROTECTED
    from ai_session.config import config
    from ai_session.sandbox.workspace.words import WHOLE, WORDS

    own = config.load().sandbox.protected
    counts = f"{len(PROTECTED)} patterns" + (f", and {len(own)} of yours" if own else "")
    yield Finding("protected names", "ok", f"{counts}: ai-session policy protected")
    try:
        with connect(start=False) as client:
            sessions = client.call("list_sessions").structured["sessions"]
    except DaemonUnavailable:
        return
    lines = {line: row for row in sessions for line in row.get("unprotected", ())}
    for line, row in lines.items():
        yield Finding("workspace", "warn", f"{row['working_directory']}: {line}", "ai-session docs sandbox")
    notices = {(notice["kind"], notice["path"]): row for row in sessions for notice in row.get("notices", ())}
    for (kind, path), row in [*notices.items()][:MOST_NOTICES]:
        detail = f"session {row['name']}: {WORDS[kind]} {path or WHOLE}"
        yield Finding("workspace", "warn", detail, _advice(kind))
    if len(notices) > MOST_NOTICES:
        yield Finding("workspace", "warn", f"{len(notices) - MOST_NOTICES} more notices", "ai-session info SESSION")


def _advice(kind: str) -> str:
    if kind in ("repository", "gitlink"):
        advice = "check its .git/config and hooks before you use git there"
        return advice if _ignores_submodules() else f"{advice}; {IGNORE_SUBMODULES} keeps git status out of it"
    if kind == "unseen":
        return "check it yourself before you use git or an editor there"
    return "check it before you open or enter its directory"


def _ignores_submodules() -> bool:
    """Report whether git is configured not to inspect nested repositories."""
    from ai_session.config import config

    words = ("git", "config", "--global", "--get", "diff.ignoreSubmodules")
    env = {**config.environment(), "PATH": config.outside_path()}
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False, env=env)
        return done.stdout.strip() == "all"
    return False


def listens() -> bool:
    """Report whether a process accepts connections at the daemon's socket."""
    from ai_session.config import config

    for runtime in config.runtime_directories(config.home_directory(), os.getuid()):
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.connect(str(runtime / "sock"))
            return True
    return False


def policy() -> Iterator[Finding]:
    """Check the mode in force, and whether it is the configured one."""
    from ai_session.cli.policy import in_force

    found = in_force()
    mode, configured = found["mode"], found["configured_mode"]
    detail = f"mode {mode}, {counted(len(found['rules']), 'rule')}"
    if found["file_differs"]:
        yield Finding("policy", "warn", f"{detail}; the file has changed since", "ai-session daemon restart")
    elif mode != configured:
        yield Finding("policy", "warn", f"{detail}; configured is {configured}", f"ai-session policy mode {configured}")
    else:
        yield Finding("policy", "ok", detail)


def notices() -> Iterator[Finding]:
    """Check the ways of notifying the person; nothing is sent."""
    from agentwire.notices.settings import missing_programs, ways
    from ai_session.config import config

    configured = config.load().notify
    if missing := missing_programs(configured, config.outside_path()):
        yield Finding("notices", "warn", f"{', '.join(missing)} cannot be run", "correct [notify]")
    elif named := ways(configured):
        yield Finding("notices", "ok", f"{', '.join(named)}; ai-session notify test tries them")


def handshake() -> Iterator[Finding]:
    """Start a server as MCP clients do."""
    started = time.monotonic()
    with closing(Server()) as server:
        offer = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "doctor", "version": "1"}}
        answer = server.ask("initialize", offer)
        first = time.monotonic() - started
        tools = server.ask("tools/list", {}).get("tools", [])
        whole = time.monotonic() - started
        with connect(start=False) as client:
            client.request("settings")  # it fails if the daemon runs, but can serve no session
    listed = f"{counted(len(tools), 'tool')} {whole * 1000:.0f} ms"
    detail = f"{answer['protocolVersion']}, first answer {first * 1000:.0f} ms, {listed}"
    if not tools:
        yield Finding("mcp", "fail", detail + ": no tools", "see daemon.log")
    elif first > SLOW_SECONDS:
        yield Finding(
            "mcp", "warn", detail, "some clients continue without tools after 1 s; is the machine under load?"
        )
    else:
        yield Finding("mcp", "ok", detail)


class Server:
    """A relay started as clients start it; each response has a time limit."""

    def __init__(self) -> None:
        line = [sys.executable, "-P", "-m", "ai_session", "mcp-server", "--stdio"]
        self._process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._buffer = b""

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request. Raises DaemonUnavailable."""
        assert self._process.stdin is not None
        request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed(f"the server ended before {method}") from None
        until = time.monotonic() + ANSWER_SECONDS
        while (message := json.loads(self._line(method, until))).get("id") != method:
            pass
        if "error" in message:
            raise self._failed(f"{method}: {message['error']}")
        return message["result"]

    def _line(self, method: str, until: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select((fd,), (), (), max(0.0, until - time.monotonic()))[0]:
                raise self._failed(f"no answer to {method} in {ANSWER_SECONDS:g} s")
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                assert self._process.stderr is not None
                problem = self._process.stderr.read().decode(errors="replace").strip()
                raise self._failed(problem or f"the server ended at {method}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _failed(self, why: str) -> DaemonUnavailable:
        return DaemonUnavailable(why, suggestion="see daemon.log in the runtime directory")

    def close(self) -> None:
        """Close the server's input, which ends it; kill it if that takes too long."""
        try:
            self._process.communicate(timeout=ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def clients() -> Iterator[Finding]:
    """Check the clients whose configuration names this server."""
    from agentwire.cli.client_files import state
    from ai_session.cli.install import all_locations

    found = [state(location) for location in all_locations()]
    installed = [row["client"] for row in found if row["state"] == "installed"]
    for row in found:
        if row["state"] == "broken":
            advice = f"ai-session mcp install --client {row['client']} --scope {row['scope']}"
            yield Finding(f"client {row['client']}", "warn", f"no such command: {row['command']}", advice)
        elif row["state"] == "invalid":
            yield Finding(f"client {row['client']}", "warn", row["problem"], "fix the file")
    if installed:
        yield Finding("clients", "ok", ", ".join(dict.fromkeys(installed)))
    else:
        yield Finding("clients", "warn", "none is set up", "ai-session mcp install --client claude-desktop")
