"""Files written where a program may have put links: whatever is there, nothing outside is written or removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ccswarm.brains.cli.programs import repair_gemini
from ccswarm.errors import WorkRefused
from ccswarm.system.confined_files import open_directory, pinned_path, read_beginning, write_files


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "outside/kept").mkdir(parents=True)
    (tmp_path / "outside/key").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def outside(inside: Path) -> dict[str, str]:
    top = inside.parent / "outside"
    return {str(path.relative_to(top)): path.read_text() if path.is_file() else "" for path in top.rglob("*")}


def test_what_stands_in_the_way_is_replaced_and_no_link_is_followed(inside: Path) -> None:
    before = outside(inside)
    (inside / "file").symlink_to(inside.parent / "outside/key")
    (inside / "folder").symlink_to(inside.parent / "outside")
    (inside / "dangling").symlink_to(inside.parent / "outside/new")
    (inside / "was").mkdir()
    (inside / "was/kept").symlink_to(inside.parent / "outside/kept")
    (inside / "number").write_text("a file where a directory belongs")
    os.mkfifo(inside / "pipe")
    wanted = {"file": "1", "folder/key": "2", "dangling": "3", "was": "4", "number/x": "5", "pipe": "6", "a/b/c": "7"}
    write_files(inside, wanted, 0o600)
    assert {name: (inside / name).read_text() for name in wanted} == wanted
    assert (inside / "a/b/c").stat().st_mode & 0o777 == 0o600
    assert outside(inside) == before
    assert not [path for path in inside.rglob("*") if path.name.endswith(".new")]


def test_somebody_who_exchanges_names_meanwhile_leads_nowhere(inside: Path) -> None:
    before = outside(inside)
    (inside / "d").mkdir()
    (inside / "zz").symlink_to(inside.parent / "outside")
    code = f"import ctypes, os; os.chdir({str(inside)!r}); c = ctypes.CDLL(None)\nprint(flush=True)\n"
    code += "while 1: c.renameat2(-100, b'd', -100, b'zz', 2)"
    swapper = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert swapper.stdout
    swapper.stdout.readline()
    try:
        for number in range(300):
            try:
                write_files(inside, {"d/key": str(number), "zz/kept": str(number)})
            except OSError:
                continue
    finally:
        swapper.kill()
        swapper.communicate()
    assert outside(inside) == before


def test_what_is_read_is_no_link_anywhere_on_the_way(inside: Path) -> None:
    (inside / "d").mkdir()
    (inside / "d/plan").write_text("own")
    (inside.parent / "outside/plan").write_text("foreign")
    os.mkfifo(inside / "d/fifo")
    assert read_beginning(inside / "d/plan", 2) == (b"ow", 3)
    assert read_beginning(inside / "d/fifo", 2) is None
    (inside / "by-link").symlink_to(inside.parent / "outside")
    assert read_beginning(inside / "by-link/plan", 9) is None
    (inside / "plan").symlink_to(inside / "d/plan")
    assert read_beginning(inside / "plan", 9) is None
    with pytest.raises(NotADirectoryError):
        open_directory(inside / "by-link")


def test_a_child_starts_in_the_directory_that_was_found_or_nowhere(inside: Path) -> None:
    """Only Linux has names for directories that are open; anywhere a link is found that stood there before."""
    (inside / "d/deep").mkdir(parents=True)
    (inside.parent / "outside/deep").mkdir()
    with pinned_path(inside / "d/deep") as name:
        (inside / "d").rename(inside / "moved")
        (inside / "d").symlink_to(inside.parent / "outside")
        if sys.platform == "linux":
            assert subprocess.check_output(["pwd", "-P"], cwd=name, text=True).strip() == str(inside / "moved/deep")
    with pytest.raises(NotADirectoryError), pinned_path(inside / "d/deep"):
        pytest.fail("a link was followed")


def test_what_a_program_kept_is_changed_only_where_it_kept_it(inside: Path) -> None:
    line = '{"sessionId": "s"}\n{"type": "user", "content": [{"functionResponse": 1}]}\n'
    kept = inside / "gemini/.gemini/tmp/x/chats/session-1.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(line)
    (inside.parent / "outside/key").write_text(line)
    before = outside(inside)
    (kept.parent / "session-2.jsonl").symlink_to(inside.parent / "outside/key")
    (inside / "gemini/.gemini/tmp/y").symlink_to(inside.parent / "outside")
    repair_gemini(inside, "s")
    assert kept.read_text() == '{"sessionId": "s"}\n'
    assert outside(inside) == before
    with (kept.parent / "session-3.jsonl").open("w") as file:
        file.truncate(1 << 30)
    with pytest.raises(WorkRefused):
        repair_gemini(inside, "s")
