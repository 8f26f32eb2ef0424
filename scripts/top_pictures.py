"""Pictures of `ai-session top`, as a person's terminal shows it."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.ai_session.contract.top_world import top

NAMES = ("top-question", "top-session")
SIZE = (26, 100)
DOWN, OWN = b"\x1b[B", "/home/ann"
QUESTIONS_AND_RUNS = 5
"""Rows above the sessions."""

_ROW = re.compile(r"\x1b\[(\d+);1H(.*?)(?=\x1b\[\d+;\d+H)", re.DOTALL)
_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*|<!-- .*? -->\s*", re.DOTALL)
"""Fonts that a picture would load, and who made it."""


def pictures(home: Path, folder: Path) -> None:
    """One of a question and one of a session, in what ``console_pictures`` has happen."""

    def drawn() -> str:
        rows = {int(row): line.replace(str(home), OWN) for row, line in _ROW.findall(shown.screen.ansi().decode())}
        console = Console(record=True, width=SIZE[1], file=io.StringIO(), force_terminal=True, color_system="truecolor")
        for number in range(1, SIZE[0] + 1):
            console.print(Text.from_ansi(rows.get(number, "")), no_wrap=True, crop=True)
        return _ELSEWHERE.sub("", console.export_svg(title="ai-session top", unique_id="top"))

    with top(home, size=SIZE) as shown:
        shown.shows("3 waiting for your answer", "deploy docs --to production", "y once")
        (folder / "top-question.svg").write_text(drawn())
        for _ in range(QUESTIONS_AND_RUNS + 1):
            shown.person.send(DOWN)
        shown.shows("Compiling", "rustls")
        (folder / "top-session.svg").write_text(drawn())
        shown.person.send(b"q")
