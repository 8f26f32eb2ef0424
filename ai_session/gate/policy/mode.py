"""The policy in force: the configured rules, in the configured mode or one that was set later.

A tighter mode is stored in a file, so that ending the daemon does not loosen anything. It ends when another mode is set
or the configured mode is changed. A looser mode ends with the daemon.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai_session.errors import Denied, StorageFull
from ai_session.gate import state_files
from ai_session.gate.policy.explain import lines
from ai_session.gate.policy.policy import MODES, STRICTNESS, Action, Decision, HookProgram, Policy, stricter

FILE = "mode.json"
"""The name of that file in the runtime directory."""

UNREADABLE = (OSError, ValueError, TypeError, KeyError, RecursionError)


class PolicyInForce:
    """Decides as ``Policy`` does. ``path`` is the file that stores a tighter mode; ``configured`` is the configuration.

    ``above`` is the administrator's policy, from ``origin``: the stricter of both decides each call.
    """

    def __init__(self, configured: Policy, path: Path, above: Policy | None = None, origin: str = "") -> None:
        self._configured = configured
        self._above = above
        self._origin = origin
        self._path = path
        stored = _read(path, configured.mode)
        self.changed: Callable[[], None] = lambda: None
        """Called when the mode has changed."""
        self._policy = (
            configured.with_mode(stored, by_person=False) if _tighter(stored, configured.mode) else configured
        )

    @property
    def mode(self) -> str:
        """The mode in force: the tighter of the user's and the administrator's."""
        if self._above is not None and _tighter(self._above.mode, self._policy.mode):
            return self._above.mode
        return self._policy.mode

    @property
    def digest(self) -> str:
        """A digest of the mode in force and the rules."""
        if self._above is None:
            return self._policy.digest
        return hashlib.sha256(f"{self._policy.digest} {self._above.digest}".encode()).hexdigest()

    def decide(self, action: Action) -> Decision:
        """Decide about an action. The administrator's rules are named ``administrator:RULE``."""
        return decide(self._policy, self._above, action)

    @property
    def hooks(self) -> tuple[HookProgram, ...]:
        """The programs to run before a call: the administrator's, then the user's."""
        found = (policy.hook for policy in (self._above, self._configured) if policy is not None)
        return tuple(hook for hook in found if hook is not None)

    def rules_out(self, action: Action) -> bool:
        """Report whether an action is denied both in the mode in force and in the configured one."""
        policies = (self._configured, self._policy)
        return all(decide(policy, self._above, action).verdict == "deny" for policy in policies)

    def loosens(self, mode: str) -> bool:
        """Report whether a mode is looser than the one in force. Raises InvalidArguments for an unknown one."""
        self._policy.with_mode(mode, by_person=True)
        return _tighter(self.mode, mode)

    def set_mode(self, mode: str, *, by_person: bool) -> None:
        """Set the mode for every later call. Anyone may tighten.

        Raises InvalidArguments for an unknown mode, Denied if anyone but a person loosens, and StorageFull if the mode
        is in force but could not be stored for the next daemon.
        """
        if self._above is not None and mode in MODES and _tighter(self._above.mode, mode):
            raise Denied(
                f"mode {mode} is looser than {self._above.mode}, which the administrator has set",
                suggestion=f"ask someone who may change {self._origin}",
            )
        self._policy = self._policy.with_mode(mode, by_person=by_person)
        self.changed()
        try:
            if _tighter(mode, self._configured.mode):
                state_files.write(self._path, {"mode": mode, "configured": self._configured.mode})
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageFull(
                f"mode {mode} holds until the daemon ends; it could not be stored: {error.strerror}",
                suggestion=f"free disk space for {self._path}, and set it again",
            ) from None

    def located_rules(self, path: Path) -> list[dict[str, Any]]:
        """Return every rule in the order in which they count, denials first, in the form of ``facts`` with ``file`` and
        ``line`` (0 if unknown). ``path`` is the user's file; the administrator's are named ``administrator:ID``."""
        sources = [(self._above, Path(self._origin), "administrator:")] if self._above else []
        found: list[dict[str, Any]] = []
        for policy, file, prefix in (*sources, (self._configured, path, "")):
            known = lines(file, policy.rules) or [0] * len(policy.rules)
            for rule, line in zip(_rules(policy), known, strict=True):
                found.append({**rule, "id": prefix + rule["id"], "file": str(file), "line": line})
        return sorted(found, key=lambda rule: -STRICTNESS.index(rule["decision"]))

    def facts(self) -> dict[str, Any]:
        """Return JSON values: ``mode``, ``configured_mode``, ``policy_sha256``, ``configured_sha256``, ``rules`` and
        ``hooks``, and the same of the ``administrator``, or None without one."""
        return {
            "mode": self.mode,
            "configured_mode": self._configured.mode,
            "policy_sha256": self.digest,
            "configured_sha256": self._configured.digest,
            "rules": _rules(self._configured),
            "hooks": [" ".join(hook.argv) for hook in self.hooks],
            "administrator": self._above
            and {
                "path": self._origin,
                "mode": self._above.mode,
                "policy_sha256": self._above.digest,
                "rules": _rules(self._above),
            },
        }


def decide(policy: Policy, above: Policy | None, action: Action) -> Decision:
    """Return the stricter decision of the user's and the administrator's policy."""
    decision = policy.decide(action)
    if above is None:
        return decision
    other = above.decide(action)
    return stricter(decision, replace(other, rule=f"administrator:{other.rule}"))


def _rules(policy: Policy) -> list[dict[str, Any]]:
    return [
        {"id": rule.id, **rule.table.model_dump(mode="json", exclude_defaults=True, exclude={"id"})}
        for rule in policy.rules
    ]


def _tighter(mode: str, than: str) -> bool:
    return MODES.index(mode) < MODES.index(than)


def _read(path: Path, configured: str) -> str:
    """Return the stored mode, or the configured one if there is none; an unreadable file counts as the tightest."""
    try:
        stored = json.loads(path.read_bytes())
        mode = str(stored["mode"])
        return configured if stored["configured"] != configured else MODES[MODES.index(mode)]
    except FileNotFoundError:
        return configured
    except UNREADABLE:
        return MODES[0]
