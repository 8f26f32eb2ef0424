"""Entries that stand for other repositories are found in every kind of index that git writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.sandbox.workspace.git_index import gitlinks

COMMIT = "1" * 40


def git(*words: str, cwd: Path) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=cwd, check=True)


def with_links(here: Path, *paths: str, commit: str = COMMIT) -> None:
    for number in range(30):
        (here / f"some-file-{number:02}").touch()
    git("add", ".", cwd=here)
    for path in paths:
        git("update-index", "--add", "--cacheinfo", f"160000,{commit},{path}", cwd=here)


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_every_version_and_kind_of_name(tmp_path: Path, version: str, kind: str) -> None:
    git("init", "-q", f"--object-format={kind}", ".", cwd=tmp_path)
    paths = ("aaa", "lib/ä\tb", "some-file-10x", "z" * 200)
    with_links(tmp_path, *paths, commit="1" * (40 if kind == "sha1" else 64))
    (tmp_path / "later").touch()
    git("add", "--intent-to-add", "later", cwd=tmp_path)
    git("update-index", "--index-version", version, cwd=tmp_path)
    assert set(gitlinks((tmp_path / ".git/index").read_bytes()) or ()) == set(paths)


@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_an_index_with_one_short_name(tmp_path: Path, kind: str) -> None:
    """What follows the only entry is no second reading of it."""
    git("init", "-q", f"--object-format={kind}", ".", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=tmp_path)
    git("update-index", "--add", "--cacheinfo", f"160000,{'1' * (40 if kind == 'sha1' else 64)},lib", cwd=tmp_path)
    git("write-tree", "--missing-ok", cwd=tmp_path)
    assert gitlinks((tmp_path / ".git/index").read_bytes()) == ("lib",)


def test_an_index_in_two_parts(tmp_path: Path) -> None:
    git("init", "-q", ".", cwd=tmp_path)
    with_links(tmp_path, "shared")
    git("update-index", "--split-index", cwd=tmp_path)
    git("update-index", "--add", "--cacheinfo", f"160000,{COMMIT},own", cwd=tmp_path)
    parts = [path for path in (tmp_path / ".git").iterdir() if "index" in path.name and path.is_file()]
    assert {link for path in parts for link in gitlinks(path.read_bytes()) or ()} == {"shared", "own"}


def test_an_index_without_any(tmp_path: Path) -> None:
    git("init", "-q", ".", cwd=tmp_path)
    with_links(tmp_path)
    assert gitlinks((tmp_path / ".git/index").read_bytes()) == ()


@given(st.binary(max_size=200))
def test_what_is_no_index_says_nothing(data: bytes) -> None:
    assert gitlinks(data) == ()
    torn = b"DIRC\0\0\0\2\0\0\0\1" + data + b"\0\0\xe0\0" + data
    assert len(gitlinks(torn) or ()) <= 1


def test_an_index_that_reads_well_with_either_kind_of_name() -> None:
    name = b"\1" * 32
    plain = bytes(24) + (0o100644).to_bytes(4, "big") + bytes(12) + name + b"\0\x14" + b"a" * 20
    link = bytes(8) + (0o100644).to_bytes(4, "big") + bytes(12) + (0o160000).to_bytes(4, "big") + bytes(12)
    link += name + b"\0\x04link"
    padded = b"".join(entry + bytes(8 - len(entry) % 8) for entry in (plain, link))
    assert gitlinks(b"DIRC" + (2).to_bytes(4, "big") * 2 + padded) == ("link",)
