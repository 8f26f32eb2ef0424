"""Trees are walked within bounds, remembered, and what changed is seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.directory_memory import MOST_TREES, DirectoryMemory

OLD = (1_000_000_000_000_000_000,) * 2
"""A time of change long ago: such a directory has settled."""


class Counted:
    """Names of directories; counts its looks."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __call__(self, entries: Iterable[os.DirEntry[str]], path: str) -> tuple[list[str], str]:
        self.read.append(path)
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False)), path


def tree(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).mkdir(parents=True)
    settle(root)


def settle(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        os.utime(folder, ns=OLD)


def test_nearest_first_and_all_of_it(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/c", "d")
    (tmp_path / "a/file").touch()
    (tmp_path / "link").symlink_to("a")
    found, complete = DirectoryMemory(Counted(), depth=5, most=50).walk(str(tmp_path))
    assert found == [str(tmp_path / name) for name in (".", "a", "d", "a/b", "a/b/c")]
    assert complete


def test_bounds_are_told(tmp_path: Path) -> None:
    tree(tmp_path, "a/b/c", "d")
    root = str(tmp_path)
    assert DirectoryMemory(Counted(), depth=3, most=50).walk(root)[1]
    found, complete = DirectoryMemory(Counted(), depth=2, most=50).walk(root)
    assert (len(found), complete) == (4, False)
    found, complete = DirectoryMemory(Counted(), depth=5, most=3).walk(root)
    assert (len(found), complete) == (3, False)
    assert DirectoryMemory(Counted(), depth=5, most=5).walk(root)[1]


def test_what_has_settled_is_not_read_again(tmp_path: Path) -> None:
    tree(tmp_path, "a/b")
    count = Counted()
    memory = DirectoryMemory(count, depth=5, most=50)
    first = memory.walk(str(tmp_path))
    assert memory.walk(str(tmp_path)) == first
    assert len(count.read) == 3
    (tmp_path / "a/new").mkdir()
    found, _ = memory.walk(str(tmp_path))
    assert str(tmp_path / "a/new") in found
    assert count.read[3:] == [str(tmp_path / "a"), str(tmp_path / "a/new")]


def test_what_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """For another change may have come with the same time."""
    count = Counted()
    memory = DirectoryMemory(count, depth=5, most=50)
    (tmp_path / "a").mkdir()
    memory.walk(str(tmp_path))
    memory.walk(str(tmp_path))
    assert len(count.read) == 4


def test_another_directory_of_the_same_name_is_another(tmp_path: Path) -> None:
    tree(tmp_path, "a/b")
    memory = DirectoryMemory(Counted(), depth=5, most=50)
    memory.walk(str(tmp_path))
    (tmp_path / "a").rename(tmp_path / "was")
    tree(tmp_path / "a", "c")
    found, _ = memory.walk(str(tmp_path))
    assert str(tmp_path / "a/c") in found
    assert str(tmp_path / "a/b") not in found


def test_what_is_gone_or_no_directory_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memory = DirectoryMemory(Counted(), depth=5, most=50)
    assert memory.walk(str(tmp_path / "absent")) == ([], True)
    assert memory.walk(str(tmp_path / "file")) == ([], True)


def test_old_trees_are_forgotten(tmp_path: Path) -> None:
    count = Counted()
    memory = DirectoryMemory(count, depth=5, most=50)
    tree(tmp_path, *(str(number) for number in range(MOST_TREES + 1)))
    for number in range(MOST_TREES + 1):
        memory.walk(str(tmp_path / str(number)))
    count.read.clear()
    memory.walk(str(tmp_path / str(MOST_TREES)))
    assert count.read == []
    memory.walk(str(tmp_path / "0"))
    assert count.read == [str(tmp_path / "0")]


NAMES = st.sampled_from("abc")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CHANGES = st.lists(st.tuples(st.sampled_from(["make", "remove", "move", "look"]), PATHS, PATHS), max_size=12)


def movable(root: Path, one: str, other: str) -> bool:
    free = not (root / other).exists() and (root / other).parent.is_dir()
    return free and (root / one).is_dir() and not other.startswith(one + "/")


@settings(max_examples=60, deadline=None)
@given(CHANGES)
def test_a_memory_finds_what_a_first_look_finds(changes: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        memory = DirectoryMemory(Counted(), depth=9, most=500)
        for what, one, other in changes:
            if what == "make":
                (root / one).mkdir(parents=True, exist_ok=True)
            elif what == "remove":
                shutil.rmtree(root / one, ignore_errors=True)
            elif what == "move" and movable(root, one, other):
                (root / one).rename(root / other)
            assert memory.walk(place) == DirectoryMemory(Counted(), depth=9, most=500).walk(place)
