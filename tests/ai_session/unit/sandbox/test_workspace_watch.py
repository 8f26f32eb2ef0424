"""What appears in a workspace is noticed once, by whoever made it, within a bounded time and with bounded work."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import subprocess
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ai_session.sandbox.workspace import watch as workspace_watch
from ai_session.sandbox.workspace.notices import MOST_FOUND, found_in
from ai_session.sandbox.workspace.placeholders import Placeholders
from ai_session.sandbox.workspace.protected_paths import Placeholder, find_protection
from ai_session.sandbox.workspace.tree import DEPTH, Name
from ai_session.sandbox.workspace.watch import MOST_NOTICES, WorkspaceWatch, watch_file
from ai_session.sandbox.workspace.words import WORDS, sentence, summary
from ai_session.sandbox.workspace.workspace import Workspace
from ai_session.system.directory_events import DirectoryEvents

pytestmark = pytest.mark.anyio

SECONDS = 20.0
ONE = "ses_one"


class Scene:
    """A workspace with a repository; what was recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root / "ws"
        self.runtime = root / "run"
        self.runtime.mkdir()
        self.root.mkdir()
        self.git("init", "-q", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "one")
        self.records: list[dict[str, Any]] = []
        self.commands: dict[str, str] = {}
        self.lost: list[str] = []
        self.failing: OSError | None = None
        self.noticed: Callable[[], None] = lambda: None

    def git(self, *words: str, within: str = ".") -> None:
        config = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *config, *words], cwd=self.root / within, check=True, capture_output=True)

    def write(self, path: str, text: str = "x") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def workspace(self, *, watched: bool = True, open_to_writing: bool = False) -> Workspace:
        made = Workspace(str(self.root), (), (".env",))

        def look() -> None:
            if watched:
                assert made.tree.watch()
            if open_to_writing:
                made.open_to_writing(None)
            made.update("/home/nobody")

        # It asks git, which no event loop may wait for.
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return made

    @asynccontextmanager
    async def watch(
        self, workspace: Workspace | None = None, *sessions: str, restore: bool = False, keep: bool = False
    ) -> AsyncGenerator[WorkspaceWatch]:
        workspace = workspace or self.workspace()

        async def renew() -> list[str]:
            if self.failing:
                problem = self.failing
                self.failing = None
                raise problem
            lost = self.lost
            self.lost = []
            return lost

        watch = WorkspaceWatch(
            workspace,
            found_in(workspace),
            watch_file(self.runtime, workspace.root),
            Placeholders(self.runtime),
            lambda session: self.commands.get(session, ""),
            renew,
            self._record,
            restore=restore,
        )
        for session in sessions or (ONE,):
            watch.add(session)
        try:
            yield watch
        finally:
            await watch.aclose(keep=keep)

    def _record(self, event: str, **facts: Any) -> None:
        self.records.append({"event": event, **facts})
        self.noticed()

    def recorded(self) -> list[tuple[str, str]]:
        return [(record["kind"], record["path"]) for record in self.records]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def news(watch: WorkspaceWatch, session: str = ONE, command: str = "") -> list[tuple[str, str]]:
    """What is new to the session once all has been looked at."""
    async with asyncio.timeout(SECONDS):
        found: list[tuple[str, str]] = []
        while True:
            await watch.settle(SECONDS, session, command)
            found += [(notice.kind, notice.path) for notice in watch.news(session)]
            if not watch._behind():  # pyright: ignore[reportPrivateUsage]
                return found
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=0.05)


def link_for_a_repository(scene: Scene) -> None:
    (scene.root / "lib").mkdir()
    (scene.root / "lib/.git").symlink_to("../.git")


def link(path: str, target: str, *, holding: str) -> Callable[[Scene], object]:
    """A directory with this file in it, and a link that leads to it."""

    def plant(scene: Scene) -> None:
        scene.write(f"{target}/{holding}")
        (scene.root / path).parent.mkdir(parents=True, exist_ok=True)
        (scene.root / path).symlink_to(scene.root / target)

    return plant


def split(other: str, *, head: str = "") -> Callable[[Scene], object]:
    """HEAD, or a link called so, with another part of a repository that has its objects elsewhere."""

    def plant(scene: Scene) -> None:
        scene.write(f"a/x/{other}")
        if head:
            (scene.root / "a/x/HEAD").symlink_to(head)
        else:
            scene.write("a/x/HEAD")

    return plant


def ordinary(scene: Scene) -> None:
    for path in ("src/main.py", "package.json", "CLAUDE.md", ".env", "node_modules/x/.npmrc"):
        scene.write(path)


PLANTS: dict[str, tuple[Callable[[Scene], object], list[tuple[str, str]]]] = {
    "repository": (lambda s: s.git("init", "-q", "lib"), [("repository", "lib/.git")]),
    "repository far inside": (lambda s: s.git("init", "-q", "a/b/c/d"), [("repository", "a/b/c/d/.git")]),
    "file for a repository": (lambda s: s.write("lib/.git", "gitdir: ../x\n"), [("repository", "lib/.git")]),
    "link for a repository": (link_for_a_repository, [("repository", "lib/.git")]),
    "bare repository": (lambda s: s.git("init", "-q", "--bare", "lib"), [("repository", "lib")]),
    "worktree": (lambda s: s.git("worktree", "add", "-q", "tree"), [("repository", "tree/.git")]),
    "installed": (lambda s: s.git("init", "-q", ".venv/src/pkg"), [("repository", ".venv/src/pkg/.git")]),
    "settings": (lambda s: s.write("packages/web/.vscode/tasks.json"), [("settings", "packages/web/.vscode")]),
    "file of settings": (lambda s: s.write(".mcp.json"), [("settings", ".mcp.json")]),
    "settings by pattern": (lambda s: s.write("x.code-workspace"), [("settings", "x.code-workspace")]),
    "inner settings": (lambda s: s.write("a/.cargo/config.toml"), [("settings", "a/.cargo/config.toml")]),
    "another spelling": (lambda s: s.write("a/.VSCode./tasks.json"), [("settings", "a/.VSCode.")]),
    "another spelling of git": (lambda s: s.write("a/.GIT/config"), [("settings", "a/.GIT")]),
    "settings as a link": (lambda s: (s.root / ".envrc").symlink_to("x"), [("settings", ".envrc")]),
    "repository in two parts": (split("commondir"), [("settings", "a/x/HEAD"), ("settings", "a/x/commondir")]),
    "repository with a config": (split("config"), [("settings", "a/x/HEAD"), ("settings", "a/x/config")]),
    "repository with a link": (
        split("config.worktree", head="ref"),
        [("settings", "a/x/HEAD"), ("settings", "a/x/config.worktree")],
    ),
    "link on the way": (link(".cargo", "c", holding="config.toml"), [("settings", ".cargo")]),
    "link on the way below": (link("a/.github", "gh", holding="hooks/x"), [("settings", "a/.github")]),
    "link on a longer way": (link("a/.jj/repo", "r", holding="config.toml"), [("settings", "a/.jj/repo")]),
    "link elsewhere": (link("a/lib", "c", holding="config.toml"), []),
    "settings as a pipe": (lambda s: os.mkfifo(s.root / ".envrc"), [("settings", ".envrc")]),
    "ordinary": (ordinary, []),
}


def put(scene: Scene, box: str, *paths: str) -> Placeholders:
    """Let a box, of whichever process, make empty directories in place of these settings."""
    (scene.runtime / box).mkdir(exist_ok=True)
    ledger = Placeholders(scene.runtime)
    wanted = [Placeholder(str(scene.root / path), ignored=True) for path in paths]
    for path in paths:
        (scene.root / path).parent.mkdir(parents=True, exist_ok=True)
    assert len(ledger.put(scene.runtime / box, wanted, ())) == len(wanted)
    return ledger


def replaced_by_a_link(scene: Scene) -> None:
    (scene.root / "x/.claude").rename(scene.root / "x/other")
    (scene.root / "x/.claude").symlink_to("other")


def replaced_by_a_file(scene: Scene) -> None:
    (scene.root / "x/.claude/.gitignore").unlink()
    (scene.root / "x/.claude").rmdir()
    scene.write("x/.claude")


def made_anew(scene: Scene) -> None:
    (scene.root / "x/.claude").rename(scene.root / "x/other")
    scene.write("x/.claude/settings.json")


IN_PLACEHOLDERS: dict[str, tuple[Callable[[Scene], object], str]] = {
    "a file": (lambda s: s.write("x/.claude/settings.json"), "x/.claude"),
    "a file farther inside": (lambda s: s.write("x/.claude/hooks/x"), "x/.claude"),
    "a link": (lambda s: (s.root / "x/.claude/settings.json").symlink_to("/x"), "x/.claude"),
    "another file to ignore": (lambda s: s.write("x/.claude/.gitignore/x"), "x/.claude"),
    "a link in its place": (replaced_by_a_link, "x/.claude"),
    "a file in its place": (replaced_by_a_file, "x/.claude"),
    "another directory in its place": (made_anew, "x/.claude"),
    "another place": (lambda s: (s.root / "x/.claude").rename(s.root / ".claude"), ".claude"),
    "another name": (lambda s: (s.root / "x/.claude").rename(s.root / "x/.cursor"), "x/.cursor"),
}
"""What a program does to a placeholder of another box, and of which path that is news."""


@pytest.mark.corners
@pytest.mark.parametrize("open_to_writing", [False, True], ids=["protected", "open"])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "walked"])
async def test_placeholders_of_any_box_are_no_news(scene: Scene, watched: bool, open_to_writing: bool) -> None:
    """Of a workspace below, of one below that, and of the same one; neither when they come nor when they go."""
    async with scene.watch(scene.workspace(watched=watched, open_to_writing=open_to_writing)) as watch:
        for box in ("x", "x/y/z", "."):
            put(scene, box.replace("/", "-"), f"{box}/.claude", f"{box}/.vscode")
            assert await news(watch) == []
        scene.write("x/new")
        scene.write("x/.envrc")
        assert await news(watch) == [("settings", "x/.envrc")]
        for box in ("x", "x-y-z", "."):
            Placeholders(scene.runtime).drop(scene.runtime / box)
            assert await news(watch) == []
        put(scene, "again", "x/.claude")
        assert await news(watch) == []
    assert scene.recorded() == [("settings", "x/.envrc")]


@pytest.mark.corners
@pytest.mark.parametrize("open_to_writing", [False, True], ids=["protected", "open"])
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "walked"])
@pytest.mark.parametrize("name", IN_PLACEHOLDERS)
async def test_what_is_done_to_a_placeholder_of_another_box_is_noticed(
    scene: Scene, name: str, watched: bool, open_to_writing: bool
) -> None:
    plant, wanted = IN_PLACEHOLDERS[name]
    async with scene.watch(scene.workspace(watched=watched, open_to_writing=open_to_writing)) as watch:
        if name == "another file to ignore":
            put(scene, "one", "x/.claude")
            (scene.root / "x/.claude/.gitignore").unlink()
        ledger = put(scene, "one", "x/.claude")
        if name != "another file to ignore":
            assert await news(watch) == []
        plant(scene)
        assert await news(watch) == [("settings", wanted)]
        ledger.drop(scene.runtime / "one")
        assert await news(watch) == []
    assert scene.recorded() == [("settings", wanted)]


async def test_a_file_in_place_of_a_part_of_an_inner_repository(scene: Scene) -> None:
    """It is no news as it was made; it is once it has another content, or another name under which to change it."""
    for number in range(2):
        scene.git("init", "-q", f"x{number}")
    async with scene.watch() as watch:
        (scene.runtime / "one").mkdir()
        wanted = [Placeholder(str(scene.root / f"x{number}/.git/commondir"), b"../.git\n") for number in range(2)]
        assert len(Placeholders(scene.runtime).put(scene.runtime / "one", wanted, ())) == 2
        assert await news(watch) == []
        scene.write("x0/.git/commondir", "../../x\n")
        assert await news(watch) == [("settings", "x0/.git/commondir")]
        os.link(scene.root / "x1/.git/commondir", scene.root / "other")
        assert await news(watch) == [("settings", "x1/.git/commondir")]


@pytest.mark.parametrize("watched", [True, False])
async def test_another_process_knows_placeholders_from_what_was_put_into_them(scene: Scene, watched: bool) -> None:
    put(scene, "before", "w/.claude")
    async with scene.watch(scene.workspace(watched=watched), keep=True) as watch:
        put(scene, "one", "x/.claude", "x/.vscode")
        assert await news(watch) == []
    scene.write("x/.claude/settings.json")
    put(scene, "two", "y/.claude")
    async with scene.watch(scene.workspace(watched=watched), restore=True) as watch:
        assert await news(watch) == [("settings", "x/.claude")]
        scene.write("x/.vscode/tasks.json")
        assert await news(watch) == [("settings", "x/.vscode")]


async def test_what_is_put_into_a_placeholder_beyond_the_limit_is_noticed(scene: Scene) -> None:
    """The kernel does not report it, since too many other directories are watched."""
    workspace = scene.workspace()
    workspace.tree._most = len(workspace.tree)  # pyright: ignore[reportPrivateUsage]
    async with scene.watch(workspace) as watch:
        await news(watch)
        ledger = put(scene, "one", ".claude")
        assert await news(watch) == [("unseen", "")]
        scene.write(".claude/settings.json")
        assert await news(watch) == [("settings", ".claude")]
        ledger.drop(scene.runtime / "one")


async def test_placeholders_that_go_during_a_scan_are_no_news(scene: Scene) -> None:
    workspace = scene.workspace()
    async with scene.watch(workspace) as watch:
        await news(watch)
        ledger = put(scene, "one", "x/.claude")
        scene.write("y/.claude/settings.json")

        def scan() -> list[str]:
            workspace.tree.update()
            found = found_in(workspace)
            ledger.drop(scene.runtime / "one")
            kept = watch._without_placeholders(found)  # pyright: ignore[reportPrivateUsage]
            assert ("settings", "x/.claude") in found
            return [path for kind, path in kept if kind == "settings" and path.endswith(".claude")]

        assert await asyncio.to_thread(scan) == ["y/.claude"]


async def test_without_a_ledger_everything_is_news(scene: Scene) -> None:
    async with scene.watch() as watch:
        put(scene, "one", "x/.claude")
        assert await news(watch) == []
        (scene.runtime / "placeholders").rename(scene.runtime / "other")
        (scene.runtime / "placeholders").touch()
        scene.write("x/.envrc")
        assert sorted(await news(watch)) == [("settings", "x/.claude"), ("settings", "x/.envrc")]


async def test_what_another_box_has_made_again_is_not_called_exposed(scene: Scene) -> None:
    async with scene.watch() as watch:
        put(scene, "one", "x/.claude", "x/.vscode")
        await news(watch)
        scene.write("x/.vscode/tasks.json")
        assert await news(watch) == [("settings", "x/.vscode")]
        scene.lost = ["x/.claude", "x/.vscode", "x/.envrc"]
        scene.write("x/.envrc")
        assert await news(watch) == [("settings", "x/.envrc")]
        scene.lost = ["x/.claude", "x/y"]
        scene.write("y/.envrc")
        assert await news(watch) == [("settings", "y/.envrc"), ("exposed", "x/y")]


@pytest.mark.corners
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "walked"])
@pytest.mark.parametrize("name", PLANTS)
async def test_what_is_planted_is_noticed_once(scene: Scene, name: str, watched: bool) -> None:
    plant, wanted = PLANTS[name]
    async with scene.watch(scene.workspace(watched=watched)) as watch:
        assert await news(watch) == []
        plant(scene)
        assert await news(watch) == wanted
        assert await news(watch) == []
        assert [(notice.kind, notice.path) for notice in watch.notices(ONE)] == wanted
    assert scene.recorded() == wanted
    assert all(record["event"] == "workspace.notice" for record in scene.records)


async def test_a_link_on_the_way_to_hooks_is_noticed(scene: Scene) -> None:
    scene.git("config", "core.hooksPath", "scripts/hooks")
    async with scene.watch() as watch:
        scene.write("sh/hooks/pre-commit")
        assert await news(watch) == []
        (scene.root / "scripts").symlink_to("sh")
        assert await news(watch) == [("settings", "scripts")]


async def test_a_link_that_is_turned_elsewhere_is_noticed(scene: Scene) -> None:
    """With what it led to, and any link between them."""
    for folder in ("c", "d"):
        scene.write(f"{folder}/other")
    (scene.root / "way").symlink_to("c")
    (scene.root / ".cargo").symlink_to("way")
    workspace = scene.workspace()
    await asyncio.to_thread(
        lambda: workspace.open_to_writing(one.path for one in find_protection(workspace, "/home/nobody").unprotected)
    )
    async with scene.watch(workspace) as watch:
        scene.write("c/config.toml")
        assert await news(watch) == [("settings", "c/config.toml")]
        (scene.root / "new").symlink_to("d")
        (scene.root / "new").rename(scene.root / "way")
        assert await news(watch) == [("changed", "way")]


async def test_an_entry_of_the_index(scene: Scene) -> None:
    scene.git("init", "-q", "lib")
    scene.git("commit", "-q", "--allow-empty", "-m", "one", within="lib")
    async with scene.watch() as watch:
        scene.git("add", "lib")
        assert await news(watch) == [("gitlink", "lib")]
        scene.git("commit", "-qm", "two")
        scene.write("file")
        scene.git("add", "file")
        assert await news(watch) == []


async def test_nobody_has_to_ask(scene: Scene) -> None:
    """A job in the background plants when nobody waits for it."""
    seen = asyncio.Event()
    async with scene.watch() as watch:
        await news(watch)
        scene.noticed = seen.set
        scene.write(".mcp.json")
        async with asyncio.timeout(SECONDS):
            await seen.wait()
        assert await news(watch) == [("settings", ".mcp.json")]


async def test_who_may_have_made_it(scene: Scene) -> None:
    async with scene.watch(None, "a", "b") as watch:
        scene.write(".envrc")
        await news(watch, "a", "cmd_ended")
        scene.commands["b"] = "cmd_runs"
        scene.write("1/.envrc")
        await news(watch, "a")
        scene.write("2/.envrc")
        await news(watch, "a", "cmd_ended")
        scene.commands.clear()
        scene.write("3/.envrc")
        await news(watch)
    known = [(record["session"], record["command_id"], record["sessions"]) for record in scene.records]
    assert known == [
        ("a", "cmd_ended", None),
        ("b", "cmd_runs", None),
        (None, None, ["a", "b"]),
        (None, None, ["a", "b"]),
    ]


async def test_each_session_hears_of_what_came_since_it_began(scene: Scene) -> None:
    async with scene.watch(None, "a") as watch:
        scene.write(".envrc")
        await watch.settle(SECONDS)
        watch.add("b")
        scene.write("x/.envrc")
        assert await news(watch, "b") == [("settings", "x/.envrc")]
        assert await news(watch, "a") == [("settings", ".envrc"), ("settings", "x/.envrc")]
        assert len(watch.notices("b")) == 1
        assert watch.news("nobody") == watch.notices("nobody") == []


async def test_what_is_gone_is_listed_no_more(scene: Scene) -> None:
    async with scene.watch() as watch:
        scene.write(".envrc")
        await news(watch)
        (scene.root / ".envrc").unlink()
        await watch.settle(SECONDS)
        assert watch.notices(ONE) == []
        scene.write(".envrc")
        assert await news(watch) == []
        assert len(watch.notices(ONE)) == 1
    assert len(scene.records) == 1


async def test_what_was_protected_and_is_made_anew_is_new(scene: Scene) -> None:
    scene.write(".envrc")
    async with scene.watch() as watch:
        (scene.root / ".envrc").unlink()
        await watch.settle(SECONDS)
        scene.write(".envrc")
        assert await news(watch) == [("settings", ".envrc")]


async def test_what_was_replaced_from_outside_is_protected_again(scene: Scene) -> None:
    scene.write(".envrc")
    async with scene.watch() as watch:
        await news(watch)
        scene.lost = [".envrc"]
        scene.write("new")
        (scene.root / "new").rename(scene.root / ".envrc")
        assert await news(watch) == [("exposed", ".envrc")]
        assert scene.lost == []
        scene.write("new")
        (scene.root / "new").rename(scene.root / ".envrc")
        assert await news(watch) == []


async def test_changes_where_nothing_is_read_only(scene: Scene) -> None:
    for path in (".vscode/tasks.json", "a/.npmrc", ".envrc"):
        scene.write(path)
    async with scene.watch(scene.workspace(open_to_writing=True)) as watch:
        scene.write(".vscode/tasks.json", "other")
        scene.write(".vscode/more.json")
        scene.git("config", "a.b", "c")
        scene.write(".git/hooks/pre-push")
        (scene.root / "a/.npmrc").chmod(0o600)
        wanted = {
            ("changed", ".vscode/tasks.json"),
            ("settings", ".vscode/more.json"),
            ("changed", ".git/config"),
            ("settings", ".git/hooks/pre-push"),
            ("changed", "a/.npmrc"),
        }
        assert set(await news(watch)) == wanted
        scene.git("init", "-q", "lib")
        assert await news(watch) == [("repository", "lib/.git")]


async def test_a_file_with_another_name_is_looked_at(scene: Scene) -> None:
    scene.write("a/.npmrc")
    os.link(scene.root / "a/.npmrc", scene.root / "other")
    async with scene.watch() as watch:
        scene.write("other", "planted")
        assert await news(watch) == [("changed", "a/.npmrc")]


@pytest.mark.parametrize("watched", [True, False])
async def test_another_process_takes_it_up(scene: Scene, watched: bool) -> None:
    async with scene.watch(scene.workspace(watched=watched), keep=True) as watch:
        scene.write(".envrc")
        assert await news(watch) == [("settings", ".envrc")]
        scene.write("a/.envrc")
        await watch.settle(SECONDS)
    scene.git("init", "-q", "lib")  # while nobody looks
    async with scene.watch(scene.workspace(watched=watched), restore=True) as watch:
        assert await news(watch) == [("settings", "a/.envrc"), ("repository", "lib/.git")]
        assert len(watch.notices(ONE)) == 3
    assert len(scene.records) == 3
    assert not list((scene.runtime / "workspaces").iterdir())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"known": 1}', '{"known": [], "notices": [{}], "sessions": {}}'])
async def test_what_was_kept_and_is_torn(scene: Scene, text: str) -> None:
    watch_file(scene.runtime, str(scene.root)).write_text(text)
    async with scene.watch(restore=True) as watch:
        scene.write(".envrc")
        assert await news(watch) == [("settings", ".envrc")]


async def test_notices_are_bounded(scene: Scene) -> None:
    async with scene.watch() as watch:
        for number in range(MOST_NOTICES + 50):
            scene.write(f"d{number}/.envrc")
        found = await news(watch)
        assert len(found) == MOST_NOTICES
        assert found[-1] == ("unseen", "further notices")
    assert len(scene.records) == MOST_NOTICES


@contextmanager
def busy(root: Path) -> Generator[None]:
    """Somebody makes and moves directories without a pause."""
    over = threading.Event()

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            (root / f"busy/{number % 50}/{number}").mkdir(parents=True, exist_ok=True)
            os.rename(root / "busy", root / f"busy{number % 2}")
            os.rename(root / f"busy{number % 2}", root / "busy")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def test_somebody_who_makes_directories_without_a_pause(scene: Scene) -> None:
    """A plant is noticed all the same, or that not all was looked at; and the loop is free."""
    async with scene.watch() as watch:
        await news(watch)
        with busy(scene.root):
            scene.write("0/.envrc")
            # The loop is free while a look is on: no call in it blocks, as tests of event loops here enforce.
            await watch.settle(SECONDS)
        found = await news(watch)
        assert ("settings", "0/.envrc") in [*found, *scene.recorded()]


async def test_a_part_that_is_not_looked_at_is_named(scene: Scene) -> None:
    async with scene.watch() as watch:
        scene.root.joinpath(*"d" * 40).mkdir(parents=True)
        assert await news(watch) == [("unseen", "/".join("d" * 32))]


async def test_nothing_new_costs_nothing(scene: Scene) -> None:
    async with scene.watch() as watch:
        await news(watch)
        before = len(threading.enumerate())
        for _ in range(100):
            quick = asyncio.ensure_future(watch.settle(SECONDS, ONE, "cmd"))
            await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=0)
            assert quick.done()
        assert len(threading.enumerate()) == before


def test_words() -> None:
    rows = [{"kind": kind, "path": f"a/{kind}"} for kind in WORDS]
    assert all(f"a/{kind}" in sentence(rows) for kind in WORDS)
    assert "and 7 more" in sentence([{"kind": "settings", "path": "x"}] * 17)
    assert "part of the workspace" in sentence([{"kind": "unseen", "path": ""}])
    assert (summary(rows), summary(rows[:1]), summary([])) == ("6: a/repository, …", "1: a/repository", "")


def test_bounds_leave_time_for_others() -> None:
    assert workspace_watch.SCAN_SECONDS * (1 + workspace_watch.SHARE) <= 1.0


async def test_what_is_found_where_something_was_unseen_before_is_noticed(scene: Scene) -> None:
    deep = "/".join("d" * DEPTH)
    async with scene.watch() as watch:
        (scene.root / deep / "d").mkdir(parents=True)
        assert await news(watch) == [("unseen", deep)]
        scene.write(f"{deep}/.envrc")
        assert await news(watch) == [("settings", f"{deep}/.envrc")]


async def test_settings_where_an_entry_of_the_index_leads_are_noticed(scene: Scene) -> None:
    scene.git("init", "-q", "sub")
    scene.git("commit", "-q", "--allow-empty", "-m", "one", within="sub")
    async with scene.watch() as watch:
        scene.git("add", "sub")
        assert await news(watch) == [("gitlink", "sub")]
        scene.write("sub/.envrc")
        assert await news(watch) == [("settings", "sub/.envrc")]


async def test_a_rebase_that_runs_programs_when_it_is_continued_is_noticed(scene: Scene) -> None:
    """One that picks commits alone is not: agents leave such ones where changes conflict."""
    async with scene.watch() as watch:
        scene.write(".git/rebase-merge/git-rebase-todo", "pick 1234 one\n")
        assert await news(watch) == []
        scene.write(".git/rebase-merge/git-rebase-todo", "pick 1234 one\n x ./payload\n")
        assert await news(watch) == [("settings", ".git/rebase-merge/git-rebase-todo")]
        scene.write(".git/rebase-merge/git-rebase-todo", "exec ./other\n")
        assert await news(watch) == []


async def test_a_rebase_behind_a_link_is_noticed(scene: Scene) -> None:
    async with scene.watch() as watch:
        scene.write("kept/git-rebase-todo", "exec ./payload\n")
        (scene.root / ".git/rebase-merge").symlink_to("../kept")
        assert await news(watch) == [("settings", ".git/rebase-merge")]


async def test_settings_of_a_person_that_are_changed_again_are_noticed_again(scene: Scene) -> None:
    """The first change may have been the person's own."""
    scene.write(".envrc")
    async with scene.watch(scene.workspace(open_to_writing=True)) as watch:
        for text in ("one", "another"):
            scene.write(".envrc", text)
            assert await news(watch) == [("changed", ".envrc")]
        assert [(one.kind, one.path) for one in watch.notices(ONE)] == [("changed", ".envrc")]
        scene.write("new/.envrc")
        assert await news(watch) == [("settings", "new/.envrc")]
        scene.write("new/.envrc", "another")
        assert await news(watch) == []


async def test_a_machine_without_descriptors_ends_no_watch(scene: Scene) -> None:
    """Neither a look that cannot be made, nor protection that cannot be renewed, is the last one."""
    async with scene.watch() as watch:
        await news(watch)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        scene.write(".envrc")
        scene.failing = OSError(errno.EMFILE, "too many open files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            await watch.settle(SECONDS)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await news(watch) == [("settings", ".envrc")]
        scene.failing = None
        scene.lost = ["a"]
        scene.write("x/.envrc")
        assert ("settings", "x/.envrc") in await news(watch)
        assert ("exposed", "a") in scene.recorded()


async def test_watches_are_counted_for_the_whole_process(scene: Scene) -> None:
    one, other = scene.workspace(), scene.workspace()
    assert one.tree.events is not None
    taken = DirectoryEvents._taken  # pyright: ignore[reportPrivateUsage]
    other.tree.unwatch()
    between = DirectoryEvents._taken  # pyright: ignore[reportPrivateUsage]
    one.tree.unwatch()
    assert taken > between > DirectoryEvents._taken >= 0  # pyright: ignore[reportPrivateUsage]


async def test_reports_that_are_closed_are_not_pending(scene: Scene) -> None:
    workspace = scene.workspace()
    events = workspace.tree.events
    assert events is not None
    reader = events.reader()
    workspace.tree.unwatch()
    assert not events.pending()
    os.fstat(reader)  # still the caller's own
    os.close(reader)


async def test_a_workspace_that_is_being_prepared_keeps_its_reports(scene: Scene) -> None:
    workspace = scene.workspace()
    async with scene.watch(workspace):
        await asyncio.to_thread(workspace.hold)
    assert workspace.tree.events is not None
    await asyncio.to_thread(workspace.release)
    assert workspace.tree.events is None


async def test_what_is_found_is_bounded(scene: Scene) -> None:
    names = tuple(Name(f"g{number}", "gitlink") for number in range(MOST_FOUND + 10))
    workspace = scene.workspace()
    workspace.tree.facts[".git"] = names
    found = found_in(workspace)
    assert len(found) == MOST_FOUND + 1
    assert ("unseen", "") in found
