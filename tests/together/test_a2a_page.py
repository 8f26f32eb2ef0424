"""The page about A2A is true: its conversation, byte for byte, with its configuration; only times, places and what
terminals are called are others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.ccswarm.support.a2a_standard_server import Wire, served
from tests.ccswarm.support.runs import RunVerbs
from tests.together.support.swarms import QUICK, ROOT, open_swarm_home

PAGE = (ROOT / "docs/protocols/a2a.md").read_text()
CONFIGURATION, CONVERSATIONS = (
    re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for kind in ("toml", "json-lines")
)
COMMAND = 'command = "ai-session mcp-server --stdio"'
UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
OTHER = (
    (r'"timestamp":"[^"]*Z"', '"timestamp":"2026-01-01T12:00:00.000Z"'),
    (r"\b(ses|cmd)_[\w-]{22}", r"\1_…"),
    (r'"duration_seconds":[\d.e-]+', '"duration_seconds":0.01'),
    (r'"(working_directory|cwd)":"[^"]*"', r'"\1":"/home/me/project"'),
    (r'"(shell|backend|sandbox)":"[^"]*"', r'"\1":"…"'),
    (r'"workspace":"/home/me/project",', ""),  # of a session in a box, as the page has it
)


def plain(text: str) -> str:
    """Without what is another one each time, or on another machine."""
    for pattern, instead in OTHER:
        text = re.sub(pattern, instead, text)
    return text


def answers(wire: Wire, body: str) -> list[str]:
    """What a request is answered with: one text, or the data of each event."""
    answer = wire.http.post("/", content=body, headers={"Content-Type": "application/json"})
    if answer.headers["content-type"].startswith("application/json"):
        return [answer.text]
    return [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]


@pytest.mark.torture
def test_the_conversation_is_as_the_page_has_it(homes: Path) -> None:
    (configuration,) = CONFIGURATION
    assert COMMAND in configuration
    ours = f'command = "{sys.executable} -m ai_session mcp-server --stdio"\nenv = {{ PYTHONPATH = "{ROOT}" }}'
    assert len(CONVERSATIONS) == 2
    with open_swarm_home(homes, QUICK + configuration.replace(COMMAND, ours), UNBOXED) as swarm_home:
        words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
        with served(RunVerbs(swarm_home.home), *words) as server, Wire(server.port) as wire:
            for conversation in CONVERSATIONS:
                for exchange in re.findall(r"^> .*\n(?:< .*\n)+", conversation, re.MULTILINE):
                    asked, *reported = exchange.splitlines()
                    found = answers(wire, asked[2:])
                    assert [plain(one) for one in found] == [plain(one[2:]) for one in reported], asked
        assert swarm_home.lines("notes.txt") == ["count the stars", "count them again"]
