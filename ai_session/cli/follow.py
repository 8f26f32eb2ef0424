"""Output that is shown while it grows: whole lines in a pipe; on a terminal also the last line while it changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ai_session.client.connection import ControlClient
from ai_session.errors import OutputExpired

WAIT_SECONDS = 50.0
PAGE_CHARS = 200_000

FIRST_POLL_SECONDS, LAST_POLL_SECONDS = 0.2, 5.0
"""The shortest and longest interval of polling whether a command waits for input; there is no event for that."""

RETRY_SECONDS = 1.0
"""The interval of polling for output that ends with half a character: there are new bytes, but no new text."""


class Follower:
    """Reads one command's output (or ``all`` of a session's) from ``offset`` on. ``page`` is the latest result.

    ``polls``: pages are read even while nothing is printed, so that the caller notices when input is waited for.
    """

    def __init__(
        self, client: ControlClient, session: str, command_id: str, offset: int, *, live: bool, polls: bool = False
    ) -> None:
        self._client = client
        self._wanted = {"session_id": session, "command_id": command_id, "max_output_chars": PAGE_CHARS}
        self._anchor = offset
        self._end = offset
        self._shown = ""
        self._lost = 0
        self._live = live
        self._polls = polls
        self.page: dict[str, Any] = {}
        self.notices: list[dict[str, Any]] = []
        """Notices about the workspace since the start."""

    def follow(self, wait: Callable[[float], float]) -> Iterator[str]:
        """Yield what to print until the command or session has ended. ``wait`` limits the length of one wait."""
        stuck = False
        patience = FIRST_POLL_SECONDS if self._polls else WAIT_SECONDS
        while True:
            if stuck:
                self._read(wait_for="output", timeout_seconds=wait(RETRY_SECONDS))
                page = self._read(offset=self._end)
            else:
                page = self._read(offset=self._end, wait_for="output", timeout_seconds=wait(patience))
            if self._polls:
                silent = page.get("waited") == "timeout"
                patience = min(patience * 2, LAST_POLL_SECONDS) if silent else FIRST_POLL_SECONDS
            over = page["status"] != "running" or page.get("waited") == "finished"
            stuck = page.get("waited") == "output" and page["next_offset"] == self._end
            if self._anchor != self._end:
                page = self._read(offset=self._anchor)
            self.page = page
            yield self._new_text(page, over and page["next_offset"] >= page["end_offset"])
            if over and self._anchor >= page["end_offset"]:
                return

    def rest(self) -> Iterator[str]:
        """Yield the remaining output; of a program that prints without end, what there was at the beginning."""
        over, end = bool(self.page) and self._anchor >= self.page["end_offset"], -1
        while not over:
            self.page = self._read(offset=self._anchor)
            end = self.page["end_offset"] if end < 0 else end
            yield self._new_text(self.page, last=True)
            over = self._anchor >= end

    def _read(self, **how: Any) -> dict[str, Any]:
        while True:
            try:
                page = self._client.call("read_output", **self._wanted, **how).structured
                self.notices += page.get("notices", [])
                return page
            except OutputExpired as error:
                first = re.search(r"offset (\d+)", error.suggestion)
                if first is None or "offset" not in how:
                    raise
                self._lost += int(first[1]) - how["offset"]
                how["offset"] = self._anchor = self._end = int(first[1])
                self._shown = ""

    def _new_text(self, page: dict[str, Any], last: bool) -> str:
        """Return what was not printed before. An unfinished last line is read again with what follows it."""
        text: str = page["output"]
        self._end = page["next_offset"]
        done = last or self._end < page["end_offset"] or text.endswith("\n") or not text
        lost = self._lost
        self._lost = 0
        new = self._difference(text if done or self._live else text[: text.rfind("\n") + 1])
        if done:
            self._anchor = self._end
            self._shown = ""
        return f"\n[{lost} bytes are no longer stored]\n{new}" if lost else new

    def _difference(self, text: str) -> str:
        shown = self._shown
        self._shown = text
        if text.startswith(shown):
            return text[len(shown) :]
        same = next(
            (index for index, pair in enumerate(zip(shown, text, strict=False)) if pair[0] != pair[1]), len(text)
        )
        unchanged = text.rfind("\n", 0, same) + 1
        up = shown.count("\n", unchanged)
        if self._live:
            return (f"\x1b[{up}A" if up else "") + "\r\x1b[J" + text[unchanged:]
        return "".join(text.splitlines(keepends=True)[shown.count("\n") :])
