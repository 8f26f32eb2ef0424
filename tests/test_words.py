"""The glossary's words are in use, and words that were retired do not come back where people read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs/explanation/glossary.md"
PAGES = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.name != "CHANGELOG.md"]
SOURCES = [path for package in ("agentwire", "ai_session", "ccswarm") for path in (ROOT / package).rglob("*.py")]
PROGRAMS = [*SOURCES, *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]
TESTS = [*(ROOT / "tests").rglob("*.py")]
WEB = [path for kind in ("js", "css") for path in (ROOT / "ai_session/http/console/web").glob(f"*.{kind}")]

RETIRED = {
    r"(?<!there )is no"
    r" (?:cursor|directory|file|object|number|text|JSON|plan|path|URL|JWT|record|pattern)\b": "is not a …",
    r"anew": "again",
    r"crew": "team, or delegation",
    r"desks?": "what it is: tool server, context",
    r"is called so": "has that name",
    r"lineage": "ancestry",
    r"lone surrogate": "unpaired surrogate",
    r"mend(s|ed|ing)?": "fix, repair",
    r"person's word": "approval, consent",
    r"sessions go on": "sessions keep running",
    r"told(?! to\b)": "reported, sent, shown, informed",
    r"who shows": "clients with",
    r"whoever": "anyone who, the user that",
}
"""A word that people did not understand, and what to write instead. Matched in whole words, outside of code."""

RETIRED_IN_PAGES = {
    r"beside": "next to, compared with, at the same time as",
}
"""The same for the pages that are written by hand."""

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

RETIRED_PARTS = {
    "beside": "sibling, temporary, concurrent",
    "crew": "team",
    "desk": "bridge, workbench, context",
    "grounds": "context",
    "hands": "tools",
    "heed": "handle",
    "kin": "what they are",
    "lineage": "ancestry",
    "mend": "repair",
    "mended": "fixed, correction",
    "place": "location, address, position, index, directory",
    "places": "locations, addresses, positions",
    "reach": "visibility, connect",
    "seat": "agent loop",
    "telling": "reporting, notifying",
    "told": "what is sent or shown: message, problem, batch, reply",
    "veil": "scrubber",
    "visit": "round, pending authorization, connection",
    "visitor": "connection, caller",
    "visits": "rounds",
    "wish": "wanted",
}
"""A word that no name has as one of its parts, and what to write instead."""


def prose(text: str) -> str:
    """A page without its code; lines stay where they are."""
    without = re.sub(r"^```.*?^```$", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", without)


def strings(source: str) -> Iterator[tuple[int, str]]:
    """What a module may say to somebody: its strings, docstrings left out."""
    tree = ast.parse(source)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
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
    for path, source in ((path, path.read_text()) for path in PROGRAMS):
        # Few files have such a word at all; only these are parsed.
        said = strings(source) if pattern.search(source) else ()
        found += [
            f"{path.relative_to(ROOT)}:{number}: {match[0]}"
            for number, text in said
            for match in pattern.finditer(text)
        ]
    assert found == [], f"say instead: {RETIRED}"


def test_no_retired_word_is_in_a_page_that_is_written_by_hand() -> None:
    pattern = re.compile(rf"\b(?:{'|'.join(RETIRED_IN_PAGES)})\b", re.IGNORECASE)
    pages = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in (ROOT / "docs").rglob("*.md")
        if path.name != "conformance.md"
    }
    found = [
        f"{name}:{number}: {match[0]}"
        for name, text in pages.items()
        if not text.startswith("<!-- Written by")
        for number, line in enumerate(prose(text).splitlines(), 1)
        for match in pattern.finditer(line)
    ]
    assert found == [], f"say instead: {RETIRED_IN_PAGES}"


TERMS = re.findall(r"^\| \*\*([\w ]+)\*\* \|", GLOSSARY.read_text(), re.MULTILINE)


def test_a_term_is_defined_once() -> None:
    assert len(TERMS) == len(set(TERMS)) > 40


def test_every_term_of_the_glossary_is_in_use() -> None:
    others = "\n".join(prose(path.read_text()) for path in PAGES if path != GLOSSARY).lower()
    assert [term for term in TERMS if not re.search(rf"\b{term}(?:s|es)?\b", others)] == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('"""A docstring of words."""\nraise Error("two words", code="one")', ["two words", "one"]),
        ('f"{name} has words"', [" has words"]),
    ],
)
def test_strings_are_what_a_module_says(source: str, said: list[str]) -> None:
    assert [text for _, text in strings(source)] == said


def test_no_retired_name_comes_back() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[1]}"
        for path in [*PROGRAMS, *TESTS]
        for match in re.finditer(r"^(?:async )?(?:class|def) (\w+)", path.read_text(), re.MULTILINE)
        if match[1] in RETIRED_NAMES
    ]
    assert not found


WORD = re.compile(r"[A-Za-z_]\w*")
NAME_PART = re.compile(r"[A-Z]*[a-z0-9]+|[A-Z]+")


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The identifiers a module makes or uses, apart from what it imports."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case _:
                pass


@cache
def has_retired_part(word: str) -> bool:
    return any(part.lower() in RETIRED_PARTS for part in NAME_PART.findall(word))


@cache
def retired_parts(source: str) -> tuple[tuple[int, str, str], ...]:
    """Line, identifier and the retired word in it."""
    # Few files have such a word at all; only these are parsed.
    if not any(map(has_retired_part, {*WORD.findall(source)})):
        return ()
    return tuple(
        (line, name, word)
        for line, name in names(ast.parse(source))
        for part in NAME_PART.findall(name)
        if (word := part.lower()) in RETIRED_PARTS
    )


def test_no_retired_word_is_part_of_a_name() -> None:
    found = [
        f"{path}:{line}: {name} ({RETIRED_PARTS[word]})"
        for path, source in ((str(path.relative_to(ROOT)), path.read_text()) for path in PROGRAMS)
        for line, name, word in retired_parts(source)
    ]
    assert found == []


def retired_web_names(source: str, kind: str) -> list[tuple[int, str]]:
    """Line and name of what a script assigns, calls or passes on, and of the classes of a style sheet."""
    pattern = SCRIPT_NAME if kind == ".js" else STYLE_CLASS
    return [
        (number, match[1])
        for number, line in enumerate(source.splitlines(), 1)
        for match in pattern.finditer(line)
        if has_retired_part(match[1])
    ]


SCRIPT_NAME = re.compile(r"\b([A-Za-z_]\w*)\b(?=\s*(?:=(?!=)|\())")
STYLE_CLASS = re.compile(r"\.([A-Za-z][\w-]*)")


def test_no_retired_word_is_part_of_a_name_of_the_console() -> None:
    assert len(WEB) > 10
    found = [
        f"{path.name}:{line}: {name}" for path in WEB for line, name in retired_web_names(path.read_text(), path.suffix)
    ]
    assert found == [], f"say instead: {RETIRED_PARTS}"


@pytest.mark.parametrize(
    ("source", "kind", "name"),
    [
        ("const told = one => 1;", ".js", "told"),
        ("const one = 1, isTold = () => 2;", ".js", "isTold"),
        ("<${Chain} told=${until !== null} />", ".js", "told"),
        ("label(reach(one));", ".js", "reach"),
        ("  .told b { left: 0 }", ".css", "told"),
    ],
)
def test_retired_web_names_are_found(source: str, kind: str, name: str) -> None:
    assert retired_web_names(source, kind) == [(1, name)]


def test_what_a_page_says_is_no_name() -> None:
    assert retired_web_names("'recorded and told to the agent' + (told === 1) // a wish", ".js") == []


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("told = 1", "told"),
        ("self._desk.open()", "desk"),
        ("def f(*, place=1): pass", "place"),
        ("f(visits=2)", "visits"),
        ("class ToolDesk: pass", "desk"),
        ("MAX_TOLD: int", "told"),
        ("def find_place(): pass", "place"),
    ],
)
def test_retired_parts_are_found(source: str, word: str) -> None:
    assert {found for _, _, found in retired_parts(source)} == {word}


def test_parts_are_whole_words() -> None:
    assert retired_parts("replace = placement = mendel = 'told'  # a place") == ()


def test_docstrings_say_what_they_describe() -> None:
    """A docstring that only names another one says nothing on the spot."""
    only = re.compile(r'"""(?:See|As) [`\w.]+[.:]?"""')
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path in SOURCES for match in only.finditer(path.read_text())]
    assert found == []


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
    referred |= {name for text in sources for name in re.findall(r'"""(?:See|As) ([A-Z][a-z]\w+)[:;.]', text)}
    implemented = re.compile(r"Implements ((?:``\w+``(?:, | and )?)+)")
    referred |= {
        one for text in sources for names in implemented.findall(text) for one in re.findall(r"``(\w+)``", names)
    }
    ours = {name for name in referred if name.rpartition(".")[2] not in defined}
    assert ours <= {"asyncio.to_thread", "setrlimit"}, "the standard library"
