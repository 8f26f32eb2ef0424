"""Trees are walked within bounds, remembered, watched, and what changed is seen; whatever is done to them meanwhile."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.sandbox.workspace.directory_cache import DirectoryTree, Inner
from ai_session.system.directory_events import CREATE, LISTED, WRITTEN, DirectoryEvents
from tests.ai_session.support import unprivileged

LATER = 10_000_000_000
"""Nanoseconds after which a directory has settled."""


class Counted:
    """Walks into every directory but those called ``late`` last; knows of each its names. Counts its looks."""

    def __init__(self) -> None:
        self.looks: list[str] = []

    def read(self, fd: int, path: str, state: int) -> tuple[list[Inner[int]], tuple[str, ...] | None]:
        self.looks.append(path)
        with os.scandir(fd) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        folders = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        return [Inner(name, state + 1, late=name == "late") for name in folders], tuple(entry.name for entry in found)

    def matters(self, name: str, state: int, *, directory: bool) -> bool:
        return not name.startswith("noise")

    def mask(self, state: int, fact: tuple[str, ...] | None) -> int:
        return WRITTEN if fact and "watched" in fact else LISTED

    def lasts(self, state: int, fact: tuple[str, ...] | None) -> bool:
        return self.mask(state, fact) != WRITTEN

    def shared(self, fact: tuple[str, ...] | None) -> tuple[str, ...]:
        return tuple(name for name in fact or () if name == "shared")


Tree = DirectoryTree[int, tuple[str, ...]]


def tree(root: Path, reader: Counted, *, depth: int = 9, most: int = 500, after: int = LATER) -> Tree:
    """Which takes every directory for one that has not changed lately."""
    return DirectoryTree(str(root), reader, 0, depth=depth, most=most, clock=lambda: time.time_ns() + after)


@contextmanager
def closing(found: Tree) -> Iterator[None]:
    try:
        yield
    finally:
        found.unwatch()


def looked(found: Tree) -> dict[str, tuple[str, ...]]:
    assert found.update()
    return found.facts


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).mkdir(parents=True)


def test_all_of_it_nearest_first_and_what_is_late_last(tmp_path: Path) -> None:
    make(tmp_path, "a/b/c", "late/x", "d")
    (tmp_path / "a/file").touch()
    (tmp_path / "link").symlink_to("a")
    reader = Counted()
    assert looked(tree(tmp_path, reader))["a"] == ("b", "file")
    assert reader.looks == ["", "a", "d", "a/b", "a/b/c", "late", "late/x"]


def test_bounds_are_known(tmp_path: Path) -> None:
    make(tmp_path, "a/b/c", "d")
    fits = tree(tmp_path, Counted(), depth=3)
    assert len(looked(fits)) == 5
    assert not fits.gaps
    shallow = tree(tmp_path, Counted(), depth=2)
    assert len(looked(shallow)) == 4
    assert shallow.gaps.deep == ("a/b",)
    small = tree(tmp_path, Counted(), most=3)
    assert len(looked(small)) == 3
    assert small.gaps.many
    assert looked(tree(tmp_path, Counted(), most=5))


@pytest.mark.parametrize("watched", [False, True])
def test_what_has_settled_is_not_read_again(tmp_path: Path, watched: bool) -> None:
    make(tmp_path, "a/b")
    reader = Counted()
    found = tree(tmp_path, reader)
    if watched:
        assert found.watch()
    first = dict(looked(found))
    assert looked(found) == first
    assert len(reader.looks) == 3
    (tmp_path / "a/new").mkdir()
    assert "a/new" in looked(found)
    assert reader.looks[3:] == ["a", "a/new"]


def test_what_has_just_changed_is_read_again(tmp_path: Path) -> None:
    """For another change may have come with the same time."""
    reader = Counted()
    found = tree(tmp_path, reader, after=0)
    (tmp_path / "a").mkdir()
    looked(found)
    looked(found)
    assert len(reader.looks) == 4


def test_a_time_that_was_set_back_hides_nothing(tmp_path: Path) -> None:
    make(tmp_path, "a")
    found = tree(tmp_path, Counted())
    looked(found)
    before = (tmp_path / "a").stat()
    (tmp_path / "a/new").mkdir()
    os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "a/new" in looked(found)


@pytest.mark.parametrize("watched", [False, True])
def test_another_directory_of_the_same_name_is_another(tmp_path: Path, watched: bool) -> None:
    make(tmp_path, "a/b")
    found = tree(tmp_path, Counted())
    if watched:
        found.watch()
    looked(found)
    (tmp_path / "a").rename(tmp_path / "was")
    make(tmp_path, "a/c")
    facts = looked(found)
    assert {"a/c", "was/b"} <= facts.keys()
    assert "a/b" not in facts


def test_what_is_gone_or_no_directory_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/")
    for name in ("absent", "file", "link"):
        assert looked(tree(tmp_path / name, Counted())) == {}


def test_a_link_in_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    make(tmp_path, "tree/a/b", "elsewhere/b/secret")
    found = tree(tmp_path / "tree", Counted())
    looked(found)
    (tmp_path / "tree/a").rename(tmp_path / "gone")
    (tmp_path / "tree/a").symlink_to(tmp_path / "elsewhere")
    assert set(looked(found)) == {""}


def test_what_does_not_matter_is_not_looked_at(tmp_path: Path) -> None:
    reader = Counted()
    found = tree(tmp_path, reader)
    found.watch()
    looked(found)
    (tmp_path / "noise-1").touch()
    looked(found)
    assert reader.looks == [""]
    (tmp_path / "word").touch()
    assert "word" in looked(found)[""]


def test_changed_content_is_reported_where_it_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "watched").touch()
    reader = Counted()
    found = tree(tmp_path, reader)
    found.watch()
    looked(found)
    before = len(reader.looks)
    (tmp_path / "watched").write_text("x")
    looked(found)
    assert len(reader.looks) > before


def test_a_file_that_is_changed_under_another_name(tmp_path: Path) -> None:
    make(tmp_path, "tree")
    (tmp_path / "tree/shared").touch()
    os.link(tmp_path / "tree/shared", tmp_path / "other")
    reader = Counted()
    found = tree(tmp_path / "tree", reader)
    found.watch()
    looked(found)
    before = len(reader.looks)
    (tmp_path / "other").write_text("x")
    looked(found)
    assert len(reader.looks) == before + 1


def test_a_directory_that_came_with_all_it_holds(tmp_path: Path) -> None:
    make(tmp_path, "tree", "made/b/c")
    found = tree(tmp_path / "tree", Counted())
    found.watch()
    looked(found)
    (tmp_path / "made").rename(tmp_path / "tree/a")
    assert "a/b/c" in looked(found)
    (tmp_path / "tree/a/b/c/d").mkdir()
    assert "a/b/c/d" in looked(found)


def test_two_that_change_places(tmp_path: Path) -> None:
    make(tmp_path, "a/in-a", "b/in-b")
    found = tree(tmp_path, Counted())
    found.watch()
    looked(found)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    (tmp_path / "c").rename(tmp_path / "b")
    facts = looked(found)
    assert (facts["a"], facts["b"]) == (("in-b",), ("in-a",))
    (tmp_path / "b/in-a/new").mkdir()
    assert "b/in-a/new" in looked(found)


def test_more_than_the_kernel_remembers(tmp_path: Path) -> None:
    found = tree(tmp_path, Counted())
    found.watch()
    looked(found)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    names = [str(tmp_path / name) for name in ("noise", "other-noise")]
    Path(names[0]).touch()
    for _ in range(limit // 2 + 100):  # two events each
        os.rename(*names)
        names.reverse()
    make(tmp_path, "a/b")
    assert "a/b" in looked(found)
    (tmp_path / "a/b/c").mkdir()
    assert "a/b/c" in looked(found)


def test_without_watches_everything_is_looked_at(tmp_path: Path) -> None:
    make(tmp_path, "a/b")
    found = tree(tmp_path, Counted())
    found.watch()
    assert found.events is not None
    found.events._most = 1  # pyright: ignore[reportPrivateUsage]
    looked(found)
    assert found.events is None
    (tmp_path / "a/b/c").mkdir()
    assert "a/b/c" in looked(found)


def test_a_look_ends_in_time_and_the_next_one_continues(tmp_path: Path) -> None:
    make(tmp_path, *(f"d{number}/e" for number in range(50)))
    found = tree(tmp_path, Counted())
    found.watch()
    assert not found.update(until=time.monotonic())
    assert found.update()
    assert len(found.facts) == 101


def test_deeper_than_any_path_is_long(tmp_path: Path) -> None:
    name = "n" * 250
    depth = 20
    here = os.open(tmp_path, os.O_RDONLY)
    folders = [here]
    for _ in range(depth):
        os.mkdir(name, dir_fd=folders[-1])
        folders.append(os.open(name, os.O_RDONLY, dir_fd=folders[-1]))
    found = tree(tmp_path, Counted(), depth=depth)
    found.watch()
    assert len(looked(found)) == depth + 1
    os.mkdir("last", dir_fd=folders[-2])
    assert f"{'/'.join([name] * (depth - 1))}/last" in looked(found)
    for folder in folders:
        os.close(folder)


def as_ordinary(work: Callable[[Path], None]) -> None:
    """In a process of somebody whom permissions bind."""
    with unprivileged.directory() as user_directory:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                if change := unprivileged.become():
                    change()
                work(user_directory)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("watched", [False, True])
def test_what_is_closed_is_known_and_seen_when_it_opens(watched: bool) -> None:
    def work(user_directory: Path) -> None:
        make(user_directory, "a/b", "open")
        (user_directory / "a").chmod(0)
        found = tree(user_directory, Counted())
        if watched:
            found.watch()
        looked(found)
        assert found.gaps.closed == ("a",)
        (user_directory / "a").chmod(0o700)
        assert "a/b" in looked(found)
        assert not found.gaps
        (user_directory / "open").chmod(0)
        (user_directory / "open").chmod(0o700)
        (user_directory / "open/new").mkdir()
        assert "open/new" in looked(found)

    as_ordinary(work)


NAMES = st.sampled_from("abc")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
KINDS = st.sampled_from(["make", "remove", "move", "exchange", "file", "look"])
CHANGES = st.lists(st.tuples(KINDS, PATHS, PATHS), max_size=14)


def change(root: Path, what: str, one: str, other: str) -> None:
    """As far as it can be done."""
    try:
        if what == "make":
            (root / one).mkdir(parents=True, exist_ok=True)
        elif what == "remove":
            shutil.rmtree(root / one)
        elif what == "move":
            (root / one).rename(root / other)
        elif what == "exchange":
            (root / one).rename(root / "spare")
            (root / other).rename(root / one)
            (root / "spare").rename(root / other)
        elif what == "file":
            (root / one).touch()
    except OSError:
        return


@settings(max_examples=40, deadline=None)
@given(CHANGES, st.booleans())
def test_a_memory_finds_what_a_first_look_finds(changes: list[tuple[str, str, str]], watched: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        root.mkdir()
        found = tree(root, Counted(), after=0)
        if watched:
            found.watch()
        looked(found)
        with closing(found):
            for what, one, other in changes:
                change(root, what, one, other)
                if what == "look":
                    assert looked(found) == looked(tree(root, Counted()))
            assert looked(found) == looked(tree(root, Counted()))
        assert looked(found) == looked(tree(root, Counted()))


def test_events_of_a_directory(tmp_path: Path) -> None:
    events = DirectoryEvents()
    fd = os.open(tmp_path, os.O_RDONLY)
    watch = events.add(fd)
    os.close(fd)
    assert not events.pending()
    (tmp_path / "a").mkdir()
    (tmp_path / os.fsdecode(b"\xff")).touch()
    assert events.pending()
    found, whole = events.read()
    assert whole
    assert [(event.watch, event.name, event.directory) for event in found] == [
        (watch, "a", True),
        (watch, "\udcff", False),
    ]
    assert all(event.mask & CREATE for event in found)
    shutil.rmtree(tmp_path)
    assert [event.gone for event in events.read()[0]][-1]
    events.close()
    events.close()
