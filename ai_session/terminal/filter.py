"""What may reach a person's terminal of a session's output: text, and the control sequences that only draw. No I/O.

A terminal does much more than draw: it writes to the clipboard, prints, opens files, shows notifications, reads images
from the disk, and answers queries by typing. Only listed sequences pass; everything else is dropped. What passes is
complete and spelled in one way, so that no terminal reads it otherwise.
"""

from __future__ import annotations

import codecs
import re

MAX_SEQUENCE = 4096
"""The characters of the longest sequence that passes; a longer string is dropped up to its end."""


def _any(*patterns: str) -> str:
    return "|".join(patterns)


_PARAMETERS = r"[0-9;:]{0,256}"
_END = r"(?:\x07|\x1b\\)"
_DRAWING = _any(
    r"[^\x00-\x1f\x7f]+",
    r"[\x07-\x0f]",
    rf"\x1b\[{_PARAMETERS}[@A-HK-MPSXZ`abd-gmrsu]",
    r"\x1b\[[0-2]?J",
    r"\x1b\[[0-9]{0,5}T",
    r"\x1b\[(?:4|20)(?:;(?:4|20))?[hl]",
    r"\x1b\[2[23](?:;[0-2]){0,2}t",  # the stack of titles
    r"\x1b\[\?[0-9]?[JK]",
    r"\x1b\[[0-6]? q",
    r"\x1b\[!p",
    r"\x1b\[[0-9]{0,5} [@A]",
    r'\x1b\[[0-2]?"q',
    r"\x1b\[[0-9]{0,5}'[}~]",
    r"\x1b[78DEHM69]",
    r"\x1b[()][0AB]",
    r"\x1b#[34568]",
    rf"\x1b\][012];[^\x00-\x1f\x7f]{{0,1024}}{_END}",
    rf"\x1b\]8;(?:id=[\w.-]{{0,256}})?;(?:(?:https?://|mailto:)[!-~]{{1,2048}})?{_END}",
)
_LIVE = _any(
    r"\x1b[=>c]",
    r"\x1b\[3J",  # like c, it erases what the terminal has saved
    r"\x1b\[>[0-9;]{0,16}m",  # how other keys are encoded
    r"\x1b\[[<>=][0-9;]{0,16}u",
)
"""How keys are sent, and what a program may do to its own terminal, but not to one that only shows it."""

_MODES = r"\x1b\[\?([0-9]{1,4}(?:;[0-9]{1,4}){0,15})([hl])"
_UNFINISHED = r"\x1b(?:\[[0-?]*[ -/]*|[ -/]*|\][^\x07\x18\x1a\x1b]*\x1b?|[PX^_k][^\x18\x1a\x1b]*\x1b?)\Z"
_OTHER = _any(
    r"\x1b\[[0-?]*[ -/]*[@-~]",
    r"\x1b\][^\x07\x18\x1a\x1b]*(?:[\x07\x18\x1a]|\x1b\\|(?=\x1b))",
    r"\x1b[PX^_k][^\x18\x1a\x1b]*(?:[\x18\x1a]|\x1b\\|(?=\x1b))",
    r"\x1b[ -/]+[0-~]?",
    r"\x1b\[[0-?]*[ -/]*",  # broken off by a character that no sequence contains
    r"\x1b[0-OQ-WYZ\\`-jl-~]?",
    r"[\x00-\x1f\x7f]",
)
_DRAWN = re.compile(f"({_DRAWING})|{_MODES}|({_UNFINISHED})|(?:{_OTHER})")
_ATTACHED = re.compile(f"({_DRAWING}|{_LIVE})|{_MODES}|({_UNFINISHED})|(?:{_OTHER})")
_CONTROL = re.compile(r"[\x00-\x06\x10-\x1f\x7f-\x9f]")
_C1 = re.compile(r"[\x80-\x9f]")
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b]")
_SHORT_END = re.compile(r"[\x18\x1a\x1b]")

DRAWING_MODES = frozenset(map(str, (5, 6, 7, 12, 25, 47, 1047, 1048, 1049, 2026)))
LIVE_MODES = frozenset(map(str, (1, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2031, 2048)))
"""With them, a terminal encodes keys differently or sends events: mouse, focus, paste, size, colours."""

LEAVE = (
    b"\x1b[0m\x1b[?2026l\x1b[?25h\x1b[?1l\x1b>\x1b[?7h\x1b[?5l\x1b[?6l\x1b[4l\x1b[20l\x1b[0 q\x1b(B\x1b)B\x0f"
    b"\x1b[?9l\x1b[?66l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"
    b"\x1b[?2004l\x1b[?2031l\x1b[?2048l\x1b[>4;0m\x1b[<u\x1b]8;;\x1b\\"
)
"""Undoes what passes and would stay: styles, cursor, modes, keys, an open link. The alternate screen and the scrolling
region, whose reset moves the cursor, are left to the caller that knows its position."""


class TerminalFilter:
    """Accepts output in any chunks and returns what may be written to a terminal; any chunking gives the same.

    With ``live``, keys go to the program whose output it is, so it may set how they are sent.
    """

    def __init__(self, *, live: bool) -> None:
        self._pattern = _ATTACHED if live else _DRAWN
        self._modes = DRAWING_MODES | LIVE_MODES if live else DRAWING_MODES
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._skip_until: re.Pattern[str] | None = None

    def feed(self, data: bytes) -> bytes:
        """Return what may be written of ``data`` and of what was held back before."""
        return self.feed_text(self._decoder.decode(data)).encode("utf-8", "replace")

    def feed_text(self, text: str) -> str:
        """Return what may be written of decoded text and of what was held back before."""
        if _C1.search(text):
            text = _C1.sub(lambda found: "\x1b" + chr(ord(found[0]) - 0x40), text)
        if self._skip_until:
            end = self._skip_until.search(text)
            if end is None:
                return ""
            # The end of a string that began long before; its introducer stands for all of it.
            self._held = "\x1bX" if self._skip_until is _SHORT_END else "\x1b]"
            self._skip_until = None
            text = text[end.start() :]
        text = self._held + text
        self._held = ""
        if not _CONTROL.search(text):
            return text
        passed: list[str] = []
        for drawn, modes, switch, unfinished in self._pattern.findall(text):
            if drawn:
                passed.append(drawn)
            elif modes:
                passed.append(self._allowed_modes(modes, switch))
            elif unfinished:
                self._hold(unfinished)
        return "".join(passed)

    def _allowed_modes(self, modes: str, switch: str) -> str:
        known = [mode for mode in modes.split(";") if mode.lstrip("0") in self._modes]
        return f"\x1b[?{';'.join(known)}{switch}" if known else ""

    def _hold(self, beginning: str) -> None:
        """Hold back an unfinished sequence; for one too long to pass, a short one that ends at the same character."""
        if len(beginning) <= MAX_SEQUENCE:
            self._held = beginning
        elif beginning[1] == "[":
            self._held = "\x1b[" + "0" * 300 + ("" if "0" <= beginning[-1] <= "?" else " ")
        elif beginning[1] not in "]PX^_k":
            self._held = "\x1b  "
        elif beginning.endswith("\x1b"):
            self._held = beginning[:2] + "\x1b"
        else:
            self._skip_until = _STRING_END if beginning[1] == "]" else _SHORT_END


def harmless(text: str) -> str:
    """Return a whole text as it may be written to a terminal."""
    return TerminalFilter(live=False).feed_text(text)
