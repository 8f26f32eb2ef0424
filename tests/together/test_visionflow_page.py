"""The page about VisionFlow is true: its conversation, byte for byte, with its configuration; only ids are others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import Wire, served
from tests.together.support.swarms import QUICK, ROOT, open_swarm_home

PAGE = (ROOT / "docs/protocols/visionflow.md").read_text()
CONFIGURATION, CONVERSATIONS = (
    re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for kind in ("toml", "json-lines")
)
ID = re.compile(r"(?:swarm|agent|task)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COMMAND = 'command = "ai-session mcp-server --stdio"'
UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'


def with_ids(text: str, known: dict[str, str]) -> str:
    """As it really is."""
    return ID.sub(lambda found: known.get(found[0], found[0]), text)


@pytest.mark.torture
def test_the_conversation_is_as_the_page_has_it(homes: Path) -> None:
    (configuration,) = CONFIGURATION
    assert COMMAND in configuration
    ours = f'command = "{sys.executable} -m ai_session mcp-server --stdio"\nenv = {{ PYTHONPATH = "{ROOT}" }}'
    known: dict[str, str] = {}
    with open_swarm_home(homes, QUICK + configuration.replace(COMMAND, ours), UNBOXED) as swarm_home:
        words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
        with served(RunVerbs(swarm_home.home), *words) as server, Wire(server.port) as wire:
            for conversation in CONVERSATIONS:
                lines = conversation.splitlines()
                for said, answered in zip(lines[::2], lines[1::2], strict=True):
                    assert (said[:2], answered[:2]) == ("> ", "< ")
                    wire.send(with_ids(said[2:], known).encode() + b"\n")
                    line = wire.line().decode()
                    known |= dict(zip(ID.findall(answered), ID.findall(line), strict=True))
                    assert line == with_ids(answered[2:], known) + "\n"
                tasks = [real for reported, real in known.items() if reported.startswith("task-")]
                if conversation is CONVERSATIONS[0]:
                    assert [wire.over(task)["status"] for task in tasks] == ["completed"]
            assert swarm_home.lines("notes.txt") == ["Analyze knowledge graph for communities"]
