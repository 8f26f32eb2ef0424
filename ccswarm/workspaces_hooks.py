"""What git would do for a person at a commit or a merge, and is not done here: hooks, signing. Blocks.

None of it is run: a hook reads files that an agent wrote, outside of every box, and asks nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

from ccswarm.errors import WorkspaceUnusable
from ccswarm.workspaces_git import Git

HOOKS = ("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-merge")


def not_run(git: Git, directory: Path) -> tuple[str, ...]:
    """What of that the person has set up for the repository of ``directory``: names of hooks, and of a setting. Nothing
    where git does not say."""
    try:
        folder = _hooks(git, directory)
        signs = git.person(directory, "config", "--type=bool", "--get", "commit.gpgSign", allowed=(0, 1)) == "true"
    except WorkspaceUnusable:
        return ()
    found = [f"hook {name}" for name in HOOKS if os.access(folder / name, os.X_OK) and (folder / name).is_file()]
    return (*found, *(["commit.gpgSign"] if signs else []))


def _hooks(git: Git, directory: Path) -> Path:
    """The person's directory of hooks: git itself is always told another one here."""
    said = git.person(directory, "config", "--show-scope", "--type=path", "--get-all", "core.hooksPath", allowed=(0, 1))
    named = [path for scope, _, path in (line.partition("\t") for line in said.splitlines()) if scope != "command"]
    if named:
        return Path(git.person(directory, "rev-parse", "--show-toplevel")) / named[-1]
    return directory / git.person(directory, "rev-parse", "--git-common-dir") / "hooks"
