"""Operations on one terminal by the path of its device: unread input, signal keys, a message printed on it.

Nothing here blocks. If the device cannot be opened, every result is "unknown" (None, False); nothing raises.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import sys
import termios
from collections.abc import Generator
from dataclasses import dataclass

from agentwire.system.readable import readable


@dataclass(frozen=True, slots=True)
class SignalKeys:
    """The bytes that the terminal turns into signals; empty if a key is disabled, or all of them are (ISIG)."""

    interrupt: bytes
    quit: bytes


@contextlib.contextmanager
def _open(tty: str, flags: int) -> Generator[int]:
    fd = os.open(tty, flags | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def unread_bytes(tty: str) -> int | None:
    """Return how much input a read would get now. An unfinished line does not count in line mode."""
    count = array.array("i", [0])
    try:
        with _open(tty, os.O_RDONLY) as fd:
            # What was just written to the other side may still be on its way; polling makes it arrive.
            readable((fd,), 0)
            fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return None
    return count[0]


def signal_keys(tty: str) -> SignalKeys | None:
    """Return the keys that interrupt and quit on this terminal now."""
    try:
        with _open(tty, os.O_RDONLY) as fd:
            _, _, _, local, _, _, keys = termios.tcgetattr(fd)
            off = b"\0" if sys.platform == "linux" else bytes([os.fpathconf(fd, "PC_VDISABLE") & 255])
    except (OSError, termios.error):
        return None
    if not local & termios.ISIG:
        return SignalKeys(b"", b"")
    chosen = (keys[termios.VINTR], keys[termios.VQUIT])
    return SignalKeys(*(b"" if key == off else key for key in chosen))


_KEYS = {
    "intr": (termios.VINTR, b"\x03"),
    "quit": (termios.VQUIT, b"\x1c"),
    "erase": (termios.VERASE, b"\x7f"),
    "kill": (termios.VKILL, b"\x15"),
    "eof": (termios.VEOF, b"\x04"),
    "start": (termios.VSTART, b"\x11"),
    "stop": (termios.VSTOP, b"\x13"),
    "susp": (termios.VSUSP, b"\x1a"),
    "rprnt": (termios.VREPRINT, b"\x12"),
    "werase": (termios.VWERASE, b"\x17"),
    "lnext": (termios.VLNEXT, b"\x16"),
}
"""Their names in `stty`, and their usual values."""


def accept_text(tty: str, *, line_ends: bool) -> list[str]:
    """Undo the settings that keep the terminal from accepting a line of text, and return them as arguments of `stty`: a
    printable character that is a key, and with ``line_ends`` translated line ends, which line editors want."""
    try:
        with _open(tty, os.O_RDWR) as fd:
            modes = termios.tcgetattr(fd)
            keys: list[bytes] = modes[6]
            undone = [f"{name} {keys[at].decode()}" for name, (at, _) in _KEYS.items() if b" " <= keys[at] <= b"~"]
            for name in undone:
                at, usual = _KEYS[name.split()[0]]
                keys[at] = usual
            if line_ends and modes[0] & termios.INLCR:
                modes[0] &= ~termios.INLCR
                undone.append("inlcr")
            if undone:
                termios.tcsetattr(fd, termios.TCSANOW, modes)
    except (OSError, termios.error):
        return []
    return undone


def quoted(tty: str, line: bytes) -> bytes:
    """Return ``line`` with those characters quoted that are keys, if a line editor has taken over the key that quotes.

    A line editor reads the keys when it starts to read: undoing them on the terminal would be too late.
    """
    try:
        with _open(tty, os.O_RDONLY) as fd:
            modes = termios.tcgetattr(fd)
    except (OSError, termios.error):
        return line
    if modes[3] & termios.ICANON or modes[6][termios.VLNEXT] not in (b"\0", 0):
        return line
    _, literal = _KEYS["lnext"]
    for key in _letters(modes[6]):
        line = line.replace(key, literal + key)
    return line


def line_killer(tty: str) -> bytes | None:
    """Return the key that drops an incomplete line, if the terminal itself edits lines; None if a program does.

    Without such a key, the line is dropped at once and the result is empty. The key that interrupts would be no
    substitute: a shell that learns of it late drops the line that follows, too.
    """
    try:
        with _open(tty, os.O_RDONLY) as fd:
            modes = termios.tcgetattr(fd)
            if not modes[3] & termios.ICANON:
                return None
            key: bytes = modes[6][termios.VKILL]
            if key in (b"\0", b"\xff"):
                termios.tcflush(fd, termios.TCIFLUSH)
                return b""
            return key
    except (OSError, termios.error):
        return None


def has_letters_as_keys(tty: str) -> bool:
    """Report whether a printable character is a key of the terminal now."""
    try:
        with _open(tty, os.O_RDONLY) as fd:
            return bool(_letters(termios.tcgetattr(fd)[6]))
    except (OSError, termios.error):
        return False


def _letters(keys: list[bytes]) -> set[bytes]:
    return {keys[at] for at, _ in _KEYS.values() if b" " <= keys[at] <= b"~"}


def echoes(tty: str) -> bool | None:
    """Report whether the terminal echoes what is typed."""
    try:
        with _open(tty, os.O_RDONLY) as fd:
            return bool(termios.tcgetattr(fd)[3] & termios.ECHO)
    except (OSError, termios.error):
        return None


def set_echo(tty: str, *, on: bool) -> bool:
    """Set whether the terminal echoes what is typed; return False if that is impossible."""
    try:
        with _open(tty, os.O_RDWR) as fd:
            modes = termios.tcgetattr(fd)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(fd, termios.TCSANOW, modes)
    except (OSError, termios.error):
        return False
    return True


def let_print(tty: str) -> None:
    """Undo a `tcflow(TCOOFF)` that a program left: it blocks all output, and has no other effect."""
    with contextlib.suppress(OSError, termios.error), _open(tty, os.O_RDWR) as fd:
        termios.tcflow(fd, termios.TCOON)


def show(tty: str, data: bytes) -> bool:
    """Print ``data``, which is short, on the terminal as a program in it would; False if it accepts nothing now."""
    try:
        with _open(tty, os.O_WRONLY) as fd:
            return os.write(fd, data) == len(data)
    except OSError:
        return False
