"""What was typed at a session's prompt and not by the session itself: the line that is not ended, the lines that are.

No I/O. A shell with a line editor reports each line it begins to run. One without reports prompts only, so lines are
counted against prompts.
"""

from __future__ import annotations

import re

LINE_ENDS = re.compile(rb"[\r\n]")
MOST_HALF_BYTES = 4096
_KEYS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")
_WORD = re.compile(r"\S*\s*\Z")


class TypedInput:
    """``unsettled``: something was typed since the shell was last known to be at an empty prompt.

    ``count`` grows with each input, so that who looks twice knows whether anything was typed meanwhile. ``ended_at`` is
    where the log ended when a line was ended last, 0 where nothing is to come of that. ``ran``: the shell has reported
    since then that it runs a line.
    """

    def __init__(self) -> None:
        self.unsettled = self.ran = False
        self.count = self.ended_at = 0
        self._owed = False
        self._half = self._text = b""
        self._lines = 0
        self._before = self._shown = 0
        self._mark = 0

    def add(self, data: bytes, interrupt: bytes, prompts: int, offset: int = 0, shown: int = 0) -> None:
        """Note ``data``, typed after ``prompts`` prompts where the log ends at ``offset``.

        ``interrupt`` is the key that drops what came before it; ``shown`` counts the prompts of the line editor.
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
        """All that was typed before the mark ``mark`` is printed has been taken: count from there."""
        self._mark = mark
        self._lines = 0

    def reached(self, mark: int, prompts: int) -> bool:
        """Note that ``mark`` was read, after ``prompts`` prompts. Report whether lines are counted from it."""
        if not self._mark or mark < self._mark:
            return False
        self._mark = 0
        self._before = prompts
        return True

    def answered(self, prompts: int) -> bool:
        """Whether each line that was typed has led to a prompt."""
        return not self._mark and prompts - self._before >= self._lines

    def all_taken(self, shown: int) -> bool:
        """Report whether a line editor that has shown so many prompts has shown one for each line typed."""
        return 0 < self._lines <= shown - self._shown

    def owe_prompt(self) -> None:
        """What was just typed was typed before the prompt that it is for was there."""
        self._owed = self.ended_at > 0

    def prompt_at(self, offset: int) -> None:
        """A prompt was there, up to ``offset`` of the log."""
        if self._owed and self.ended_at:
            self.ended_at = offset
        self._owed = False

    @property
    def expects_prompt(self) -> bool:
        """Whether a prompt is to follow on the line that was ended last; one that changes the prompt may silence it."""
        return self.ended_at > 0 and b"PS1" not in self._text

    def prompted(self, prompts: int) -> bool:
        """Whether any prompt has followed."""
        return prompts > self._before

    def prompt_proven(self, prompts: int, *, held: bool) -> None:
        """Note that the shell has run all lines so far and is at its prompt, where the half line stands; ``held``: its
        line editor has run none of them and holds them all."""
        if held:
            self._half = self._text
        self._text = self._half
        self._lines = 0
        self._before = prompts
        self._mark = 0
        self.ended_at = 0

    def answered_all(self, prompts: int) -> None:
        """The lines so far lead to no prompt of their own; whether the shell has taken them is another question."""
        self._half = self._text = b""
        self._lines = 0
        self._before = prompts
        self._mark = 0
        self.ended_at = 0

    def settle(self, prompts: int, *, held: bool) -> None:
        """Note that the shell is at its prompt and has taken every line; ``held``: its line editor ran none of them."""
        self.unsettled = self.ran = False
        if held and prompts == self._before and self._lines:
            # The line editor holds them all, as one that is not complete.
            self._half = self._text
        self._lines = 0
        self._before = prompts
        self._mark = 0
        self.ended_at = 0
        self._text = self._half

    def lines(self) -> str | None:
        """Return all lines typed since the shell was last known to be at an empty prompt; None if that is not what the
        shell has read: keys may have edited a line, or it is too much to be stored."""
        lines, end, _ = self._text.decode("utf-8", "replace").replace("\r", "\n").rpartition("\n")
        known = len(self._text) < MOST_HALF_BYTES and lines.replace("\n", "").isprintable()
        return lines + end if known else None

    def text_with(self, data: bytes) -> str:
        """The lines that ``data`` ends, with what stood at the prompt before."""
        return "\n".join(map(_visible, LINE_ENDS.split(self._half + data))).strip()

    def half_line(self) -> str:
        """The text at the prompt, as far as it can be derived from what was typed."""
        return _visible(self._half)

    def drop_half(self) -> str:
        """``half_line``, which is gone from now on."""
        line = self.half_line() if self._half else ""
        self._half = b""
        return line


def _visible(typed: bytes) -> str:
    """What a line editor shows of ``typed``, where it was typed from left to right."""
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
