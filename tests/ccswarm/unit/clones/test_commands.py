"""Which of the files that work changes are a person's to merge. That a merge asks this is shown with whole merges."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agentwire.system.protected_names import protected
from ccswarm.clones.checkout import Change
from ccswarm.clones.commands import LINK, Commands, Links, Names
from ccswarm.clones.git import Git
from tests.ccswarm.support.clones_commands import BY_GIT, BY_LINKS, Tree, lay


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with an empty commit, for copies."""
    top = tmp_path_factory.mktemp("begun") / "project"
    subprocess.run(["git", "init", "-q", "--template=", str(top)], check=True)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *author, "commit", "-q", "--allow-empty", "-m", "Begin"], check=True, cwd=top)
    return top


@pytest.mark.parametrize("case", BY_LINKS)
def test_links_give_what_commands_are_taken_from_other_names(home: Path, begun: Path, case: str) -> None:
    persons, work, taken = BY_LINKS[case]
    assert persons_to_merge(home, begun, persons, work) == taken


@pytest.mark.parametrize("case", BY_GIT)
def test_the_persons_git_names_what_it_runs_and_reads(home: Path, begun: Path, case: str) -> None:
    setting, persons, work, taken = BY_GIT[case]
    assert persons_to_merge(home, begun, persons, work, setting) == taken


def persons_to_merge(home: Path, begun: Path, persons: Tree, work: Tree, setting: str = "") -> list[str]:
    top = home / "project"
    shutil.copytree(begun, top)
    key, _, value = setting.partition("=")
    if setting:
        subprocess.run(["git", "config", key, value], check=True, cwd=top)
    lay(top, persons)
    kept = {path: text for path, text in persons.items() if not any(path.startswith(f"{new}/") for new in work)}
    after = kept | work
    links = Links(str(top), [(path, text[2:]) for path, text in after.items() if text.startswith("->")])
    git = Git({"HOME": str(home), "PATH": "/usr/bin:/bin"})
    commands = Commands(Names(git, git.repository(top)).all(), protected(), links)
    gone = [Change(path, "100644", "000000", "") for path in persons.keys() - after.keys()]
    new = [Change(path, "000000", LINK if text.startswith("->") else "100644", "") for path, text in work.items()]
    return sorted(change.path for change in (*gone, *new) if commands.controls_programs(change))
