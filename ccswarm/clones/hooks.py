"""The hooks and signatures that git would run for a person at a commit or a merge, and ccswarm does not. Blocks.

A hook reads files that an agent wrote, outside of every box and without consent.
"""

from __future__ import annotations

import os
from pathlib import Path

from ccswarm.clones.git import Git
from ccswarm.errors import WorkspaceUnusable

HOOKS = ("pre-commit", "pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-merge")

YES = ("true", "yes", "on", "1", "")
"""The values by which a setting is on; it is also on without a value."""


def not_run(git: Git, directory: Path) -> tuple[str, ...]:
    """Return the names of hooks and the signing setting set up for ``directory``; empty if git cannot tell."""
    words = ("config", "--show-scope", "-z", "--get-regexp", r"^(core\.hookspath|commit\.gpgsign)$")
    try:
        output = git.person(directory, *words, allowed=(0, 1))
        top, common = git.person(directory, "rev-parse", "--show-toplevel", "--git-common-dir").split("\n")
    except (WorkspaceUnusable, ValueError):
        return ()
    # ccswarm always passes git another hooks directory on its command line.
    fields = output.split("\0")
    pairs = zip(fields[::2], fields[1::2], strict=False)
    settings = [setting.partition("\n") for scope, setting in pairs if scope != "command"]
    values = {name: value for name, _, value in settings}
    named = values.get("core.hookspath")
    if named is not None and named.startswith("~/"):
        named = git.home + named[1:]
    folder = Path(top, named) if named is not None else directory / common / "hooks"
    found = [f"hook {name}" for name in HOOKS if os.access(folder / name, os.X_OK) and (folder / name).is_file()]
    return (*found, *(["commit.gpgSign"] if values.get("commit.gpgsign", "no").lower() in YES else []))
