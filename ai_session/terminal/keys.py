"""Named keys as the bytes a terminal sends for them, in the spellings of tmux, xterm, vim and people. No I/O.

A name is a key with any modifiers before it: ``Up``, ``C-c``, ``S-Tab``, ``C-M-a``, ``Ctrl+Shift+Left``, ``<C-w>``.
Modified keys are sent as xterm sends them.
"""

from __future__ import annotations

import difflib
import re

from ai_session.errors import InvalidArguments

_SHIFT = 1
_META = 2
_CONTROL = 4
_MODIFIERS = {
    "s": _SHIFT,
    "shift": _SHIFT,
    "m": _META,
    "a": _META,
    "alt": _META,
    "meta": _META,
    "opt": _META,
    "option": _META,
    "c": _CONTROL,
    "ctrl": _CONTROL,
    "control": _CONTROL,
}
_MODIFIER = re.compile(rf"({'|'.join(sorted(_MODIFIERS, key=len, reverse=True))})[-+]|(\^)", re.IGNORECASE)

_CHARACTERS = {"enter": "\r", "tab": "\t", "escape": "\x1b", "space": " ", "backspace": "\x7f"}
"""The keys that send one character, which Meta prefixes with an escape."""

_LETTERS = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
"""``CSI letter``, or ``CSI 1 ; modifiers letter``; these follow the terminal's cursor mode."""

_FIRST_FUNCTIONS = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
_NUMBERS = {"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6} | dict(
    zip((f"f{n}" for n in range(5, 13)), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
)
"""``CSI number ~``, or ``CSI number ; modifiers ~``."""

_SHIFTED = {"tab": "\x1b[Z"}
"""What Shift changes about keys that send one character."""

_ALIASES = {
    "return": "enter",
    "cr": "enter",
    "kpenter": "enter",
    "newline": "enter",
    "esc": "escape",
    "spc": "space",
    "spacebar": "space",
    "bspace": "backspace",
    "bs": "backspace",
    "backspc": "backspace",
    "del": "delete",
    "dc": "delete",
    "ins": "insert",
    "ic": "insert",
    "pgup": "pageup",
    "ppage": "pageup",
    "prior": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "npage": "pagedown",
    "next": "pagedown",
    "arrowup": "up",
    "uparrow": "up",
    "arrowdown": "down",
    "downarrow": "down",
    "arrowleft": "left",
    "leftarrow": "left",
    "arrowright": "right",
    "rightarrow": "right",
    "minus": "-",
    "plus": "+",
}
_BACKTAB = ("backtab", "btab")
_CONTROL_OF = {"2": 0, " ": 0, "3": 27, "4": 28, "5": 29, "6": 30, "7": 31, "/": 31, "8": 127, "?": 127}
"""What Control does to characters that are not letters, as on a VT220; the rest follows from ASCII."""

NAMES = sorted([*_CHARACTERS, *_LETTERS, *_FIRST_FUNCTIONS, *_NUMBERS, "backtab"])
MODIFIED = "C-, M- or S- before a key (C-c, M-x, S-Tab, C-Left)"


def encode(name: str, *, application_cursor: bool = False) -> bytes:
    """Return the bytes of one key. Case matters only for characters that stand alone or after Meta.

    ``application_cursor`` is the terminal's DECCKM mode, which changes what arrows send. Raises InvalidArguments.
    """
    modifiers, key = _split(name)
    if len(key) == 1:
        data = _character(key, modifiers)
    else:
        data = _named(_canonical(key), modifiers, application_cursor)
    if data is None:
        raise _unknown(name)
    return data.encode("utf-8", "replace")


def _split(name: str) -> tuple[int, str]:
    """Return the modifiers and the key they precede."""
    text = name.strip(" ") or name[:1]
    if len(text) > 2 and text[0] == "<" and text[-1] == ">":
        text = text[1:-1]
    modifiers = 0
    while (found := _MODIFIER.match(text)) and len(text) > found.end():
        modifiers |= _CONTROL if found[2] else _MODIFIERS[found[1].lower()]
        text = text[found.end() :]
    return modifiers, text


def _canonical(key: str) -> str:
    plain = re.sub(r"(?<=[^\W_])[-_ ](?=[^\W_])", "", key).lower()
    return _ALIASES.get(plain, plain)


def _named(key: str, modifiers: int, application_cursor: bool) -> str | None:
    if len(key) == 1:
        return _character(key, modifiers)
    if key in _BACKTAB:
        key, modifiers = "tab", modifiers | _SHIFT
    if key in _CHARACTERS:
        return _character_key(key, modifiers)
    number = 1 + modifiers
    if letter := _LETTERS.get(key):
        start = "\x1bO" if application_cursor else "\x1b["
        return f"\x1b[1;{number}{letter}" if modifiers else start + letter
    if letter := _FIRST_FUNCTIONS.get(key):
        return f"\x1b[1;{number}{letter}" if modifiers else "\x1bO" + letter
    if code := _NUMBERS.get(key):
        return f"\x1b[{code};{number}~" if modifiers else f"\x1b[{code}~"
    return None


def _character_key(key: str, modifiers: int) -> str:
    data = _CHARACTERS[key]
    if modifiers & _SHIFT:
        data = _SHIFTED.get(key, data)
    if modifiers & _CONTROL:
        data = {" ": "\0", "\x7f": "\b", "\r": "\n"}.get(data, data)
    return "\x1b" + data if modifiers & _META else data


def _character(key: str, modifiers: int) -> str | None:
    if modifiers & _SHIFT:
        key = key.upper()
    if modifiers & _CONTROL:
        code = ord(key.upper())
        if key in _CONTROL_OF:
            key = chr(_CONTROL_OF[key])
        elif 0x40 <= code <= 0x5F:
            key = chr(code & 0x1F)
        else:
            return None
    return "\x1b" + key if modifiers & _META else key


def _unknown(name: str) -> InvalidArguments:
    modifiers, key = _split(name[:100])
    canonical = _canonical(key)
    before = "".join(letter for bit, letter in ((_CONTROL, "C-"), (_META, "M-"), (_SHIFT, "S-")) if modifiers & bit)
    near = difflib.get_close_matches(canonical, [*NAMES, *_ALIASES], 1, 0.6)
    found = before + _ALIASES.get(near[0], near[0]).capitalize() if near else ""
    return InvalidArguments(
        f"unknown key {name[:100]!r}",
        suggestion=(f"did you mean {found!r}? " if found else "")
        + f"use a single character or one of: {', '.join(NAMES)}; with {MODIFIED}; for text use 'text'",
    )


def application_cursor(output: bytes) -> bool:
    """Report whether ``output`` (the newest bytes of a terminal) left application cursor keys on."""
    return output.rfind(b"\x1b[?1h") > output.rfind(b"\x1b[?1l")
