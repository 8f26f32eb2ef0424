"""The page about FluxLoop is true: its conversation, byte for byte; only version and scores may be others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session import __version__
from tests.ai_session.support.fluxloop_client import Flux
from tests.ai_session.support.mcp_client import SERVER, stop_daemons

PAGE = (Path(__file__).parents[4] / "docs/protocols/fluxloop.md").read_text()
CONVERSATIONS = re.findall(r"^```json-lines\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCORE = re.compile(r'(?<="score":)0\.\d{1,3}(?=[,}])')
"""It says how rare words are in all pages, so it moves with each of them."""


@pytest.fixture
def client(home: Path) -> Iterator[Flux]:
    with Flux(home, SERVER) as client:
        yield client
    stop_daemons(home)


@pytest.mark.torture
def test_the_conversation_is_as_the_page_has_it(client: Flux) -> None:
    assert CONVERSATIONS
    for conversation in CONVERSATIONS:
        lines = conversation.splitlines()
        for said, answered in zip(lines[::2], lines[1::2], strict=True):
            assert (said[:2], answered[:2]) == ("> ", "< ")
            client.write(said[2:] + "\n")
            expected = re.sub(r'(?<="version":)"[^"]*"', f'"{__version__}"', answered[2:])
            assert SCORE.sub("0.9", client.line().decode()) == SCORE.sub("0.9", expected)
