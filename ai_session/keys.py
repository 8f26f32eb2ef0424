"""Named keys as the bytes a terminal sends for them. No I/O."""

from __future__ import annotations

import re

from ai_session.errors import InvalidArguments

_PLAIN = {
    "enter": b"\r",
    "return": b"\r",
    "tab": b"\t",
    "backtab": b"\x1b[Z",
    "escape": b"\x1b",
    "esc": b"\x1b",
    "space": b" ",
    "c-space": b"\x00",
    "backspace": b"\x7f",
    "delete": b"\x1b[3~",
    "insert": b"\x1b[2~",
    "pageup": b"\x1b[5~",
    "pagedown": b"\x1b[6~",
    **{f"f{n}": b"\x1bO" + bytes([0x4F + n]) for n in range(1, 5)},
    **{f"f{n}": b"\x1b[%d~" % code for n, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)},
}
_CURSOR = {"up": b"A", "down": b"B", "right": b"C", "left": b"D", "home": b"H", "end": b"F"}
_CONTROL = re.compile(r"(?:c-|ctrl[-+]|\^)(.)\Z", re.IGNORECASE)
_META = re.compile(r"(?:m-|alt[-+])(.)\Z", re.IGNORECASE)
NAMES = sorted([*_PLAIN, *_CURSOR, "c-a…c-z", "m-x"])


def encode(name: str, *, application_cursor: bool = False) -> bytes:
    """The bytes of one key: ``Enter``, ``C-c``, ``M-x``, ``Up``, ``F5``; case does not matter.

    ``application_cursor`` is the terminal's DECCKM mode, which changes what arrows send. Raises InvalidArguments.
    """
    key = name.strip().lower()
    if key in _PLAIN:
        return _PLAIN[key]
    if key in _CURSOR:
        return (b"\x1bO" if application_cursor else b"\x1b[") + _CURSOR[key]
    if match := _CONTROL.match(name.strip()):
        code = ord(match[1].upper())
        if match[1] == "?":
            return b"\x7f"
        if 0x40 <= code <= 0x5F:
            return bytes([code & 0x1F])
    if match := _META.match(name.strip()):
        return b"\x1b" + match[1].encode()
    if len(name) == 1:
        return name.encode("utf-8", "replace")
    raise InvalidArguments(f"unknown key {name!r}", suggestion=f"use a single character or one of: {', '.join(NAMES)}")


def application_cursor(output: bytes) -> bool:
    """Whether ``output`` (the newest bytes of a terminal) left application cursor keys on."""
    return output.rfind(b"\x1b[?1h") > output.rfind(b"\x1b[?1l")
