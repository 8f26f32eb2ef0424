"""What a terminal and a backend must do. Knows nothing of shells, marks, logs or sessions.

A backend keeps terminals alive when the daemon is not there (the holder keeps PTY masters, a private tmux server
keeps panes), so every terminal can be adopted by a later daemon with nothing lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ai_session.models import BackendStatus, ExitStatus, ScreenSnapshot, TerminalSpec


class Terminal(Protocol):
    """One kernel terminal with a child. All methods run on the event loop and never block it."""

    @property
    def session_id(self) -> str:
        """The id from the spec it was opened with."""
        ...

    @property
    def pid(self) -> int:
        """Process id of the child, which leads the terminal's session."""
        ...

    @property
    def tty(self) -> str:
        """Path of the terminal device (``/dev/pts/7``), usable with termios."""
        ...

    @property
    def writes_log(self) -> bool:
        """True: output arrives in ``directory/log`` by itself. False: the owner must call ``read_into``."""
        ...

    @property
    def losing(self) -> bool:
        """True while output finds no way to the log, because the disk is full or what brought it there was killed.

        ``on_output`` is called when that begins and when it is over; ``write(b"")`` tries whether it is.
        """
        ...

    async def settled(self) -> None:
        """Returns when it is known whether a terminal that loses output has ended: then ``on_exit`` was called."""
        ...

    @property
    def unsent(self) -> int:
        """How many bytes of input the terminal has not taken yet."""
        ...

    def unread(self, count: int) -> None:
        """Says how many bytes that were printed the owner has not taken in. With too many, programs wait in writing.

        Of no consequence where nothing is taken from the terminal but by the owner.
        """
        ...

    def start(self, on_output: Callable[[], None], on_exit: Callable[[ExitStatus], None]) -> None:
        """Begin to watch. ``on_output`` is called when bytes are there; ``on_exit`` once, after the last of them."""
        ...

    def read_into(self, buffer: memoryview) -> int:
        """Read output into ``buffer`` without blocking: bytes read, 0 when none is there now.

        At most ``len(buffer)`` bytes by one system call, so that a killed reader loses nothing it did not store.
        """
        ...

    def write(self, data: bytes) -> None:
        """Queue input; never blocks, keeps order. Ignored once the terminal has ended."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size; the foreground group gets SIGWINCH."""
        ...

    async def capture(self) -> ScreenSnapshot | None:
        """The rendered screen where the backend keeps one, else None (then render it from the log)."""
        ...

    async def capture_ansi(self) -> bytes | None:
        """The rendered screen as bytes that redraw it, or None as above."""
        ...

    def detach(self) -> None:
        """Stop watching and leave the terminal alive for a later daemon."""
        ...

    async def close(self) -> None:
        """Hang up and free the terminal. Processes that ignore the hang-up are the owner's to end. Idempotent."""
        ...


class Backend(Protocol):
    """Opens terminals and finds again those an earlier daemon left. Made as ``PLUGIN(runtime_directory)``."""

    name: str

    async def probe(self) -> BackendStatus:
        """Whether it works on this machine, by trying; never raises."""
        ...

    async def make_ready(self) -> None:
        """Start what ``open`` would start first, while its caller does something else.

        Raises as ``open``, which then raises again: nobody needs to look.
        """
        ...

    async def open(self, spec: TerminalSpec) -> Terminal:
        """Start ``spec.argv`` on a new terminal. The child sees exactly ``spec.env`` (plus what the terminal itself
        needs).

        Raises BackendUnavailable, TerminalsExhausted, DirectoryUnusable.
        """
        ...

    async def adopt(self) -> Sequence[Terminal]:
        """Terminals an earlier daemon left alive (or dead with a known status), not yet started; starts none again."""
        ...

    async def aclose(self) -> None:
        """Disconnect; terminals stay alive."""
        ...

    async def stop(self) -> None:
        """End the keeper process (holder or tmux server) itself and all terminals left in it."""
        ...
