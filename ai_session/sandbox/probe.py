"""Finds out which boxes this machine can make, by making one of each kind until one works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from ai_session.errors import SandboxUnavailable
from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.sandbox import advice, bwrap, seccomp, users
from ai_session.sandbox.bwrap import Bubblewrap, Files, Plan, Sources
from ai_session.system.temporary_directories import trial_directory

SEATBELT = "/usr/bin/sandbox-exec"
SECONDS = 20.0
FILTERED = ("/bin/sh", "-c", 'grep -q "^Seccomp:.*2" /proc/self/status && test -r "$0"')
"""A command that succeeds if a filter is in force and its argument can be read."""
GIVEN_AWAY = ("/bin/sh", "-c", 'mkdir "$0/given" && chown 1000:1000 "$0/given" && exec "$@"')
"""A command that succeeds if files in its first argument can be given to another user and the rest succeeds."""


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """The strongest level of this machine. ``reasons`` say what prevents a stronger one, each with what to do."""

    level: SandboxLevel
    reasons: tuple[str, ...] = ()
    bubblewrap: str = ""
    landlock_abi: int = 0


def probe() -> tuple[SandboxStatus, Bubblewrap | None]:
    """Return the status, and the bubblewrap that works with its options. Blocks while one to five programs run."""
    if sys.platform == "darwin":
        usable = os.access(SEATBELT, os.X_OK)
        return SandboxStatus(SandboxLevel.SEATBELT if usable else SandboxLevel.NONE), None
    if sys.platform != "linux":
        return SandboxStatus(
            SandboxLevel.NONE, (f"boxes are not supported on {sys.platform}: use Linux or macOS",)
        ), None
    try:
        seccomp.build(network=True)
    except SandboxUnavailable as problem:
        return SandboxStatus(SandboxLevel.NONE, (f"{problem.message}: {problem.suggestion}",)), None
    from ai_session.sandbox import landlock, landlock_exec

    abi = landlock_exec.abi()
    found, reasons = bwrap.find(), list[str]()
    version = found.version if found else ""
    if found is None:
        reasons.append(advice.missing(bwrap.missing(), advice.machine()))
    else:
        for usable in _variants(found):
            if not (error := _bubblewrap(usable)):
                level = SandboxLevel.BWRAP if usable.fresh_proc else SandboxLevel.BWRAP_NOPROC
                return SandboxStatus(level, (*dict.fromkeys(reasons), *_limitations(usable)), version, abi), usable
            if not usable.users:
                reasons.append(advice.failed(error, advice.machine()))
    reasons = list(dict.fromkeys(reasons))
    if abi < landlock.LEAST_ABI:
        reasons.append(f"Landlock has ABI {abi}, {landlock.LEAST_ABI} is required: use Linux 6.12 or newer")
    elif error := _landlock():
        reasons.append(f"Landlock does not work ({error}): ai-session docs sandbox")
    else:
        return SandboxStatus(SandboxLevel.LANDLOCK, tuple(reasons), version, abi), None
    return SandboxStatus(SandboxLevel.NONE, tuple(reasons), version, abi), None


def _variants(found: Bubblewrap) -> Iterator[Bubblewrap]:
    """Yield the variants to try: for root with other users; with everything; without limiting user namespaces, which
    the filter refuses anyway; and with the host's /proc."""
    if found.has("--userns") and found.has(bwrap.WRITABLE):
        with suppress(OSError):
            users.namespace(os.geteuid())
            yield replace(found, users=True)
    yield found
    yield replace(found, disable_userns=False)
    yield replace(found, disable_userns=False, fresh_proc=False)


def _bubblewrap(bubblewrap: Bubblewrap) -> str:
    """Return the error of a trial box, or nothing if it works."""
    with ExitStack() as stack:
        directory = stack.enter_context(trial_directory("trial-box")).resolve()
        (workspace := directory / "workspace").mkdir()
        sources = Sources()
        stack.callback(sources.close)
        (directory / "box").mkdir()
        files = Files(directory / "box")
        profile = SandboxProfile("workspace", str(workspace))
        plan = Plan(bubblewrap, sources, files / "empty")
        plan.system((), network=False)
        plan.scratch("/tmp", profile.tmp_bytes, "1777")
        plan.show(str(workspace), write=True)
        argv = bwrap.write(bubblewrap, plan, files, profile, {}, die_with_parent=True)
        # Held open, because the starter does not wait for a reader of its message.
        stack.callback(os.close, os.open(files / "taken", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        given = (*GIVEN_AWAY, str(workspace)) if bubblewrap.users else ()
        return _run((*argv, *given, *FILTERED, str(workspace)))


def _landlock() -> str:
    from ai_session.sandbox import landlock

    with trial_directory("trial-box") as directory:
        (workspace := directory.resolve() / "workspace").mkdir()
        (box := directory.resolve() / "box").mkdir()
        program = seccomp.build(network=False, unix_sockets=False, no_namespaces=True)
        profile = SandboxProfile("workspace", str(workspace))
        return _run((*landlock.prefix(profile, box, (), (), program), *FILTERED, str(workspace)))


def _run(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
            cwd="/",
            env={"PATH": os.defpath},
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


def _limitations(bubblewrap: Bubblewrap) -> Iterator[str]:
    """Yield what is weaker because this bubblewrap is old or limited, each with what to do."""
    if not bubblewrap.has(bwrap.WRITABLE):
        yield "mounts are named by path, not by descriptor: use bubblewrap 0.10 or newer, and bash"
    if os.geteuid() == 0 and not bubblewrap.users:
        yield (
            "root's boxes have no other users: chown fails, and tar makes root the owner of everything; use "
            "bubblewrap 0.10 or newer and let this process map user ids"
        )
    if not bubblewrap.has("--size"):
        yield "the size of /tmp inside is not limited: use bubblewrap 0.8 or newer"
