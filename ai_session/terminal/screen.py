"""The visible screen of a session, from its bytes: the grid a person would see, bytes that draw it again, and the
answers to a program's queries to its terminal.

The emulator is libghostty-vt through pyghostty; no other module names it. No I/O: bytes are passed to ``feed`` or read
lazily from the log.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from ai_session.errors import BackendUnavailable
from ai_session.models import ScreenSnapshot
from ai_session.system.turns import Steps

QUERY_TAIL_BYTES = 64
UNREAD_BYTES = 1 << 20
"""More than this is not fed in full (20 ms at the slowest): drawing starts at a clear of the screen or near the end."""
_REDRAW_BYTES = 256 << 10
_MODES_BYTES = 8 << 20
_FEED_SECONDS = 0.5
"""How long the emulator works for one update; what it has not drawn by then is left out, except for the end of it."""

_PIECE_SECONDS = 0.005
"""How long one feed should take."""

_USUAL_CELLS, _LEAST_BYTES, _FIRST_BYTES, _CHUNK_BYTES = 50 * 200, 64, 512, 32 << 10
"""How many bytes are fed at once to a screen of usual size, first and at most; to a larger one fewer. Of the slowest
bytes, the former take 10 ms, the latter a second."""

_MODES = 256
_MODES_PIECE_BYTES = 64 << 10
_REPLIES_BYTES = 4096
_LIMITS = {"SCROLLBACK_MAX_BYTES": 0, "KITTY_IMAGE_STORAGE_LIMIT": 0, "CONTINUATION_MAX_BYTES": 4096}
_FOREGROUND, _BACKGROUND = (0xE5, 0xE5, 0xE5), (0, 0, 0)

_QUERY = re.compile(
    rb"\x1b(?:\[(?:[0-9;]*+(?:[cn]|\$p)|\?[0-9;]*+(?:n|\$p)|[>=][0-9;]*+[cq])|\](?:4;[0-9]+|1[0-2]);\?|P\$q|Z)"
)
_KITTY_KEYBOARD_REPLY = re.compile(rb"\x1b\[\?[0-9]+u")
_PRIVATE_MODES = re.compile(rb"\x1b\[\?[0-9;]+[hl]")
_CLEAR = re.compile(rb"\x1b(?:c|\[2J|\[H\x1b\[J|\[\?(?:1049|1047|47)h)")
_CLEAR_BYTES = 8
_CANCEL = b"\x18"
_SCROLL_REGION = re.compile(rb"\x1b\[([0-9]+);[0-9]+r")

_DEFAULT_OFF = (1, 5, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2031, 2048)
_RESET = (
    b"\x1b\\\x1b[?1049l\x1b[!p"
    + b"".join(b"\x1b[?%dl" % mode for mode in _DEFAULT_OFF)
    + b"\x1b[20l\x1b[4l\x1b[?6l\x1b[?69l\x1b[?7h\x1b[?25h\x1b>\x1b[=0;1u\x1b[0 q\x1b(B\x0f\x1b[0m\x1b[r"
)


def has_query(chunk: bytes, before: bytes = b"") -> bool:
    """Report whether ``chunk`` completes or continues a query that ``Screen.replies`` answers.

    ``before`` has up to ``QUERY_TAIL_BYTES`` bytes that preceded it, so that a query split in two is seen. May be true
    without a query, never false with one. 0.2 us per chunk without an escape sequence.
    """
    if (cut := before.rfind(b"\x1b")) >= 0 and _QUERY.search(before[cut:] + chunk[:QUERY_TAIL_BYTES]):
        return True
    return b"\x1b" in chunk and _QUERY.search(chunk) is not None


def preload() -> None:
    """Load the emulator now (130 ms, once), for a caller that may not block later. Raises BackendUnavailable."""
    _emulator()


@functools.cache
def _emulator() -> Any:
    try:
        return import_module("pyghostty.core")
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"the terminal emulator cannot be loaded: {error}",
            suggestion="install pyghostty (Linux with glibc, macOS on arm64), or use the tmux backend",
        ) from error


class Screen:
    """A terminal of ``rows`` x ``cols`` without a window. Any chunking of the same bytes gives the same screen, and no
    bytes raise; memory is bounded (no scrollback). The constructor raises BackendUnavailable."""

    def __init__(self, rows: int, cols: int) -> None:
        core = _emulator()
        self.rows = max(1, rows)
        self.cols = max(1, cols)
        self.offset = 0
        """The log offset of the next byte to feed."""
        self._replies = bytearray()
        self._terminal: Any = core.Terminal(self.cols, self.rows, scrollback=0, fg=_FOREGROUND, bg=_BACKGROUND)
        for name, limit in _LIMITS.items():
            option = getattr(core.lib, f"GHOSTTY_TERMINAL_OPT_{name}")
            value = core.ffi.new("uint64_t*", limit)
            core.check(core.lib.ghostty_terminal_set(self._terminal._t[0], option, value), name)
        self._terminal.on_reply(functools.partial(_collect, self._replies))

    def feed(self, data: bytes) -> None:
        """Draw ``data`` and advance ``offset`` by its length."""
        self._terminal.feed(data)
        self.offset += len(data)

    def catch_up(self, read: Callable[[int, int], bytes], first: int, end: int, *, answer_from: int = 0) -> Steps[None]:
        """Draw what the log has between ``offset`` and ``end``; ``read(start, end)`` returns bytes from ``first`` on.

        If more than ``UNREAD_BYTES`` are unread, or some have expired, older bytes are skipped: those before the last
        clear of the screen, or else all but the newest; terminal modes set in the last 8 MB are kept. The same happens
        if drawing takes too long. Queries that ended before ``answer_from`` have been answered by another terminal.
        """
        start = max(self.offset, first)
        if start > self.offset or end - start > UNREAD_BYTES:
            yield from self._skip(read, start, end, _REDRAW_BYTES)
        first_bytes, most_bytes = self.quick_bytes, self._scaled(_CHUNK_BYTES)
        piece_bytes, left = first_bytes, _FEED_SECONDS
        while self.offset < end:
            stop = min(self.offset + piece_bytes, end)
            if self.offset < answer_from:
                stop = min(stop, answer_from)
            data = read(self.offset, stop)
            if not data:
                break
            took = yield functools.partial(self._timed, data)
            left -= took
            if self.offset <= answer_from:
                self._replies.clear()
            faster = int(len(data) * _PIECE_SECONDS / max(took, 1e-6))
            piece_bytes = max(_LEAST_BYTES, min(faster, 4 * piece_bytes, most_bytes))
            if left < 0 and end - self.offset > first_bytes:
                yield from self._skip(read, self.offset, end, first_bytes)
                left, piece_bytes = _FEED_SECONDS, first_bytes

    @property
    def quick_bytes(self) -> int:
        """The number of bytes, whatever they are, that are fed in some milliseconds."""
        return self._scaled(_FIRST_BYTES)

    def _scaled(self, usual_bytes: int) -> int:
        return max(_LEAST_BYTES, min(usual_bytes, usual_bytes * _USUAL_CELLS // (self.rows * self.cols)))

    def _timed(self, data: bytes) -> float:
        """Feed ``data`` and return the seconds of processor time it took."""
        begun = time.thread_time()
        self.feed(data)
        return time.thread_time() - begun

    def _skip(self, read: Callable[[int, int], bytes], start: int, end: int, redraw_bytes: int) -> Steps[None]:
        window_start = max(start, end - UNREAD_BYTES)
        window = read(window_start, end)
        clear = (yield from _last_clear(window)) if b"\x1b" in window else -1
        if window.endswith(b"\x1b[H", 0, max(clear, 0)):
            clear -= 3
        at = max(0, len(window) - redraw_bytes)
        if 0 <= clear < at:
            at = clear
        elif at or window_start > self.offset:
            # Begin where no sequence or character is cut in two.
            at = min((found for mark in (b"\x1b", b"\n") if (found := window.find(mark, at)) >= 0), default=at)
        yield
        modes = yield from _modes_in(read, max(start, end - _MODES_BYTES), window_start + at)
        yield functools.partial(self._terminal.feed, _CANCEL + b"\x1b[r\x1b[0m\x1b(B\x0f" + modes)
        self._replies.clear()
        self.offset = window_start + at

    def resize(self, rows: int, cols: int) -> None:
        """Change the size; long lines of the primary screen are wrapped again."""
        self.rows = max(1, rows)
        self.cols = max(1, cols)
        self._terminal.resize(self.cols, self.rows)

    def snapshot(self) -> ScreenSnapshot:
        """Return the grid as text."""
        lines = [line.rstrip(" ") for line in self._terminal.text().split("\n")[: self.rows]]
        lines += [""] * (self.rows - len(lines))
        col, row = self._terminal.cursor
        return ScreenSnapshot(
            rows=self.rows,
            cols=self.cols,
            lines=tuple(lines),
            cursor_row=row,
            cursor_col=col,
            cursor_visible=bool(self._terminal.get("cursor_visible", "bool")),
            title=self._title(),
            alternate_screen=self._in_alternate_screen(),
        )

    def styled(self) -> str:
        """Return the grid as lines of text with the sequences that colour it, and no others."""
        return (
            _format(self._terminal, (0, 0), (self.cols - 1, self.rows - 1))
            .replace(b"\r\n", b"\n")
            .decode(errors="replace")
        )

    def replies(self) -> bytes:
        """Return the terminal's answers to the program since the last call; at most 4 kB of them are kept."""
        answer = bytes(self._replies)
        self._replies.clear()
        return answer

    def ansi(self) -> bytes:
        """Return bytes that draw this screen on a terminal of the same size in any state: text, colours, title, modes,
        cursor, the primary screen behind an alternate one, and the beginning of an unfinished sequence."""
        parts = [_RESET, b"\x1b]2;%s\x1b\\" % self._title().encode(), b"\x1b[H\x1b[2J"]
        if self._in_alternate_screen():
            parts += [self._primary(), b"\x1b[?1049h\x1b[H\x1b[2J"]
        parts += [_content(self._terminal, self.rows, self.cols), _cursor(self._terminal), self._modes()]
        parts.append(self._unfinished())
        return b"".join(parts)

    def _in_alternate_screen(self) -> bool:
        return bool(self._terminal.get("active_screen", "GhosttyTerminalScreen"))

    def _title(self) -> str:
        value = self._terminal.get("title", "GhosttyString")
        raw: bytes = _emulator().ffi.buffer(value.ptr, value.len)[:] if value.len else b""
        return "".join(char for char in raw.decode(errors="replace") if char.isprintable())

    def _primary(self) -> bytes:
        """Return what draws the screen behind the alternate one. It can only be read on a copy that leaves the
        latter."""
        core = _emulator()
        ffi, lib = core.ffi, core.lib
        encoded = _written(functools.partial(lib.ghostty_snapshot_encode_buf, self._terminal._t[0]))
        if not encoded:
            return b""
        decoder, handle = ffi.new("GhosttySnapshotDecoder*"), ffi.new("GhosttyTerminal*")
        core.check(lib.ghostty_snapshot_decoder_new_buf(ffi.NULL, decoder, encoded, len(encoded)), "snapshot decoder")
        try:
            core.check(lib.ghostty_snapshot_decoder_decode(decoder[0], handle), "snapshot decode")
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
        try:
            copy: Any = object.__new__(core.Terminal)
            copy._t = handle
            copy._cb_err = None
            copy.feed(_CANCEL + b"\x1b[?1049l")
            col, row = copy.cursor
            return _content(copy, self.rows, self.cols) + b"\x1b[%d;%dH" % (row + 1, col + 1)
        finally:
            lib.ghostty_terminal_free(handle[0])

    def _modes(self) -> bytes:
        mode = self._terminal.mode
        changed = [b"\x1b[?%dh" % number for number in _DEFAULT_OFF if mode(number)]
        changed += [b"\x1b[4h"] * mode(4, ansi=True) + [b"\x1b[20h"] * mode(20, ansi=True)
        changed += [b"\x1b="] * mode(66) + [b"\x1b[?7l"] * (not mode(7)) + [b"\x1b[?25l"] * (not mode(25))
        return b"".join(changed)

    def _unfinished(self) -> bytes:
        return _written(functools.partial(_emulator().lib.ghostty_terminal_continuation_buf, self._terminal._t[0]))


def _last_clear(window: bytes) -> Steps[int]:
    """Return where the last sequence begins that clears the screen; -1 if there is none."""
    end = len(window)
    while end > 0:
        begin = max(0, end - _MODES_PIECE_BYTES)
        found = -1
        for match in _CLEAR.finditer(window, begin, min(end + _CLEAR_BYTES - 1, len(window))):
            found = match.start()
        if found >= 0:
            return found
        end = begin
        yield
    return -1


def _modes_in(read: Callable[[int, int], bytes], start: int, end: int) -> Steps[bytes]:
    """Return the newest settings of modes in the bytes from ``start`` to ``end``, each once, in order."""
    modes: dict[bytes, None] = {}
    last = end
    while end > start and len(modes) < _MODES:
        begin = max(start, end - _MODES_PIECE_BYTES)
        # A sequence across the border of two pieces is whole in the earlier one.
        piece = read(begin, min(end + QUERY_TAIL_BYTES, last))
        if b"\x1b" in piece:  # by far quicker than the search
            for mode in reversed(_PRIVATE_MODES.findall(piece)):
                modes.setdefault(mode)
        end = begin
        yield
    return b"".join(reversed(list(modes)[:_MODES]))


def _collect(replies: bytearray, reply: bytes) -> None:
    # Not offered: with the kitty keyboard on, a program may misread the keys that callers send.
    if not _KITTY_KEYBOARD_REPLY.fullmatch(reply) and len(replies) + len(reply) <= _REPLIES_BYTES:
        replies += reply


def _written(call: Callable[[Any, int, Any], int]) -> bytes:
    """Return what ``call(buffer, length, written)`` writes; nothing if it has none (a sequence over its limit)."""
    ffi = _emulator().ffi
    size = ffi.new("size_t*")
    call(ffi.NULL, 0, size)
    buffer = ffi.new("uint8_t[]", max(size[0], 1))
    return bytes(ffi.buffer(buffer, size[0])) if call(buffer, len(buffer), size) == 0 else b""


def _content(terminal: Any, rows: int, cols: int) -> bytes:
    """Return what fills a cleared screen."""
    lines = _format(terminal, (0, 0), (cols - 1, rows - 1)).split(b"\r\n")
    lines += [b""] * (rows - len(lines))
    drawn = ((y, line or _background(terminal, y, cols)) for y, line in enumerate(lines))
    return b"".join(b"\x1b[%d;1H%s" % (y + 1, line) for y, line in drawn if line)


def _cursor(terminal: Any) -> bytes:
    """Return what sets the scrolling region, the cursor in it, and the style of the next character."""
    region = _extra(terminal, scrolling_region=True)
    x, y = terminal.cursor
    origin = 0
    if terminal.mode(6):
        found = _SCROLL_REGION.search(region)
        origin = int(found[1]) - 1 if found else 0
        region += b"\x1b[?6h"
    last = b""
    if terminal.get("cursor_pending_wrap", "bool"):
        # The next character goes to the next line, a state that only writing the last cell again produces.
        (cell,) = _cells(terminal, y, (x,))
        if x and _cell_fact(cell, "WIDE", "GhosttyCellWide") == _emulator().lib.GHOSTTY_CELL_WIDE_SPACER_TAIL:
            x -= 1
        last = _format(terminal, (x, y), (x, y))
    style = _extra(terminal, style=True, hyperlink=True, charsets=True, kitty_keyboard=True)
    return b"%s\x1b[%d;%dH%s%s" % (region, max(y - origin, 0) + 1, x + 1, last, style)


def _background(terminal: Any, y: int, cols: int) -> bytes:
    """Return what draws a row without text, which the formatter leaves out although its cells may be coloured.

    Colour comes from erasing a line, to one of its ends; so a row is inspected (1 us a cell) only if an end has one.
    """
    ends = _cells(terminal, y, (0, cols - 1))
    if not any(ends):
        return b""
    drawn, last = b"", 0
    for x, cell in enumerate(_cells(terminal, y, range(cols))):
        if cell != last:
            # Erased to the end of the line with each change of colour: no cell becomes a written blank.
            drawn += b"\x1b[%dG\x1b[0%sm\x1b[K" % (x + 1, _colour(cell))
            last = cell
    return drawn + b"\x1b[0m"


def _colour(cell: int) -> bytes:
    lib = _emulator().lib
    tag = _cell_fact(cell, "CONTENT_TAG", "GhosttyCellContentTag")
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        return b";48;5;%d" % _cell_fact(cell, "COLOR_PALETTE", "GhosttyColorPaletteIndex")
    if tag == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        colour = _cell_fact(cell, "COLOR_RGB", "GhosttyColorRgb")
        return b";48;2;%d;%d;%d" % (colour.r, colour.g, colour.b)
    return b""


def _cells(terminal: Any, y: int, columns: Iterable[int]) -> list[int]:
    """Return the cells in the library's encoding; 0 is a cell never drawn on."""
    core = _emulator()
    signature = "GhosttyResult(*)(GhosttyTerminal, GhosttyPointS, GhosttyGridRef*)"
    locate = core.union_fn("ghostty_terminal_grid_ref", signature)
    cell_at = core.lib.ghostty_grid_ref_cell
    point = core.ffi.new("GhosttyPointS*")
    ref = core.init_sized("GhosttyGridRef")
    cell = core.ffi.new("GhosttyCell*")
    point.tag = core.lib.GHOSTTY_POINT_TAG_ACTIVE
    point.value.y = y
    found: list[int] = []
    for x in columns:
        point.value.x = x
        core.check(locate(terminal._t[0], point[0], ref), "grid ref")
        core.check(cell_at(ref, cell), "cell")
        found.append(cell[0])
    return found


def _cell_fact(cell: int, key: str, kind: str) -> Any:
    core = _emulator()
    value = core.ffi.new(f"{kind}*")
    core.check(core.lib.ghostty_cell_get(cell, getattr(core.lib, f"GHOSTTY_CELL_DATA_{key}"), value), key)
    return value[0]


def _extra(terminal: Any, **extra: bool) -> bytes:
    """Return only what the formatter adds after the content for ``extra``."""
    bare = _format(terminal, (0, 0), (0, 0))
    return _format(terminal, (0, 0), (0, 0), **extra)[len(bare) :]


def _format(terminal: Any, start: tuple[int, int], end: tuple[int, int], **extra: bool) -> bytes:
    core = _emulator()
    ffi, lib = core.ffi, core.lib
    options = core.init_sized("GhosttyFormatterTerminalOptions")
    options.emit = lib.GHOSTTY_FORMATTER_FORMAT_VT
    for name, wanted in extra.items():
        setattr(options.extra if name == "scrolling_region" else options.extra.screen, name, wanted)
    selection = core.init_sized("GhosttySelection")
    selection.start = terminal.ref(*start)[0]
    selection.end = terminal.ref(*end)[0]
    options.selection = selection
    formatter = ffi.new("GhosttyFormatter*")
    core.check(lib.ghostty_formatter_terminal_new(ffi.NULL, formatter, terminal._t[0], options[0]), "formatter")
    try:
        return _written(functools.partial(lib.ghostty_formatter_format_buf, formatter[0]))
    finally:
        lib.ghostty_formatter_free(formatter[0])
