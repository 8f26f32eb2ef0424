"""What is generated from the code is up to date, man pages are roff that readers take, and the site is whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import command_tree
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parent.parent
MAN_PAGES = sorted((ROOT / "man").iterdir())


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS)


def test_reference_and_man_pages_are_those_of_the_code() -> None:
    ran = run(sys.executable, "scripts/reference.py", "--check")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("page", MAN_PAGES, ids=lambda page: page.name)
def test_man_page_is_sound_and_shows_every_verb(page: Path) -> None:
    linted = run("mandoc", "-T", "lint", "-W", "warning", str(page))
    # A date would change with every build, and nothing else with it.
    wrong = [line for line in linted.stdout.splitlines() if "missing date" not in line]
    assert (wrong, linted.stderr) == ([], "")
    shown = re.sub(".\x08", "", run("mandoc", "-T", "utf8", "-O", "width=200", str(page)).stdout)
    program = page.stem
    listed = run(sys.executable, "-m", program.replace("-", "_"), "--help").stdout
    verbs = re.findall(r"^  ([a-z][a-z-]+)  ", listed, re.MULTILINE)
    assert len(verbs) > 15
    assert [verb for verb in verbs if not re.search(rf"^ +{program} {verb}\b", shown, re.MULTILINE)] == []


GENERATED = {"ai-session.md", "ccswarm.md", "errors.md"}
STARTED_BY_PROGRAMS = {("ccswarm", "guest-program")}


def test_pages_name_verbs_and_options_that_there_are() -> None:
    leaves = [leaf for program in command_tree.programs() for leaf in program.verb.leaves()]
    options = {leaf.words: {"--help", *re.findall(r"--[a-z0-9-]+", str(leaf.options))} for leaf in leaves}
    verbs = {words[:2] for words in options} | STARTED_BY_PROGRAMS
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    wrong: list[str] = []
    for page in (page for page in pages if page.name not in GENERATED):
        for line in re.findall(r"(?:^|`|\$ )((?:ai-session|ccswarm) [a-z][^`\n|&;#]*)", page.read_text(), re.MULTILINE):
            words = tuple(line.partition(" -- ")[0].split())
            known = next((options[words[:count]] for count in (3, 2) if words[:count] in options), None)
            if known is None and f"`{line}" in page.read_text() and words[:2] not in verbs:
                wrong.append(f"{page.name}: {line}")
            given = {word.partition("=")[0] for word in words if word.startswith("--")}
            wrong += [f"{page.name}: {line}: {option}" for option in given - known] if known else []
    assert wrong == []


def test_a_value_is_named_by_a_word_in_capitals_or_by_all_that_it_can_be() -> None:
    """Not by its type, as in ``--host <str>``."""
    leaves = [leaf for program in command_tree.programs() for leaf in program.verb.leaves()]
    shown = {name for leaf in leaves for name, _ in (*leaf.arguments, *leaf.options)}
    values = {value for name in shown for value in re.split(r"-[-\w]+,?", name)[-1:] if value.strip()}
    assert len(values) > 30
    assert [value for value in values if not re.fullmatch(r"[^a-z<>{}]+|<\w+(\|\w+)+>", value.strip())] == []
    assert [leaf.usage for leaf in leaves if re.search(r"[<{]|\[[a-z]", leaf.usage)] == []


def test_every_page_is_in_the_menu() -> None:
    """The links and anchors of pages: test_docs.py; all that the site is built of: the tests below."""
    menu = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2], re.MULTILINE)
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 40
    assert pages - set(menu) == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with every warning an error: a page that is in no menu, a link or an anchor that is not there."""
    folder = tmp_path_factory.mktemp("site")
    built = run(sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder), NO_MKDOCS_2_WARNING="1")
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.torture
def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 40
    assert [page for page in pages if not (site / page.with_suffix("") / "index.html").exists()] == [
        page for page in pages if page.name == "index.md"
    ]
    assert (site / "config/ccswarm.toml").read_bytes() == (ROOT / "config/ccswarm.toml").read_bytes()


@pytest.mark.torture
def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"""<(?:script|link|img|iframe)[^>]*?(?:src|href)=["']?(https?:)?//[^"'> ]+""")
    assert [path for path in site.rglob("*.html") if loaded.search(path.read_text())] == []
