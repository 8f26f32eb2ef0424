"""The glossary's words are in use, and words that were retired do not come back where people read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/explanation/glossary.md"
PAGES = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.name != "CHANGELOG.md"]
SOURCES = [path for package in ("agentwire", "ai_session", "ccswarm") for path in (ROOT / package).rglob("*.py")]

RETIRED = {
    r"(?<!there )is no (?:directory|file|object|number|text|JSON|plan|path|URL|JWT|record|pattern)\b": "is not a …",
    r"crew": "team, or delegation",
    r"desks?": "what it is: tool server, context",
    r"lineage": "ancestry",
    r"lone surrogate": "unpaired surrogate",
    r"mend(s|ed|ing)?": "fix, repair",
    r"person's word": "approval, consent",
    r"sessions go on": "sessions keep running",
    r"who shows": "clients with",
}
"""A word that people did not understand, and what to write instead. Matched in whole words, outside of code."""

RETIRED_NAMES = frozenset(
    [
        "Boxed",
        "Careful",
        "CodeShown",
        "Crew",
        "Desk",
        "Door",
        "Entrance",
        "Grounds",
        "Hands",
        "Happening",
        "Held",
        "Kept",
        "Lasting",
        "Lineage",
        "Lives",
        "Means",
        "Opened",
        "Peer",
        "Places",
        "Reach",
        "Returning",
        "Said",
        "Seat",
        "Seeker",
        "Sitter",
        "Surroundings",
        "Talk",
        "Telling",
        "Told",
        "Veil",
        "Visitor",
        "Wish",
        "told",
        "_told",
    ]
)
"""Names that said nothing to whoever met them: a class is a noun of its domain, a function says what it makes."""


def prose(text: str) -> str:
    """A page without its code; lines stay where they are."""
    without = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", without)


def strings(source: str) -> Iterator[tuple[int, str]]:
    """What a module may say to somebody: its strings of more than one word, docstrings left out."""
    tree = ast.parse(source)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in said
        ):
            yield node.lineno, node.value


def test_no_retired_word_is_read_by_anybody() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(RETIRED)})\b", re.IGNORECASE)
    found: list[str] = []
    for path in PAGES:
        lines = enumerate(prose(path.read_text()).splitlines(), 1)
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match[0]}"
            for number, line in lines
            for match in pattern.finditer(line)
        ]
    for path, source in ((path, path.read_text()) for path in SOURCES):
        # Few files have such a word at all; only these are parsed.
        said = strings(source) if pattern.search(source) else ()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match[0]}"
            for number, text in said
            for match in pattern.finditer(text)
        ]
    assert found == [], f"say instead: {RETIRED}"


TERMS = re.findall(r"^\| \*\*([\w ]+)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)


def test_a_term_is_defined_once() -> None:
    assert len(TERMS) == len(set(TERMS)) > 40


def test_every_term_of_the_glossary_is_in_use() -> None:
    others = "\n".join(prose(path.read_text()) for path in PAGES if path != GLOSSARY).lower()
    assert [term for term in TERMS if not re.search(rf"\b{term}(?:s|es)?\b", others)] == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('"""A docstring of words."""\nraise Error("two words", code="one")', ["two words"]),
        ('f"{name} has words"', [" has words"]),
    ],
)
def test_strings_are_what_a_module_says(source: str, said: list[str]) -> None:
    assert [text for _, text in strings(source)] == said


def test_no_retired_name_comes_back() -> None:
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in SOURCES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, defined) and node.name in RETIRED_NAMES
    ]
    assert not found


def test_docstrings_refer_to_what_there_is() -> None:
    sources = [
        path.read_text()
        for package in ("agentwire", "ai_session", "ccswarm")
        for path in (ROOT / package).rglob("*.py")
    ]
    defined = {
        name for text in sources for name in re.findall(r"^\s*(?:async )?(?:class|def) (\w+)", text, re.MULTILINE)
    }
    defined |= {name for text in sources for name in re.findall(r"^(\w+)\s*[:=]", text, re.MULTILINE)}
    referred = {name for text in sources for name in re.findall(r'"""(?:See|As) ``([\w.]+)``', text)}
    ours = {name for name in referred if name.rpartition(".")[2] not in defined}
    assert ours == {"asyncio.to_thread", "setrlimit"}, "the standard library"
