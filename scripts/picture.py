"""Write docs/assets/session.svg: an agent's calls, and below them the terminal of a person who is attached to it.

Everything in it happened: an MCP client drives the server while `ai-session attach` runs in a terminal of its own, in
which a person types. Only the pauses are evened out.

    scripts/picture.py [FILE]
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pexpect
from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.text import Text

from ai_session.terminal.screen import Screen

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/assets/session.svg"
BOUND_SECONDS = 60.0
COLS, CALL_ROWS, TERMINAL_ROWS = 90, 13, 13
LEAST_PAUSE, MOST_PAUSE, CALL_PAUSE, LAST_PAUSE = 0.08, 0.3, 1.6, 6.0
REFRESH_SECONDS = 1 / 30
"""What is replaced sooner is on no screen, so it is in no frame, except for the letters that the person types."""

PROJECT = {
    "shop/sums.py": "def total(a, b):\n    return a - b\n",
    "shop/test_sums.py": """\
import unittest

from sums import total


class Sums(unittest.TestCase):
    def test_total(self):
        self.assertEqual(total(1, 2), 3)
""",
    "shop/deploy.sh": """\
read -rp 'Deploy to which host? ' host
for done in $(seq 0 10 100); do
    printf '\\rUploading to %s \\033[33m%3d%%\\033[0m' "$host" "$done"; sleep 0.05
done
printf '\\n\\033[1;32mdeployed\\033[0m\\n'
""",
    ".config/ai-session/config.toml": '[sandbox]\nworkspaces = ["shop"]\n',
}

BACKGROUND, FRAME, FOREGROUND, QUIET = "#0d1117", "#30363d", "#d1d7e0", "#8b949e"
PALETTE = {1: "red", 2: "green", 3: "yellow", 4: "blue", 6: "cyan"}
COLOURS = {"green": "#3fb950", "red": "#f85149", "yellow": "#d29922", "blue": "#58a6ff", "cyan": "#39c5cf"}
CELL_WIDTH, LINE_HEIGHT, MARGIN, FONT_SIZE = 7.8, 18, 18, 13

_ROW = re.compile(r"\x1b\[(\d+);1H(.*?)(?=\x1b\[\d+;\d+H)", re.DOTALL)
_PROMPT = re.compile(r"[\w.-]+@[\w.-]+:(\S+?)[#$]")
_ID = re.compile(r"\b(cmd_\w{4})[\w-]+")


@dataclass(frozen=True)
class Frame:
    """What the picture shows from one moment on, for at most ``pause`` seconds."""

    calls: tuple[Text, ...]
    terminal: tuple[Text, ...]
    pause: float


@dataclass
class Scene:
    """The recording: a frame for each change of the calls or of the terminal."""

    client: Client
    person: pexpect.spawn[str]
    home: str
    calls: list[Text] = field(default_factory=list[Text])
    frames: list[Frame] = field(default_factory=list[Frame])
    screen: Screen = field(default_factory=lambda: Screen(TERMINAL_ROWS, COLS))
    seen: asyncio.Event = field(default_factory=asyncio.Event)
    typing: bool = False
    changed_at: float = 0.0

    def record_output(self) -> None:
        """Read the person's terminal, and record a frame."""
        self.screen.feed(os.read(self.person.child_fd, 1 << 16))
        self.seen.set()
        self._frame(MOST_PAUSE)

    async def call(self, tool: str, **arguments: Any) -> None:
        """Call a tool as the agent, and record the call at once and its answer when it arrives."""
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items() if name != "session_id")
        self.calls.append(Text.assemble((tool, "cyan"), f"({shown})"))
        self._frame(CALL_PAUSE / 2)
        result = await self.client.call_tool(tool, arguments)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        if result.is_error:
            raise RuntimeError(f"{tool}: {text}")
        first, *rest = _ID.sub(r"\1…", text.rstrip().replace(self.home, "~")).splitlines()
        self.calls.append(Text.assemble((f"  {first}", "green" if "exit code 0" in first else "yellow")))
        last_lines = [line for line in rest if line][-2:]
        self.calls += [Text.assemble((f"  {line}", "dim")) for line in last_lines]
        self._frame(CALL_PAUSE)

    async def type(self, text: str) -> None:
        """Type as the person, letter by letter, each once the previous one has been echoed."""
        self.typing = True
        for letter in text:
            self.seen.clear()
            self.person.send(letter)
            await self.seen.wait()
        self.typing = False

    async def wait_until(self, holds: Callable[[str], bool]) -> None:
        """Wait until ``holds`` returns true for the person's screen."""
        while not holds("\n".join(self.screen.snapshot().lines)):
            self.seen.clear()
            await self.seen.wait()

    def _frame(self, pause: float) -> None:
        lines = {
            int(row): _PROMPT.sub(r"ann@laptop:\1$", line) for row, line in _ROW.findall(self.screen.ansi().decode())
        }
        rows = {row: Text.from_ansi(line) for row, line in lines.items()}
        terminal = tuple(rows.get(number, Text()) for number in range(1, TERMINAL_ROWS + 1))
        frame = Frame(tuple(self.calls[-CALL_ROWS:]), terminal, pause)
        last, now = self.frames[-1] if self.frames else None, asyncio.get_running_loop().time()
        if last and (frame.calls, frame.terminal) == (last.calls, last.terminal):
            return
        if last and frame.calls == last.calls and now - self.changed_at < REFRESH_SECONDS and not self.typing:
            self.frames.pop()
        self.changed_at = now
        self.frames.append(frame)


async def record(home: Path, environment: dict[str, str]) -> list[Frame]:
    """Record the scene, from the first call to the last answer."""
    loop = asyncio.get_running_loop()
    program = shutil.which("ai-session", path=environment["PATH"])
    if program is None:
        raise RuntimeError(f"ai-session is not installed next to {sys.executable}")
    server = StdioServerParameters(command=program, args=["mcp-server", "--stdio"], env=environment)
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        made = await client.call_tool("create_session", {"name": "build", "working_directory": str(home / "shop")})
        if made.is_error:
            raise RuntimeError(str(made.content))
        person: pexpect.spawn[str] = pexpect.spawn(
            program, ["attach", "build"], env=environment, encoding="utf-8", dimensions=(TERMINAL_ROWS, COLS)
        )
        scene = Scene(client, person, str(home))
        loop.add_reader(person.child_fd, scene.record_output)
        try:
            await scene.wait_until(lambda shown: _PROMPT.search(shown) is not None)
            await scene.call("execute_command", session_id="build", command="python3 -m unittest -q")
            await scene.call(
                "execute_command", session_id="build", command="sed -i 's/-/+/' sums.py && python3 -m unittest -q"
            )
            await scene.call("execute_command", session_id="build", command="bash deploy.sh")
            await scene.type("staging\r")
            await scene.call("read_output", session_id="build", wait_for="finish")
            await scene.wait_until(lambda shown: _PROMPT.fullmatch(shown.split("deployed")[-1].strip()) is not None)
        finally:
            loop.remove_reader(person.child_fd)
            person.close(force=True)
    return scene.frames


def draw(frames: list[Frame]) -> str:
    """Return the frames as one animated SVG; a reader that prefers no motion sees its last frame."""
    lines: dict[str, int] = {}
    groups: list[str] = []
    rules: list[str] = []
    pauses = [min(max(frame.pause, LEAST_PAUSE), MOST_PAUSE * 10) for frame in frames[:-1]] + [LAST_PAUSE]
    duration, at = sum(pauses), 0.0
    first, second = 2 * LINE_HEIGHT + MARGIN, (CALL_ROWS + 4) * LINE_HEIGHT + MARGIN
    for number, (frame, pause) in enumerate(zip(frames, pauses, strict=True)):
        uses: list[str] = []
        for top, shown in ((first, frame.calls), (second, frame.terminal)):
            for row, line in enumerate(shown):
                if text := _spans(line):
                    uses.append(f'<use href="#l{lines.setdefault(text, len(lines))}" y="{top + row * LINE_HEIGHT}"/>')
        groups.append(f'<g class="f" id="f{number}">{"".join(uses)}</g>')
        begin, end = 100 * at / duration, 100 * (at + pause) / duration
        before = "0%{visibility:hidden}" if at else ""
        after = f"{end:.2f}%{{visibility:hidden}}" if number + 1 < len(frames) else ""
        rules.append(f"@keyframes k{number}{{{before}{begin:.2f}%{{visibility:visible}}{after}}}")
        rules.append(f"#f{number}{{animation-name:k{number}}}")
        at += pause
    width, height = COLS * CELL_WIDTH + 2 * MARGIN, second + TERMINAL_ROWS * LINE_HEIGHT + MARGIN / 2
    defs = "".join(f'<text id="l{number}" x="{MARGIN}">{text}</text>' for text, number in lines.items())
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img">
<title>An agent runs tests, fixes a sum and deploys; a person attached to the same terminal answers its question</title>
<style>
text{{font:{FONT_SIZE}px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{FOREGROUND};white-space:pre}}
.b{{font-weight:700}}.d{{fill:{QUIET}}}.t{{fill:{QUIET};font-family:sans-serif}}
{"".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())}
.f{{visibility:hidden}}#f{len(frames) - 1}{{visibility:visible}}
@media (prefers-reduced-motion:no-preference){{.f{{animation:{duration:.2f}s step-end infinite}}
{"".join(rules)}}}
</style>
<defs>{defs}</defs>
<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}" stroke="{FRAME}"/>
<text class="t" x="{MARGIN}" y="{LINE_HEIGHT + 6}">agent · MCP</text>
<path d="M0 {second - 2.5 * LINE_HEIGHT}h{width:.0f}" stroke="{FRAME}"/>
<text class="t" x="{MARGIN}" y="{second - 1.2 * LINE_HEIGHT:.0f}">you · ai-session attach build</text>
{"".join(groups)}
</svg>
"""


def _spans(line: Text) -> str:
    """Return the line as SVG spans, one for each run of a style, as wide as its cells."""
    line = line.copy()
    line.rstrip()
    line.truncate(COLS, overflow="ellipsis")
    parts: list[str] = []
    column = 0
    for segment in line.render(Console(color_system="truecolor")):
        text, style = segment.text.rstrip("\n"), segment.style
        names: list[str] = []
        if style and style.bold:
            names.append("b")
        if style and style.dim:
            names.append("d")
        if style and style.color and style.color.number is not None:
            names.append(PALETTE.get(style.color.number % 8, ""))
        if word := text.strip():
            start = column + len(text) - len(text.lstrip())
            extent = f'x="{MARGIN + start * CELL_WIDTH:.1f}" textLength="{len(word) * CELL_WIDTH:.1f}"'
            parts.append(f'<tspan {extent} class="{" ".join(names).strip()}">{escape(word)}</tspan>')
        column += len(text)
    return "".join(parts)


def main() -> int:
    """Record in a home of its own, apart from the user's sessions."""
    target = Path(sys.argv[1]) if sys.argv[1:] else PICTURE
    home = Path(tempfile.mkdtemp(prefix="picture-", dir="/tmp"))
    for name, text in PROJECT.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    environment = {
        "HOME": str(home),
        "LOGNAME": "ann",
        "USER": "ann",
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin"]),
    }
    try:
        frames = asyncio.run(record(home, environment))
    finally:
        stop = ["ai-session", "daemon", "stop", "--yes"]
        subprocess.run(stop, env=environment, check=False, capture_output=True, timeout=30)
        shutil.rmtree(home, ignore_errors=True)
    target.write_text(draw(frames))
    print(f"{target}: {len(frames)} frames, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
