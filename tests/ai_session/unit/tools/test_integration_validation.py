"""What stands against a plan, whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ai_session.support.integration_planning import TOKEN, files, judged
from tests.ai_session.support.integration_projects import Project

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ai_session.support.integration_projects import Plan


def edit(path: object = "a.py", strategy: object = "append", code: object = "y = 1\n", *anchors: object) -> Plan:
    return {"filepath": path, "strategy": strategy, "anchors": list(anchors), "payload": {"code": code}}


def after(pattern: object) -> dict[str, object]:
    return {"type": "after_match", "pattern": pattern}


BAD_EDITS = {
    "no object": 5,
    "no path": {"strategy": "append", "payload": {"code": "x"}},
    "leads out": edit("../a.py"),
    "absolute": edit("/etc/passwd"),
    "git's": edit(".git/hooks/pre-commit", "create_file"),
    "a link": edit("link.py"),
    "behind a link": edit("folder/new.py", "create_file"),
    "a folder": edit("src"),
    "secrets": edit(".env", "create_file", "A=1\n"),
    "no strategy": edit("a.py", "replace_all"),
    "odd strategy": edit("a.py", ["append"]),
    "not there": edit("b.py"),
    "there already": edit("a.py", "create_file"),
    "binary": edit("data.bin"),
    "no payload": {"filepath": "a.py", "strategy": "append"},
    "empty payload": edit("a.py", "append", " \n"),
    "odd payload": edit("a.py", "append", ["x"]),
    "surrogate": edit("a.py", "append", "x = '\ud800'\n"),
    "a secret": edit("a.py", "append", f"token = '{TOKEN}'\n"),
    "no anchor": edit("a.py", "insert"),
    "two anchors": edit("a.py", "insert", "y\n", after("x"), after("x")),
    "odd anchor": edit("a.py", "insert", "y\n", after(5)),
    "missing anchor": edit("a.py", "insert", "y\n", after("z = 1")),
    "anchor twice": edit("a.py", "insert", "y\n", after("a")),
    "overlapping anchor": edit("b.txt", "insert", "y\n", after("aba")),
    "broken Python": edit("a.py", "append", "def (\n"),
    "deep Python": edit("new.py", "create_file", "-" * 90_000 + "1\n"),
    "broken JSON": edit("a.json", "append", "}\n"),
    "key twice": edit("a.json", "insert", '"a": 1, "a": 2', after("{")),
    "broken TOML": edit("new.toml", "create_file", "a = \n"),
    "broken TypeScript": edit("new.ts", "create_file", "const a = {(\n"),
    "too large": edit("new.txt", "create_file", "x" * 600_000),
}


@pytest.mark.parametrize("name", BAD_EDITS)
def test_a_bad_edit_blocks_the_plan(home: Path, name: str) -> None:
    (home / "outside").mkdir()
    (home / "outside/secret.py").write_text("x = 1\n")
    root = Project("", {"a.py": "aa = 1\n", "a.json": "{}", "b.txt": "ababa", "src/c.py": ""}).write(home / "p")
    (root / "data.bin").write_bytes(b"\0")
    (root / "link.py").symlink_to(home / "outside/secret.py")
    (root / "folder").symlink_to(home / "outside")
    before = files(home)
    verdict = judged(
        root, {"summary": "s", "edits": [BAD_EDITS[name]], "postChecks": ["x"], "rollback": {"instruction": "x"}}
    )
    assert not verdict["valid"]
    assert len(verdict["issues"]) == 1
    assert verdict["warnings"] == []
    assert TOKEN not in str(verdict)
    assert files(home) == before


def test_edits_of_a_plan_build_on_each_other(home: Path) -> None:
    root = Project("", {"a.py": "aa = 1\n"}).write(home / "p")
    first, second = edit("n.py", "create_file", "b = (\n"), edit("n.py", "append", "2)\n")
    third = edit("n.py", "insert", " + 1", after("2"))
    verdict = judged(root, {"edits": [first, second, third]})
    assert verdict["issues"] == []
    assert len(verdict["warnings"]) == 3
    assert judged(root, {"edits": [first]})["issues"] == [
        "n.py: would not be valid: '(' was never closed (<unknown>, line 1)"
    ]


@pytest.mark.parametrize("plan", [{}, {"edits": {}}, {"edits": [edit()] * 101}, {"edits": "x", "summary": 5}])
def test_what_is_no_plan_is_not_valid(home: Path, plan: Plan) -> None:
    assert not judged(home, plan)["valid"]


def test_a_file_that_was_broken_before_is_a_warning(home: Path) -> None:
    root = Project("", {"a.py": "def (\n"}).write(home / "p")
    verdict = judged(root, {"summary": "s", "edits": [edit()], "postChecks": ["x"], "rollback": {"instruction": "x"}})
    assert (verdict["valid"], len(verdict["warnings"])) == (True, 1)
