"""What is protected is found wherever it lies, and what is not looked at is known."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentwire.system.path_patterns import patterns
from agentwire.system.protected_names import PROTECTED, protected
from ai_session.sandbox.workspace.tree import DEPTH, MOST_NAMES
from ai_session.sandbox.workspace.workspace import Workspace


def git(*words: str, cwd: Path) -> None:
    config = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *config, *words], cwd=cwd, check=True, capture_output=True)


def look(root: Path, *own: str, masked: tuple[str, ...] = ()) -> Workspace:
    found = Workspace(str(root), own, masked)
    found.update("/home/nobody")
    return found


def kinds(found: Workspace, *, git: bool = False) -> dict[str, str]:
    """With ``git`` also what it keeps of the repository at the top."""
    return {
        path: name.kind
        for path, name in found.names()
        if git or not path.startswith(".git/") or name.kind != "settings"
    }


@pytest.fixture
def here(tmp_path: Path) -> Path:
    git("init", "-q", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    return tmp_path


def repositories(root: Path) -> list[str]:
    return [os.path.relpath(path, root) for path in look(root).repositories()]


def test_repositories_of_every_kind_nearest_first(here: Path) -> None:
    git("init", "-q", "deep/er/nested", cwd=here)
    git("init", "-q", "--bare", "bare.git", cwd=here)
    git("worktree", "add", "-q", "tree", cwd=here)
    git("submodule", "add", "-q", str(here), "module", cwd=here)
    found = repositories(here)
    assert sorted(found) == [".git", "bare.git", "deep/er/nested/.git", "module/.git", "tree/.git"]
    assert (found[0], found[-1]) == (".git", "deep/er/nested/.git")


INSTALLED = (
    ".venv/src/pkg",
    "node_modules/pkg",
    "node_modules/@scope/pkg",
    "target/pkg",
    "a/node_modules/pkg",
    ".venv",
)


def test_repositories_among_what_programs_installed(here: Path) -> None:
    for folder in (*INSTALLED, "node_modules/pkg/deeper/still"):
        git("init", "-q", folder, cwd=here)
    (here / "node_modules/pkg/.npmrc").touch()
    assert set(repositories(here)) == {".git", *(f"{folder}/.git" for folder in INSTALLED)}
    assert "node_modules/pkg/.npmrc" not in kinds(look(here))


def test_how_deep(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*"d" * DEPTH)
    deepest.mkdir(parents=True)
    git("init", "-q", ".", cwd=deepest)
    found = look(tmp_path)
    assert (len(found.repositories()), found.unseen()) == (1, ())
    deeper = tmp_path.joinpath("e", *"d" * DEPTH)
    deeper.mkdir(parents=True)
    git("init", "-q", ".", cwd=deeper)
    found = look(tmp_path)
    assert len(found.repositories()) == 1
    assert "directories deep: e/d/d" in found.unseen()[0]


def test_settings_at_any_depth(tmp_path: Path) -> None:
    for path in (".mcp.json", "a/b/.npmrc", "a/.vscode/tasks.json", "a/x.code-workspace", "a/.cargo/config.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for path in ("a/config.toml", "a/vscode", "package.json", "CLAUDE.md"):
        (tmp_path / path).touch()
    found = {".mcp.json", "a/b/.npmrc", "a/.vscode", "a/x.code-workspace", "a/.cargo/config.toml"}
    assert set(kinds(look(tmp_path))) == found


def test_what_a_person_adds_and_excepts(tmp_path: Path) -> None:
    for path in ("CLAUDE.md", "a/CLAUDE.md", ".npmrc", "a/.npmrc", "deploy/run"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    found = kinds(look(tmp_path, "/CLAUDE.md", "deploy/", "!a/.npmrc"))
    assert set(found) == {"CLAUDE.md", ".npmrc", "deploy"}


def test_secrets_at_any_depth(tmp_path: Path) -> None:
    for path in (".env", "a/b/.env", "a/.env.local", "a/.env.example", "x.pem", "a/x.pem"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    found = kinds(look(tmp_path, masked=(".env", ".env.*", "!.env.example", "/*.pem")))
    assert found == dict.fromkeys((".env", "a/b/.env", "a/.env.local", "x.pem"), "secret")


def test_every_line_of_the_table_finds_its_name(tmp_path: Path) -> None:
    paths = [line.removeprefix("**/").replace("*", "x") for line in PROTECTED]
    for path in paths:
        (tmp_path / "a/b" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "a/b" / path).touch()
    assert set(kinds(look(tmp_path))) == {f"a/b/{path}" for path in paths}
    assert all(protected().around(f"a/b/{path}") for path in paths)


def test_another_spelling_of_git_is_no_repository_but_protected(tmp_path: Path) -> None:
    (tmp_path / "a/.GIT").mkdir(parents=True)
    (tmp_path / "b/.git.").mkdir(parents=True)
    assert kinds(look(tmp_path)) == {"a/.GIT": "settings", "b/.git.": "settings"}


def test_what_a_config_leads_git_to(here: Path) -> None:
    git("config", "core.hooksPath", "hooks.d", cwd=here)
    git("config", "include.path", "../later", cwd=here)
    (here / "hooks.d").mkdir()
    (here / "hooks.d/pre-commit").touch()
    found = look(here)
    assert kinds(found) == {".git": "repository", "hooks.d": "settings"}
    (here / "later").touch()
    found.update("/home/nobody")
    assert kinds(found)["later"] == "settings"


def test_entries_of_the_index_that_are_other_repositories(here: Path) -> None:
    git("init", "-q", "lib", cwd=here)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=here / "lib")
    found = look(here)
    assert "lib" not in kinds(found)
    git("add", "lib", cwd=here)
    found.update("/home/nobody")
    assert kinds(found)["lib"] == "gitlink"
    git("worktree", "add", "-q", "tree", cwd=here)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},other", cwd=here / "tree")
    found.update("/home/nobody")
    assert kinds(found)[".git/worktrees/other"] == "gitlink"


def test_other_names_of_a_file_are_noticed(here: Path) -> None:
    (here / "a").mkdir()
    for path in ("a/.npmrc", ".git/hooks/pre-push"):
        (here / path).touch()
        os.link(here / path, here / path.replace("/", "-"))
    found = {path: name.names for path, name in look(here).names() if name.names > 1}
    assert found == {"a/.npmrc": 2, ".git/hooks/pre-push": 2}


def test_content_is_looked_at_where_it_can_be_changed(here: Path) -> None:
    (here / ".vscode/deep").mkdir(parents=True)
    (here / ".vscode/deep/file").touch()
    found = look(here)
    assert set(kinds(found)) == {".git", ".vscode"}
    found.open_to_writing(None)
    names = kinds(found, git=True)
    assert {".git/config", ".git/info/exclude", ".vscode/deep/file"} <= names.keys()
    before = {path: name.stamp for path, name in found.names()}
    (here / ".vscode/deep/file").write_text("x")
    git("config", "a.b", "c", cwd=here)
    found.update("/home/nobody")
    changed = {path for path, name in found.names() if before.get(path) != name.stamp}
    assert changed == {".git/config", ".vscode/deep/file"}


def test_a_crowd_of_names_is_bounded(tmp_path: Path) -> None:
    for number in range(MOST_NAMES + 10):
        (tmp_path / f"{number}.code-workspace").touch()
    found = list(kinds(look(tmp_path)).values())
    assert found.count("settings") == MOST_NAMES
    assert found.count("crowded") == 1


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/", path), os.mkdir], ids=["fifo", "link", "dir"])  # pyright: ignore[reportUnknownLambdaType,reportUnknownArgumentType]
def test_an_index_that_is_none(here: Path, make: object) -> None:
    (here / ".git/index").unlink(missing_ok=True)
    make(here / ".git/index")  # pyright: ignore[reportCallIssue]
    assert kinds(look(here)) == {".git": "repository"}


def test_a_pattern_of_a_person_that_is_none() -> None:
    with pytest.raises(ValueError, match="not a pattern"):
        patterns("a//b")
