"""What git would do for a person at a commit or a merge, and is not done here: hooks, signing. Blocks.

None of it is run: a hook reads files that an agent wrote, outside of every box, and asks nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

from ccswarm.clones.git import Git
from ccswarm.errors import WorkspaceUnusable

HOOKS = ("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-merge")

YES = ("true", "yes", "on", "1", "")
"""How a setting says so; one without a value does, too."""


def not_run(git: Git, directory: Path) -> tuple[str, ...]:
    """What of that the person has set up for the repository of ``directory``: names of hooks, and of a setting. Nothing
    where git does not say."""
    asked = ("config", "--show-scope", "-z", "--get-regexp", r"^(core\.hookspath|commit\.gpgsign)$")
    try:
        said = git.person(directory, *asked, allowed=(0, 1))
        top, common = git.person(directory, "rev-parse", "--show-toplevel", "--git-common-dir").split("\n")
    except (WorkspaceUnusable, ValueError):
        return ()
    # git itself is always given another hooks directory here, on its command line.
    fields = said.split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    settings = [setting.partition("\n") for scope, setting in pairs if scope != "command"]
    values = {name: value for name, _, value in settings}
    named = values.get("core.hookspath")
    if named is not None and named.startswith("~/"):
        named = git.home + named[1:]
    folder = Path(top, named) if named is not None else directory / common / "hooks"
    found = [f"hook {name}" for name in HOOKS if os.access(folder / name, os.X_OK) and (folder / name).is_file()]
    return (*found, *(["commit.gpgSign"] if values.get("commit.gpgsign", "no").lower() in YES else []))
