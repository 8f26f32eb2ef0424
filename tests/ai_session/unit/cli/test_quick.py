"""Lines read without typer mean what typer takes them for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from agentwire.cli import lines as cli_lines
from agentwire.cli import parser
from agentwire.cli.options import Argument, Group, Option, Verb
from ai_session.cli import quick as cli_quick
from ai_session.cli.verbs import VERBS

FREQUENT = ("ls", "exec", "send", "screen", "logs", "info", "interrupt", "kill")
WORDS = (
    "a",
    "build",
    "ls",
    "x y",
    "",
    "-",
    "--",
    "3",
    "-3",
    "0",
    "1.5",
    "nan",
    "1_0",
    " 2 ",
    "é",
    "\udcff",
    "A=1",
    "=",
)
ODD = ("-h", "--help", "--nope", "--jso", "--json=1", "--no-json", "-x", "-nk", "-tfoo", "-t=3", "---", "-é")


def all_verbs() -> Iterator[tuple[tuple[str, ...], Verb]]:
    """Each that is read here, with the words it is called by."""

    def within(verbs: dict[str, Any], *before: str) -> Iterator[tuple[tuple[str, ...], Verb]]:
        for name, verb in verbs.items():
            if isinstance(verb, Group):
                yield from within(verb.verbs, *before, name)
            else:
                yield (*before, name), verb

    for words, verb in within({name: load() for name, load in VERBS.items()}):
        if not isinstance(verb, typer.Typer) and is_declared(verb):
            yield words, verb


def is_declared(verb: Any) -> bool:
    """Whether its signature says all that is to be known."""
    try:
        return bool(cli_lines.parameters(verb))
    except ValueError:
        return False


READ_HERE = dict(all_verbs())


def by_typer(verb: Verb, words: list[str]) -> dict[str, Any] | None:
    """What typer calls the function with; None where it says something else instead."""
    translated = parser.for_typer(verb)
    called: list[dict[str, Any]] = []

    def note(**given: Any) -> None:
        called.append(given)

    note.__annotations__ = translated.__annotations__
    note.__signature__ = translated.__signature__  # type: ignore[attr-defined]
    app = typer.Typer(
        add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
    )
    app.command()(note)
    try:
        typer.main.get_command(app).main(args=list(words), prog_name="verb", standalone_mode=False)
    except typer.BadParameter.__mro__[2]:
        return None
    return called[0] if called else None


@st.composite
def lines(draw: st.DrawFn) -> tuple[tuple[str, ...], list[str]]:
    """A verb, and words that it may or may not take."""
    name = draw(st.sampled_from(sorted(READ_HERE)))
    options = [each.declared for each in cli_lines.parameters(READ_HERE[name])]  # type: ignore[arg-type]
    names = [word for said in options if isinstance(said, Option) for word in said.names]
    joined = [f"{word}={value}" for word in names for value in ("", "a", "3", "-3", "a=b")]
    word = st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from([*names, *joined, *ODD]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
    )
    return name, draw(st.lists(word, max_size=6))


@settings(max_examples=40, deadline=None)
@given(lines())
def test_a_line_means_what_typer_takes_it_for(line: tuple[tuple[str, ...], list[str]]) -> None:
    name, words = line
    verb = READ_HERE[name]
    found, rest = cli_quick.find([*name, *words])
    assert found is verb
    assert rest == words
    quick = cli_lines.read(found, rest)
    if quick is not None:
        assert repr(by_typer(verb, words)) == repr(quick)


@pytest.mark.parametrize(
    "line",
    [
        "ls",
        "ls --json",
        "info build",
        "info --json build",
        "exec build true",
        "exec build -t 3 -- make -j4",
        "exec --new build --timeout=3 make",
        "send build hello -k Enter -k C-c",
        "screen build --ansi",
        "logs build -n 5",
        "logs -f build -c last",
        "interrupt build",
        "kill a b c",
        "kill --all -y",
        "new",
        "new build -C . -e A=1",
        "policy mode",
        "config show",
        "audit verify --anchor 1:x",
        "approve q --always",
    ],
)
def test_a_usual_line_needs_no_typer(line: str) -> None:
    found, rest = cli_quick.find(line.split())
    assert found is not None
    given = cli_lines.read(found, rest)
    assert given is not None
    assert repr(by_typer(found, list(rest))) == repr(given)


@pytest.mark.parametrize("number", ["inf", "nan", "1e999"])
def test_a_number_that_is_none_is_not_read_quickly(number: str) -> None:
    words = ["exec", "build", "--timeout", number, "true"]
    found, rest = cli_quick.find(words)
    assert found is not None
    assert cli_lines.read(found, rest) is None


@pytest.mark.parametrize("verb", FREQUENT)
def test_frequent_verbs_declare_what_they_take(verb: str) -> None:
    known = cli_lines.parameters(READ_HERE[(verb,)])  # type: ignore[arg-type]
    assert all(isinstance(each.declared, Argument | Option) for each in known)
