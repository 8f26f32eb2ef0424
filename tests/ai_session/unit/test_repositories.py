"""Which repositories there are, and what in each decides about programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session import repositories
from ai_session.errors import SandboxRefused
from ai_session.repositories import DEPTH, Repositories


def git(*words: str, cwd: Path) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words],
        cwd=cwd,
        check=True,
        capture_output=True,
    )


def below(root: Path) -> list[str]:
    return [str(Path(path).relative_to(root)) for path in Repositories().below(str(root)).git]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    git("init", "-q", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    return tmp_path


def test_repositories_of_every_kind_nearest_first(here: Path) -> None:
    git("init", "-q", "deep/er/nested", cwd=here)
    git("init", "-q", "--bare", "bare.git", cwd=here)
    git("worktree", "add", "-q", "tree", cwd=here)
    git("submodule", "add", "-q", str(here), "module", cwd=here)
    for skipped in ("node_modules/x", ".venv/x", "target/x"):
        git("init", "-q", skipped, cwd=here)
    found = below(here)
    assert sorted(found) == [".git", "bare.git", "deep/er/nested/.git", "module/.git", "tree/.git"]
    assert (found[0], found[-1]) == (".git", "deep/er/nested/.git")


def test_how_deep(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*"d" * DEPTH)
    deepest.mkdir(parents=True)
    git("init", "-q", ".", cwd=deepest)
    found = Repositories().below(str(tmp_path))
    assert (len(found.git), found.complete) == (1, True)
    deeper = tmp_path.joinpath("e", *"d" * DEPTH)
    deeper.mkdir(parents=True)
    git("init", "-q", ".", cwd=deeper)
    found = Repositories().below(str(tmp_path))
    assert (len(found.git), found.complete) == (1, False)


def test_a_link_for_a_repository_is_refused(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub/.git").symlink_to(here / ".git")
    with pytest.raises(SandboxRefused, match="symbolic link") as refused:
        below(here)
    assert refused.value.suggestion


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
    assert [Path(path) for path in found] == [Path(tmp_path, name).resolve() for name in named_by_it]


@given(st.binary(max_size=200))
def test_no_config_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    top = tmp_path_factory.getbasetemp() / "any"
    (top / ".git").mkdir(parents=True, exist_ok=True)
    (top / ".git/config").write_bytes(b"[core]\n\thooksPath = " + content)
    assert all(path.startswith("/") for path in repositories.named_by_config(str(top / ".git"), "/home/me"))
