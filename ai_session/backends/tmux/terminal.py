"""One terminal on a private tmux server: its input, screen, log and end.

Output goes from tmux through a pipe into ``directory/log``, with or without a daemon. The pipe's command, the sink,
holds the FIFO ``directory/sink``: when that ends, tmux has no more output, and only then is it asked how the child
ended. A saver, which holds the FIFO ``directory/tail``, appends the output that tmux did not read. A sink reports that
it runs through the FIFO ``directory/ready``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path

from ai_session.backends.tmux.control import Blocks, TmuxRefused, join, quote
from ai_session.backends.tmux.pty_master import BorrowedTty, borrow_tty
from ai_session.backends.tmux.server import ANSWER_SECONDS, EXIT_OPTION, ServerGone, TmuxServer
from ai_session.errors import OperatorError
from ai_session.models import ExitStatus, ScreenSnapshot
from ai_session.system.events import FileGrowth, Lifeline, Process

CHUNK_BYTES = 16384
CHUNKS_IN_FLIGHT = 4
SPARE_BYTES, STEP_BYTES = 8 << 20, 4 << 20
"""After each step, the sink removes output that is older than the bytes to keep and the spare ones."""

HOLD_BYTES, GO_BYTES = 4 << 20, 1 << 20
"""With more unread than the former, the terminal stops its output, until less than the latter is unread."""

_KEEP = f"#{{?@ais-keep,#{{@ais-keep}},{(64 << 20) + SPARE_BYTES}}}"
_READY = "echo >&5 && exec 5>&-"
# dd ends when it has written a step or its input has ended; if it cannot count bytes, it counts reads. It writes what
# it has read at once, as cat does. The daemon removes more of the log, but may be stopped or absent. A failed copy ends
# the sink, and the daemon is notified. The log's length is that of the open file if the system supports it, because the
# log's name may have been removed.
COPIES = (f"dd bs=65536 count={STEP_BYTES} iflag=count_bytes", f"dd bs=65536 count={STEP_BYTES // 65536}")
_COPY = f"""\
copy='#{{@ais-copy}}'
[ "$copy" ] || {{ copy='{COPIES[0]}'; $copy count=0 </dev/null 2>/dev/null || copy='{COPIES[1]}'; }}
had=-1
while $copy 2>/dev/null && now=$({{ wc -c </dev/fd/4 || wc -c <log; }} 2>/dev/null) && [ $now -gt $had ]; do
had=$now old=$((now - {_KEEP}))
[ $old -le 0 ] || fallocate -p -o 0 -l $old log 2>/dev/null || #{{q:@ais-python}} -IS -c '
import ctypes, os, sys
size = ctypes.c_int64(int(sys.argv[1]))
ctypes.CDLL(None).fallocate(os.open("log", os.O_RDWR), 3, ctypes.c_int64(0), size)
' $old 2>/dev/null
done
"""
SINK = f"cd #{{q:@ais-dir}} && exec 3<>sink 5<>ready >>log 4>&1 && {_READY} || exit\nLC_ALL=C; export LC_ALL\n{_COPY}"
_TRY = f"{{ head -c 16384 /dev/zero >room && rm room || {{ rm -f room; false; }}; }} && {_READY}"
ROOM = SINK.replace(_READY, _TRY, 1)
LOST = ROOM.replace(_READY, f"echo && echo '[output is missing here: it could not be stored]' && {_READY}", 1)
SCREEN = "#{pane_height} #{pane_width} #{cursor_y} #{cursor_x} #{cursor_flag} #{alternate_on} #{pane_title}"


class TmuxTerminal:
    """A pane as a ``Terminal``. ``forget`` is called when it is no longer watched."""

    writes_log = True

    def __init__(
        self,
        server: TmuxServer,
        growth: FileGrowth,
        session_id: str,
        directory: str,
        forget: Callable[[TmuxTerminal], None],
    ) -> None:
        self.session_id = session_id
        self.directory = Path(directory)
        self.pid = 0
        self.tty = ""
        self.pane = ""
        self.hang_up: Callable[[], Awaitable[None]] | None = None
        self.ended: ExitStatus | None = None
        self.losing = self._lost = False
        self._server = server
        self._server_pid = 0
        self._growth = growth
        self._forget = forget
        self._on_output: Callable[[], None] | None = None
        self._on_exit: Callable[[ExitStatus], None] | None = None
        self._queue = bytearray()
        self._in_flight = 0
        self._sink: Lifeline | None = None
        self._ready: Lifeline | None = None
        self._stalled = False
        self._settling: asyncio.Future[None] | None = None
        self._stopped_tty = -1
        self._piped_at = -1
        self._gate = -1
        self._hold: BorrowedTty | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def unsent(self) -> int:
        return len(self._queue)

    @property
    def log(self) -> str:
        """The path of the log that the sink appends to."""
        return str(self.directory / "log")

    def make_files(self) -> None:
        """Create the log, FIFOs that no earlier process holds, and a closed gate, before the pane is created."""
        for name in ("sink", "ready", "tail", "gate"):
            (self.directory / name).unlink(missing_ok=True)
            os.mkfifo(self.directory / name, 0o600)
        os.close(os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._sink = Lifeline(self.directory / "sink")
        self._ready = Lifeline(self.directory / "ready")
        self._gate = os.open(self.directory / "gate", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    async def begin(self) -> None:
        """Wait for the sink of a new pane, hold its tty and let the child run. Raises OSError."""
        self._server_pid = self._server.pid
        if self._ready is None or not await self._ready.word():
            raise OSError(f"cannot append to {self.log}")
        self._close_ready()
        self._hold_on()
        self.open_gate()

    def _hold_on(self) -> None:
        """Hold the tty open if the server's ``hold`` is set and the kernel allows it.

        When the child ends or closes its tty for a while, tmux drops the pane with the output it has not read. A tty
        held open stays usable, and the saver reads its output to the end.
        """
        if self._hold is None and self._server.hold:
            self._hold = borrow_tty(self._server_pid, self.tty)
        if self._hold is None:
            return
        tail = Lifeline(self.directory / "tail")
        if not tail.held():
            sink, own = str(self.directory / "sink"), str(self.directory / "tail")
            # Without room for a process, this daemon saves the tail itself as long as it lives.
            with contextlib.suppress(OSError):
                self._server.take_child(self._hold.leave_saver(self.pid, sink, own, self.log))
        tail.close()

    def open_gate(self) -> None:
        """Let the child run: without the gate's name it does not wait, and if it waits already it reads the end."""
        if self._gate < 0:
            with contextlib.suppress(OSError):
                self._gate = os.open(self.directory / "gate", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        (self.directory / "gate").unlink(missing_ok=True)
        self._gate = close_fd(self._gate)

    def adopt(self) -> None:
        """Adopt a terminal that an earlier daemon left. If its sink has ended, ``start`` begins a new one.

        Does not ask tmux, which notices the end of a sink only when it has output. Raises FileNotFoundError if the
        directory does not exist.
        """
        self._server_pid = self._server.pid
        self._sink = Lifeline(self.directory / "sink")
        self._stalled = not self._sink.held()
        if self._stalled:
            self._close_sink()
        elif self.ended is None:
            self._hold_on()
        self.open_gate()
        if self.ended is None:
            self._resume_output()  # the daemon that stopped it may have been killed

    def start(self, on_output: Callable[[], None], on_exit: Callable[[ExitStatus], None]) -> None:
        self._on_output = on_output
        self._on_exit = on_exit
        self._growth.add(self.log, self._grown)
        if self._sink is not None:
            self._sink.watch(self._sink_ended)
        asyncio.get_running_loop().call_soon(self._grown)
        if self.ended is None:
            self._reaper = self._server.spawn(self._reap())

    def read_into(self, buffer: memoryview) -> int:
        return 0

    def write(self, data: bytes) -> None:
        if self.ended is None:
            self._queue += data
            self._pump()
            self.touch()

    def unread(self, count: int) -> None:
        """Do as ``Terminal.unread``, by having the kernel stop the output, because tmux always continues to read.

        A program inside can undo this, but the log stays within its bounds.
        """
        if self._stopped_tty < 0 and count > HOLD_BYTES and self.ended is None:
            with contextlib.suppress(OSError, termios.error):
                # Kept open, so that resuming needs no new descriptor.
                self._stopped_tty = self._open_tty()
                termios.tcflow(self._stopped_tty, termios.TCOOFF)
        elif self._stopped_tty >= 0 and count < GO_BYTES:
            self._resume_output()

    def _resume_output(self) -> None:
        with contextlib.suppress(OSError, termios.error):
            self._stopped_tty = self._stopped_tty if self._stopped_tty >= 0 else self._open_tty()
            termios.tcflow(self._stopped_tty, termios.TCOON)
        self._stopped_tty = close_fd(self._stopped_tty)

    def _open_tty(self) -> int:
        return os.open(self.tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)

    async def resize(self, rows: int, cols: int) -> None:
        await self._ask(join(["resize-window", "-t", self.pane, "-x", str(cols), "-y", str(rows)]))
        # tmux resizes the tty up to 250 ms later if it was resized shortly before.
        with contextlib.suppress(OSError, termios.error):
            tty = self._open_tty()
            try:
                termios.tcsetwinsize(tty, (rows, cols))
            finally:
                os.close(tty)

    async def capture(self) -> ScreenSnapshot | None:
        if (screen := await self._screen("-p")) is None:
            return None
        facts, lines = screen
        rows, cols, row, col, visible, alternate, *title = facts.decode("utf-8", "replace").split(" ", 6)
        return ScreenSnapshot(
            rows=int(rows),
            cols=int(cols),
            lines=tuple(line.decode("utf-8", "replace").rstrip(" ") for line in lines[: int(rows)]),
            cursor_row=int(row),
            cursor_col=min(int(col), int(cols) - 1),
            cursor_visible=visible == "1",
            title=title[0] if title else "",
            alternate_screen=alternate == "1",
        )

    async def capture_ansi(self) -> bytes | None:
        if (screen := await self._screen("-pe")) is None:
            return None
        facts, lines = screen
        _, _, row, col, visible, alternate, *title = facts.split(b" ", 6)
        out = [b"\x1b[?1049h" if alternate == b"1" else b"", b"\x1b[0m\x1b[H\x1b[2J"]
        out += [b"\x1b[%dH%s" % (number, line) for number, line in enumerate(lines, 1) if line]
        out.append(b"\x1b[0m\x1b[%d;%dH" % (int(row) + 1, int(col) + 1))
        out.append(b"\x1b[?25h" if visible == b"1" else b"\x1b[?25l")
        out.append(b"\x1b]2;%s\x07" % title[0] if title and title[0] else b"")
        return b"".join(out)

    def detach(self) -> None:
        self._on_output = self._on_exit = None
        if self._stopped_tty >= 0:
            self._resume_output()
        if self._reaper is not None:
            self._reaper.cancel()
        self._growth.remove(self.log)
        self._close_sink()
        self._close_ready()
        self._gate = close_fd(self._gate)
        hold = self._hold
        self._hold = None
        if hold is not None:
            asyncio.get_running_loop().remove_writer(hold.master)
            hold.close()
        self._forget(self)

    async def close(self) -> None:
        self.detach()
        self._queue.clear()
        hang_up = self.hang_up
        self.hang_up = None
        self.ended = self.ended or ExitStatus(signal=1)
        with contextlib.suppress(OperatorError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if hang_up is not None:
                    await hang_up()
                await self._server.ask(join(["set-option", "-gqu", EXIT_OPTION + self.session_id]))

    def touch(self) -> None:
        """Try again to start a sink that could not be started before, because conditions may have changed."""
        if self._stalled:
            self._settle_soon()

    def _grown(self) -> None:
        if self._on_output is not None:
            self._on_output()
        # A hole punched into the log is reported as growth too, and means free space on the disk.
        self.touch()

    def _pump(self) -> None:
        if self._hold is not None:
            self._pour(self._hold)
            return
        while self._queue and self._in_flight < CHUNKS_IN_FLIGHT:
            # tmux buffers are C strings, so NUL bytes are sent as keys, which a pane in copy mode would not pass on.
            nuls = len(self._queue) - len(self._queue.lstrip(b"\0"))
            end = self._queue.find(0, 0, CHUNK_BYTES)
            size = min(nuls or (end if end > 0 else len(self._queue)), CHUNK_BYTES)
            data = bytes(self._queue[:size])
            del self._queue[:size]
            self._in_flight += 1
            if nuls:
                pane = self.pane.encode()
                line = b"copy-mode -q -t %s ; send-keys -t %s -H" % (pane, pane) + b" 00" * size
                self._server.type_in(line, 2, self._server_pid, self._sent)
            else:
                self._server.type_in(self._paste(data), 3, self._server_pid, self._sent)

    def _pour(self, hold: BorrowedTty) -> None:
        """Write directly to the terminal, 0.1 ms faster than through tmux and with notice when the terminal is full."""
        try:
            done = hold.write(self._queue)
        except OSError:
            self._queue.clear()
            done = True
        if done:
            asyncio.get_running_loop().remove_writer(hold.master)
        else:
            asyncio.get_running_loop().add_writer(hold.master, self._pour, hold)

    def _paste(self, data: bytes) -> bytes:
        # paste-buffer into a pane whose tty is closed kills tmux 3.3a.
        pane, flags = self.pane.encode(), self._server.paste_flags
        line = b'set-buffer -b ais -- %s ; if-shell -F -t %s "#{?pane_dead,0,#{==:#{pane_id},%s}}"'
        line += b" { paste-buffer %s -b ais -t %s } { delete-buffer -b ais }"
        return line % (quote(data), pane, pane, flags, pane)

    def _sent(self) -> None:
        self._in_flight -= 1
        self._pump()

    async def _screen(self, flags: str) -> tuple[bytes, list[bytes]] | None:
        facts = join(["display-message", "-p", "-t", self.pane, SCREEN])
        capture = join(["capture-pane", flags, "-t", self.pane])
        answer = await self._ask(facts + b" ; " + capture, 2, counted=True)
        return None if answer is None else (answer[0][0], answer[1])

    async def _ask(self, line: bytes, blocks: int = 1, *, counted: bool = False) -> Blocks | None:
        self.touch()
        if self.ended is None:
            # If it is refused or the server has ended, so has the pane, which its sink is about to report.
            with contextlib.suppress(TmuxRefused, ServerGone):
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        return await self._server.ask(line, blocks, counted=counted, pid=self._server_pid)
                except TimeoutError:
                    raise self._server.silent() from None
        return None

    def _close_ready(self) -> None:
        ready = self._ready
        self._ready = None
        if ready is not None:
            ready.close()

    def _close_sink(self) -> None:
        sink = self._sink
        self._sink = None
        self.losing = True
        if sink is not None:
            sink.close()

    def _sink_ended(self) -> None:
        self._close_sink()
        self._grown()
        self._settle_soon()

    def _settle_soon(self) -> None:
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_future()
            self._server.spawn(self._settle(self._settling))

    async def settled(self) -> None:
        self.touch()
        if self._settling is not None:
            await asyncio.shield(self._settling)

    async def _settle(self, settled: asyncio.Future[None]) -> None:
        """Report how the child ended, or start a new sink, after the sink has ended or if there was none."""
        touched = self._stalled
        self._stalled = False
        try:
            if not await self._concluded() and self._sink is None:
                # After a sink that saved nothing, only a touch starts another: the disk may be full.
                before = self._piped_at
                self._piped_at = os.stat(self.log).st_size
                self._stalled = True
                if touched or before != self._piped_at:
                    await self._pipe_again()
        except TmuxRefused:
            # The pane is just dying; tmux notifies when it is dead.
            self._stalled = not await self._concluded()
        except (OSError, OperatorError):
            self._stalled = True
        finally:
            self._settling = None
            settled.set_result(None)

    async def _pipe_again(self) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(self.directory / "ready", 0o600)  # an earlier version created none
        sink = Lifeline(self.directory / "sink")
        try:
            await self._begin_sink(LOST if self._lost else ROOM)
        except BaseException:
            sink.close()
            self._lost = True
            raise
        self._stalled = self.losing = self._lost = False
        self._sink = sink
        self._hold_on()
        sink.watch(self._sink_ended)
        self._grown()

    async def _begin_sink(self, command: str) -> None:
        ready = Lifeline(self.directory / "ready")
        try:
            await self._server.ask(join(["pipe-pane", "-O", "-t", self.pane, command]), pid=self._server_pid)
            if not await ready.word() or self._on_exit is None:
                raise OSError(f"cannot append to {self.log}")
        finally:
            ready.close()

    async def _concluded(self) -> bool:
        """Return whether the child is known to have ended. Reports its end to the owner unless a sink still works."""
        what = f"#{{pane_id}} #{{{EXIT_OPTION}{self.session_id}}}"
        try:
            question = join(["display-message", "-p", "-t", self.pane, what])
            [[line]] = await self._server.ask(question, pid=self._server_pid)
        except ServerGone:
            status = ExitStatus(lost=True)
        else:
            pane, _, status_text = line.decode("utf-8", "replace").partition(" ")
            if not status_text and pane == self.pane:
                return False
            status = exit_status(*status_text.split(",")[:2]) if status_text else ExitStatus(lost=True)
        if self._sink is None:
            # What a killed server had read is lost, and output after such a gap would mislead.
            if not status.lost:
                await self._save_tail()
            self._finish(status)
        return True

    async def _save_tail(self) -> None:
        tail = Lifeline(self.directory / "tail")
        try:
            if tail.held():
                await tail.end()
            elif self._hold is not None:
                with open(self.log, "ab", buffering=0) as log:
                    log.writelines(self._hold.tail())
        finally:
            tail.close()

    async def _reap(self) -> None:
        """Signal the child's end to tmux until tmux reaps it: SIGCHLD is lost while tmux waits for its utempter."""
        try:
            process = Process(self.pid)
        except ProcessLookupError:
            return
        try:
            await process.ended()
            while not process.reaped():
                os.kill(self._server_pid, signal.SIGCHLD)
                # After a round trip, tmux has handled its signals.
                await self._server.ask(b"display-message -p x", pid=self._server_pid)
        except (OperatorError, ProcessLookupError):
            pass
        finally:
            process.close()

    def _finish(self, status: ExitStatus) -> None:
        self.ended = status
        self._queue.clear()
        on_output, on_exit = self._on_output, self._on_exit
        if on_output is not None and on_exit is not None:
            self.detach()
            on_output()
            on_exit(status)


def close_fd(fd: int) -> int:
    """Close a descriptor unless it is -1. Return -1, the value to store instead."""
    if fd >= 0:
        os.close(fd)
    return -1


def exit_status(code: str, signal_name: str) -> ExitStatus:
    """Parse tmux's exit code and signal; newer versions name the signal, older ones give its number."""
    if code:
        return ExitStatus(code=int(code))
    if signal_name.isdecimal():
        return ExitStatus(signal=int(signal_name))
    known = signal.Signals.__members__.get("SIG" + signal_name.upper().removeprefix("SIG"))
    return ExitStatus(lost=True) if known is None else ExitStatus(signal=int(known))
