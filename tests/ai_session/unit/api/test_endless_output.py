"""Readers of what there is now, while a program prints without end."""

from __future__ import annotations

from typing import Any, cast

from ai_session.api import steps
from ai_session.cli.follow import Follower
from ai_session.client.connection import ControlClient, Reply

PAGE = 10


class Endless:
    """A client of a command that has printed another two pages whenever a page is read."""

    def __init__(self) -> None:
        self.end = 2 * PAGE

    def page(self, offset: int) -> dict[str, Any]:
        """What read_output answers."""
        self.end += 2 * PAGE
        return {
            "status": "running",
            "output": f"{offset:09}\n",
            "offset": offset,
            "next_offset": offset + PAGE,
            "end_offset": self.end,
        }

    def call(self, _: str, *, offset: int, **__: Any) -> Reply:
        """A call of the tool."""
        return Reply("", self.page(offset))


def test_logs_end_with_what_there_was_when_they_began() -> None:
    follower = Follower(cast("ControlClient", Endless()), "s", "all", 0, live=False)
    assert "".join(follower.rest()) == "000000000\n000000010\n000000020\n000000030\n"


def test_the_text_of_a_session_ends_with_what_there_was_when_it_was_asked_for() -> None:
    endless, reading = Endless(), steps.text("s", "all")
    call = next(reading)
    text = ""
    while not text:
        try:
            call = reading.send(endless.page(call.arguments["offset"]))
        except StopIteration as end:
            text = end.value
    assert text == "000000000\n000000010\n000000020\n000000030\n"
