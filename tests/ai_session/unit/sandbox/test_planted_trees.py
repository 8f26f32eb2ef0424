"""Trees are an agent's own work when the daemon looks at them: no link in one leads it elsewhere, nothing keeps it
waiting, and no file is too large or of too many parts for it."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ai_session.sandbox.workspace import repositories
from ai_session.sandbox.workspace.git_index import MOST_GITLINKS, PATH_BYTES, gitlinks
from ai_session.sandbox.workspace.notices import found_in
from ai_session.sandbox.workspace.placeholders import Placeholders
from ai_session.sandbox.workspace.protected_paths import Placeholder, find_protection
from ai_session.sandbox.workspace.tree import INDEX_BYTES, MOST_ENTRIES, MOST_NAMES
from ai_session.sandbox.workspace.workspace import Workspace
from ai_session.system import paths_without_links
from ai_session.system.paths_without_links import DIRECTORY, PATH_ONLY, open_directory, open_path, read_file
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

Plant = Callable[[Path], object]


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link_to_fifo(path: Path) -> None:
    os.mkfifo(path.parent / "fifo")
    path.symlink_to("fifo")


def terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def socket_file(path: Path) -> None:
    import socket

    here = os.getcwd()
    os.chdir(path.parent)  # its path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def directory(path: Path) -> None:
    path.mkdir()


def endless(path: Path) -> None:
    """Of a size that no memory holds."""
    with open(path, "wb") as file:
        file.truncate(1 << 40)


PLANTS = (fifo, link_to_fifo, terminal, socket_file, directory, endless)
SPOTS = (
    "config",
    "index",
    "HEAD",
    "commondir",
    "hooks",
    "info",
    "worktrees",
    "modules",
    "config.worktree",
    "sharedindex.1",
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "ws/a"], cwd=tmp_path, check=True)
    return tmp_path / "ws/a/.git"


def runs(script: str, folder: Path) -> None:
    """To its end, with that folder as its argument."""
    file = folder.parent / f"{folder.name}.py"
    file.write_text(script)
    code, _, errors = forked.run("ai_session", [str(folder)], cwd=folder, env=os.environ, script=str(file))
    assert code == 0, errors


@pytest.mark.corners
@pytest.mark.parametrize("spot", SPOTS)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_nothing_in_a_repository_keeps_anybody_waiting(repository: Path, spot: str, plant: Plant) -> None:
    """In a process of its own, which is ended if it waits."""
    path = repository / spot
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    plant(path)
    script = (
        "import sys; from ai_session.sandbox.workspace.protected_paths import find_protection\n"
        "from ai_session.sandbox.workspace.workspace import Workspace\n"
        "from ai_session.errors import *\n"
        "workspace = Workspace(sys.argv[1], (), ('.env',))\n"
        "try: find_protection(workspace, '/nowhere')\n"
        "except SandboxRefused: pass\n"
        "workspace.open_to_writing(None)"
    )
    runs(script, repository.parents[1])


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_nothing_in_the_stead_of_a_placeholder_keeps_anybody_waiting(tmp_path: Path, plant: Plant) -> None:
    (tmp_path / "ws/ignored").mkdir(parents=True)
    (tmp_path / "box").mkdir()
    wanted = (Placeholder(f"{tmp_path}/ws/file", b"x\n"), Placeholder(f"{tmp_path}/ws/made", ignored=True))
    Placeholders(tmp_path).put(tmp_path / "box", wanted, ())
    (tmp_path / "ws/file").unlink()
    (tmp_path / "ws/made/.gitignore").unlink()
    plant(tmp_path / "ws/file")
    (tmp_path / "ws/fifo").unlink(missing_ok=True)
    plant(tmp_path / "ws/made/.gitignore")
    script = (
        "import sys; from pathlib import Path; from ai_session.sandbox.workspace.placeholders import Placeholders\n"
    )
    script += "Placeholders(Path(sys.argv[1])).drop(Path(sys.argv[1]) / 'box')"
    runs(script, tmp_path)
    assert os.path.lexists(tmp_path / "ws/file")
    assert os.path.lexists(tmp_path / "ws/made/.gitignore")


def test_placeholders_are_neither_made_nor_removed_through_a_link(tmp_path: Path) -> None:
    """As when a directory on the way is replaced by one after it was looked at."""
    outside, inside = tmp_path / "outside", tmp_path / "ws/deep"
    outside.mkdir()
    inside.mkdir(parents=True)
    (tmp_path / "box").mkdir()
    wanted = (Placeholder(f"{inside}/file", b"x\n"), Placeholder(f"{inside}/made", ignored=True))
    ledger = Placeholders(tmp_path)
    inside.rmdir()
    inside.symlink_to(outside)
    with pytest.raises(NotADirectoryError):
        ledger.put(tmp_path / "box", wanted, ())
    ledger.drop(tmp_path / "box")
    assert list(outside.iterdir()) == []
    inside.unlink()
    inside.mkdir()
    assert len(ledger.put(tmp_path / "box", wanted, ())) == 2
    inside.rename(outside / "deep")
    inside.symlink_to(outside / "deep")
    ledger.drop(tmp_path / "box")
    assert sorted(path.name for path in (outside / "deep").iterdir()) == ["file", "made"]


def test_a_config_is_not_read_through_a_link(repository: Path, tmp_path: Path) -> None:
    """It would say which files of a person's home git includes."""
    secret = tmp_path / "secret"
    secret.write_text("[core]\n\thooksPath = a\n")
    (repository / "config").write_text(secret.read_text())
    assert list(repositories.named_by_config(str(repository), "/nowhere"))
    (repository / "config").unlink()
    (repository / "config").symlink_to(secret)
    assert not list(repositories.named_by_config(str(repository), "/nowhere"))
    shutil.move(repository, tmp_path / "git")
    repository.symlink_to(tmp_path / "git")
    (tmp_path / "git/config").unlink()
    (tmp_path / "git/config").write_text(secret.read_text())
    assert not list(repositories.named_by_config(str(repository), "/nowhere"))
    assert not repositories.is_repository(str(repository))
    assert repositories.worktrees(str(repository)) == []


def test_worktrees_are_counted_no_further_than_they_fit(repository: Path) -> None:
    for number in range(repositories.MOST_WORKTREES + 50):
        (repository / f"worktrees/{number}").mkdir(parents=True)
    assert len(repositories.worktrees(str(repository))) == repositories.MOST_WORKTREES + 1


def test_no_program_is_started_in_a_tree(repository: Path, tmp_path: Path) -> None:
    """Whatever its config says, but git's own, which reads that: the audit hook sees every start of a program."""
    (repository / "config").write_text(f"[core]\n\tfsmonitor = touch {tmp_path}/ran\n\thooksPath = {tmp_path}\n")
    script = (
        "import sys\n"
        "from ai_session.sandbox.workspace.protected_paths import find_protection\n"
        "from ai_session.sandbox.workspace.workspace import Workspace\n"
        "from ai_session.sandbox.workspace.notices import found_in\n"
        "def hook(event, given):\n"
        "    if event == 'subprocess.Popen' and str(given[0]).endswith('git') and 'config' in given[1]: return\n"
        "    if event in ('subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn', 'os.fork'): sys.exit(event)\n"
        "sys.addaudithook(hook)\n"
        "workspace = Workspace(sys.argv[1], (), ('.env',))\n"
        "find_protection(workspace, '/nowhere'); workspace.open_to_writing(None); found_in(workspace)\n"
    )
    words = [sys.executable, "-c", script, str(repository.parents[1])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "ran").exists()


def index(version: int, entries: list[tuple[int, bytes]]) -> bytes:
    """git's index with these modes and paths; in version 4 each path adds to the one before."""
    made = struct.pack(">4sII", b"DIRC", version, len(entries))
    for mode, path in entries:
        entry = b"\0" * 24 + struct.pack(">I", mode) + b"\0" * 12 + b"\1" * 20 + struct.pack(">H", 0xFFF)
        if version == 4:
            made += entry + b"\0" + path + b"\0"
        else:
            entry += path
            made += entry + b"\0" * (8 - len(entry) % 8)
    return made


def test_the_index_of_these_tests_is_one() -> None:
    for version in (2, 4):
        assert gitlinks(index(version, [(0o160000, b"lib")])) == ("lib",)
    assert gitlinks(index(4, [(0o100644, b"a"), (0o160000, b"b")])) == ("ab",)


def test_paths_that_grow_from_entry_to_entry_end_somewhere() -> None:
    """In version 4 a byte of the file can stand for a path of any length: a million of them for a terabyte."""
    assert gitlinks(index(4, [(0o160000, b"x")] * PATH_BYTES)) is not None
    assert gitlinks(index(4, [(0o160000, b"x")] * (PATH_BYTES + 1))) is None


HIDING = {
    "too long a path": index(2, [(0o100644, b"a" * (PATH_BYTES + 1)), (0o160000, b"lib")]),
    "too many": index(2, [(0o160000, b"%d" % number) for number in range(MOST_GITLINKS + 1)]),
    "too large": index(2, [(0o160000, b"lib")]) + b"\0" * INDEX_BYTES,
}


@pytest.mark.parametrize("how", HIDING)
def test_no_entry_of_an_index_hides_behind_others(repository: Path, how: str) -> None:
    """git goes on behind a path that it cannot use."""
    (repository / "index").write_bytes(index(2, [(0o100644, b"file")]))
    workspace = Workspace(str(repository.parents[1]), (), (".env",))
    assert find_protection(workspace, "/nowhere", made=False).unseen == ()
    (repository / "index").write_bytes(HIDING[how])
    assert find_protection(workspace, "/nowhere", made=False).unseen == (
        "too many names in one directory, or in its index: a/.git",
    )
    assert ("unseen", "a/.git") in found_in(workspace)


@pytest.mark.torture  # a hundred thousand files
def test_a_directory_of_too_many_names_is_left_and_said(tmp_path: Path) -> None:
    many = tmp_path / "ws/many"
    many.mkdir(parents=True)
    for number in range(MOST_ENTRIES + 1):
        os.close(os.open(f"{many}/{number}", os.O_CREAT | os.O_WRONLY, 0o644))
    workspace = Workspace(str(tmp_path / "ws"), (), (".env",))
    found = find_protection(workspace, "/nowhere", made=False)
    assert found.unseen == ("too many names in one directory, or in its index: many",)
    assert ("unseen", "many") in found_in(workspace)


@pytest.mark.corners
@pytest.mark.parametrize("top", ["", "many/"])
@pytest.mark.parametrize("open_to_writing", [False, True])
def test_too_many_settings_in_one_directory_are_said(tmp_path: Path, top: str, open_to_writing: bool) -> None:
    """Otherwise those of an earlier session would hide what a later one plants."""
    folder = tmp_path / "ws" / top
    folder.mkdir(parents=True)
    for number in range(MOST_NAMES):
        (folder / f"{number}.code-workspace").touch()
    workspace = Workspace(str(tmp_path / "ws"), (), (".env",))
    assert find_protection(workspace, "/nowhere", made=False).unseen == ()
    (folder / "one-more.code-workspace").touch()
    if open_to_writing:
        workspace.open_to_writing(None)
    (line,) = find_protection(workspace, "/nowhere", made=False).unseen
    assert line == f"too many names in one directory, or in its index: {top.rstrip('/') or 'the workspace itself'}"
    assert ("unseen", top.rstrip("/")) in found_in(workspace)


def test_too_many_files_in_a_directory_of_settings_are_said(tmp_path: Path) -> None:
    folder = tmp_path / "ws/.claude"
    folder.mkdir(parents=True)
    for number in range(MOST_NAMES + 1):
        (folder / f"{number}").touch()
    workspace = Workspace(str(tmp_path / "ws"), (), (".env",))
    assert find_protection(workspace, "/nowhere", made=False).unseen == ()
    workspace.open_to_writing(None)
    assert ("unseen", ".claude") in found_in(workspace)


def test_a_directory_is_opened_without_links_on_every_kernel(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    os.close(open_directory(f"{tmp_path}/a/b"))
    top = os.open(tmp_path, os.O_RDONLY)

    def by_step(flags: int) -> Callable[[str], int]:
        step = paths_without_links._open_step_by_step  # pyright: ignore[reportPrivateUsage]
        return lambda path: step(top, os.fsencode(os.path.relpath(path, tmp_path)), flags)

    for one in (open_directory, by_step(DIRECTORY), open_path, by_step(PATH_ONLY)):
        os.close(one(f"{tmp_path}/a/b"))
        for path, why in (
            ("link", "Not a|many"),
            ("link/b", "Not a|many"),
            ("absent", "No such"),
            ("a/b/c", "No such"),
        ):
            with pytest.raises(OSError, match=why):
                os.close(one(f"{tmp_path}/{path}"))
    os.close(top)
    deep = tmp_path
    for _ in range(30):
        deep = deep / ("d" * 200)
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    fd = open_directory(str(deep))
    assert os.path.samestat(os.fstat(here), os.fstat(fd))
    os.close(here)
    os.close(fd)


def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    folder = os.open(tmp_path, os.O_RDONLY)
    assert read_file(folder, "file", 10) == b"x" * 10
    for plant in (fifo, directory, terminal):
        plant(tmp_path / plant.__name__)
        with pytest.raises(OSError, match=r"not a regular file|Too many levels|Is a directory"):
            read_file(folder, plant.__name__, 10)
    os.close(folder)
