"""The page about Orchestre is true: its conversation, byte for byte; only runs, times and the directory are others."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccswarm import __version__
from tests.ccswarm.support.mcp_server_process import ServerClient
from tests.together.support.swarms import QUICK, ROOT, open_swarm_home

PAGE = (ROOT / "docs/protocols/orchestre.md").read_text()
PROJECT, RUN, TIME = "/home/me/code", "run_0123456789abcdef0123456789abcdef", "2026-01-02T03:04:05.678Z"
COMMAND = 'command = "ai-session mcp-server --stdio"'
VERSION = re.compile(r'(version\\?": ?\\?")[0-9][^"\\]*')
REAL_RUN = re.compile(r"run_[0-9a-f]{32}")
REAL_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def conversation() -> Iterator[tuple[bytes, str]]:
    """What is sent, and what is answered."""
    for block in blocks("json-lines"):
        lines = block.splitlines()
        for said, answered in zip(lines[::2], lines[1::2], strict=True):
            assert (said[:2], answered[:2]) == ("> ", "< ")
            yield said[2:].encode(), answered[2:]


@pytest.mark.torture
def test_the_conversation_is_as_the_page_has_it(homes: Path) -> None:
    (configuration,) = blocks("toml")
    assert COMMAND in configuration
    ours = f'command = "{sys.executable} -m ai_session mcp-server --stdio"\nenv = {{ PYTHONPATH = "{ROOT}" }}'
    with open_swarm_home(homes, QUICK + configuration.replace(COMMAND, ours), "") as swarm_home:
        here = str(swarm_home.project)
        client = ServerClient(swarm_home.home, "--config", str(swarm_home.file), "--workspace", here)
        try:
            for said, answered in conversation():
                client.send(said.replace(PROJECT.encode(), here.encode()))
                while b'"id"' not in (line := client.line()):
                    pass  # what is told unasked
                found = REAL_TIME.sub(TIME, REAL_RUN.sub(RUN, line.decode())).replace(here, PROJECT)
                assert found == VERSION.sub(rf"\g<1>{__version__}", answered)
            assert client.leave()[0] == 0
        finally:
            client.process.close()
        assert (swarm_home.project / "shop/src/app.ts").read_text().startswith("import { Hono }")
