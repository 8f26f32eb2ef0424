"""What a session may be called, in any script, and the one spelling a name is kept in. Pure."""

from __future__ import annotations

import unicodedata

from agentwire.visible import visible

MOST_CHARS = 64
PUNCTUATION = "._-"


def checked_name(text: str) -> str:
    """``text`` as a name is kept, in NFC. Raises ValueError, which says what is wrong with it.

    Allowed are letters with their marks and digits, and after the first character ``. _ -``. So a name is one word to
    every shell and one part of a path, is no option, and holds nothing that hides, looks like a blank or steers text.
    """
    name = kept(text)
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


def kept(text: str) -> str:
    """The spelling that names are kept and looked up in."""
    return unicodedata.normalize("NFC", text)


def name_from(text: str) -> str:
    """A name made from any text, such as a directory's name."""
    plain = "".join(char if _allowed(char) and visible(char) == char else "-" for char in kept(text))
    plain = plain.lstrip("._-")[:40]
    try:
        return checked_name(plain)
    except ValueError:
        return "main"


def _allowed(char: str) -> bool:
    return char in PUNCTUATION or unicodedata.category(char) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd")
