"""Pictures of `ai-session top` in a person's terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.ai_session.support.top_screens import top

NAMES = ("top-question", "top-session")
SIZE = (26, 100)
DOWN, OWN = b"\x1b[B", "/home/ann"
QUESTIONS_AND_RUNS = 5
"""The number of rows above the sessions."""

_ROW = re.compile(r"\x1b\[(\d+);1H(.*?)(?=\x1b\[\d+;\d+H)", re.DOTALL)
_ELSEWHERE = re.compile(r"@font-face \{.*?\}\s*|<!-- .*? -->\s*", re.DOTALL)
"""References to fonts on the network, and the generator's comment."""


def pictures(home: Path, folder: Path) -> None:
    """Take a picture of a question and one of a session, in the scene of ``console_pictures``."""

    def draw() -> str:
        rows = {int(row): line.replace(str(home), OWN) for row, line in _ROW.findall(running.screen.ansi().decode())}
        console = Console(record=True, width=SIZE[1], file=io.StringIO(), force_terminal=True, color_system="truecolor")
        for number in range(1, SIZE[0] + 1):
            console.print(Text.from_ansi(rows.get(number, "")), no_wrap=True, crop=True)
        return _ELSEWHERE.sub("", console.export_svg(title="ai-session top", unique_id="top"))

    with top(home, size=SIZE) as running:
        running.shows("3 waiting for your answer", "deploy docs --to production", "y once")
        (folder / "top-question.svg").write_text(draw())
        for _ in range(QUESTIONS_AND_RUNS + 1):
            running.person.send(DOWN)
        running.shows("Compiling", "rustls")
        (folder / "top-session.svg").write_text(draw())
        running.person.send(b"q")
