"""The interfaces of a terminal and a backend, which know nothing of shells, marks or sessions.

A backend keeps terminals alive while no daemon runs (the holder keeps PTY masters, a private tmux server keeps panes),
so a later daemon can adopt every terminal without loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ai_session.models import BackendStatus, ExitStatus, ScreenSnapshot, TerminalSpec


class Terminal(Protocol):
    """One kernel terminal with a child. All methods run on the event loop and never block it."""

    @property
    def session_id(self) -> str:
        """The session id in the spec that the terminal was opened with."""
        ...

    @property
    def pid(self) -> int:
        """The process id of the child, which leads the terminal's session."""
        ...

    @property
    def tty(self) -> str:
        """The path of the terminal device (``/dev/pts/7``), usable with termios."""
        ...

    @property
    def writes_log(self) -> bool:
        """Whether output arrives in ``directory/log`` by itself; if not, the owner must call ``read_into``."""
        ...

    @property
    def losing(self) -> bool:
        """Whether output does not reach the log, because the disk is full or the process that writes it was killed.

        ``on_output`` is called when this begins and when it ends; ``write(b"")`` tries to end it.
        """
        ...

    async def settled(self) -> None:
        """Wait until it is known whether a terminal that loses output has ended; if so, ``on_exit`` was called."""
        ...

    @property
    def unsent(self) -> int:
        """The number of bytes of input that the terminal has not accepted yet."""
        ...

    def unread(self, count: int) -> None:
        """Report the number of printed bytes that the owner has not processed. With too many, programs block in writes.

        Has no effect if only the owner reads from the terminal.
        """
        ...

    def start(self, on_output: Callable[[], None], on_exit: Callable[[ExitStatus], None]) -> None:
        """Begin to watch. ``on_output`` is called when output arrives, ``on_exit`` once, after the last output."""
        ...

    def read_into(self, buffer: memoryview) -> int:
        """Read output into ``buffer`` without blocking. Return the number of bytes, 0 if there are none now.

        One system call reads at most ``len(buffer)`` bytes, so a reader that is killed loses no more than that.
        """
        ...

    def write(self, data: bytes) -> None:
        """Queue input; never blocks, keeps order. Ignored once the terminal has ended."""
        ...

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size; the foreground process group receives SIGWINCH."""
        ...

    async def capture(self) -> ScreenSnapshot | None:
        """Return the rendered screen, or None if the backend keeps none (then render it from the log)."""
        ...

    async def capture_ansi(self) -> bytes | None:
        """Return the rendered screen as bytes that redraw it, or None if the backend keeps none."""
        ...

    def detach(self) -> None:
        """Stop watching and leave the terminal alive for a later daemon."""
        ...

    async def close(self) -> None:
        """Hang up and free the terminal; idempotent. The owner must end processes that ignore the hang-up."""
        ...


class Backend(Protocol):
    """Opens terminals and adopts those an earlier daemon left. Created as ``PLUGIN(runtime_directory)``."""

    name: str

    async def probe(self) -> BackendStatus:
        """Try the backend and return whether it works on this machine; never raises."""
        ...

    async def make_ready(self) -> None:
        """Start in advance what the first ``open`` starts. Raises OSError and what ``open`` raises if it does not
        start, and BackendUnavailable if it is too old."""
        ...

    async def open(self, spec: TerminalSpec) -> Terminal:
        """Start ``spec.argv`` on a new terminal, with exactly ``spec.env`` and the variables the terminal needs.

        Raises BackendUnavailable, TerminalsExhausted, DirectoryUnusable.
        """
        ...

    async def adopt(self) -> Sequence[Terminal]:
        """Return the terminals an earlier daemon left, alive or ended with a known status. ``start`` is to be called.

        A second call does not return the same terminals again. No holder or tmux server is started for it.
        """
        ...

    async def aclose(self) -> None:
        """Disconnect; terminals stay alive."""
        ...

    async def stop(self) -> None:
        """End the holder or tmux server, and all terminals left in it."""
        ...
