"""What a survey of a workspace protects, pins, masks and puts there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ai_session.errors import SandboxRefused
from ai_session.protected_paths import DIRECTORIES, FILES, MOST, ClosedFiles, Protection, secrets, survey
from ai_session.repositories import Repositories


def git(*words: str, cwd: Path) -> None:
    config = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *config, *words], cwd=cwd, check=True, capture_output=True)


def look(root: Path, *masked: str) -> Protection:
    return survey(str(root), "/home/nobody", Repositories(), masked=masked)


def relative(paths: object, root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}  # pyright: ignore[reportGeneralTypeIssues,reportUnknownVariableType,reportUnknownArgumentType]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    git("init", "-q", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    return tmp_path


def test_an_empty_workspace_gets_directories_alone(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert relative((place.path for place in found.placeholders), tmp_path) == set(DIRECTORIES)
    assert all(place.content is None for place in found.placeholders)
    assert (found.read_only, found.pins, found.masked, found.complete) == ((), (), (), True)


def test_what_is_there_is_closed_where_it_is(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    for name in FILES:
        (tmp_path / name).touch()
    found = look(tmp_path)
    assert relative(found.read_only, tmp_path) == {".claude", *FILES}
    assert relative((place.path for place in found.placeholders), tmp_path) == {*DIRECTORIES} - {".claude"}


def test_a_repository(here: Path) -> None:
    found = look(here)
    assert relative(found.read_only, here) == {".git/config", ".git/hooks", ".git/info"}
    assert relative(found.pins, here) == {".git"}
    assert ".git/commondir" in relative((place.path for place in found.placeholders), here)


def test_nested_repositories_and_the_way_to_them(here: Path) -> None:
    git("init", "-q", "deep/er/nested", cwd=here)
    (here / "deep/er/nested/.envrc").touch()
    found = look(here)
    assert {"deep/er/nested/.git/config", "deep/er/nested/.envrc"} <= relative(found.read_only, here)
    assert {"deep", "deep/er", "deep/er/nested", "deep/er/nested/.git"} <= relative(found.pins, here)


def test_worktrees_and_submodules(here: Path) -> None:
    git("worktree", "add", "-q", "tree", cwd=here)
    git("submodule", "add", "-q", str(here), "module", cwd=here)
    closed = relative(look(here).read_only, here)
    files = {".gitmodules", ".git/modules", "tree/.git", "module/.git"}
    assert files | {".git/worktrees/tree/commondir", ".git/worktrees/tree/gitdir"} <= closed


def test_what_a_config_names(here: Path) -> None:
    git("config", "core.hooksPath", "hooks.d", cwd=here)
    git("config", "include.path", "../absent", cwd=here)
    (here / "hooks.d").mkdir()
    closed = relative(look(here).read_only, here)
    assert "hooks.d" in closed
    assert "absent" not in closed


@pytest.mark.parametrize("where", [".claude", ".git/hooks", ".git", "sub/.git", ".mcp.json", ".git/info"])
def test_links_are_refused(here: Path, where: str) -> None:
    git("init", "-q", "sub", cwd=here)
    target = here / "elsewhere"
    target.mkdir()
    if os.path.lexists(here / where):
        (here / where).rename(here / "moved")
    (here / where).symlink_to(target)
    with pytest.raises(SandboxRefused, match="symbolic link") as refused:
        look(here)
    assert refused.value.suggestion


def test_a_link_to_another_repository_is_not_followed(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    git("init", "-q", ".", cwd=other)
    (here / "way").symlink_to(other)
    assert not {path for path in relative(look(here).read_only, here) if path.startswith(("way", ".."))}


def test_what_is_neither_file_nor_directory_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".envrc")
    with pytest.raises(SandboxRefused, match="neither a file nor a directory"):
        look(tmp_path)


def test_secrets_are_masked_where_they_lie(here: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "x.key"
    outside.touch()
    for name in (".env", ".env.local", "tls.key", "plain", "real"):
        (here / name).touch()
    (here / "linked.key").symlink_to("real")
    (here / "far.key").symlink_to(outside)
    (here / "dangling.key").symlink_to("nowhere")
    (here / "sub").mkdir()
    (here / "sub/.env").touch()
    patterns = (".env", ".env.*", "*.key")
    assert relative(look(here, *patterns).masked, here) == {".env", ".env.local", "tls.key", "real"}
    assert secrets(str(here), patterns).masked == look(here, *patterns).masked


def test_what_is_masked_is_not_shown_read_only(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").touch()
    found = look(tmp_path, ".npmrc")
    assert relative(found.masked, tmp_path) == {".npmrc"}
    assert found.read_only == ()


def repository(path: Path) -> None:
    """As git makes one, without starting it a hundred times."""
    for name in ("objects", "refs", "hooks", "info"):
        (path / ".git" / name).mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (path / ".git/config").touch()


def test_many_repositories_lose_commits_before_they_lose_protection(tmp_path: Path) -> None:
    for number in range(MOST // 2):
        repository(tmp_path / f"r{number:03}")
    found = look(tmp_path)
    closed = relative(found.read_only, tmp_path)
    whole = {path for path in closed if path.endswith("/.git")}
    open_to_commits = {path for path in closed if path.endswith("/.git/config")}
    assert whole
    assert open_to_commits
    assert len(whole) + len(open_to_commits) == MOST // 2
    assert len(found.read_only) + len(found.placeholders) <= MOST


def test_too_many_repositories_are_refused(tmp_path: Path) -> None:
    for number in range(2 * MOST):
        repository(tmp_path / f"r{number:03}")
    with pytest.raises(SandboxRefused, match=f"holds {2 * MOST} repositories") as refused:
        look(tmp_path)
    assert "one project" in refused.value.suggestion


def test_closed_files_of_the_system(tmp_path: Path) -> None:
    """Root's or this user's own, closed to others."""
    open_file, closed, folder = tmp_path / "open", tmp_path / "closed", tmp_path / "folder"
    open_file.write_text("x")
    closed.write_text("x")
    closed.chmod(0o600)
    (folder / "inner").mkdir(parents=True)
    folder.chmod(0o700)
    (tmp_path / "link").symlink_to("closed")
    (tmp_path / "sub").mkdir(mode=0o755)
    (tmp_path / "sub/key").touch(0o640)
    for path in (tmp_path, tmp_path / "sub"):
        path.chmod(0o755)
    open_file.chmod(0o644)
    found, unknown = ClosedFiles((str(tmp_path),)).find()
    assert relative(found, tmp_path) == {"closed", "folder", "sub/key"}
    assert unknown == []
