"""docs/reference/ccswarm-cli.md is held against the program: every verb, its arguments, options and exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ccswarm.cli.output import EXIT_CODES
from tests.ccswarm.support.verbs import all_verbs

PAGE = (Path(__file__).parents[2] / "docs/reference/ccswarm-cli.md").read_text()
EVERYWHERE = {"--json", "--config", "--help"}


class Row(NamedTuple):
    verb: str
    reported: str
    options: str
    codes: str


COMMANDS = all_verbs()


def rows() -> Iterator[tuple[str, Row]]:
    for line in PAGE.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            row = Row(*cells)
            name = next(name for name in COMMANDS if re.match(rf"`{name}[ `]", row.verb))
            yield name, row


ROWS = dict(rows())


def numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\w.])\d+(?!\w|\.\d)", text)}


def test_every_verb_is_there_and_no_other() -> None:
    assert set(ROWS) == set(COMMANDS)
    assert len(list(rows())) == len(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_and_options_are_those_of_the_program(name: str) -> None:
    command, row = COMMANDS[name], ROWS[name]
    wanted = [one for one in command.params if one.param_type_name == "argument"]
    words = [one.metavar or one.name.upper() for one in wanted]
    assert row.verb == f"`{' '.join([name, *words])}`"
    shown = (one for one in command.params if one.param_type_name == "option" and not one.hidden)
    options = {one.opts[0] for one in shown}
    assert set(re.findall(r"--[a-z0-9-]+", row.options)) == options - EVERYWHERE
    assert ("--json" in options) is (name not in ("completion", "mcp-server", "feed", "serve"))


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_are_those_that_help_tells(name: str) -> None:
    reported = re.search(r"Exit codes?: (.*)\Z", COMMANDS[name].help, re.DOTALL)
    codes = ROWS[name].codes
    if reported and "as of" in reported[1]:
        assert codes == "as `run`"
    else:
        assert numbers(codes) == (numbers(reported[1]) if reported else {0})


def test_the_table_of_codes_has_those_of_the_program() -> None:
    table = {int(number) for number in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert table == numbers(EXIT_CODES) | {75}
