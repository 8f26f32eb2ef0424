"""The request for a session, the defaults, and the spec stored on disk for the next daemon."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentwire import plugins
from ai_session.errors import ConfigInvalid, ShellUnavailable
from ai_session.models import TRUSTED, SandboxLevel, SandboxProfile, SessionSpec
from ai_session.sandbox.boxes import hides
from ai_session.shells.base import Shell
from ai_session.system.variable_names import like


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The settings of a new session that the request leaves open."""

    backend: str = "auto"
    shell: str = ""
    user_rc: bool = True
    rows: int = 50
    cols: int = 200
    max_sessions: int = 64
    max_sessions_per_owner: int = 48
    retain_bytes: int = 64 << 20
    owned_idle_days: float = 0.0
    close_grace_seconds: float = 2.0
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    env_allow: tuple[str, ...] = ("*",)

    def environment(
        self, client: Mapping[str, str], extra: Mapping[str, str], allow: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return a new shell's environment: allowed variables of the client, configured ones, then ``extra``."""
        env = {"HOME": "/", "PATH": os.defpath}
        # In a container the user may be a bare number.
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(os.getuid())
            env |= {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name}
        passes = like(tuple(allow or self.env_allow))
        env |= {name: value for name, value in client.items() if passes(name)}
        if not any(env.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
            env["LANG"] = "C.UTF-8"
        return {**env, **self.env, **extra}


@dataclass(frozen=True, slots=True)
class NewSession:
    """A request for a session; the defaults fill empty fields. ``env`` adds to the allowed part of ``client_env``."""

    name: str
    working_directory: str
    client_env: Mapping[str, str]
    env: Mapping[str, str]
    shell: str = ""
    backend: str = ""
    rows: int = 0
    cols: int = 0
    profile: SandboxProfile = TRUSTED
    call_key: str = ""
    owner: str = ""
    person: bool = False
    """Whether a person at this machine requests it, for whom no limit per owner applies."""
    once: bool = False


def find_shell(wanted: str) -> tuple[Shell, str]:
    """Return the plugin and the executable of a shell. Blocks. Raises ShellUnavailable."""
    shell = shell_named(wanted)
    return shell, shell.find(wanted or "bash")


def shell_for(request: NewSession, default: str) -> tuple[Shell, str]:
    """Return the shell of a new session: the requested one, the ``default``, the client's $SHELL, or bash.

    The client's is skipped if it is not installed or the box hides it. Blocks. Raises ShellUnavailable.
    """
    if wanted := request.shell or default:
        return find_shell(wanted)
    with contextlib.suppress(ShellUnavailable):
        shell, executable = find_shell(request.client_env.get("SHELL", ""))
        if not hides(request.profile, executable):
            return shell, executable
    return find_shell("")


def shell_named(wanted: str) -> Shell:
    """Return the plugin for a shell's name or path, for bash if it is empty. Raises ShellUnavailable."""
    name = os.path.basename(wanted or "bash")
    known: list[str] = []
    for plugin_name in plugins.names("ai_session.shells"):
        shell: Shell = plugins.load("ai_session.shells", plugin_name)
        known += shell.names
        if name in shell.names:
            return shell
    with contextlib.suppress(ConfigInvalid):
        if name in (shell := plugins.load("ai_session.shells", name)).names:  # from another distribution
            return shell
    # Whether there is such a file is not said: a client in a sandbox may not know.
    path = " or their paths" if os.path.dirname(wanted) else ""
    raise ShellUnavailable(
        f"unsupported shell {wanted[:80]!r}", suggestion=f"use one of these{path}: {', '.join(sorted(known))}"
    )


def store(directory: Path, spec: SessionSpec) -> None:
    """Store ``spec`` in the session's directory, completely or not at all. Raises OSError."""
    temporary = directory / "spec.new"
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    # A shallow copy, written in one piece, takes a third of the time.
    facts = {name: getattr(spec, name) for name in SessionSpec.__dataclass_fields__} | {"profile": asdict(spec.profile)}
    with open(fd, "w") as file:
        file.write(json.dumps(facts))
    temporary.rename(directory / "spec.json")


def note_use(directory: Path, at: float) -> None:
    """Store when the session was last used, as its spec's modification time, which needs no room on a full disk."""
    with contextlib.suppress(OSError):
        os.utime(directory / "spec.json", (at, at))


def last_use(directory: Path) -> float:
    """Return when the session was last used, in UTC seconds; 0 if that is unknown."""
    try:
        return (directory / "spec.json").stat().st_mtime
    except OSError:
        return 0.0


def read(directory: Path) -> SessionSpec | None:
    """Return the spec stored in ``directory``, or None if there is no valid one."""
    try:
        facts: dict[str, Any] = json.loads((directory / "spec.json").read_bytes())
        profile: dict[str, Any] = facts.get("profile", {})
        lists: dict[str, Any] = {name: tuple(v) for name, v in profile.items() if isinstance(v, list)}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        facts["profile"] = SandboxProfile(**(profile | lists))
        for name in ("shared_with", "unprotected"):
            facts[name] = tuple(facts.get(name, ()))
        facts["level"] = SandboxLevel(facts.get("level", "none"))
        return SessionSpec(**facts)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
