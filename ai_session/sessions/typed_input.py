"""The input that people and clients typed at a session's prompt: the half-typed line, and the lines that were ended.

No I/O. A shell with a line editor reports each line that it begins to run. One without reports prompts only, so lines
are counted against prompts.
"""

from __future__ import annotations

import re

LINE_ENDS = re.compile(rb"[\r\n]")
MOST_HALF_BYTES = 4096
_KEYS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
_WORD = re.compile(r"\S*\s*\Z")


class TypedInput:
    """The input since the shell was last known to be at an empty prompt; ``unsettled`` if there was any.

    ``count`` grows with each input, so that two checks show whether anything was typed between them. ``ended_at`` is
    the end of the log when a line was ended last, 0 if no prompt is expected for it. ``ran``: the shell has reported
    since then that it runs a line.
    """

    def __init__(self) -> None:
        self.unsettled = self.ran = False
        self.count = self.ended_at = 0
        self._owed = self._ahead = False
        self._half = self._text = b""
        self._lines = 0
        self._before = self._shown = 0
        self._mark = 0

    def add(self, data: bytes, interrupt: bytes, prompts: int, offset: int = 0, shown: int = 0) -> None:
        """Record ``data``, typed after ``prompts`` prompts, when the log ended at ``offset``.

        ``interrupt`` is the key that drops what was typed before it; ``shown`` counts the prompts of the line editor.
        """
        if not self.unsettled and not self._mark:
            self._before = prompts
        if not self.unsettled:
            self.ran = False
            self._shown = shown
        self.unsettled = True
        self.count += 1
        _, key, rest = data.rpartition(interrupt) if interrupt else (b"", b"", data)
        if key:
            # The shell answers with one prompt.
            self._half = self._text = b""
            self._lines = 1
            self.ended_at = 0
        pieces = LINE_ENDS.split(rest)
        if len(pieces) > 1:
            self._half = b""
            self._lines += len(pieces) - 1
            self.ended_at = offset
        self._half = (self._half + pieces[-1])[-MOST_HALF_BYTES:]
        self._text = (self._text + rest)[-MOST_HALF_BYTES:]

    def begin_at(self, mark: int) -> None:
        """Count lines from the mark with the number ``mark``: when it is printed, all earlier input has been read."""
        self._mark = mark
        self._lines = 0

    def reached(self, mark: int, prompts: int) -> bool:
        """Record that ``mark`` was read, after ``prompts`` prompts. Report whether lines are counted from it."""
        if not self._mark or mark < self._mark:
            return False
        self._mark = 0
        self._before = prompts
        return True

    def answered(self, prompts: int) -> bool:
        """Report whether a prompt has followed each line that was typed."""
        return not self._mark and prompts - self._before >= self._lines

    def all_taken(self, shown: int) -> bool:
        """Report whether a line editor, with ``shown`` prompts so far, has shown one for each line typed."""
        return 0 < self._lines <= shown - self._shown

    def owe_prompt(self) -> None:
        """Record that the latest input was typed before the prompt that it is for appeared."""
        self._owed = self.ended_at > 0
        self._ahead = True

    def prompt_at(self, offset: int) -> None:
        """Record a prompt that ends at ``offset`` of the log."""
        if self._owed and self.ended_at:
            self.ended_at = offset
        self._owed = False

    @property
    def expects_prompt(self) -> bool:
        """Whether a prompt is to follow the line that was ended last; not if that line may switch the prompt off."""
        return self.ended_at > 0 and b"PS1" not in self._text

    def prompted(self, prompts: int) -> bool:
        """Report whether any prompt has followed."""
        return prompts > self._before

    def prompt_proven(self, prompts: int, *, held: bool) -> None:
        """Record that the shell is at its prompt and has run all lines; ``held``: its line editor holds them all."""
        self._count_from(prompts, self._text if held else self._half)

    def answered_all(self, prompts: int) -> None:
        """Record that no prompt of their own will follow the lines so far. The shell may not have read them yet."""
        self._count_from(prompts, b"")

    def settle(self, prompts: int, *, held: bool) -> None:
        """Record that the shell is at its prompt and has read all lines; ``held``: its line editor ran none of them."""
        self.unsettled = self.ran = False
        # The line editor may hold them all as one incomplete line.
        incomplete = held and prompts == self._before and self._lines
        self._count_from(prompts, self._text if incomplete else self._half)

    def _count_from(self, prompts: int, half: bytes) -> None:
        """Count lines against the prompts after these; ``half`` is the half-typed line."""
        self._half = self._text = half
        self._ahead = self._ahead and half != b""
        self._lines = self._mark = self.ended_at = 0
        self._before = prompts

    def lines(self) -> str | None:
        """Return all lines typed since the shell was last known to be at an empty prompt.

        None if the shell may have read something else: keys edited a line, or the text is too long to be stored.
        """
        lines, end, _ = self._text.decode("utf-8", "replace").replace("\r", "\n").rpartition("\n")
        known = len(self._text) < MOST_HALF_BYTES and lines.replace("\n", "").isprintable()
        return lines + end if known else None

    def text_with(self, data: bytes) -> str:
        """Return the lines that ``data`` completes, including what stood at the prompt before."""
        return "\n".join(map(_visible, LINE_ENDS.split(self._half + data))).strip()

    def half_line(self) -> str:
        """Return the text at the prompt, as far as it can be derived from what was typed."""
        return _visible(self._half)

    def drop_half(self) -> str:
        """Return ``half_line`` and forget it. A line that was ended before its prompt is forgotten unseen: it may have
        been an answer, such as a password."""
        answer = self._ahead and LINE_ENDS.search(self._half)
        line = self.half_line() if self._half and not answer else ""
        self._half, self._ahead = b"", False
        return line


def _visible(typed: bytes) -> str:
    """Return what a line editor shows of ``typed``, if it was typed from left to right."""
    line = ""
    for char in _KEYS.sub("", typed.decode("utf-8", "replace")):
        if char in "\x7f\b":
            line = line[:-1]
        elif char == "\x15":
            line = ""
        elif char == "\x17":
            line = _WORD.sub("", line.rstrip())
        elif char.isprintable():
            line += char
    return line.strip()
