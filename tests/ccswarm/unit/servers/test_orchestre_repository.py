"""What is read of a directory: real projects, and directories made to be hard to read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm.servers.mcp.toolsets.orchestre.repository.git import history
from ccswarm.servers.mcp.toolsets.orchestre.repository.manifests import READERS, manifest_of
from ccswarm.servers.mcp.toolsets.orchestre.repository.scan import count_files, scan
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import MOST_DEPTH, Tree
from tests.ccswarm.support.orchestre_trees import MIXED, NODE, PYTHON, RUST, committed, made


def left_out(facts: dict[str, Any]) -> dict[str, int]:
    return {one["why"]: one["count"] for one in facts["leftOut"]}


def languages(facts: dict[str, Any]) -> dict[str, int]:
    return {one["name"]: one["lines"] for one in facts["languages"]}


def test_a_python_project(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, PYTHON)))
    assert languages(facts) == {"Python": 9, "YAML": 1, "Markdown": 3, "TOML": 8}
    assert (facts["lines"], facts["files"]) == (9, 8)
    assert facts["packageManagers"] == ["pip", "uv"]
    assert facts["dependencies"] == {"direct": 2, "development": 1, "named": ["httpx", "pydantic"]}
    tests = facts["tests"]
    assert (tests["cases"], tests["files"], tests["setups"]) == (2, 1, ["pytest"])
    assert tests["command"] == "uv run python -m pytest"
    assert facts["entryPoints"] == ["calc", "calc/__main__.py"]
    assert facts["ci"] == [".github/workflows/test.yml"]
    assert facts["licence"] == {"name": "MIT", "files": ["LICENSE"]}
    assert facts["readme"] == "README.md"
    assert facts["leftOut"] == []


def test_a_node_project(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, NODE)))
    assert languages(facts) == {"TypeScript": 3, "JSON": 1}
    assert facts["packageManagers"] == ["npm", "pnpm"]
    assert facts["dependencies"]["direct"] == 1
    assert facts["dependencies"]["development"] == 2
    assert facts["tests"]["command"] == "pnpm test"
    assert facts["tests"]["cases"] == 2
    assert facts["entryPoints"] == ["npm run start"]
    assert facts["licence"]["name"] == "ISC"
    assert facts["secretFiles"] == [".env"]
    assert left_out(facts) == {"installed": 1, "names of secrets": 1}


def test_a_rust_project(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, RUST)))
    assert languages(facts) == {"Rust": 6, "TOML": 10}
    assert facts["tests"] == {
        "files": 0,
        "cases": 2,
        "byLanguage": {"Rust": 2},
        "setups": [],
        "command": "cargo test",
        "directory": "",
    }
    assert facts["dependencies"]["named"] == ["serde", "tokio"]
    assert facts["entryPoints"] == ["rr", "src/main.rs"]
    assert left_out(facts) == {"made by tools": 1}


def test_a_mixed_project(tmp_path: Path) -> None:
    facts = count_files(Tree(made(tmp_path, MIXED)))
    assert {"Go", "TypeScript", "Python", "Makefile"} <= set(languages(facts))
    assert facts["tests"]["command"] == "make test"
    assert facts["tests"]["byLanguage"] == {"Go": 1, "TypeScript": 2}
    assert facts["dependencies"]["named"] == ["flask", "github.com/a/b", "hono", "pytest"]
    (tmp_path / "Makefile").unlink()
    assert count_files(Tree(tmp_path))["tests"]["command"] == "python -m pytest"
    (tmp_path / "requirements.txt").unlink()
    tests = count_files(Tree(tmp_path))["tests"]
    assert (tests["command"], tests["directory"]) == ("go test ./...", "api")


def test_nothing_at_all(tmp_path: Path) -> None:
    facts = count_files(Tree(tmp_path))
    assert (facts["files"], facts["lines"], facts["languages"], facts["leftOut"]) == (0, 0, [], [])
    assert left_out(count_files(Tree(tmp_path / "gone"))) == {"unreadable": 1}
    (tmp_path / "file").write_text("x")
    assert left_out(count_files(Tree(tmp_path / "file"))) == {"unreadable": 1}


def test_links_lead_nowhere(tmp_path: Path) -> None:
    outside = made(tmp_path / "outside", {"secret.py": "x = 1\n" * 50, "deep/more.py": "y = 1\n"})
    root = made(tmp_path / "root", {"a.py": "a = 1\n"})
    (root / "loop").symlink_to(root)
    (root / "out").symlink_to(outside)
    (root / "file.py").symlink_to(outside / "secret.py")
    (root / "package.json").symlink_to("/etc/passwd")
    (root / "broken").symlink_to("nowhere")
    facts = count_files(Tree(root))
    assert (languages(facts), left_out(facts)) == ({"Python": 1}, {"links": 5})
    assert facts["buildFiles"] == []


def test_what_is_too_much_is_left_out_and_said(tmp_path: Path) -> None:
    deep = tmp_path / "/".join("d" * 1 for _ in range(MOST_DEPTH + 3))
    made(tmp_path, {"big.py": b"x\n" * 600, "bin.py": b"\0\1", "b.py": "1\n", "c.py": "1\n", "d.py": "1\n"})
    deep.mkdir(parents=True)
    (deep / "deep.py").write_text("1\n")
    facts = count_files(Tree(tmp_path, most_files=4, most_file_bytes=1000))
    assert left_out(facts) == {"beyond 4 files": 2, "binary": 1, "larger than 1000 bytes": 1}
    facts = count_files(Tree(tmp_path, most_bytes=5))
    assert left_out(facts)["beyond 5 bytes"] == 3
    assert left_out(count_files(Tree(tmp_path)))["too deep"] == 1


def test_pipes_and_devices_hold_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert left_out(count_files(Tree(made(tmp_path, {"a.py": "1\n"})))) == {"no files": 1}


def test_a_name_that_is_no_text_is_only_said(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/\xff.py", "wb") as file:
        file.write(b"1\n")
    facts = count_files(Tree(tmp_path))
    assert left_out(facts) == {"unreadable": 1}
    json.dumps(facts).encode()


@pytest.mark.parametrize("name", sorted(READERS))
@settings(max_examples=15, deadline=None)
@given(text=st.one_of(st.text(), st.sampled_from(["[" * 3000, '{"a":' * 3000, "null", "[]", '{"scripts": []}', "\0"])))
def test_build_files_may_hold_anything(name: str, text: str) -> None:
    manifest = manifest_of(f"some/{name}", text)
    assert manifest is not None
    assert (manifest.path, manifest.directory) == (f"some/{name}", "some")


@pytest.mark.parametrize("examples", [5, pytest.param(25, marks=pytest.mark.torture)])
def test_any_tree_is_counted_whole(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(
        files=st.dictionaries(
            st.from_regex(r"\A(?:[a-z.]{1,3}/){0,2}[a-z]{1,3}\.(?:py|rs|json|md|toml|zzz)\Z"),
            st.binary(max_size=200),
            max_size=8,
        )
    )
    def tried(files: dict[str, bytes]) -> None:
        root = tmp_path / f"tree{time.monotonic_ns()}"
        root.mkdir()
        for name, data in files.items():
            if not any(part in (".", "..", "...") for part in name.split("/")):
                try:
                    made(root, {name: data})
                except (NotADirectoryError, IsADirectoryError, FileExistsError):
                    continue
        facts = count_files(Tree(root))
        real = [one for one in root.rglob("*") if one.is_file()]
        assert facts["files"] + sum(left_out(facts).values()) >= len(real)
        assert facts["lines"] == sum(
            one["lines"] for one in facts["languages"] if one["share"] or one["name"] in "PythonRust"
        )
        json.dumps(facts)

    tried()


@pytest.mark.anyio
async def test_git_tells_age_authors_and_churn(tmp_path: Path) -> None:
    made(tmp_path, PYTHON)
    committed(tmp_path, *["more"] * 5)
    committed(tmp_path, author="bob")
    git = (await scan(tmp_path))["git"]
    assert (git["commits"], git["authors"], git["topAuthorShare"], git["more"]) == (7, 2, 0.86, False)
    assert git["churn"][0] == {"path": "README.md", "commits": 6}
    assert git["firstCommit"] <= git["lastCommit"] <= time.time() + 1


@pytest.mark.anyio
async def test_where_git_is_not_asked(tmp_path: Path) -> None:
    assert (await history(tmp_path))["unread"] == "it is not the top of a git repository"
    (tmp_path / ".git").write_text("gitdir: /elsewhere\n")
    assert (await history(tmp_path))["unread"] == ".git leads out of the directory"
    (tmp_path / ".git").unlink()
    made(tmp_path, {"a.py": "1\n"})
    (tmp_path / "README.md").write_text("1\n")
    committed(tmp_path)
    (tmp_path / ".git/objects/info/alternates").write_text("/elsewhere\n")
    assert (await history(tmp_path))["unread"] == "its objects lie elsewhere"
    (tmp_path / ".git/objects/info/alternates").unlink()
    (tmp_path / ".git/HEAD").write_text("nonsense")
    assert (await history(tmp_path))["unread"] == "git refused to read it"


@pytest.mark.anyio
async def test_a_repositorys_settings_start_nothing(tmp_path: Path) -> None:
    made(tmp_path, {"a.py": "1\n", "run.sh": f"#!/bin/sh\ntouch {tmp_path}/ran\n", ".gitattributes": "* diff=own\n"})
    (tmp_path / "run.sh").chmod(0o755)
    committed(tmp_path, "more")
    program = tmp_path / "run.sh"
    with (tmp_path / ".git/config").open("a") as file:
        file.write(
            f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n[log]\n\tshowSignature = true\n"
            f'[gpg]\n\tprogram = {program}\n[diff]\n\texternal = {program}\n[diff "own"]\n\ttextconv = {program}\n'
            f"\tcommand = {program}\n[pager]\n\tlog = {program}\n"
        )
    assert (await history(tmp_path))["commits"] == 2
    assert not (tmp_path / "ran").exists()
