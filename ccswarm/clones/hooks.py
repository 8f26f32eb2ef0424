"""The hooks and signatures that git would run for a person at a commit or a merge, and ccswarm does not. Blocks.

A hook reads files that an agent wrote, outside of every box and without consent.
"""

from __future__ import annotations

import os
from pathlib import Path

from ccswarm.clones.git import Git, Repository

HOOKS = ("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-merge")

YES = ("true", "yes", "on", "1", "")
"""The values by which a setting is on; it is also on without a value."""


def not_run(git: Git, repository: Repository) -> tuple[str, ...]:
    """Return the names of the hooks and of the signing setting that are set up for ``repository``."""
    values = {setting.name: setting.value for setting in repository.configuration}
    named = values.get("core.hookspath")
    folder = repository.common / "hooks" if named is None else Path(repository.top, git.expanded(named))
    found = [f"hook {name}" for name in HOOKS if os.access(folder / name, os.X_OK) and (folder / name).is_file()]
    return (*found, *(["commit.gpgSign"] if values.get("commit.gpgsign", "no").lower() in YES else []))
