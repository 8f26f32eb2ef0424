"""What in a repository decides about programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.sandbox.workspace import repositories


def git(*words: str, cwd: Path) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words],
        cwd=cwd,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def here(tmp_path: Path) -> Path:
    git("init", "-q", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    return tmp_path


def named(found: object, root: Path) -> list[str]:
    return [str(Path(path).relative_to(root)) for path in found]  # pyright: ignore[reportGeneralTypeIssues,reportUnknownVariableType,reportUnknownArgumentType]


def test_what_decides_in_a_repository(here: Path) -> None:
    git("worktree", "add", "-q", "tree", cwd=here)
    (here / ".git/config.worktree").touch()
    found = named(repositories.deciding(str(here / ".git")), here / ".git")
    assert found == ["config", "config.worktree", "hooks", "info", "worktrees/tree/commondir", "worktrees/tree/gitdir"]
    assert named(repositories.deciding(str(here / "tree/.git")), here) == ["tree/.git"]
    assert not list(repositories.absent(str(here / "tree/.git")))


def test_what_is_no_whole_repository_is_closed_whole(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert named(repositories.deciding(str(tmp_path / ".git")), tmp_path) == [".git"]
    assert not list(repositories.absent(str(tmp_path / ".git")))


def test_what_a_repository_must_not_get(here: Path) -> None:
    own = str(here / ".git")
    assert dict(repositories.absent(own)) == {f"{own}/commondir": b"../.git\n"}
    git("config", "extensions.worktreeConfig", "true", cwd=here)
    (here / ".git/hooks").rename(here / ".git/was")
    assert dict(repositories.absent(own)) == {
        f"{own}/commondir": b"../.git\n",
        f"{own}/hooks": None,
        f"{own}/config.worktree": b"",
    }
    (here / ".git/commondir").write_bytes(b"../.git\n")
    git("fsck", cwd=here)


@pytest.mark.parametrize(
    ("config", "named_by_it"),
    [
        ("[core]\n\thooksPath = hooks.d\n", ["hooks.d"]),
        ("[core] hooksPath = ../up\n", ["../up"]),
        ('[CORE]\n  HOOKSPATH = "quoted dir"\n', ["quoted dir"]),
        ("[include]\n\tpath = ../inc # not this\n", ["inc"]),
        ('[includeIf "gitdir:~/x/"]\n path = ~/.more\n', ["home/.more"]),
        ("[other]\n\thooksPath = x\n\tpath = y\n", []),
        ("hooksPath = x\n[core]\n\tbare = false\n", []),
        ("[core]\n; hooksPath = x\n", []),
        ("[core]\n\thooksPath = /abs/hooks\n", ["/abs/hooks"]),
    ],
)
def test_what_a_config_names(tmp_path: Path, config: str, named_by_it: list[str]) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(config)
    found = list(repositories.named_by_config(str(tmp_path / ".git"), str(tmp_path / "home")))
    assert [Path(named.path) for named in found] == [Path(tmp_path, name).resolve() for name in named_by_it]
    assert [named.directory for named in found] == [
        "hook" in name or name == "../up" or "dir" in name for name in named_by_it
    ]


@given(st.binary(max_size=200))
def test_no_config_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    top = tmp_path_factory.getbasetemp() / "any"
    (top / ".git").mkdir(parents=True, exist_ok=True)
    (top / ".git/config").write_bytes(b"[core]\n\thooksPath = " + content)
    assert all(named.path.startswith("/") for named in repositories.named_by_config(str(top / ".git"), "/home/me"))
