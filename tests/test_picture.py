"""The picture in the README is sound, and what happened once happens still."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.text import Text

from scripts import console_pictures, top_pictures
from scripts.picture import PICTURE, Frame, draw
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def last_frame(picture: str) -> list[str]:
    """The lines that are shown where nothing may move."""
    tree = ET.fromstring(picture)
    lines = {text.get("id"): "".join(text.itertext()) for text in tree.iter(f"{SVG}text")}
    frame = [group for group in tree.iter(f"{SVG}g") if group.get("class") == "f"][-1]
    return [lines[use.get("href", "")[1:]] for use in frame.iter(f"{SVG}use")]


def test_the_picture_of_the_readme_is_whole_and_loads_nothing() -> None:
    text = PICTURE.read_text()
    assert f"]({PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    assert last_frame(text)[-2:] == ["deployed", "ann@laptop:~/shop$"]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in text
    assert "__ais" not in text, "the shell's integration is not on a person's screen"
    assert text.count("@keyframes") == text.count('class="f"') > 20


def test_pictures_of_the_console_are_those_that_are_shown_and_small() -> None:
    page = (ROOT / "docs/reference/console.md").read_text()
    pictures = sorted((ROOT / "docs/assets").glob("console-*.png"))
    assert [path.name for path in pictures] == sorted(f"console-{name}.png" for name in console_pictures.NAMES)
    assert {path.stem for path in (ROOT / "docs/assets").glob("top-*")} == set(top_pictures.NAMES)
    for name in top_pictures.NAMES:
        text = (ROOT / f"docs/assets/{name}.svg").read_text()
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "/tmp" not in text
    for path in pictures:
        assert f"](../assets/{path.name})" in page
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size < console_pictures.MOST_BYTES


def test_frames_are_drawn_as_they_were() -> None:
    first = Frame((Text("call(<&>)"),), (Text("$"),), 1.0)
    second = Frame(first.calls, (Text.from_ansi("  \x1b[1;32mok\x1b[0m then"),), 1.0)
    picture = draw([first, second])
    assert last_frame(picture) == ["call(<&>)", "okthen"]
    assert 'class="b green">ok<' in picture
    assert picture.count("call(") == 1


@pytest.mark.torture
def test_the_session_of_the_picture_happens(tmp_path: Path) -> None:
    made = tmp_path / "picture.svg"
    command = [sys.executable, str(ROOT / "scripts/picture.py"), str(made)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert ran.returncode == 0, ran.stderr
    lines = last_frame(made.read_text())
    assert lines[-2:] == ["deployed", "ann@laptop:~/shop$"]
    assert any("exit code 0" in line and "waited finished" in line for line in lines)
