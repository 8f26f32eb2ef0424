"""What the search of a workspace protects, pins, masks and puts there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agentwire import plugins
from agentwire.system.path_patterns import fold
from agentwire.system.protected_names import GIT, PROTECTED, protected
from ai_session.errors import Denied, SandboxRefused
from ai_session.models import SandboxProfile
from ai_session.sandbox.workspace.closed_files import ClosedFiles
from ai_session.sandbox.workspace.paths import shown
from ai_session.sandbox.workspace.protected_paths import (
    MOST_ALONE,
    PLACEHOLDERS,
    Protection,
    describe,
    find_protection,
    secrets,
)
from ai_session.sandbox.workspace.workspace import Workspace
from ai_session.tools.files import confined


def git(*words: str, cwd: Path) -> None:
    config = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *config, *words], cwd=cwd, check=True, capture_output=True)


def look(
    root: Path, *masked: str, own: tuple[str, ...] = (), home: str = "/home/nobody", most: int = MOST_ALONE
) -> Protection:
    return find_protection(Workspace(str(root), own, masked), home, most=most)


def unprotected(found: Protection, root: Path) -> dict[str, str]:
    return {os.path.relpath(one.path, root): one.why for one in found.unprotected}


def relative(paths: object, root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}  # pyright: ignore[reportGeneralTypeIssues,reportUnknownVariableType,reportUnknownArgumentType]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    git("init", "-q", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    return tmp_path


def test_an_empty_workspace_gets_directories_alone(tmp_path: Path) -> None:
    found = look(tmp_path)
    assert relative((location.path for location in found.placeholders), tmp_path) == set(PLACEHOLDERS)
    assert all((location.content, location.ignored) == (None, True) for location in found.placeholders)
    assert (found.read_only, found.pins, found.masked, found.unseen, describe(found)) == ((), (), (), (), ())


def test_who_uses_a_program_gets_its_directory_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".kiro").mkdir(parents=True)
    (home / ".config/opencode").mkdir(parents=True)
    (tmp_path / "ws").mkdir()
    found = look(tmp_path / "ws", home=str(home))
    names = relative((location.path for location in found.placeholders), tmp_path / "ws")
    assert names == {*PLACEHOLDERS, ".kiro", ".opencode"}


def test_what_is_there_is_closed_where_it_is(tmp_path: Path) -> None:
    names = {line for line in PROTECTED if "*" not in line} - {".claude"}
    (tmp_path / ".claude").mkdir()
    for name in names:
        (tmp_path / name).touch()
    found = look(tmp_path)
    assert relative(found.read_only, tmp_path) == {".claude", *names}
    assert {location.path for location in found.placeholders} == set()


def test_settings_below_and_the_way_to_them(tmp_path: Path) -> None:
    (tmp_path / "packages/web/.vscode").mkdir(parents=True)
    (tmp_path / "packages/web/.vscode/tasks.json").touch()
    (tmp_path / "packages/.npmrc").touch()
    found = look(tmp_path)
    assert relative(found.read_only, tmp_path) == {"packages/.npmrc", "packages/web/.vscode"}
    assert relative(found.pins, tmp_path) == {"packages", "packages/web"}


def test_a_repository(here: Path) -> None:
    found = look(here)
    assert relative(found.read_only, here) == {".git/config", ".git/hooks", ".git/info"}
    assert relative(found.pins, here) == {".git"}
    assert ".git/commondir" in relative((location.path for location in found.placeholders), here)


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


def test_what_a_config_names_inside_of_the_repository(here: Path) -> None:
    git("config", "core.hooksPath", ".git/own", cwd=here)
    git("config", "include.path", "more", cwd=here)
    found = look(here)
    absent = {os.path.relpath(location.path, here): location.content for location in found.placeholders}
    assert absent[".git/own"] is None
    assert absent[".git/more"] == b""


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


def test_links_below_are_known_not_refused(here: Path) -> None:
    """Where monorepos have them."""
    (here / "a").mkdir()
    (here / "a/.npmrc").symlink_to("../.npmrc")
    os.mkfifo(here / "a/.envrc")
    found = look(here)
    assert unprotected(found, here) == {"a/.npmrc": "link", "a/.envrc": "special"}
    said = describe(found)
    assert any("symbolic link: 1 (" in line and "a/.npmrc)" in line for line in said)
    assert any("neither a file nor a directory: 1 (" in line for line in said)


def test_what_can_be_changed_under_another_name_is_known(here: Path) -> None:
    (here / "a/.claude").mkdir(parents=True)
    for path in (".npmrc", "a/.claude/settings.json", ".git/hooks/pre-push", "a/.env"):
        (here / path).touch()
        os.link(here / path, here / f"other-{path.replace('/', '-')}")
    found = look(here, ".env")
    names = (".npmrc", "a/.claude/settings.json", ".git/hooks/pre-push", "a/.env")
    assert unprotected(found, here) == dict.fromkeys(names, "linked")
    assert {".npmrc", "a/.claude", ".git/hooks"} <= relative(found.read_only, here)


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
    (here / "sub/tls.key").touch()
    patterns = (".env", ".env.*", "/*.key")
    masked = {".env", ".env.local", "tls.key", "real", "sub/.env"}
    assert relative(look(here, *patterns).masked, here) == masked
    assert relative(secrets(Workspace(str(here), (), patterns)).masked, here) == masked


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
    for number in range(MOST_ALONE // 4):
        repository(tmp_path / f"r{number:03}")
    found = look(tmp_path)
    closed = relative(found.read_only, tmp_path)
    whole = {path for path in closed if path.endswith("/.git")}
    open_to_commits = {path for path in closed if path.endswith("/.git/config")}
    assert whole == relative(found.closed, tmp_path)
    assert open_to_commits
    assert len(whole) + len(open_to_commits) == MOST_ALONE // 4
    assert found.mounts <= MOST_ALONE
    assert any(
        line.startswith(f"no commits can be made, because there are more repositories than fit: {len(whole)} (")
        for line in describe(found)
    )


def test_more_room_opens_all_of_them(tmp_path: Path) -> None:
    for number in range(MOST_ALONE // 4):
        repository(tmp_path / f"r{number:03}")
    found = look(tmp_path, most=2000)
    assert not found.closed
    assert not [path for path in found.read_only if path.endswith("/.git")]


def test_too_many_repositories_are_refused(tmp_path: Path) -> None:
    for number in range(MOST_ALONE):
        repository(tmp_path / f"r{number:03}")
    with pytest.raises(SandboxRefused, match=f"contains {MOST_ALONE} repositories") as refused:
        look(tmp_path)
    assert "one project" in refused.value.suggestion


def test_settings_that_do_not_fit_are_named(tmp_path: Path) -> None:
    (tmp_path / ".envrc").touch()
    for number in range(MOST_ALONE):
        (tmp_path / f"p{number:03}").mkdir()
        (tmp_path / f"p{number:03}/.npmrc").touch()
    found = look(tmp_path)
    left = unprotected(found, tmp_path)
    assert found.mounts <= MOST_ALONE
    assert set(left.values()) == {"beyond"}
    assert left.keys() | relative(found.read_only, tmp_path) == {
        ".envrc",
        *(f"p{n:03}/.npmrc" for n in range(MOST_ALONE)),
    }
    assert ".envrc" not in left
    (line,) = describe(found)
    assert f"than fit into a box: {len(left)} (" in line
    assert line.count(".npmrc") == 3


def test_what_was_not_looked_at_is_said(tmp_path: Path) -> None:
    tmp_path.joinpath(*"d" * 40).mkdir(parents=True)
    assert "not searched: more than 32 directories deep: d/d/" in describe(look(tmp_path))[0]


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "\udcff", "a\u202eb"])
def test_paths_are_shown_on_one_plain_line(name: str) -> None:
    assert shown(name).isprintable()
    assert shown(name).isascii()
    assert len(shown("x" * 1000)) < 200


def test_the_tools_that_write_refuse_what_a_box_protects(here: Path) -> None:
    """By the same table and the same patterns, whether it is there or not."""
    own = ("deploy/", "!a/.npmrc", "CLAUDE.md")
    for path in ("a/.npmrc", "b/.npmrc", "b/.vscode/x", "CLAUDE.md", "deploy/run", "a/.ENVRC", "src/main.py"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).touch()
    found = look(here, own=own)
    kept = relative([*found.read_only, *(location.path for location in found.placeholders)], here)
    names = protected(own)
    for path in kept:
        assert names.around(path, directory=True) or GIT in map(fold, path.split("/")), path
    for path in (str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()):
        if names.around(path):
            assert any(path == one or path.startswith(f"{one}/") for one in kept), path


@pytest.mark.parametrize("shell", plugins.names("ai_session.shells"))
def test_start_files_of_every_shell_are_protected(shell: str) -> None:
    files = plugins.load("ai_session.shells", shell).start_files
    assert [file for file in files if not protected().around(file)] == []


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


def test_what_is_closed_opened_or_gone_since_the_last_look_is_known_at_the_next(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "sub/d"):
        (tmp_path / name).parent.mkdir(mode=0o755, exist_ok=True)
        (tmp_path / name).touch(0o644)
    tmp_path.chmod(0o755)
    (tmp_path / "gone").touch(0o600)
    closed = ClosedFiles((str(tmp_path),))
    closed.watch()
    assert relative(closed.find()[0], tmp_path) == {"gone"}
    (tmp_path / "gone").unlink()
    (tmp_path / "a").chmod(0o600)
    (tmp_path / "sub/d").chmod(0o600)
    (tmp_path / "new").touch(0o600)
    assert relative(closed.find()[0], tmp_path) == {"a", "sub/d", "new"}
    (tmp_path / "b.new").touch(0o600)
    (tmp_path / "b.new").rename(tmp_path / "b")
    (tmp_path / "sub").chmod(0o700)
    assert relative(closed.find()[0], tmp_path) == {"a", "sub", "new", "b"}
    (tmp_path / "sub").chmod(0o755)
    (tmp_path / "new").chmod(0o644)
    assert relative(closed.find()[0], tmp_path) == {"a", "sub/d", "b"}
    closed.close()
    (tmp_path / "c").chmod(0o600)
    (tmp_path / "later").touch(0o600)
    assert relative(closed.find()[0], tmp_path) >= {"a", "sub/d", "b", "c", "later"}


def test_what_links_lead_to_is_protected_where_it_lies(here: Path) -> None:
    """Below a link on the way to a protected name, what has that name; behind a link in its place, all of it."""
    for path in ("c/config.toml", "c/other", "real/ai/settings.json", "sub/env.x", "tools/hook", "dot/fish/x", "own/y"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).touch()
    for link, target in (
        (".cargo", "c"),
        (".config", "dot"),
        ("sub/.claude", "../real/ai"),
        ("sub/.envrc", "env.x"),
        (".git/hooks/pre-commit", "../../tools/hook"),
        ("a", "own"),
        ("sub/.gemini", "../.."),
    ):
        (here / link).symlink_to(target)
    found = look(here)
    own = {path for path in relative(found.read_only, here) if not path.startswith(".git/")}
    assert own == {"c/config.toml", "dot/fish", "real/ai", "sub/env.x", "tools/hook"}
    links = (".cargo", ".config", "sub/.claude", "sub/.envrc", "sub/.gemini")
    assert unprotected(found, here) == dict.fromkeys(links, "link")


def test_links_in_settings_do_not_close_sources(here: Path) -> None:
    (here / ".claude").mkdir()
    for path in ("skills/one/SKILL.md", "AGENTS.md", "run.sh"):
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).touch()
    for name, target in (("skills", "../skills"), ("CLAUDE.md", "../AGENTS.md"), ("run", "../run.sh"), ("top", "..")):
        (here / ".claude" / name).symlink_to(target)
    found = look(here, own=("!AGENTS.md",))
    assert {".claude", "run.sh"} == {path for path in relative(found.read_only, here) if not path.startswith(".git/")}
    assert unprotected(found, here) == {".claude/skills": "link"}


def test_links_that_lead_nowhere_protect_nothing(here: Path) -> None:
    for link, target in ((".cargo", ".cargo"), (".yarn", "/nowhere"), (".bundle", "../outside"), (".jj", "absent")):
        (here / link).symlink_to(target)
    workspace = Workspace(str(here), (), ())
    found = find_protection(workspace, "/home/nobody")
    assert unprotected(found, here) == dict.fromkeys((".cargo", ".yarn", ".bundle", ".jj"), "link")
    (here / "absent/repo").mkdir(parents=True)
    (here / "absent/repo/config.toml").touch()
    assert "absent/repo/config.toml" in relative(find_protection(workspace, "/home/nobody").read_only, here)


@pytest.mark.parametrize(
    "path", [".cargo/config.toml", "c/config.toml", "way/config.toml", "a/../.cargo/config.toml", "c/sub/x"]
)
def test_the_tools_that_write_judge_each_way_to_a_file(here: Path, path: str) -> None:
    for link, target in ((".cargo", "c"), ("way", ".cargo"), ("a", "c"), ("c/sub", "../real"), (".envrc.d", "real")):
        (here / link).parent.mkdir(exist_ok=True)
        (here / link).symlink_to(target)
    profile = SandboxProfile("workspace", workspace=str(here), home="/home/nobody")
    at = confined.locate(str(here), path)
    if path == "c/sub/x":
        confined.check_writable(at, profile)
        return
    with pytest.raises(Denied, match="read settings from it"):
        confined.check_writable(at, profile)
