"""What a session is to be: the request, the defaults, and the spec kept on disk for the next daemon."""

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
    """What a session is made with when the caller does not say."""

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
        """What a new shell sees: what is allowed of the client's, the configured defaults, then ``extra``."""
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
    """A request for a session; empty fields take the defaults. ``env`` adds to what is allowed of ``client_env``."""

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
    """Asked for by a person at this machine, who is bound by no share."""
    once: bool = False


def find_shell(wanted: str) -> tuple[Shell, str]:
    """As ``shell_named``, and the executable, which is looked for: blocks."""
    shell = shell_named(wanted)
    return shell, shell.find(wanted or "bash")


def shell_for(request: NewSession, default: str) -> tuple[Shell, str]:
    """The shell of a new session. One that neither the request nor the ``default`` names has to be there, and to be
    seen in the box; else it is another. Blocks; raises ShellUnavailable."""
    if wanted := request.shell or default:
        return find_shell(wanted)
    with contextlib.suppress(ShellUnavailable):
        shell, executable = find_shell(request.client_env.get("SHELL", ""))
        if not hides(request.profile, executable):
            return shell, executable
    return find_shell("")


def shell_named(wanted: str) -> Shell:
    """The plugin for ``bash``, ``/bin/dash``…; empty takes bash. Raises ShellUnavailable."""
    name = os.path.basename(wanted or "bash")
    known: list[str] = []
    for plugin_name in plugins.names("ai_session.shells"):
        shell: Shell = plugins.load("ai_session.shells", plugin_name)
        known += shell.names
        if name in shell.names:
            return shell
    with contextlib.suppress(ConfigInvalid):
        if name in (shell := plugins.load("ai_session.shells", name)).names:  # of another distribution
            return shell
    raise ShellUnavailable(f"unsupported shell {wanted[:80]!r}", suggestion=f"use one of: {', '.join(sorted(known))}")


def store(directory: Path, spec: SessionSpec) -> None:
    """Keep ``spec`` in the session's directory, whole or not at all."""
    temporary = directory / "spec.new"
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    # Copied only as deep as needed, and written in one piece: a third of the time.
    facts = {name: getattr(spec, name) for name in SessionSpec.__dataclass_fields__} | {"profile": asdict(spec.profile)}
    with open(fd, "w") as file:
        file.write(json.dumps(facts))
    temporary.rename(directory / "spec.json")


def note_use(directory: Path, at: float) -> None:
    """Keep when the session was last used: as the time of its spec, which costs no room on a full disk."""
    with contextlib.suppress(OSError):
        os.utime(directory / "spec.json", (at, at))


def last_use(directory: Path) -> float:
    """When the session was last used; 0 where that is not known."""
    try:
        return (directory / "spec.json").stat().st_mtime
    except OSError:
        return 0.0


def read(directory: Path) -> SessionSpec | None:
    """The spec kept in ``directory``, None where there is no whole one."""
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
