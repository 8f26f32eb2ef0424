"""Untrusted text made safe to show: every character is visible, or replaced by an escape. No I/O.

Escaped are control characters and line ends, characters that control the direction of text, blanks other than the
space, and what takes no room or shows nothing: Unicode's default ignorable code points (as of 17.0; the list is
stable), letters and signs that are blank, and marks drawn over the previous character that its script does not use.
"""

from __future__ import annotations

import unicodedata

_IGNORABLE = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Default_Ignorable_Code_Point of DerivedCoreProperties.txt."""

_BLANK = frozenset("\u2800\ufffc\U00013441\U00013442\U00016fe4\U0001d159")
"""Drawn as nothing although no property says so: a Braille pattern without dots, fillers, a note without a head."""

_MOST_MARKS = 4
"""The most marks on one letter that a script in use needs; more of them draw over the neighboring lines."""


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with an escape (``\\x1b``, ``\\u3164``) for each character that is not visible. Line ends remain
    only with ``lines``. Letters that look alike, and those that run from right to left, are not changed."""
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    letter = ""
    for char in text:
        if _is_mark(char):
            letter = letter + char if _belongs(letter, char) else ""
            shown.append(char if letter else _escaped(char))
        else:
            letter = char if char.isalpha() else ""
            seen = (char.isprintable() and not _shows_nothing(char)) or (lines and char == "\n")
            shown.append(char if seen else _escaped(char))
    return "".join(shown)


def _is_mark(char: str) -> bool:
    return char >= "\u0300" and unicodedata.category(char) in ("Mn", "Me") and not _shows_nothing(char)


def _belongs(letter: str, mark: str) -> bool:
    """Report whether a mark is part of a letter: both compose one character, or the letter's script has such marks."""
    if not letter or len(letter) > _MOST_MARKS or unicodedata.category(mark) == "Me":
        return False
    return not letter[0].isascii() or len(unicodedata.normalize("NFC", letter + mark)) == 1


def _shows_nothing(char: str) -> bool:
    code = ord(char)
    return char in _BLANK or (code >= 0xAD and any(first <= code <= last for first, last in _IGNORABLE))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii", "replace")
