"""The URIs of resources: which part of which session. No I/O.

A URI is accepted only in the form written here: no other scheme, no escapes except those that a name in another script
needs, no dots that go up, no query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

from ai_session.sessions.names import checked_name

Part = Literal["list", "info", "screen", "output", "recording"]

LIST = "session://list"
TEMPLATES: dict[Part, str] = {
    "info": "session://{id}/info",
    "screen": "session://{id}/screen",
    "output": "session://{id}/output/{command_id}",
    "recording": "session://{id}/recording",
}

PARTS: dict[str, Part] = {part: part for part in TEMPLATES}

_URI = re.compile(
    r"session://(?:list|((?:[A-Za-z0-9._-]|%[0-9A-F]{2})+)/(?:(info|screen|recording)|output/([A-Za-z0-9_-]{1,64})))"
)


@dataclass(frozen=True, slots=True)
class ResourceAddress:
    """A part of a session, which is given by name or id; of the list neither."""

    part: Part
    session: str = ""
    command_id: str = ""

    @property
    def uri(self) -> str:
        """Its only spelling."""
        if self.part == "list":
            return LIST
        return TEMPLATES[self.part].replace("{id}", quote(self.session)).replace("{command_id}", self.command_id)


def is_session(text: str) -> bool:
    """Report whether a session may have that name or id, in this spelling."""
    try:
        return checked_name(text) == text
    except ValueError:
        return False


def address_of(uri: str) -> ResourceAddress | None:
    """Return the address in a URI, or None if it is not the URI of a resource."""
    found = _URI.fullmatch(uri)
    if not found:
        return None
    quoted, command_id = found[1], found[3]
    if quoted is None:
        return ResourceAddress("list")
    session = unquote(quoted, errors="replace")
    if quote(session) != quoted or not is_session(session):
        return None
    if command_id is not None:
        return ResourceAddress("output", session, command_id)
    return ResourceAddress(PARTS[found[2]], session)
