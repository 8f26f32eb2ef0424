"""What is put into a workspace is taken away behind the last box, and nothing else ever is."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ai_session.sandbox.workspace.placeholders import Placeholders
from ai_session.sandbox.workspace.protected_paths import Placeholder

ALL = {"dir", "file", "ignored"}


class Scene:
    """A workspace, a runtime directory and boxes in it; each look at the ledger is a new process's."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / "ws"
        self.runtime = root / "run"
        self.workspace.mkdir()
        self.runtime.mkdir()
        self.wanted = (
            Placeholder(str(self.workspace / "dir")),
            Placeholder(str(self.workspace / "file"), b"harmless\n"),
            Placeholder(str(self.workspace / "ignored"), ignored=True),
        )

    def box(self, name: str) -> Path:
        (self.runtime / name).mkdir(exist_ok=True)
        return self.runtime / name

    def put(self, name: str) -> None:
        """As the search of a box does: what is absent is wanted, what is there exists; once more when that has gone."""
        for _ in range(3):
            wanted = [location for location in self.wanted if not os.path.lexists(location.path)]
            existing = [location.path for location in self.wanted if os.path.lexists(location.path)]
            Placeholders(self.runtime).put(self.box(name), wanted, existing)
            if self.there() >= ALL:
                return
        raise AssertionError("placeholders go as fast as they come")

    def drop(self, name: str) -> None:
        Placeholders(self.runtime).drop(self.runtime / name)

    def there(self) -> set[str]:
        return {path.name for path in self.workspace.iterdir()}

    def ledger(self) -> int:
        return len(list(self.runtime.glob("placeholders/*.json")))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_boxs_life(scene: Scene) -> None:
    scene.put("one")
    assert scene.there() == ALL
    assert (scene.workspace / "file").read_bytes() == b"harmless\n"
    assert (scene.workspace / "ignored/.gitignore").read_bytes() == b"*\n"
    assert not list((scene.workspace / "dir").iterdir())
    scene.drop("one")
    scene.drop("one")
    assert (scene.there(), scene.ledger()) == (set(), 0)


@pytest.mark.parametrize("first", ["one", "two"])
def test_two_boxes_share(scene: Scene, first: str) -> None:
    scene.put("one")
    scene.put("two")
    scene.drop(first)
    assert scene.there() == ALL
    scene.drop({"one": "two", "two": "one"}[first])
    assert scene.there() == set()


def test_a_ledger_that_is_kept_open_sees_what_others_enter_and_leave(scene: Scene) -> None:
    kept, all_of_it = Placeholders(scene.runtime), [location.path for location in scene.wanted]
    kept.put(scene.box("one"), scene.wanted, ())
    scene.put("two")
    kept.drop(scene.runtime / "one")
    assert (scene.there(), sorted(kept.held())) == (ALL, sorted(all_of_it))
    kept.put(scene.box("one"), (), all_of_it[:1])
    Placeholders(scene.runtime).put(scene.runtime / "one", (), all_of_it)
    scene.drop("two")
    assert (scene.there(), sorted(kept.held())) == (ALL, sorted(all_of_it))
    kept.drop(scene.runtime / "one")
    assert (scene.there(), kept.held()) == (set(), set())


def test_what_was_there_before_is_nobodys(scene: Scene) -> None:
    (scene.workspace / "dir").mkdir()
    (scene.workspace / "file").write_bytes(b"harmless\n")
    (scene.workspace / "ignored").mkdir()
    (scene.workspace / "ignored/.gitignore").write_bytes(b"*\n")
    scene.put("one")
    scene.drop("one")
    assert scene.there() == ALL
    assert (scene.workspace / "ignored/.gitignore").exists()


def test_what_somebody_changed_stays(scene: Scene) -> None:
    scene.put("one")
    (scene.workspace / "dir/mine").touch()
    (scene.workspace / "file").write_bytes(b"mine\n")
    (scene.workspace / "ignored/mine").touch()
    scene.drop("one")
    assert scene.there() == ALL
    assert [path.name for path in (scene.workspace / "ignored").iterdir()] == ["mine"]


def test_an_ignore_file_that_somebody_changed_stays(scene: Scene) -> None:
    scene.put("one")
    (scene.workspace / "ignored/.gitignore").write_bytes(b"mine\n")
    scene.drop("one")
    assert (scene.workspace / "ignored/.gitignore").read_bytes() == b"mine\n"


def test_git_has_nothing_to_say_of_what_it_is_to_ignore(scene: Scene) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=scene.workspace, check=True)
    (scene.workspace / "mine").touch()
    Placeholders(scene.runtime).put(scene.box("one"), scene.wanted[2:], [])
    for words in ("status --porcelain --untracked-files=all --ignored=no", "clean -nd"):
        said = subprocess.run(["git", *words.split()], cwd=scene.workspace, check=True, capture_output=True, text=True)
        assert len(said.stdout.splitlines()) == 1
        assert "mine" in said.stdout


def test_what_became_a_link_stays(scene: Scene) -> None:
    scene.put("one")
    (scene.workspace / "file").rename(scene.runtime / "real")
    (scene.workspace / "file").symlink_to(scene.runtime / "real")
    (scene.workspace / "dir").rmdir()
    (scene.workspace / "dir").symlink_to(scene.runtime)
    (scene.workspace / "ignored").rename(scene.runtime / "moved")
    (scene.workspace / "ignored").symlink_to(scene.runtime / "moved")
    scene.drop("one")
    assert scene.there() == ALL
    assert (scene.runtime / "moved/.gitignore").exists()
    assert (scene.runtime / "real").exists()


def test_what_is_gone_is_no_error(scene: Scene) -> None:
    scene.put("one")
    (scene.workspace / "dir").rmdir()
    (scene.workspace / "file").unlink()
    (scene.workspace / "ignored/.gitignore").unlink()
    scene.drop("one")
    assert (scene.there(), scene.ledger()) == (set(), 0)


def test_a_sweep_takes_away_what_nobody_needs(scene: Scene) -> None:
    scene.put("gone")
    scene.put("abandoned")
    (scene.runtime / "gone").rmdir()
    (scene.runtime / "abandoned/alive").touch()
    Placeholders(scene.runtime).sweep()
    assert (scene.there(), scene.ledger()) == (set(), 0)


def test_a_sweep_leaves_what_somebody_needs(scene: Scene) -> None:
    scene.put("session")
    scene.put("command")
    with open(scene.runtime / "command/alive", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Placeholders(scene.runtime).sweep()
        assert (scene.there(), scene.ledger()) == (ALL, 2)


def test_a_workspace_is_introduced_once(scene: Scene) -> None:
    for root in ("/a", "/b", "/a\nb", "/\udcff"):
        assert Placeholders(scene.runtime).introduce(root)
        assert not Placeholders(scene.runtime).introduce(root)


def test_a_place_where_nothing_can_be_made_is_left_out(scene: Scene) -> None:
    wanted = (*scene.wanted, Placeholder("/sys/kernel/nothing"), Placeholder("/sys/kernel/none", b"x"))
    found = Placeholders(scene.runtime).put(scene.box("one"), wanted, [])
    assert set(found) == {location.path for location in scene.wanted}
    scene.drop("one")
    assert scene.there() == set()


def test_a_box_whose_directory_is_gone_is_taken_off(scene: Scene) -> None:
    scene.put("gone")
    (scene.runtime / "gone").rmdir()
    scene.put("next")
    assert scene.ledger() == 1
    scene.drop("next")
    assert scene.there() == set()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"box": 1}', b'{"made": [["/x"]]}', b"\xff"])
def test_a_torn_ledger_takes_nothing_away(scene: Scene, content: bytes) -> None:
    scene.put("one")
    (entry,) = scene.runtime.glob("placeholders/*.json")
    entry.write_bytes(content)
    scene.put("two")
    scene.drop("two")
    scene.drop("one")
    assert scene.ledger() == 0


def test_a_process_killed_between_put_and_drop(scene: Scene) -> None:
    """The next one settles for it, once the box's directory is gone."""
    pid = os.fork()
    if pid == 0:
        scene.put("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert scene.there() == ALL
    scene.put("next")
    scene.drop("next")
    assert scene.there() == ALL  # the killed one's box may still live
    (scene.runtime / "killed").rmdir()
    scene.put("last")
    scene.drop("last")
    assert scene.there() == set()


def test_many_processes_at_once(scene: Scene) -> None:
    """Each puts and drops; what the last one leaves is nothing."""
    pids: list[int] = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            try:
                for turn in range(10):
                    scene.put(f"{number}-{turn}")
                    scene.drop(f"{number}-{turn}")
            except BaseException:
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
    assert (scene.there(), scene.ledger()) == (set(), 0)


def unchanged(scene: Scene, *names: str) -> set[str]:
    paths = [str(scene.workspace / name) for name in names]
    return {os.path.relpath(path, scene.workspace) for path in Placeholders(scene.runtime).unchanged(paths)}


def test_what_is_unchanged(scene: Scene) -> None:
    everything = ("dir", "file", "ignored", "ignored/.gitignore", "other", "other/file")
    assert unchanged(scene, *everything) == set()
    for name in ("other", "old"):
        (scene.workspace / name).mkdir()
    scene.put("one")
    assert unchanged(scene, *everything) == {"dir", "file", "ignored", "ignored/.gitignore"}
    (scene.workspace / "dir/.gitignore").write_bytes(b"*\n")
    (scene.workspace / "file").write_bytes(b"harmless\nmore\n")
    (scene.workspace / "ignored/.gitignore").write_bytes(b"!*\n")
    assert unchanged(scene, *everything, "dir/.gitignore") == set()
    (scene.workspace / "ignored/.gitignore").unlink()
    assert unchanged(scene, "dir", "ignored") == {"ignored"}
    scene.drop("one")
    assert unchanged(scene, *everything) == set()


def test_a_placeholder_is_known_by_another_path(scene: Scene) -> None:
    """A directory may be mounted at several places; what only has the same name is something else."""
    scene.put("one")
    for name in ("other", "same"):
        (scene.workspace.parent / name).mkdir()
    # What others have of the same names, gone, behind a link or of another kind, is no obstacle.
    (scene.workspace.parent / "link").symlink_to(scene.workspace)
    elsewhere = [Placeholder(str(scene.workspace.parent / at / "dir")) for at in ("gone", "link")]
    (scene.runtime / "placeholders/more.json").write_text(
        json.dumps({"box": str(scene.runtime / "one"), "made": [[one.path, None, False] for one in elsewhere]})
    )
    (scene.workspace.parent / "other/dir").mkdir()
    script = (
        "import os, sys; from pathlib import Path\n"
        "from ai_session.sandbox.workspace.placeholders import Placeholders\n"
        "paths = [f'{sys.argv[2]}/{at}/{name}' for at in ('same', 'other') for name in ('dir', 'file', 'ignored')]\n"
        "print(*sorted(Placeholders(Path(sys.argv[1])).unchanged(paths)))\n"
    )
    top = str(scene.workspace.parent)
    mounts = ("--dev-bind", "/", "/", "--bind", str(scene.workspace), f"{top}/same")
    words = ["bwrap", *mounts, "--", sys.executable, "-c", script, str(scene.runtime), top]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert said.split() == [f"{top}/same/{name}" for name in ("dir", "file", "ignored")]


BOXES = st.sampled_from("abcd")


class Ledger(RuleBasedStateMachine):
    """Boxes come, go and crash in any order; a person makes and changes things meanwhile."""

    @initialize()
    def begin(self) -> None:
        self.location = tempfile.TemporaryDirectory()
        self.scene = Scene(Path(self.location.name))
        self.living: set[str] = set()
        self.crashed: set[str] = set()
        self.persons: dict[str, bytes | None] = {}
        self.used: set[str] = set()

    @rule(name=BOXES)
    def put(self, name: str) -> None:
        if name in self.living | self.crashed:
            return
        self.scene.put(name)
        self.settle()
        self.living.add(name)
        assert self.scene.there() == ALL

    @rule(name=BOXES)
    def drop(self, name: str) -> None:
        self.scene.drop(name)
        if (self.scene.runtime / name).exists():
            (self.scene.runtime / name).rmdir()
        self.living.discard(name)
        self.crashed.discard(name)

    @rule(name=BOXES)
    def crash(self, name: str) -> None:
        if name in self.living:
            (self.scene.runtime / name).rmdir()
            self.living.remove(name)
            self.crashed.add(name)

    @rule(content=st.binary(max_size=3))
    def write(self, content: bytes) -> None:
        if (self.scene.workspace / "dir").is_dir():
            (self.scene.workspace / "dir/mine").write_bytes(content)
            self.persons["dir/mine"] = content
        if (self.scene.workspace / "ignored").is_dir():
            (self.scene.workspace / "ignored/mine").write_bytes(content)
            self.persons["ignored/mine"] = content
        (self.scene.workspace / "file").write_bytes(b"mine" + content)
        self.persons["file"] = b"mine" + content

    @rule()
    def tidy(self) -> None:
        """A person takes what is theirs away."""
        for name in list(self.persons):
            (self.scene.workspace / name).unlink()
            del self.persons[name]

    def settle(self) -> None:
        self.crashed.clear()

    @invariant()
    def nothing_of_a_persons_is_lost(self) -> None:
        for name, content in self.persons.items():
            assert (self.scene.workspace / name).read_bytes() == content

    @invariant()
    def boxes_have_what_they_need(self) -> None:
        if self.living and "file" in self.persons:
            assert "file" in self.scene.there()
        self.used |= {name.partition("/")[0] for name in self.persons}

    def teardown(self) -> None:
        for name in "abcd":
            self.scene.drop(name)
        for name in list(self.persons):
            (self.scene.workspace / name).unlink()
        left, ledger = self.scene.there(), self.scene.ledger()
        self.location.cleanup()
        # A directory with something of a person's in it was theirs to keep, and is empty now.
        assert left <= self.used - {"file"}
        assert ledger == 0


Ledger.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestLedger = Ledger.TestCase


def test_what_was_made_before_the_process_ended_is_on_record(scene: Scene) -> None:
    """Every placeholder is on the ledger before it is made, whatever ends the process between two of them."""
    (scene.workspace / "link").symlink_to(scene.runtime)
    wanted = (*scene.wanted, Placeholder(str(scene.workspace / "link/dir")))
    with pytest.raises(NotADirectoryError):
        Placeholders(scene.runtime).put(scene.box("one"), wanted, [])
    assert scene.there() == ALL | {"link"}
    scene.drop("one")
    assert scene.there() == {"link"}


def test_what_is_gone_while_another_box_has_it_on_its_account_is_made_again(scene: Scene) -> None:
    scene.put("one")
    (scene.workspace / "file").unlink()
    (scene.workspace / "dir").rmdir()
    Placeholders(scene.runtime).put(scene.box("two"), scene.wanted[:2], [])
    assert scene.there() == ALL
