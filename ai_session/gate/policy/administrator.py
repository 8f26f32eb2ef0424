"""The administrator's policy: a file that users cannot change, applied together with theirs; the stricter one wins."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from agentwire.validation import requirements
from ai_session.config.config import read_toml
from ai_session.config.settings import Section, Settings, checked_hook
from ai_session.errors import ConfigInvalid
from ai_session.gate.policy.policy import HookProgram, Policy
from ai_session.models import SandboxLevel
from ai_session.system.path_steps import steps

FILE = Path("/etc/ai-session/policy.toml")
ROOT = 0
MAX_BYTES = 1 << 20
LEVELS = tuple(SandboxLevel)
LIMITS = ("memory_bytes", "processes", "file_bytes", "tmp_bytes")
DOCUMENTED = "ai-session docs policy lists what it may contain"


class PolicyBounds(Section):
    """``[policy]`` of the file."""

    mode: Literal["read-only", "workspace", "ask-all", "trusted"] = "trusted"
    rules: tuple[dict[str, Any], ...] = ()
    hook: tuple[str, ...] = ()
    hook_seconds: float = Field(default=5.0, gt=0, le=30)

    @field_validator("hook")
    @classmethod
    def _is_a_path(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        return checked_hook(words)


class SandboxBounds(Section):
    """``[sandbox]`` of the file."""

    profile: Literal["read-only", "workspace", "trusted"] = "trusted"
    minimum_level: Literal["bwrap", "bwrap-noproc", "landlock", "seatbelt"] | None = None
    memory_bytes: int | None = Field(default=None, ge=64 << 20)
    processes: int | None = Field(default=None, ge=16)
    file_bytes: int | None = Field(default=None, ge=1 << 20)
    tmp_bytes: int | None = Field(default=None, ge=1 << 20)


class Bounds(Section):
    """The whole file."""

    policy: PolicyBounds = PolicyBounds()
    sandbox: SandboxBounds = SandboxBounds()


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Administrator:
    """What the administrator has set. Without a file it is nothing, and ``path`` is empty."""

    path: str = ""
    bounds: Bounds = NO_BOUNDS

    def policy(self, uid: int) -> Policy | None:
        """Return its mode and rules, or None without a file. Raises ConfigInvalid."""
        if not self.path:
            return None
        own = self.bounds.policy
        hook = HookProgram.of(own.hook, own.hook_seconds, self.path, "administrator:hook")
        try:
            return Policy(uid, own.mode, own.rules, loosest=self.bounds.sandbox.profile, hook=hook)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"{self.path}: {error.message}", suggestion=error.suggestion) from None

    def bound(self, settings: Settings) -> Settings:
        """Return the user's settings within these limits. Profiles are judged call by call."""
        own, mine = settings.sandbox, self.bounds.sandbox
        lower = {name: min(getattr(own, name), getattr(mine, name)) for name in LIMITS if getattr(mine, name)}
        if mine.minimum_level is not None:
            lower["minimum_level"] = min(own.minimum_level, mine.minimum_level, key=_strength)
        return settings.model_copy(update={"sandbox": own.model_copy(update=lower)}) if lower else settings


def read(path: Path = FILE, owner: int = ROOT, lstat: Callable[[str], os.stat_result] = os.lstat) -> Administrator:
    """Read the file; without one, return an administrator with no bounds.

    Raises ConfigInvalid if it is invalid, or if any user but ``owner`` could have written or can replace it.
    """
    text = _text(path, owner, lstat)
    if text is None:
        return Administrator()
    try:
        return Administrator(str(path), Bounds.model_validate(read_toml(text.removeprefix("\ufeff"))))
    except ValidationError as error:
        raise ConfigInvalid(f"{path}: {requirements(error.errors())}", suggestion=DOCUMENTED) from None
    except ValueError as error:
        raise ConfigInvalid(f"{path}: {error}", suggestion="ask the administrator to correct the file") from None


def _strength(level: str) -> int:
    return LEVELS.index(SandboxLevel(level))


def _text(path: Path, owner: int, lstat: Callable[[str], os.stat_result]) -> str | None:
    try:
        for step in steps(str(path)):
            try:
                facts = lstat(step)
            except FileNotFoundError:
                _check_no_broken_link(path)
                return None
            check(step, facts, owner)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _unreadable(path, "it is not a file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise _unreadable(path, f"it is longer than {MAX_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(path, str(error)) from None


def _check_no_broken_link(path: Path) -> None:
    """Raise ConfigInvalid for a broken link: it may lead to a policy on a share that is not mounted."""
    for step in (path, *path.parents):
        if step.is_symlink() and not step.exists():
            raise _unreadable(path, f"{step} is a link to {os.readlink(step)}, which does not exist")


def check(path: str, facts: os.stat_result, owner: int) -> None:
    """Raise ConfigInvalid if any user but ``owner`` and root may change what is at ``path``."""
    if facts.st_uid not in (owner, ROOT):
        raise ConfigInvalid(
            f"the administrator's policy cannot be trusted: {path} belongs to uid {facts.st_uid}, not {owner}",
            suggestion=f"the administrator runs: chown {owner} {path}",
        )
    # A link's mode has no effect. In a sticky directory, users can replace only their own files.
    unwritable = stat.S_ISLNK(facts.st_mode) or (stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX)
    if not unwritable and facts.st_mode & 0o022:
        mode = f"{stat.S_IMODE(facts.st_mode):04o}"
        raise ConfigInvalid(
            f"the administrator's policy cannot be trusted: {path} is writable by others (mode {mode})",
            suggestion=f"the administrator runs: chmod go-w {path}",
        )


def _unreadable(path: Path, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"the administrator's policy {path} cannot be read: {why}",
        suggestion=f"the administrator makes it a readable file: chmod 644 {path}",
    )


NOBODY = Administrator()
