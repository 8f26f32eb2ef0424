"""What people type first, by mistake or as other programs have it: one answer that says what to type instead."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
import typer

from agentwire.cli.corrections import corrected, nearest
from ai_session.cli import main as ai_session
from ccswarm.cli import main as ccswarm

AI_SESSION = {
    "atach build": "ai-session attach build",
    "lss": "ai-session ls",
    "sl": "ai-session ls",
    "exce build -- make test": "ai-session exec build -- make test",
    "nwe": "ai-session new",
    "attach-session -t x": "ai-session attach NAME",
    "kill-server": "ai-session daemon stop",
    "detach": "ctrl-] detaches from a session, which keeps running",
    "run -it ubuntu": "ai-session exec NAME -- COMMAND",
    "strat": "ai-session new NAME",
    "-ls": "ai-session ls",
    "-v": "ai-session --version",
    "--verison": "ai-session --version",
    "new --sehll zsh": "ai-session new --shell zsh",
    "config set a b": "ai-session config path names the file to edit; ai-session config show prints the values in"
    " force",
    "daemon sotp": "ai-session daemon stop",
    "frobnicate": "ai-session --help",
    "help exec": "ai-session exec --help",
    "help": "ai-session --help",
    "new --name x": "ai-session new NAME",
    "exec -it x bash": "ai-session exec NAME -- COMMAND",
    "exec": "ai-session exec SESSION COMMAND...; ai-session exec --help says more",
    "mcp install": (
        "ai-session mcp install --client claude-desktop, or another of: claude-code, codex, cursor, vscode, gemini"
    ),
}
CCSWARM = {
    "rnu 'list the files'": "ccswarm run 'list the files'",
    "statsu last": "ccswarm status last",
    "kill": "ccswarm cancel RUN, or ccswarm pause RUN",
    "exec ls": 'ccswarm run "…"',
    "mcp list": "ccswarm mcp status",
    "-V": "ccswarm --version",
    "init --with cluade": "ccswarm init --with claude",
    "init --with=cluade": "ccswarm init --with=claude",
    "tools --agnet ada": "ccswarm tools --agent ada",
    "cancel": "ccswarm cancel RUN; ccswarm cancel --help says more",
    "deploy": "ccswarm --help",
    "run --prompt 'list the files'": 'ccswarm run "…"',
    "run --dir . x": "ccswarm run --workspace DIRECTORY",
}
OWN_WORDS = ["run --wait", "serve --http", "init --with gpt-4", "run list the files"]
"""What is wrong with these is said by others, or in the parser's own words."""

PROGRAMS: Mapping[str, tuple[Any, Mapping[str, str]]] = {
    "ai-session": (ai_session.program, ai_session.INSTEAD),
    "ccswarm": (lambda: ccswarm.app, ccswarm.INSTEAD),
}


def hint(program: str, line: str) -> str | None:
    make, instead = PROGRAMS[program]
    words = shlex.split(line)
    with pytest.raises(ccswarm.ClickException) as raised:
        make()(args=words, prog_name=program, standalone_mode=False)
    found = corrected(raised.value, words, program, instead)
    return found[1] if found else None


@pytest.mark.parametrize(
    ("program", "line", "meant"),
    [("ai-session", *one) for one in AI_SESSION.items()] + [("ccswarm", *one) for one in CCSWARM.items()],
)
def test_a_line_that_is_nearly_right_is_answered_with_the_one_that_is(program: str, line: str, meant: str) -> None:
    assert hint(program, line) == meant


def test_what_is_not_nearly_right_is_not_guessed() -> None:
    assert [hint("ccswarm", line) for line in OWN_WORDS] == [None] * len(OWN_WORDS)
    assert nearest("open", ["token", "person"]) == ""


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_said_instead_names_verbs_that_are_there(program: str) -> None:
    _, instead = PROGRAMS[program]
    groups: dict[str, Any] = {name: typer.main.get_command(make()) for name, (make, _) in PROGRAMS.items()}
    for name, reported in instead.items():
        first, *inner = name.split()
        root: Any = groups[program]
        if first in root.commands:
            verb: Any = root.get_command(None, first)
            options = [option for param in verb.params for option in param.opts]
            assert inner, f"{name} is a verb"
            assert inner[0] not in [*getattr(verb, "commands", ()), *options], f"{name} is right"
        for other, line in re.findall(r"\b(ai-session|ccswarm) ([a-z][\w-]*(?: [a-z][\w-]*)?)", reported):
            word, *more = line.split()
            assert word in groups[other].commands, (name, reported)
            under: Any = groups[other].get_command(None, word)
            assert not more or not hasattr(under, "commands") or more[0] in under.commands, (name, reported)
