"""What the documents say is so: the walks, the links, the commands, the examples."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = tuple(name for name in ("agentwire", "ai_session", "ccswarm") if (ROOT / name).is_dir())
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MAKEFILE = (ROOT / "Makefile").read_text()
MAX_ARCHITECTURE_LINES = 150


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_architecture_page_stays_a_page() -> None:
    lines = len((ROOT / "ARCHITECTURE.md").read_text().splitlines())
    assert lines <= MAX_ARCHITECTURE_LINES


WALKS = re.findall(r"^```walk (\w+)\n(.*?)^```$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("package", "walk"), WALKS, ids=[package for package, _ in WALKS])
def test_a_walk_leads_through_functions_that_are_there_and_back_to_none(package: str, walk: str) -> None:
    hops = [line.split()[:2] for line in walk.splitlines()]
    files = [file for file, _ in hops]
    assert len(set(files)) == len(files) <= 12
    for file, name in hops:
        if not (ROOT / package).is_dir():
            continue
        body: list[ast.stmt] = ast.parse((ROOT / package / file).read_text()).body
        for part in name.split("."):
            named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
            found = [node for node in body if isinstance(node, named) and node.name == part]
            assert found, f"{file} has no {name}"
            body = found[0].body


def test_the_round_trip_of_a_command_is_the_same_on_every_page() -> None:
    said = re.search(r"command \| (\S+) ms \(pty\), (\S+) ms \(tmux\)", (ROOT / "README.md").read_text())
    page = (ROOT / "docs/explanation/performance.md").read_text()
    measured = re.search(r"command on pty \| (\S+) ms \|.*\n\| the same on tmux \| (\S+) ms", page)
    assert said is not None
    assert measured is not None
    assert said.groups() == measured.groups()


PLACEHOLDER = re.compile(r"\b(?:PACKAGE|FOLDER)\b")
"""Stands for any folder in a name."""


def test_both_walks_are_there() -> None:
    assert [package for package, _ in WALKS] == ["ai_session", "ccswarm"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_and_named_files_exist(path: Path) -> None:
    text = path.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    named = re.findall(r"`((?:tests|docs|config|scripts|benchmarks)/[\w./-]*)`", text)
    missing = [link for link in links if link and not (path.parent / link).exists()]
    assert missing + [name for name in named if not any(ROOT.glob(PLACEHOLDER.sub("*", name)))] == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_headings_that_exist(path: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]*\.md|)#([^)\s]+)\)", path.read_text())
    missing = [
        f"{page}#{anchor}" for page, anchor in links if anchor not in anchors(path.parent / page if page else path)
    ]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", path.read_text(), re.MULTILINE)) - targets == set()


def test_configuration_examples_load() -> None:
    examples = {path.name: path.read_text() for path in (ROOT / "config").rglob("*") if path.is_file()}
    for name, text in examples.items():
        assert tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    assert "claude_desktop_config.json" in examples


def test_the_desktop_example_is_what_desktop_reads() -> None:
    example = json.loads((ROOT / "config" / "claude_desktop_config.json").read_text())
    assert example == {"mcpServers": {"ai-session": {"command": "ai-session", "args": ["mcp-server", "--stdio"]}}}


def test_the_checks_run_what_contributors_run() -> None:
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"
    assert "make test" in (ROOT / "README.md").read_text()


PROMISES = re.findall(r"^\| (.+?) \| (`tests/.+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize(("promise", "proofs"), PROMISES, ids=[promise[:40] for promise, _ in PROMISES])
def test_a_promise_of_security_names_tests_that_are_there(promise: str, proofs: str) -> None:
    for proof in re.findall(r"`(tests/[^`]+)`", proofs):
        package = proof.split("/")[1]
        if package != "together" and package not in PACKAGES:
            continue
        files = sorted((ROOT / proof).glob("test_*.py")) if proof.endswith("/") else [ROOT / proof]
        assert files, promise
        assert all(re.search(r"^(async )?def test_", file.read_text(), re.MULTILINE) for file in files), proof


def test_every_promise_of_security_has_its_tests() -> None:
    text = (ROOT / "SECURITY.md").read_text().partition("## Promised")[2].partition("\n## ")[0]
    assert len(PROMISES) == len(re.findall(r"^\| \w", text, re.MULTILINE))
