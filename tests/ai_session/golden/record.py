"""Records real programs, and the screen tmux makes of them: ``python -m tests.ai_session.golden.record [NAME...]``.

Needs root (programs that show processes or the host get namespaces of their own) and the programs themselves.
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ptyprocess

from ai_session.system import foreground
from ai_session.terminal.screen import Screen
from tests.ai_session.golden.tmux_reference import TmuxReference, tmux_reference

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
SMALL, LARGE = (24, 80), (50, 200)
ALONE = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "sh", "-c", 'hostname box; exec "$@"', "sh"]
QUIET_SECONDS = 0.15
MOST_BYTES = 60_000

TEXT = "".join(f"def part_{n}(value):\n    return value * {n}  # wörld 世界 {n}\n\n\n" for n in range(60))
PROGRESS = """
import sys
for i in range(0, 101, 4):
    sys.stdout.write(f"\\rdownload {i:3d}% [{'#' * (i // 5):20}]\\x1b[K")
sys.stdout.write("\\ndone\\n")
for i in range(12):
    sys.stdout.write("\\x1b[3A" * (i > 0))
    for n in range(3): print(f"\\x1b[2K layer {n}: {i * (n + 1):3d} MB")
"""
RICH = """
from rich.console import Console; from rich.progress import track; from rich.table import Table
for _ in track(range(30), description="Work"): pass
table = Table(title="Table"); table.add_column("name", style="red"); table.add_column("世界")
table.add_row("é", "\\U0001f600 smile"); table.add_row("[b]bold[/b]", "한국어"); Console().print(table)
"""


@dataclass(frozen=True)
class Recording:
    name: str
    argv: list[str]
    keys: list[bytes]
    size: tuple[int, int] = SMALL


RECORDED = [
    Recording(
        "bash",
        ["bash", "--norc"],
        [
            b"ls --color=always -C /usr\r",
            b"for i in $(seq 1 60); do echo line $i; done\r",
            b"echo \xc3\xa9\xe4\xb8\x96 word",
            b"\x01",
            b"\x1bf",
            b" in\x14sert",
            b"\x0b\x19",
            b"\r",
            b"echo " + b"long " * 30,
            b"\x1b[D" * 40,
            b"X\r",
            b"printf '\\e[31mred\\e[0m\\n'\r",
            b"cat no",
            b"\t",
            b"\x03",
            b"\x12long",
            b"\x07",
        ],
    ),
    Recording(
        "bash_clear",
        ["bash", "--norc"],
        [b"seq 1 40\r", b"clear\r", b"seq 1 5\r", b"tput smcup; echo in; tput rmcup\r"],
    ),
    Recording(
        "zsh",
        ["zsh", "-f"],
        [b"seq 30\r", b"cat not", b"\t", b"\x03", b"echo 'quo\rted'\r", b"print -P '%F{green}x%f'\r"],
    ),
    Recording(
        "fish", [*ALONE, "fish", "--no-config"], [b"echo hello\r", b"echo he", b"\x1b[C\r", b"cat not", b"\t", b"\x03"]
    ),
    Recording(
        "python",
        [sys.executable, "-q"],
        [b"import os\r", b"[x * 2 for x in range(50)]\r", b"1/0\r", b"'\xe4\xb8\x96' * 3", b"\x1b[D\x1b[D9\r"],
    ),
    Recording(
        "vim",
        ["vim", "-u", "NONE", "-c", "set nocompatible number", "notes.py"],
        [
            b"10j",
            b"\x06",
            b"\x06",
            b"\x02",
            b"ddp",
            b"ihello w\xc3\xb6rld \xe4\xb8\x96\xe7\x95\x8c\x1b",
            b":split\r",
            b"G",
            b"/part_3\r",
            b"n",
            b":vsplit\r",
            b"\x17w",
            b"20jzz",
            b":syntax on\r",
        ],
    ),
    Recording(
        "vim_large",
        ["vim", "-u", "NONE", "-c", "set nocompatible", "notes.py"],
        [b":syntax on\r", b":vsplit\r", b"GA end\x1b"],
        LARGE,
    ),
    Recording(
        "vim_quit", ["bash", "--norc"], [b"seq 5\r", b"vim -u NONE notes.py\r", b"Gdd", b":q!\r", b"echo back\r"]
    ),
    Recording("less", ["less", "notes.py"], [b" ", b" ", b"b", b"/part_5\r", b"n", b"G", b"kkkkk", b"\x1b[D"]),
    Recording("nano", ["nano", "notes.py"], [b"\x16", b"\x16", b"hello\r\r", b"\x0b", b"\x15", b"\x17part_4\r"]),
    Recording("htop", [*ALONE, "htop", "-d", "100"], [b"\x1b[B", b"t", b"\x1bOS", b"\x1b", b"h"]),
    Recording("htop_large", [*ALONE, "htop", "-d", "100"], [b"\x1b[B", b"t"], LARGE),
    Recording("top", [*ALONE, "top", "-d", "100"], [b"c", b"1", b"z", b" "]),
    Recording("mc", [*ALONE, "mc", "-d", "-u", ".", "."], [b"\x1b[B", b"\t", b"\x1b[B", b"\x1b9", b"\x1b[B"]),
    Recording(
        "dialog",
        ["dialog", "--menu", "Pick 世界", "15", "50", "5", "a", "Alpha", "b", "Beta", "c", "Gamma"],
        [b"\x1b[B", b"\x1b[B", b"\t"],
    ),
    Recording(
        "tmux",
        [*ALONE, "tmux", "-f", "/dev/null", "new-session", "bash --norc"],
        [
            b"seq 50\r",
            b"\x02%",
            b"ls --color=always -C /usr\r",
            b'\x02"',
            b"echo \xe4\xb8\x96\r",
            b"\x02o",
            b"seq 9\r",
        ],
    ),
    Recording("progress", [sys.executable, "-c", PROGRESS], []),
    Recording("rich", [sys.executable, "-c", RICH], []),
]


def record(recording: Recording, home: Path) -> bytes:
    rows, cols = recording.size
    env = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": str(home), "PS1": "$ "}
    env["TMUX_TMPDIR"] = str(home)
    opened = ptyprocess.PtyProcess.spawn(recording.argv, env=env, cwd=str(home), dimensions=recording.size)
    tty = os.readlink(f"/proc/{opened.pid}/fd/0")
    screen, output = Screen(rows, cols), b""
    for keys in (b"", *recording.keys):
        os.write(opened.fd, keys)
        looks = 0
        while looks < 2:
            if select.select([opened.fd], [], [], QUIET_SECONDS)[0]:
                try:
                    data = os.read(opened.fd, 65536)
                except OSError:
                    return output
                output += data
                screen.feed(data)
                os.write(opened.fd, screen.replies())
                looks = 0
                continue
            found = foreground.find(opened.pid, tty)
            looks = looks + 1 if found is not None and found.input_mode is not None else 0
    opened.close(force=True)
    return output


def keep(recording: Recording, output: bytes, reference: TmuxReference) -> None:
    rows, cols = recording.size
    assert 0 < len(output) < MOST_BYTES, (recording.name, len(output))
    drawn = reference.draw(output, rows, cols)
    facts = f"{rows} {cols} {drawn.cursor_row} {drawn.cursor_col} {drawn.alternate_screen} {drawn.cursor_visible}"
    (RECORDINGS / f"{recording.name}.raw").write_bytes(output)
    (RECORDINGS / f"{recording.name}.txt").write_text("\n".join([facts, *drawn.lines]) + "\n")
    print(recording.name, len(output))


def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory, tmux_reference(Path(directory)) as reference:
        for recording in RECORDED:
            if wanted and recording.name not in wanted:
                continue
            with tempfile.TemporaryDirectory() as home:
                (Path(home) / "notes.py").write_text(TEXT)
                (Path(home) / "notes.txt").write_text("text\n")
                keep(recording, record(recording, Path(home)), reference)


if __name__ == "__main__":
    main(sys.argv[1:])
