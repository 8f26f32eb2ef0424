"""The URIs of resources: what of which session is meant. Pure.

A URI is taken only as it is written here: no other scheme, no escapes, no dots that go up, no query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Part = Literal["list", "info", "screen", "output", "recording"]

LIST = "session://list"
TEMPLATES: dict[Part, str] = {
    "info": "session://{id}/info",
    "screen": "session://{id}/screen",
    "output": "session://{id}/output/{command_id}",
    "recording": "session://{id}/recording",
}

PARTS: dict[str, Part] = {part: part for part in TEMPLATES}

NAME = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_URI = re.compile(rf"session://(?:list|({NAME})/(?:(info|screen|recording)|output/([A-Za-z0-9_-]{{1,64}})))")


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a session, which is meant by name or id; of the list neither."""

    part: Part
    session: str = ""
    command_id: str = ""

    @property
    def uri(self) -> str:
        """Its one spelling."""
        if self.part == "list":
            return LIST
        return TEMPLATES[self.part].replace("{id}", self.session).replace("{command_id}", self.command_id)


def place_of(uri: str) -> Place | None:
    """What is meant; None where it is no URI of a resource."""
    found = _URI.fullmatch(uri)
    if not found:
        return None
    session, command_id = found[1], found[3]
    if session is None:
        return Place("list")
    if command_id is not None:
        return Place("output", session, command_id)
    return Place(PARTS[found[2]], session)
