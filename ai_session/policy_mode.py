"""The policy in force: the configured rules, in the configured mode or the one that was set since.

What was tightened stays tight: it is kept in a file, so that ending the daemon loosens nothing. It ends when another
mode is set, or when the configured mode is changed. What was loosened ends with the daemon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ai_session.errors import StorageFull
from ai_session.policy import MODES, Action, Decision, Policy

FILE = "mode.json"
"""Its name in the runtime directory."""

UNREADABLE = (OSError, ValueError, TypeError, KeyError, RecursionError)


class PolicyInForce:
    """Decides as ``Policy`` does. ``path`` is the file that keeps a tighter mode; ``configured`` says the rest."""

    def __init__(self, configured: Policy, path: Path) -> None:
        self._configured = configured
        self._path = path
        kept = _read(path, configured.mode)
        self.changed: Callable[[], None] = lambda: None
        """Called when another mode holds."""
        self._policy = configured.with_mode(kept, by_person=False) if _tighter(kept, configured.mode) else configured

    @property
    def mode(self) -> str:
        """The one in force."""
        return self._policy.mode

    @property
    def digest(self) -> str:
        """Of the mode in force and the rules."""
        return self._policy.digest

    def decide(self, action: Action) -> Decision:
        """As ``Policy.decide``."""
        return self._policy.decide(action)

    def rules_out(self, action: Action) -> bool:
        """Whether it is denied in the mode in force and in the configured one: for as long as nobody sets another."""
        return all(policy.decide(action).verdict == "deny" for policy in (self._configured, self._policy))

    def set_mode(self, mode: str, *, by_person: bool) -> None:
        """For every call from now on. Anyone may tighten.

        Raises InvalidArguments for no mode, Denied when anyone but a person loosens; StorageFull when it holds, but
        could not be kept for the next daemon.
        """
        self._policy = self._policy.with_mode(mode, by_person=by_person)
        self.changed()
        try:
            if _tighter(mode, self._configured.mode):
                _write(self._path, {"mode": mode, "configured": self._configured.mode})
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFull(
                f"mode {mode} holds until the daemon ends; it could not be kept: {error.strerror}",
                suggestion=f"make room for {self._path}, and set it again",
            ) from None

    def facts(self) -> dict[str, Any]:
        """Plain JSON values: ``mode``, ``configured_mode``, ``policy_sha256`` and ``configured_sha256``, ``rules``."""
        return {
            "mode": self.mode,
            "configured_mode": self._configured.mode,
            "policy_sha256": self.digest,
            "configured_sha256": self._configured.digest,
            "rules": [
                {"id": rule.id, **rule.table.model_dump(mode="json", exclude_defaults=True, exclude={"id"})}
                for rule in self._configured.rules
            ],
        }


def _tighter(mode: str, than: str) -> bool:
    return MODES.index(mode) < MODES.index(than)


def _read(path: Path, configured: str) -> str:
    """The mode that was kept, the configured one where none was; what cannot be read keeps everything shut."""
    try:
        kept = json.loads(path.read_bytes())
        mode = str(kept["mode"])
        return configured if kept["configured"] != configured else MODES[MODES.index(mode)]
    except FileNotFoundError:
        return configured
    except UNREADABLE:
        return MODES[0]


def _write(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".new")
    fd = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w") as file:
        json.dump(value, file)
    temporary.rename(path)
