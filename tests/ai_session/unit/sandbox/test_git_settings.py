"""Every file that git's configs lead it to is known, wherever the config stands that names it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ai_session.sandbox.workspace import git_settings
from ai_session.sandbox.workspace.git_settings import GitSettings
from ai_session.sandbox.workspace.protected_paths import find_protection
from ai_session.sandbox.workspace.workspace import Workspace


def git(*words: str, cwd: Path, home: Path | None = None) -> None:
    config = ("-c", "user.name=a", "-c", "user.email=a@b")
    env = {"PATH": os.environ["PATH"], "HOME": str(home or "/nowhere")}
    subprocess.run(["git", *config, *words], cwd=cwd, check=True, capture_output=True, env=env)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "ws").mkdir()
    git("init", "-q", ".", cwd=tmp_path / "ws")
    return tmp_path / "ws"


def write(here: Path, *paths: str, text: str = "x\n") -> None:
    for path in paths:
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)


def closed(here: Path) -> set[str]:
    """What a box finds read-only for git's sake, but for the repository's own."""
    found = find_protection(Workspace(str(here), (), ()), str(here.parent / "home"))
    assert not found.unseen
    paths = {os.path.relpath(path, here) for path in found.read_only}
    return {path for path in paths if not path.startswith(".git/")}


COMMANDS = {
    "an alias": ("alias.st", "!$(git rev-parse --show-toplevel)/tools/fs", {"tools/fs"}),
    "an alias that goes there": ("alias.st", "!cd tools && ./fs", {"tools/fs"}),
    "an alias of git's own": ("alias.st", "log tools/fs", set[str]()),
    "a subcommand that is a file's name too": ("alias.l", "!git log", set[str]()),
    "fsmonitor": ("core.fsmonitor", "sh clean.sh", {"clean.sh"}),
    "a filter": ("filter.lfs.clean", "`pwd`/tools/fs %f", {"tools/fs"}),
    "a driver": ("merge.mine.driver", "env X=tools/fs run %O", {"tools/fs"}),
    "a text conversion": ("diff.x y.textconv", '"tools/fs"|cat', {"tools/fs"}),
    "a credential helper": ("credential.https://a.b.helper", "!f() { sh $PWD/tools/fs; }; f", {"tools/fs"}),
    "a program that signs": ("gpg.ssh.program", "tools/fs", {"tools/fs"}),
    "an editor": ("core.editor", "sh -c 'tools/fs'", {"tools/fs"}),
    "something else": ("user.name", "tools/fs", set[str]()),
}


@pytest.mark.corners
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("where", ["--global", "--local"])
def test_files_that_commands_name(here: Path, name: str, where: str) -> None:
    key, value, wanted = COMMANDS[name]
    write(here, "tools/fs", "clean.sh", "log", "rev-parse")
    git("config", where, key, value, cwd=here, home=here.parent / "home")
    assert closed(here) == wanted


@pytest.mark.parametrize("where", ["--global", "--worktree", "included", "included twice", "not included now"])
def test_hooks_are_found_in_every_config(here: Path, where: str) -> None:
    write(here, "scripts/hooks/pre-push")
    section, others = "[core]\n\thooksPath = scripts/hooks\n", set[str]()
    if where == "--worktree":
        git("config", "extensions.worktreeConfig", "true", cwd=here)
    if where.startswith("--"):
        git("config", where, "core.hooksPath", "scripts/hooks", cwd=here, home=here.parent / "home")
    elif where == "included":
        write(here, "a/one", text=section)
        git("config", "include.path", "../a/one", cwd=here)
        others = {"a/one"}
    elif where == "included twice":
        write(here, "a/two", text=section)
        write(here, "a/one", text="[include]\n\tpath = two\n")
        git("config", "include.path", "../a/one", cwd=here)
        others = {"a/one", "a/two"}
    else:
        write(here, "a/two", text=section)
        write(here, "a/one", text="[include]\n\tpath = two\n")
        git("config", "includeIf.onbranch:later.path", "../a/one", cwd=here)
        others = {"a/one", "a/two"}
    assert closed(here) == {"scripts/hooks", *others}


def test_hooks_behind_links(here: Path) -> None:
    write(here, "real/hooks/pre-push", "tools/pc")
    (here / "way").symlink_to("real")
    (here / ".git/hooks").mkdir(exist_ok=True)
    (here / ".git/hooks/pre-commit").symlink_to("../../tools/pc")
    git("config", "core.hooksPath", "way/hooks", cwd=here)
    assert closed(here) == {"real/hooks", "tools/pc"}


def test_what_is_absent_is_known_by_its_name(here: Path) -> None:
    git("config", "core.fsmonitor", "sh tools/later --opt lib", cwd=here)
    workspace = Workspace(str(here), (), ())
    home = str(here.parent / "home")
    find_protection(workspace, home)
    assert workspace.reader.kind("tools/later", directory=False) == "settings"
    assert workspace.reader.kind("lib", directory=True) is None
    assert workspace.reader.leads("tools")


def test_a_change_of_any_config_is_seen(here: Path) -> None:
    write(here, "one", "two", "three", text="")
    home = here.parent / "home"
    settings = GitSettings(str(here))

    def named() -> set[str]:
        (found,) = settings.named([f"{here}/.git"], str(home)).values()
        return {os.path.relpath(one.path, here) for one in found} - of_the_machine

    of_the_machine = set[str]()
    of_the_machine = named()
    write(home, ".gitconfig", text="[core]\n\tpager = ./one\n")
    assert named() == {"one"}
    git("config", "include.path", "../two", cwd=here)
    assert named() == {"one", "two"}
    write(here, "two", text="[core]\n\teditor = ./three\n")
    assert named() == {"one", "two", "three"}


def test_who_owns_a_repository_does_not_matter(here: Path) -> None:
    if os.geteuid() != 0:
        return  # only root can give it to somebody else
    write(here, "hooks.d/pre-push")
    git("config", "core.hooksPath", "hooks.d", cwd=here)
    os.chown(here / ".git", 12345, 12345)
    os.chown(here, 12345, 12345)
    assert closed(here) == {"hooks.d"}


def test_git_runs_nothing_while_it_is_asked(here: Path) -> None:
    write(here, "run", text="#!/bin/sh\ntouch ran\n")
    (here / "run").chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "alias.config", "core.editor", "pager.config"):
        git("config", key, f"{'!' if 'alias' in key else ''}{here}/run", cwd=here)
    assert closed(here) == {"run"}
    assert not (here / "ran").exists()
    assert not (here / ".git/ran").exists()


@pytest.mark.parametrize("make", ["pipe", "too much"])
def test_what_git_cannot_read_in_time_is_said(here: Path, make: str) -> None:
    git("config", "include.path", "../more", cwd=here)
    if make == "pipe":
        os.mkfifo(here / "more")
    else:
        write(here, "more", text="[a]\n" + "\tb = 0123456789\n" * (git_settings.MOST_BYTES // 8))
    (here / "more.x").touch()
    workspace = Workspace(str(here), (), ())
    workspace.update(str(here.parent / "home"))
    assert workspace.unseen() == (f"files that git's settings include: {here}/.git",)
    assert workspace.reader.kind("more", directory=False) == "settings"


def test_a_git_that_lies_in_the_workspace_is_not_asked(here: Path) -> None:
    write(here, ".git/x")
    git("config", "core.pager", "./x.sh", cwd=here)
    assert GitSettings("/usr").named([f"{here}/.git"], "/nowhere") == {f"{here}/.git": ()}


def test_links_of_the_person_that_lead_here_are_followed(here: Path) -> None:
    """Somebody whose settings lie in a repository of their own works on it."""
    home = here.parent / "home"
    write(
        here, "dots/git", "real/x", "tools/hook", "dots/bashrc", "dots/own", "dots/other", text="[user]\n\tname = t\n"
    )
    (home / ".gitconfig").symlink_to(here / "dots/git")
    (home / "hooks").mkdir()
    (home / "hooks/pre-commit").symlink_to(here / "tools/hook")
    (home / ".bashrc").symlink_to("../ws/dots/bashrc")
    (home / ".zshrc").symlink_to(here / "way/x")
    (home / ".npmrc").symlink_to(here / "dots/own")
    (here / "way").symlink_to("real")
    (home / ".config/fish").mkdir(parents=True)
    write(here, "fish/config")
    (home / ".config/fish/config.fish").symlink_to("../../../ws/fish/config")
    git("config", "core.hooksPath", str(home / "hooks"), cwd=here)
    found = {"dots/git", "tools/hook", "dots/bashrc", "real/x", "dots/own", "fish/config"}
    assert closed(here) == found
    spared = find_protection(Workspace(str(here), ("!dots/own",), ()), str(home))
    assert str(here / "dots/own") not in spared.read_only


def test_hooks_that_a_linked_worktree_cannot_have_are_not_made_there(here: Path) -> None:
    """Its ``.git`` is a file, and a path through one leads nowhere."""
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=here)
    git("worktree", "add", "-q", "tree", cwd=here)
    git("config", "core.hooksPath", ".git/mine", cwd=here)
    made = {one.path for one in find_protection(Workspace(str(here), (), ()), str(here.parent / "home")).placeholders}
    assert {path for path in made if path.endswith("/mine")} == {f"{here}/.git/mine"}
