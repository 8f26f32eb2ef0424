"""The names that a session may have, in any script, and the spelling they are stored in. Pure."""

from __future__ import annotations

import unicodedata

from agentwire.visible import visible

MOST_CHARS = 64
PUNCTUATION = "._-"


def checked_name(text: str) -> str:
    """Return ``text`` as a name in its stored spelling, NFC. Raises ValueError, whose text says what is wrong.

    Letters with their marks and digits are allowed, and after the first character ``. _ -``. So a name is a single word
    to every shell and one part of a path, is not an option, and contains no invisible, blank or control characters.
    """
    name = normalized(text)
    if not name:
        raise ValueError("is empty")
    if len(name) > MOST_CHARS:
        raise ValueError(f"is longer than {MOST_CHARS} characters")
    wrong = next((char for char in name if not _allowed(char)), "")
    if wrong or visible(name) != name:
        which = f"has {visible(wrong)!r}" if wrong else "has combining marks without a letter"
        raise ValueError(f"{which}, but only letters, digits and the characters . _ - are allowed")
    if name[0] in PUNCTUATION or unicodedata.combining(name[0]):
        raise ValueError(f"begins with {name[0]!r}, not with a letter or digit")
    return name


def normalized(text: str) -> str:
    """Return the spelling in which names are stored and looked up."""
    return unicodedata.normalize("NFC", text)


def name_from(text: str) -> str:
    """Return a valid name made from any text, such as a directory's name; ``main`` if nothing of it can be used."""
    plain = "".join(char if _allowed(char) and visible(char) == char else "-" for char in normalized(text))
    plain = plain.lstrip("._-")[:40]
    try:
        return checked_name(plain)
    except ValueError:
        return "main"


def _allowed(char: str) -> bool:
    return char in PUNCTUATION or unicodedata.category(char) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd")
