"""The page about the protocol for people's programs is true: each of its conversations, in order, on one connection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.ai_session.support.person_client import Person
from tests.support import forked

PAGE = (Path(__file__).parents[4] / "docs/reference/person-protocol.md").read_text()
LINES = [
    line
    for block in re.findall(r"^```person\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
UNKNOWN = re.compile(r'"(ses_…|cur_…|…)"')
HELLO = json.loads(LINES[0][2:])


@pytest.fixture
def person(home: Path) -> Iterator[Person]:
    forked.daemon(living_in(home))
    with Person(home, **{**HELLO, "env": living_in(home), "cwd": str(home)}) as person:
        yield person
    stop_daemons(home)


def agrees(received: Any, shown: Any) -> bool:
    """Whether what was told is as the page shows it, where ``…`` stands for anything."""
    if isinstance(shown, dict):
        return (
            isinstance(received, dict)
            and received.keys() == shown.keys()
            and all(agrees(received[k], shown[k]) for k in shown)
        )
    if isinstance(shown, list):
        return isinstance(received, list) and len(received) == len(shown) and all(map(agrees, received, shown))
    return (
        shown == "…"
        or received == shown
        or (isinstance(shown, str) and shown.endswith("_…") and re.search("[_.]", str(received)))
    )


def test_every_conversation_is_as_the_page_has_it(person: Person) -> None:
    known: dict[str, Any] = {"…": 0}
    assert agrees(person.hello, json.loads(LINES[1][2:]))
    for line in LINES[2:]:
        text, _, data = line[2:].partition(" + ")
        shown = json.loads(text)
        if line.startswith("→"):
            filled = json.loads(UNKNOWN.sub(lambda found, known=known: json.dumps(known[found[1]]), text))
            person.write(filled, json.loads(data).encode() if data else b"")
            continue
        received = person.until(
            lambda received, shown=shown: (
                received.facts.get("id") == shown["id"]
                if "id" in shown
                else received.facts.get("event") == shown["event"]
            )
        ).facts
        assert agrees(received, shown), (received, shown)
        result = received.get("result") or received
        known |= {"ses_…": result.get("session_id", known.get("ses_…")), "…": result.get("next", known["…"])}
        known |= {"cur_…": result.get("cursor", known.get("cur_…"))}
