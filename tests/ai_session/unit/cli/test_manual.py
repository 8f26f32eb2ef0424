"""The pages that come with the package, and that whoever is sent to one can open it as written."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.cli.docs import docs
from ai_session.errors import InvalidArguments
from ai_session.system.manual import folder, named, read_pages

ROOT = Path(__file__).parents[4]
PAGES = read_pages(folder() or ROOT)
SOURCES = sorted(
    path
    for name, kind in (("agentwire", "*.py"), ("ai_session", "*.py"), ("ccswarm", "*.py"), ("config", "*.toml"))
    for path in (ROOT / name).rglob(kind)
)
PAGE = re.compile(r"\bdocs/[\w./-]+\.md")
SENT_TO = re.compile(r"ai-session docs ([a-z][\w./#-]*\w)")
DATA = {"ai_session/tools/integration/frameworks.py", "ai_session/tools/documentation/index.py"}
"""They have whole paths, which answers cite and `ai-session docs` takes."""


def texts(path: Path) -> Iterator[str]:
    """What of a file may be shown to somebody: all texts but the first of a module."""
    if path.suffix == ".toml":
        yield path.read_text()
        return
    if "docs" not in (source := path.read_text()):
        return  # nor in any of its texts
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value


def test_whoever_is_sent_to_a_page_can_open_it_as_written() -> None:
    sent = 0
    for path in SOURCES:
        name = path.relative_to(ROOT).as_posix()
        for text in texts(path):
            assert name in DATA or not PAGE.search(text), f"{name}: {text!r} names a file, not: ai-session docs PAGE"
            for page in SENT_TO.findall(text):
                if page != "lists":
                    assert len(named(PAGES, page)) == 1, f"{name}: {text!r}"
                    sent += 1
    assert sent >= 20


@pytest.mark.parametrize(
    "name", ["sandbox", "Sandbox.md", "explanation/sandbox", "docs/explanation/sandbox.md#levels", "../sandbox.md"]
)
def test_a_page_has_many_names(capsys: pytest.CaptureFixture[str], name: str) -> None:
    docs(name)
    assert capsys.readouterr().out == (ROOT / "docs/explanation/sandbox.md").read_text()


def test_pages_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    docs()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PAGES) > 50
    assert "explanation/sandbox\tThe sandbox" in lines
    assert all("\t" in line and not line.endswith("\t") for line in lines)
    docs(as_json=True)
    assert {"page": "explanation/sandbox", "title": "The sandbox"} in json.loads(capsys.readouterr().out)
    docs("sandbox", as_json=True)
    assert json.loads(capsys.readouterr().out)["text"] == PAGES["docs/explanation/sandbox.md"]


@pytest.mark.parametrize(
    ("name", "message", "suggestion"),
    [
        ("sandbx", "there is no page 'sandbx'", "ai-session docs sandbox, ai-session docs lists all"),
        ("zzzz", "there is no page 'zzzz'", "ai-session docs lists all"),
        ("../../etc/passwd", "there is no page '../../etc/passwd'", "ai-session docs lists all"),
        ("md", "there is no page 'md'", "ai-session docs lists all"),
    ],
)
def test_a_page_that_is_not_there_is_refused_with_the_nearest(name: str, message: str, suggestion: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        docs(name)
    assert (str(refused.value), refused.value.suggestion) == (message, suggestion)
