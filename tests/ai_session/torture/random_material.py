"""Random output with known answers: bytes a command prints, and the text a person sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

WORDS = (
    "alpha",
    "Beta",
    "gamma9",
    "x=1",
    "a-b",
    "$HOME",
    "~",
    "*",
    "`id`",
    "%s %d",
    "!!",
    "!$",
    "<>",
    "|&",
    ";;",
    "#no",
)
RANGES = (
    (0x21, 0x7E),
    (0xA1, 0x17F),
    (0x391, 0x3C9),
    (0x410, 0x44F),
    (0x5D0, 0x5EA),
    (0x300, 0x30F),
    (0x4E00, 0x4FFF),
    (0xAC00, 0xACFF),
    (0xFF01, 0xFF5E),
    (0x1F600, 0x1F640),
    (0x1F1E6, 0x1F1FF),
    (0xE000, 0xE010),
    (0x10FFF0, 0x10FFFD),
)
UNSEEN = bytes(b for b in range(32) if b not in (8, 9, 10, 13, 27)) + b"\x7f"
INVALID = (b"\xff", b"\xfe", b"\xc0", b"\xe4 ", b"\xf0\x9f.", b"\xed\xa0\x80", b"\x80", b"\xbf\xbf")
"""None of them joins with what stands before or after it."""

FORGED = (
    b"\x1b]133;A\x07",
    b"\x1b]133;C\x07",
    b"\x1b]133;D;0\x07",
    b"\x1b]633;D;0\x07",
    b"\x1b]633;E;ls\x07",
    b"\x1b]7777;D;0\x07",
    b"\x1b]7777;;D;1;0;;;\x07",
    b"\x1b]7777;NONCE;D;SEQ;0;1.5;;/\x07",
    b"\x1b]7777;NONCE;C;SEQ;1.5\x07",
    b"\x1b]7777;NONCE;X;SEQ;9;1.5;;/\x07",
    b"\x1b]7777;NONCE;B\x07",
)
INVISIBLE = (
    b"\x1b[31m",
    b"\x1b[0m",
    b"\x1b[1;38;5;196m",
    b"\x1b[48:2::1:2:3m",
    b"\x1b]0;title\x07",
    b"\x1b]2;t\x1b\\",
    b"\x1b]8;;http://a.b/c?d=e\x07",
    b"\x1bP1;2|68656c6c6f\x1b\\",
    b"\x1b_Gq\x1b\\",
    b"\x1b^pm\x1b\\",
    b"\x1b[?2004h",
    b"\x1b[?25l",
    b"\x1b[?1049hon the other screen\x1b[?1049l",
    b"\x1b(B",
    b"\x1b=",
    b"\x1b>",
    b"\xc2\x85",
)
LINES = (
    ("10%\r20%\r100%", "100%"),
    ("downloading\r\x1b[Kdone", "done"),
    ("abc\x1b[2K\rx", "x"),
    ("ab\bc", "ac"),
    ("n\bno\bor", "nor"),
    ("crlf\r", "crlf"),
    ("crlf\r\r\r", "crlf"),
    ("long line\rshort", "shortline"),
    ("\x1b[32m##\x1b[0m 1/2\r\x1b[32m##\x1b[0m 2/2", "## 2/2"),
)
"""One line each that overwrites itself, and what stands there in the end."""

SCREENS = (
    ("one\ntwo\n\x1b[1Athree\n", "one\nthree\n"),
    ("a\nb\nc\x1b[2A\rA\x1b[2B\n", "A\nb\nc\n"),
    ("x: 1\ny: 1\x1b[1A\rx: 2\ny: 2\n", "x: 2\ny: 2\n"),
)
"""Whole outputs that move the cursor between lines."""


@dataclass(frozen=True, slots=True)
class Printed:
    """Bytes written to ``fd`` and what is seen of them; ``onlcr``: the terminal makes LF into CR LF."""

    data: bytes
    text: str
    fd: int = 1
    onlcr: bool = True

    @property
    def raw(self) -> bytes:
        """As they come out of the terminal."""
        return self.data.replace(b"\n", b"\r\n") if self.onlcr else self.data


@dataclass(frozen=True, slots=True)
class Piece:
    """Shell text and what running it prints and returns. ``line``: it may stand on one line with others."""

    code: str
    out: tuple[Printed, ...] = ()
    status: int = 0
    line: bool = True
    tty: bool = False

    @property
    def quiet(self) -> bool:
        """Prints to standard output only, and nothing a shell variable cannot hold."""
        return not self.tty and all(p.fd == 1 and b"\0" not in p.data for p in self.out)

    @property
    def data(self) -> bytes:
        return b"".join(p.data for p in self.out)


@dataclass(frozen=True, slots=True)
class Expected:
    """One command and all that is known of it beforehand.

    ``text`` None: whatever is seen of ``raw``. ``answers`` are typed when it wants input. ``ends``: the shell exits.
    """

    command: str
    raw: bytes
    text: str | None
    exit_code: int
    cwd: str
    stdin: bytes | None = None
    stderr: bytes | None = None
    answers: tuple[bytes, ...] = ()
    ends: bool = False


def words(rng: Random) -> str:
    """A few ASCII words, every one special to some shell."""
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 5)))


def characters(rng: Random) -> str:
    """Printable characters of many scripts, blanks, tabs and newlines among them."""
    found: list[str] = []
    for _ in range(rng.randint(1, 30)):
        low, high = rng.choice(RANGES)
        found.append(chr(rng.randint(low, high)))
    return "".join(" \t\n"[rng.randrange(3)] if rng.random() < 0.1 else c for c in found)


def printable(text: str) -> Printed:
    """Text of which everything is seen."""
    return Printed(text.encode(), text)


def payload(rng: Random) -> Printed:
    """Text, invisible sequences, control characters, forged marks and invalid bytes, mixed; never ends inside one."""
    data, text = b"", ""
    for _ in range(rng.randint(1, 8)):
        kind = rng.randrange(6)
        if kind == 0:
            data += (piece := rng.choice(INVALID))
            text += piece.decode(errors="replace")
        elif kind == 1:
            data += bytes(rng.choices(UNSEEN, k=3))
        elif kind == 2:
            data += rng.choice(INVISIBLE)
        elif kind == 3:
            forged = rng.choice(FORGED).replace(b"NONCE", b"%016x" % rng.getrandbits(64))
            data += forged.replace(b"SEQ", b"%d" % rng.randint(1, 20000))
        elif kind == 4:
            line, seen = rng.choice(LINES)
            data += f"\n{line}\n".encode()
            text += f"\n{seen}\n"
        else:
            piece = characters(rng)
            data += piece.encode()
            text += piece
    return Printed(data, text)


def joined(parts: Sequence[Printed]) -> str:
    """What is seen of several outputs, one after the other."""
    return "".join(part.text for part in parts)


def octal(data: bytes) -> str:
    """The format for printf that writes ``data``."""
    return "".join(chr(b) if chr(b).isalnum() and b < 128 else "%%" if b == 37 else f"\\{b:03o}" for b in data)
