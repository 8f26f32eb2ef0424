"""Whatever lies in a tree, and whatever a client sends: an answer or an error with a code, never anything else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_session.errors import AiSessionError
from ai_session.tools.integration.frameworks import FRAMEWORKS, choose, detect, framework
from ai_session.tools.integration.plans import propose, validate
from ai_session.tools.integration.project.profile import Profile, profile_tree, read_profile
from ai_session.tools.integration.project.source_text import code_of, members, occurrences, unbalanced
from ai_session.tools.integration.project.tree import Tree
from ai_session.tools.integration.steps import steps
from tests.ai_session.support.integration_projects import APPS, apply_plan

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
NAMES = [
    "app",
    "src",
    "pages",
    "main.py",
    "server.js",
    "layout.tsx",
    "package.json",
    "pyproject.toml",
    ".mcp.json",
    "ccswarm.toml",
]
NAMES += [".env", "app.module.ts", "main.ts", ".codex", "config.toml", "requirements.txt", "é.py", "a\nb.py", "x.json"]
PIECES = [
    *("app = FastAPI()", "from fastapi import FastAPI", "const app = express();", "import express from 'express';"),
    *(
        "NestFactory.create(AppModule)",
        "import { AppModule } from './app.module';",
        "@Module({ imports: [",
        "export class",
    ),
    *(
        "AppModule {}",
        "/*",
        "*/",
        "//",
        "`",
        "${",
        "}",
        "{",
        "(",
        ")",
        "'",
        '"',
        "\n",
        "\r\n",
        " ",
        "\\",
        "/",
        "def f(\n",
        "    ",
    ),
    *(
        '{"mcpServers": {',
        '"dependencies": {"next": 1}',
        '"main": "../x.js"',
        "[project]\n",
        "\x0c",
        "\ufeff",
        "漢",
        "\u2028",
    ),
]
TEXT = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text(max_size=40)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, TEXT, max_size=6)
PATH = PATHS | st.sampled_from(["../a", "/etc/passwd", "", ".git/config", "a//b", "main.py"]) | JSON
EDIT = st.fixed_dictionaries(
    {},
    optional={
        "filepath": PATH,
        "strategy": st.sampled_from(["create_file", "insert", "append", "wrap"]) | JSON,
        "anchors": st.lists(st.fixed_dictionaries({"type": st.just("after_match"), "pattern": TEXT}), max_size=2)
        | JSON,
        "payload": st.fixed_dictionaries({}, optional={"import": TEXT, "code": TEXT}) | JSON,
    },
)
PLAN = st.fixed_dictionaries(
    {},
    optional={
        "summary": TEXT | JSON,
        "edits": st.lists(EDIT | JSON, max_size=4) | JSON,
        "rollback": JSON,
        "postChecks": JSON,
    },
)
PROFILE = st.dictionaries(st.sampled_from(list(Profile().facts())), JSON | st.lists(PATH, max_size=3), max_size=8)

UNHURRIED = settings(deadline=None)
"""Files are written, on a disk that others use."""


def no(text: str) -> bool:
    return False


def laid(files: dict[str, str]) -> Path:
    """The files, as far as one can be beside the others, below a new directory of the test's home."""
    root = Path(tempfile.mkdtemp(dir=Path.home()))
    for name, text in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, errors="surrogatepass", newline="")
        except (NotADirectoryError, FileExistsError, IsADirectoryError):
            continue
    return root


@UNHURRIED
@given(TREES, st.sampled_from(list(FRAMEWORKS)))
def test_what_is_proposed_of_any_tree_is_valid(files: dict[str, str], name: str) -> None:
    root = laid(files)
    with Tree(str(root)) as tree:
        profile = profile_tree(tree)
        assert json.loads(json.dumps(profile.facts())) == profile.facts()
        assert detect(read_profile(profile.facts())) == detect(profile)
        assert 0 <= max([row["confidence"] for row in detect(profile)["frameworks"]], default=0) <= 0.99
        plan = propose(tree, framework(name), profile, profile, no)
        assert validate(tree, plan, no)["issues"] == []
        assert plan["edits"] or plan["warnings"]
        apply_plan(root, plan)
        assert propose(tree, framework(name), profile_tree(tree), profile, no)["edits"] == []


@UNHURRIED
@given(TREES, PLAN)
@example({"main.py": "a"}, {"edits": [{"filepath": "main.py/x", "strategy": "create_file", "payload": {"code": "x"}}]})
def test_any_plan_is_judged_and_nothing_is_touched(files: dict[str, str], plan: dict[str, Any]) -> None:
    root = laid(files)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with Tree(str(root)) as tree:
        verdict = validate(tree, plan, no)
    assert verdict.keys() == {"valid", "issues", "warnings", "checks_performed"}
    assert verdict["valid"] == (verdict["issues"] == [])
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@UNHURRIED
@given(PROFILE, st.text(max_size=30))
def test_any_profile_is_read(given_profile: dict[str, Any], question: str) -> None:
    profile = read_profile(given_profile)
    detect(profile)
    assert choose(profile, question)[0].name in FRAMEWORKS
    for one in FRAMEWORKS.values():
        assert steps(one, profile)["steps"]
    root = laid(APPS["fastapi module"].files)
    with Tree(str(root)) as tree:
        assert len(propose(tree, framework("fastapi"), profile_tree(tree), profile, no)["edits"]) == 3


@UNHURRIED
@given(st.text(max_size=50) | st.sampled_from(["\ud800", "x" * 100_000, "../..", "FASTAPI ", "next js"]))
def test_any_name_is_a_framework_or_refused(name: str) -> None:
    refused: AiSessionError | None = None
    try:
        assert framework(name).name in FRAMEWORKS
    except AiSessionError as error:
        refused = error
    assert refused is None or (refused.code == "invalid_arguments" and refused.suggestion)


@UNHURRIED
@given(TEXT, TEXT)
def test_texts_keep_their_length_and_places(text: str, pattern: str) -> None:
    assert len(code_of(text)) == len(text)
    unbalanced(text)
    found = sum(text.startswith(pattern, position) for position in range(len(text))) if pattern else 0
    assert occurrences(text, pattern) == min(found, 2)


@UNHURRIED
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.integers(0, 3))
def test_members_are_where_they_are(data: dict[str, Any], indent: int) -> None:
    text = json.dumps(data, indent=indent or None, ensure_ascii=False)
    found = members(text, ())
    assert found is not None
    assert [name for name, _ in found] == ["", *data]
    for name, end in found[1:]:
        assert text[:end].endswith(json.dumps(data[name], ensure_ascii=False)[-1])
        assert text[end:].lstrip()[0] in ",}"


@pytest.mark.parametrize("unit", ["(/[", "'\\'\\'", "`${", "import\n", "a/ ", "const a:", "/*", "[", "{"])
def test_long_files_take_no_more_time_than_their_length(home: Path, unit: str) -> None:
    """The bound of the test run is far away where this holds, and far too near where it does not."""
    text = "import express from 'express';\nconst app = express();\n" + unit * (40_000 // len(unit))
    root = laid({"server.ts": text, "x.json": unit * 60_000, "package.json": "[" * 60_000})
    with Tree(str(root)) as tree:
        propose(tree, framework("express"), profile_tree(tree), Profile(), no)
        edits = [{"filepath": "x.json", "strategy": "append", "payload": {"code": unit}}]
        assert validate(tree, {"edits": edits}, no)["valid"] in (True, False)
