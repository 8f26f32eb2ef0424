"""One terminal by the path of its device: what it has not read, which keys signal, a word printed on it.

Nothing here blocks. Every answer is "unknown" (None, False) where the device cannot be opened; nothing raises.
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
    """The bytes that the terminal turns into signals; empty where a key is switched off, or all are (ISIG)."""

    interrupt: bytes
    quit: bytes


@contextlib.contextmanager
def _opened(tty: str, flags: int) -> Generator[int]:
    fd = os.open(tty, flags | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def unread_bytes(tty: str) -> int | None:
    """How much input a read would get now. A line that is not ended does not count while lines are read."""
    count = array.array("i", [0])
    try:
        with _opened(tty, os.O_RDONLY) as fd:
            # What was written to the other side a moment ago may still be on its way; to be asked brings it here.
            readable((fd,), 0)
            fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return None
    return count[0]


def signal_keys(tty: str) -> SignalKeys | None:
    """Which keys interrupt and quit on this terminal now."""
    try:
        with _opened(tty, os.O_RDONLY) as fd:
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
"""What `stty` calls them, and what they usually are."""


def take_text(tty: str, *, line_ends: bool) -> list[str]:
    """Undoes, and returns as words of `stty`, the settings with which the terminal takes no line of text: a character
    that is a key, and with ``line_ends`` line ends that are none, which line editors want."""
    try:
        with _opened(tty, os.O_RDWR) as fd:
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
    """``line``, in which characters that are keys are quoted where a line editor has taken over what quotes them.

    Such a one knew its keys when it began to read: to undo them on the terminal is too late.
    """
    try:
        with _opened(tty, os.O_RDONLY) as fd:
            modes = termios.tcgetattr(fd)
    except (OSError, termios.error):
        return line
    if modes[3] & termios.ICANON or modes[6][termios.VLNEXT] not in (b"\0", 0):
        return line
    _, literal = _KEYS["lnext"]
    for key in _letters(modes[6]):
        line = line.replace(key, literal + key)
    return line


def has_letters_as_keys(tty: str) -> bool:
    """Whether a character of text is a key of the terminal now."""
    try:
        with _opened(tty, os.O_RDONLY) as fd:
            return bool(_letters(termios.tcgetattr(fd)[6]))
    except (OSError, termios.error):
        return False


def _letters(keys: list[bytes]) -> set[bytes]:
    return {keys[at] for at, _ in _KEYS.values() if b" " <= keys[at] <= b"~"}


def echoes(tty: str) -> bool | None:
    """Whether the terminal shows what is typed."""
    try:
        with _opened(tty, os.O_RDONLY) as fd:
            return bool(termios.tcgetattr(fd)[3] & termios.ECHO)
    except (OSError, termios.error):
        return None


def set_echo(tty: str, *, on: bool) -> bool:
    """Have the terminal show what is typed, or not; False where that cannot be set."""
    try:
        with _opened(tty, os.O_RDWR) as fd:
            modes = termios.tcgetattr(fd)
            modes[3] = modes[3] | termios.ECHO if on else modes[3] & ~termios.ECHO
            termios.tcsetattr(fd, termios.TCSANOW, modes)
    except (OSError, termios.error):
        return False
    return True


def let_print(tty: str) -> None:
    """Undoes a `tcflow(TCOOFF)` that a program left, for which whoever prints waits, and nothing else."""
    with contextlib.suppress(OSError, termios.error), _opened(tty, os.O_RDWR) as fd:
        termios.tcflow(fd, termios.TCOON)


def show(tty: str, data: bytes) -> bool:
    """Prints ``data``, which is short, on the terminal as a program in it would; False when it takes nothing now."""
    try:
        with _opened(tty, os.O_WRONLY) as fd:
            return os.write(fd, data) == len(data)
    except OSError:
        return False
