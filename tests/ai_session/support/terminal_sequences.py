"""Control sequences by their effect on a terminal, and a second parser of them that shares nothing with the filter.

The parser reads byte by byte, as a terminal does (after https://vt100.net/emu/dec_ansi_parser).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

ACTING = [
    b"\x1b]52;c;aGVsbG8=\x07",
    b"\x1b]52;c;?\x1b\\",
    b"\x9d52;c;aGk=\x9c",
    b"\xc2\x9d52;c;aGk=\xc2\x9c",  # clipboard
    b"\x1b[21t",
    b"\x1b[20t",
    b"\x1b[14t",
    b"\x1b[18t",
    b"\x1b[>1T",
    b"\x1b[3;0;0t",
    b"\x1b[2t",  # title, window
    b"\x1b[6n",
    b"\x1b[5n",
    b"\x1b[?6n",
    b"\x1b[?15n",
    b"\x1b[c",
    b"\x1b[0c",
    b"\x1b[>c",
    b"\x1b[=c",
    b"\x1bZ",
    b"\x1b[>q",
    b"\x1b[x",
    b"\x1b[1x",
    b"\x1b[?1$p",
    b"\x1b[4$p",
    b"\x1b[?u",
    b"\x1b[1;1;1;1;1;1*y",
    b"\x1b[?4m",
    b"\x1b[1+z",
    b"\x1bP$qm\x1b\\",
    b"\x1bP+q544e\x1b\\",
    b"\x90$qm\x9c",
    b"\x05",  # questions
    b"\x1b[5i",
    b"\x1b[4i",
    b"\x1b[?5i",
    b"\x1b[i",  # printing
    b"\x1b]1337;File=name=eA==;inline=1:aGk=\x07",
    b"\x1b]1337;SetMark\x07",
    b"\x1b]1337;CopyToClipboard=\x07",
    b"\x1b]9;hello\x07",
    b"\x1b]777;notify;a;b\x1b\\",
    b"\x1b]99;i=1;hi\x1b\\",
    b"\x1b]9;4;1;50\x07",  # notifications
    b"\x1b_Ga=T,f=100,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
    b"\x1bPq#0;2;0;0;0#0!10~-\x1b\\",  # pictures
    b"\x1bX sos \x1b\\",
    b"\x1b^ pm \x1b\\",
    b"\x1b_ apc \x1b\\",
    b"\x1bktitle\x1b\\",
    b"\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\",
    b"\x1b]4;1;?\x07",
    b"\x1b]10;?\x07",
    b"\x1b]11;rgb:00/00/00\x07",
    b"\x1b]4;1;#000000\x07",
    b"\x1b]104\x07",  # colours
    b"\x1b]7;file:///tmp\x07",
    b"\x1b]133;A\x07",
    b"\x1b]633;E;rm\x07",
    b"\x1b]50;?\x07",
    b"\x1b]22;pointer\x07",
    b"\x1b]8;;file:///bin/sh\x1b\\",
    b"\x1b]8;;javascript:1\x1b\\",
    b"\x1b]8;;ssh://x\x1b\\",
    b"\x1b%@",
    b"\x1b F",
    b"\x1b G",
    b'\x1b[62;1"p',
    b"\x1b[2h",
    b"\x1b[12l",
    b"\x1b[?3h",
    b"\x1b[?1001h",
    b"\x1b[?8l",
    b"\x1b[8;50;100t",
    b"\x1b[1;2'z",
    b"\x1b[?1;1;0S",
    b"\x1b[?9001h",
    b"\x1b[q",
    b"\x1b[4;1y",
    b"\x1b[1;2;3,~",
    b"\x00",
    b"\x11",
    b"\x13",
    b"\x7f",
    b"\xc2\x85",
    b"\x1b]0;a\x18",
    b"\x1b]0;a\nb\x07",
    b"\x1b]52;c;\x1b[6n",
    b"\x1b[6\x1b[6n",
]
"""Sequences that do more than draw, for any viewer."""

DRAWING = [
    b"plain text\r\n",
    "é 日本 🎉".encode(),
    b"\t\x08\x07\x0b\x0c\x0e\x0f",
    b"\x1b[0;1;38;5;12m",
    b"\x1b[38:2::1:2:3m",
    b"\x1b[H",
    b"\x1b[2J",
    b"\x1b[K",
    b"\x1b[10;20H",
    b"\x1b[3A",
    b"\x1b[?25l",
    b"\x1b[?12h",
    b"\x1b[?1049h",
    b"\x1b[?1049;25l",
    b"\x1b[1;24r",
    b"\x1b[4h",
    b"\x1b[22;0;0t",
    b"\x1b[23;0;0t",
    b"\x1b[2 q",
    b"\x1b7",
    b"\x1b8",
    b"\x1bM",
    b"\x1b(0",
    b"\x1b(B",
    b"\x1b#8",
    b"\x1b[!p",
    b"\x1b[5b",
    b"\x1b[s",
    b"\x1b[u",
    b"\x1b[?2026h",
    b"\x1b]0;a title\x07",
    b"\x1b]2;title \xc3\xa9\x1b\\",
    b"\x1b]8;id=1;https://example.org/a?b\x1b\\",
    b"\x1b]8;;\x07",
]

LIVE = [
    b"\x1b[?1h",
    b"\x1b[?1000h",
    b"\x1b[?1002h",
    b"\x1b[?1003h",
    b"\x1b[?1006h",
    b"\x1b[?1004h",
    b"\x1b[?2004h",
    b"\x1b=",
    b"\x1b>",
    b"\x1b[>4;2m",
    b"\x1b[>1u",
    b"\x1b[=1;1u",
    b"\x1b[<u",
    b"\x1b[?2048h",
    b"\x1b[?2031h",
    b"\x1b[3J",
]
"""Sequences that only a program whose keys come from that terminal uses."""


def tokens(data: bytes) -> Iterator[bytes]:
    """Yield runs of text, and each control character or sequence by itself, even if it is incomplete."""
    at, text = 0, bytearray()
    while at < len(data):
        code = data[at]
        c1 = code == 0xC2 and at + 1 < len(data) and 0x80 <= data[at + 1] < 0xA0
        if code >= 0x20 and code != 0x7F and not c1:
            text.append(code)
            at += 1
            continue
        if text:
            yield bytes(text)
            text.clear()
        end = at + (2 if c1 else _length(data[at:]))
        yield data[at:end]
        at = end
    if text:
        yield bytes(text)


def _length(data: bytes) -> int:
    if data[0] != 0x1B or len(data) == 1:
        return 1
    if data[1] in b"[":
        return next((at + 1 for at in range(2, len(data)) if not 0x20 <= data[at] < 0x40), len(data))
    if data[1] in b"]PX^_k":
        for at in range(2, len(data)):
            if data[at] == 0x07 and data[1] in b"]":
                return at + 1
            if data[at : at + 2] == b"\x1b\\":
                return at + 2
            if data[at] in (0x18, 0x1A, 0x1B):
                return at
        return len(data)
    return next((at + 1 for at in range(1, len(data)) if not 0x20 <= data[at] < 0x30), len(data))


SHOWN_MODES = {5, 6, 7, 12, 25, 47, 1047, 1048, 1049, 2026}
KEY_MODES = {1, 9, 66, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2031, 2048}


def draws(token: bytes, *, live: bool) -> bool:
    """Report whether ``token`` makes a terminal only draw or, if it is ``live``, change how it sends keys."""
    if token[0] >= 0x20 and token[0] != 0x7F:
        return not any(a == 0xC2 and 0x80 <= b < 0xA0 for a, b in pairwise(token))
    if token[0] != 0x1B:
        return len(token) == 1 and 0x07 <= token[0] <= 0x0F
    if token[1:2] == b"[":
        return _control_draws(token[2:-1].decode(), chr(token[-1]), live=live)
    if token[1:2] == b"]":
        return _string_draws(token)
    if token[1:2] in (b"P", b"X", b"^", b"_", b"k"):
        return False
    return token[1:] in (
        *(b"7", b"8", b"D", b"E", b"H", b"M", b"6", b"9", b"(0", b"(A", b"(B", b")0", b")A", b")B"),
        *(b"#3", b"#4", b"#5", b"#6", b"#8", *((b"=", b">", b"c") if live else ())),
    )


def _control_draws(before: str, final: str, *, live: bool) -> bool:
    if before[:1] == "?" and final in "hl":
        modes = {int(mode or 0) for mode in before[1:].split(";")}
        return modes <= SHOWN_MODES | (KEY_MODES if live else set[int]())
    if before[:1] == "?":
        return final in "JK"
    if before[:1] in ("<", "=", ">"):
        return live and (final == "u" or (before[0] == ">" and final == "m"))
    middle = before.strip("0123456789;:")
    if middle:
        return middle + final in (" q", "!p", " @", " A", '"q', "'}", "'~")
    if final == "t":
        return before.split(";")[0] in ("22", "23")
    if final == "J":
        return before in ("", "0", "1", "2") or (live and before == "3")
    if final in "hl":
        return set(before.split(";")) <= {"4", "20"}
    if final == "T":
        return ";" not in before
    return final in "@ABCDEFGHIKLMPSXZ`abdefgmrsu"


def _string_draws(token: bytes) -> bool:
    body = token[2:-2] if token.endswith(b"\x1b\\") else token[2:-1]
    whole = token.endswith((b"\x07", b"\x1b\\")) and not any(code < 0x20 or code == 0x7F for code in body)
    number, _, rest = body.partition(b";")
    if number in (b"0", b"1", b"2"):
        return whole
    url = rest.partition(b";")[2]
    return whole and number == b"8" and (not url or url.startswith((b"http://", b"https://", b"mailto:")))
