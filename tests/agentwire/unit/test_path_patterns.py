"""Patterns fit what git's own fit, and what careless file systems take for the same name."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentwire.system.path_patterns import Patterns, fold, parse, patterns

NAMES = st.sampled_from(["a", "b", ".a", "ab", "a.b"])
GLOBS = st.sampled_from(["a", "b", ".a", "*", "?", "a*", "*.b", "[ab]", "[!a]", "**", "\\a"])
LINES = st.builds(
    lambda excepts, anchor, names, end: excepts + anchor + "/".join(names) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(GLOBS, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("patterns")
    subprocess.run(["git", "init", "-q", "."], cwd=path, check=True)
    return path


@example(["!/b", "b", "!/b"], "b")
@given(st.lists(LINES, min_size=1, max_size=4), PATHS)
def test_as_git_has_it(here: Path, lines: list[str], path: str) -> None:
    """But for what lies in a directory that is ignored, which git cannot except and ``around`` does not."""
    (here / ".git/info/exclude").write_text("".join(f"{line}\n" for line in lines))
    words = ["git", "check-ignore", "--no-index", "--quiet", "--", path]
    ignored = subprocess.run(words, cwd=here, check=False).returncode == 0
    assert bool(Patterns(lines).around(path)) == ignored


@pytest.mark.parametrize(
    ("line", "fitting", "others"),
    [
        ("x", ["x", "a/x", "a/b/x"], ["xx", "a/xb"]),
        ("/x", ["x"], ["a/x"]),
        ("a/x", ["a/x"], ["b/a/x"]),
        ("**/a/x", ["a/x", "b/a/x", "b/c/a/x"], ["a/b/x"]),
        ("*.y", [".y", "a/b.y"], ["b.yy"]),
        ("a/**", ["a/x", "a/b/c"], ["a", "b/a/x"]),
        ("a/**/x", ["a/x", "a/b/c/x"], ["x"]),
        ("\\!x", ["!x"], ["x"]),
        ("[a-c]x", ["ax", "d/bx"], ["dx"]),
    ],
)
def test_what_fits(line: str, fitting: list[str], others: list[str]) -> None:
    found = Patterns([line])
    for path in fitting:
        assert found.fits(path, directory=False), path
        assert found.may_fit(path.rpartition("/")[2])
    for path in others:
        assert not found.fits(path, directory=False), path


def test_a_line_for_directories() -> None:
    found = Patterns(["x/"])
    assert found.fits("a/x", directory=True)
    assert not found.fits("a/x", directory=False)
    assert found.around("a/x/y") == "a/x"


def test_the_last_line_that_fits_decides() -> None:
    found = Patterns([".x", "!/top/.x", "/top/.x/z"])
    assert found.fits("a/.x", directory=False)
    assert not found.fits("top/.x", directory=False)
    assert found.around("top/.x/z/w") == "top/.x/z"
    assert found.around("top/.x/y") == ""


@pytest.mark.parametrize(
    "name",
    [".VSCODE", ".Vscode", ".vscode.", ".vscode ", ".vscode . .", ".vs\u200ccode", ".\uff56scode", "\ufeff.vscode"],
)
def test_other_spellings_of_a_name(name: str) -> None:
    found = Patterns([".vscode"])
    assert found.may_fit(name)
    assert found.fits(f"a/{name}", directory=True)
    assert found.around(f"a/{name}/tasks.json") == f"a/{name}"


@pytest.mark.parametrize("name", [".vscodе", ".vscode2", "vscode", "..vscode", ".vscode.d"])
def test_other_names_are_other_names(name: str) -> None:
    assert not Patterns([".vscode"]).fits(name, directory=True)


@given(st.text(st.characters(exclude_characters="/\0"), min_size=1))
@example("...")
@example("\xad")
@example("\xad.")
def test_every_name_folds_to_one(name: str) -> None:
    assert fold(name)


@given(st.text(min_size=1, max_size=12))
def test_any_line_is_one_or_is_refused(line: str) -> None:
    with suppress(ValueError):
        parse(line).regex.fullmatch("some/path")


@pytest.mark.parametrize("line", ["", "!", "/", "a//b", "..", "a/..", " ", "x\0y"])
def test_what_is_no_pattern(line: str) -> None:
    with pytest.raises(ValueError, match="not a pattern"):
        patterns(line)


@pytest.mark.parametrize(
    ("line", "path", "leads"),
    [
        ("**/.cargo/config.toml", ".cargo", True),
        ("**/.cargo/config.toml", "a/b/.CARGO", True),
        ("**/.cargo/config.toml", "a", False),
        ("**/.cargo/config.toml", ".cargo/config.toml", False),
        ("tools/bazel", "tools", True),
        ("tools/bazel", "a/tools", False),
        ("a/**/b", "a/x/y", True),
        ("a/**/b", "x/y", False),
        ("a/b/c", "a/b", True),
        (".envrc", ".envrc", False),
        (".envrc", "a", False),
        ("!a/b", "a", False),
    ],
)
def test_what_leads_to_a_name(line: str, path: str, leads: bool) -> None:
    found = Patterns([line])
    assert found.leads_to(path) is leads
    assert found.may_lead(path.rpartition("/")[2]) or not leads


@given(st.lists(st.sampled_from(("a", "b", "*", "**", "c")), min_size=1, max_size=4), st.sampled_from("abcd"))
def test_every_way_to_what_a_line_names_leads_there(names: list[str], other: str) -> None:
    line = "/" + "/".join(names)
    if names[-1] == "**":
        return
    found = Patterns([line])
    path = [other if name in ("*", "**") else name for name in names]
    for count in range(1, len(path)):
        if set(names[:count]) != {"**"}:
            assert found.leads_to("/".join(path[:count]))
