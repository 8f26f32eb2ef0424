"""What stands in a workspace stays protected while sessions live, whatever people do to it meanwhile; and what cannot
be protected is said wherever somebody looks."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit.files import lines, records
from ai_session.client.connection import ControlClient, Reply
from ai_session.errors import AiSessionError
from ai_session.models import SandboxLevel, SandboxProfile
from ai_session.sandbox.sandbox import STRENGTH, Machine, Sandbox
from ai_session.sandbox.workspace.protected_paths import MOST_BY_BUBBLEWRAP, PLACEHOLDERS
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import daemon_pids, runtime
from tests.conftest import new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS, pause
from tests.support.forked import Forked
from tests.support.process_ends import kill_process
from tests.support.products import first

BOXED = '[policy]\nmode = "trusted"\n[session]\nuser_rc = false\n'


class Project:
    """A person's project with a repository, and sessions in it."""

    def __init__(self, line: CommandLine, name: str = "project") -> None:
        self.line = line
        self.root = line.home / name
        made = line.home.parent / "repository-with-a-commit"
        if not made.exists():
            self.root.mkdir()
            self.git("init", "-q", ".")
            self.git("config", "user.name", "a")
            self.git("config", "user.email", "a@b")
            self.git("commit", "-q", "--allow-empty", "-m", "one")
            self.root.rename(made)
        shutil.copytree(made, self.root, symlinks=True)

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def write(self, path: str, text: str = "mine\n") -> Path:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)
        return self.root / path

    def replace(self, path: str, text: str = "mine again\n") -> None:
        """As git and many editors write a file."""
        self.write(f"{path}.new", text).rename(self.root / path)

    def session(self, client: ControlClient, name: str = "s", **arguments: Any) -> dict[str, Any]:
        words = {"working_directory": str(self.root), "shell": "bash", **arguments}
        return client.call("create_session", name=name, **words).structured

    def records(self, event: str) -> list[dict[str, Any]]:
        found = records(lines(runtime(self.line.home) / "audit"))
        root = str(self.root)
        return [record for record in found if record["event"] == event and record.get("workspace", root) == root]


@pytest.fixture(scope="module")
def boxes(homes: Path) -> Generator[CommandLine]:
    """Somebody whose sessions all start in boxes."""
    with CommandLine(new_home(homes, BOXED)) as line:
        yield line


@pytest.fixture
def project(boxes: CommandLine) -> Generator[Project]:
    """One of several of theirs."""
    yield Project(boxes, f"project-{len(os.listdir(boxes.home))}")
    boxes.end_sessions()


@pytest.fixture
def only_project(home: Path) -> Generator[Project]:
    """Of somebody who has no other, and whose daemon may be ended."""
    (home / ".config/ai-session/config.toml").write_text(BOXED)
    with CommandLine(home) as line:
        yield Project(line)


def run(client: ControlClient, command: str, session: str = "s") -> Reply:
    return client.call("execute_command", session_id=session, command=command)


def noticed(reply: Reply) -> list[tuple[str, str]]:
    return [(row["kind"], row["path"]) for row in reply.structured.get("notices", [])]


def until_noticed(client: ControlClient, path: str) -> str:
    """The kind of the notice of this path, once there is one."""
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        rows = client.call("get_session_info", session_id="s").structured.get("notices", [])
        if kinds := [row["kind"] for row in rows if row["path"] == path]:
            return kinds[0]
        pause()
    raise AssertionError(f"no notice of {path}")


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_a_plant_is_in_the_result_the_lists_and_the_record(project: Project, backend: str) -> None:
    with project.line.client() as client:
        session = project.session(client, backend=backend)
        reply = run(client, "git init -q lib; mkdir -p packages/web/.vscode; echo {} >.mcp.json")
        wanted = [("settings", ".mcp.json"), ("repository", "lib/.git"), ("settings", "packages/web/.vscode")]
        assert sorted(noticed(reply)) == sorted(wanted)
        assert reply.text.startswith("[new ")
        assert "programs outside the sandbox may run their contents" in reply.text
        for reference in ("get_session_info", "list_sessions"):
            asked = {"session_id": "s"} if reference == "get_session_info" else {}
            found = client.call(reference, **asked).structured
            rows = found["notices"] if "notices" in found else found["sessions"][0]["notices"]
            assert sorted((row["kind"], row["path"]) for row in rows) == sorted(wanted)
        assert noticed(run(client, "touch x; echo '{ }' >.mcp.json")) == []
        kept = [(record["kind"], record["path"]) for record in project.records("workspace.notice")]
        assert sorted(kept) == sorted(wanted)
        for record in project.records("workspace.notice"):
            assert (record["session"], record["command_id"]) == (session["session_id"], reply.structured["command_id"])
            assert record["workspace"] == str(project.root)
    assert "3: " in project.line.out("ls")
    assert "notice\tnew repository lib/.git" in project.line.out("info", "s")
    advice = project.line.run("doctor", code=0, timeout=BOUND_SECONDS).stdout
    assert "git config --global diff.ignoreSubmodules all" in advice
    assert "lib/.git" in advice
    warned = project.line.run("exec", "s", "echo x >.envrc; sleep 0.3; echo done")
    assert warned.stdout == "done\n"
    assert "warning: new settings .envrc" in warned.stderr


def test_a_job_in_the_background_is_noticed_when_nobody_asks(project: Project) -> None:
    with project.line.client() as client:
        project.session(client)
        begun = run(client, "mkfifo go; { read x <go; echo {} >.mcp.json; } & ").structured["command_id"]
        with open(project.root / "go", "w") as go:
            go.write("\n")
        planted = time.monotonic()
        end = planted + BOUND_SECONDS
        while not project.records("workspace.notice") and time.monotonic() < end:
            pause()
        (record,) = project.records("workspace.notice")
        assert record["path"] == ".mcp.json"
        assert record.get("command_id") in (None, begun)
        assert noticed(run(client, "true")) == [("settings", ".mcp.json")]


def test_what_a_person_types_is_noticed(project: Project) -> None:
    with project.line.client() as client:
        project.session(client)
        run(client, "true")
        client.call("send_input", session_id="s", text="git init -q typed", keys=["Enter"])
        assert until_noticed(client, "typed/.git") == "repository"


def test_a_plant_while_no_daemon_runs(only_project: Project) -> None:
    with only_project.line.client() as client:
        only_project.session(client)
        run(client, "echo {} >.mcp.json")
        run(client, "mkfifo go; { read x <go; git init -q late; echo >ended; } & ")
    (pid,) = daemon_pids(only_project.line.home)
    kill_process(pid)
    with open(only_project.root / "go", "w") as go:
        go.write("\n")
    end = time.monotonic() + BOUND_SECONDS
    while not (only_project.root / "ended").exists():
        assert time.monotonic() < end
        pause()
    with only_project.line.client() as client:
        assert noticed(run(client, "true")) == [("repository", "late/.git")]
        paths = [row["path"] for row in client.call("get_session_info", session_id="s").structured["notices"]]
        assert paths == [".mcp.json", "late/.git"]
        assert [record["path"] for record in only_project.records("workspace.notice")] == [".mcp.json", "late/.git"]
        only_project.git("config", "some.thing", "else")
        assert until_noticed(client, ".git/config") == "exposed"
        assert "Read-only" in run(client, "echo >>.git/config").structured["output"]


def inner_session(project: Project, client: ControlClient, path: str) -> str:
    """The name of a new session in a directory of the project that contains nothing yet."""
    (project.root / path).mkdir(parents=True, exist_ok=True)
    name = path.replace("/", "-")
    project.session(client, name, working_directory=str(project.root / path))
    assert (project.root / path / ".claude/.gitignore").exists()
    return name


def plants_in(client: ControlClient, path: str, session: str = "s") -> None:
    """What a session puts into an empty directory that is not read-only in its box is noticed."""
    said = run(client, f"echo {{}} >{path}/settings.json", session)
    assert (noticed(said), said.structured["output"]) == ([("settings", path)], "")


def test_what_boxes_inside_a_workspace_need_is_no_news(project: Project) -> None:
    """Whether they begin or end, and however far inside; but what is put there is."""
    with project.line.client() as client:
        project.session(client)
        run(client, "true")
        inner = [inner_session(project, client, path) for path in ("x", "x/y/z")]
        assert noticed(run(client, "touch one")) == []
        assert [noticed(run(client, "touch other", name)) for name in inner] == [[], []]
        assert " x/" not in project.line.run("doctor", code=0, timeout=BOUND_SECONDS).stdout
        plants_in(client, "x/.claude")
        plants_in(client, "x/y/z/.codex")
        assert noticed(run(client, "true", "x")) == [("settings", ".claude"), ("settings", "y/z/.codex")]
        plants_in(client, "y/z/.vscode", "x")
        said = noticed(run(client, "mkdir -p x/w/.idea"))
        assert sorted(said) == [("settings", "x/w/.idea"), ("settings", "x/y/z/.vscode")]
        for name in inner:
            client.call("close_session", session_id=name)
        assert noticed(run(client, "touch x/other")) == []
        found = [record["path"] for record in project.records("workspace.notice")]
        assert sorted(found) == sorted(["x/.claude", "x/y/z/.codex", "x/y/z/.vscode", "x/w/.idea"])


def test_what_boxes_around_a_workspace_need_is_no_news(project: Project) -> None:
    """Also where the session around it is told a link as its directory."""
    (project.line.home / f"link-{project.root.name}").symlink_to(project.root)
    with project.line.client() as client:
        inner = inner_session(project, client, "x")
        project.session(client, working_directory=str(project.line.home / f"link-{project.root.name}"))
        assert noticed(run(client, "touch one")) == []
        assert noticed(run(client, "touch other", inner)) == []
        assert "Read-only" in run(client, "echo >x/.claude/settings.json").structured["output"]
        client.call("close_session", session_id=inner)
        inner_session(project, client, "x")
        assert noticed(run(client, "touch two")) == []
        client.call("close_session", session_id="s")
        assert noticed(run(client, "touch three", inner)) == []
        client.call("close_session", session_id=inner)
    assert everything(project) == [".git", "one", "two", "x"]
    assert sorted(os.listdir(project.root / "x")) == ["other", "three"]


def test_what_a_command_in_a_box_needs_is_no_news_around_it(project: Project) -> None:
    """Nor what a session needs to a command around it: each is another process."""
    (project.root / "x").mkdir()
    with project.line.client() as client:
        project.session(client)
        command = ["sandbox", "--workspace", str(project.root / "x"), "--", "echo", "done"]
        assert project.line.run(*command).stderr == ""
        assert noticed(run(client, "touch one")) == []
        client.call("close_session", session_id="s")
        with verb(project, "echo begun; read x; echo {} >x/.codex/settings.json") as process:
            assert process.stdout
            assert process.stdout.readline() == b"begun\n"
            inner_session(project, client, "x")
            _, said = process.communicate(b"\n", BOUND_SECONDS)
    assert said.decode().startswith("warning: new settings x/.codex: ")


def test_what_a_second_box_of_a_workspace_needs_is_writable_in_the_first(only_project: Project) -> None:
    """The person began to use another program meanwhile."""
    with only_project.line.client() as client:
        only_project.session(client)
        (only_project.line.home / ".opencode").mkdir()
        only_project.session(client, "second")
        assert (only_project.root / ".opencode").is_dir()
        assert noticed(run(client, "true")) == []
        plants_in(client, ".opencode")


def test_what_inner_boxes_need_is_no_news_to_the_next_daemon(only_project: Project) -> None:
    """But what was put there while none ran is."""
    with only_project.line.client() as client:
        only_project.session(client)
        for path in ("x", "x/y"):
            inner_session(only_project, client, path)
        run(client, "mkfifo go; { read x <go; echo {} >x/.claude/settings.json; echo >ended; } & ")
    (pid,) = daemon_pids(only_project.line.home)
    kill_process(pid)
    with open(only_project.root / "go", "w") as go:
        go.write("\n")
    end = time.monotonic() + BOUND_SECONDS
    while not (only_project.root / "ended").exists():
        assert time.monotonic() < end
        pause()
    with only_project.line.client() as client:
        assert noticed(run(client, "true")) == [("settings", "x/.claude")]
        client.call("close_session", session_id="x-y")
        inner_session(only_project, client, "x/z")
        assert noticed(run(client, "true")) == []
        plants_in(client, "x/z/.vscode")


REPLACED = {
    ".git/config": lambda p: p.git("config", "branch.main.remote", "origin"),
    ".envrc": lambda p: p.replace(".envrc"),
    "packages/web/.npmrc": lambda p: p.replace("packages/web/.npmrc"),
    ".vscode": lambda p: (shutil.rmtree(p.root / ".vscode"), p.write(".vscode/tasks.json")),
    "deep/er": lambda p: (shutil.rmtree(p.root / "deep/er"), p.write("deep/er/.envrc")),
}  # pyright: ignore[reportUnknownLambdaType, reportUnknownVariableType]


def test_what_is_replaced_from_outside_is_protected_again(project: Project) -> None:
    """git, editors and checkouts replace files, and with each goes the mount that protected it."""
    for path in (".envrc", "packages/web/.npmrc", ".vscode/tasks.json", "deep/er/.envrc"):
        project.write(path)
    project.write(".env", "TOKEN=one\n")
    with project.line.client() as client:
        project.session(client)
        run(client, "true")
        for path, change in REPLACED.items():
            change(project)  # pyright: ignore[reportUnknownArgumentType]
            file = {".vscode": ".vscode/tasks.json", "deep/er": "deep/er/.envrc"}.get(path, path)
            seen = path if path != "deep/er" else "deep/er/.envrc"
            assert until_noticed(client, seen) in ("exposed", "settings"), path
            before = (project.root / file).read_text()
            said = run(client, f"echo planted >>{file}; mv {path} other-$RANDOM; echo planted >{file}").structured[
                "output"
            ]
            assert "Read-only" in said
            assert "busy" in said
            assert (project.root / file).read_text() == before
        project.replace(".env", "TOKEN=two\n")
        assert until_noticed(client, ".env") == "exposed"
        assert "TOKEN" not in run(client, "cat .env").structured["output"]


def test_hundreds_of_settings_are_protected(project: Project) -> None:
    """More than bubblewrap mounts in a bearable time."""
    half = MOST_BY_BUBBLEWRAP // 2 + 1
    for number in range(half):
        project.write(f"packages/p{number}/.npmrc")
        project.write(f"packages/p{number}/.env", "TOKEN=one\n")
    with project.line.client() as client:
        made = project.session(client)
        assert "unprotected" not in made
        script = "for p in packages/*; do echo x >>$p/.npmrc; cat $p/.env; mv $p q; echo x >$p/.npmrc; done"
        said = run(client, f"{script} 2>&1 | grep -c Read-only; cat packages/*/.env q/.env").structured["output"]
        assert said == f"{2 * half}\n"
        for number in range(half):
            assert (project.root / f"packages/p{number}/.npmrc").read_text() == "mine\n"
            assert (project.root / f"packages/p{number}/.env").read_text() == "TOKEN=one\n"
        project.replace("packages/p7/.npmrc")
        assert until_noticed(client, "packages/p7/.npmrc") == "exposed"
        assert "Read-only" in run(client, "echo >packages/p7/.npmrc").structured["output"]


def test_what_is_not_protected_is_said(project: Project) -> None:
    project.write("real")
    (project.root / "a").mkdir()
    (project.root / "a/.npmrc").symlink_to("../real")
    project.write("b/.envrc")
    os.link(project.root / "b/.envrc", project.root / "other")
    with project.line.client() as client:
        made = project.session(client)
        said = made["unprotected"]
        assert [("symbolic link: 1" in line, "hard link): 1" in line) for line in said] == [
            (True, False),
            (False, True),
        ]
        assert client.call("list_sessions").structured["sessions"][0]["unprotected"] == said
        assert project.records("sandbox.start")[-1]["unprotected"] == said
        assert noticed(run(client, "echo planted >other")) == [("changed", "b/.envrc")]
    assert "symbolic link: 1" in project.line.out("info", "s")
    assert "symbolic link: 1" in project.line.run("doctor", code=0, timeout=BOUND_SECONDS).stdout


def litter(project: Project, inside: str = ".") -> list[str]:
    """What git would offer a person to add or to remove, but for their own ``mine``."""
    said = [
        *project.git("-C", inside, "status", "--porcelain", "--untracked-files=all", "--ignored=no").splitlines(),
        *project.git("-C", inside, "clean", "-nd").splitlines(),
    ]
    return [line for line in said if not line.endswith("mine")]


def everything(project: Project) -> list[str]:
    return sorted(str(path.relative_to(project.root)) for path in project.root.iterdir())


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_what_is_put_there_is_said_once_and_git_sees_none_of_it(only_project: Project, backend: str) -> None:
    only_project.write("mine")
    with only_project.line.client() as client:
        words: dict[str, Any] = {"working_directory": str(only_project.root), "shell": "bash", "backend": backend}
        first = client.call("create_session", name="s", **words)
        assert "empty directories (.claude" in first.structured["note"]
        assert str(only_project.root) in first.structured["note"]
        assert "note" not in first.text, "models are not to read of it"
        assert "note" not in only_project.session(client, "second")
        assert {name for name in PLACEHOLDERS if (only_project.root / name).is_dir()} == set(PLACEHOLDERS)
        assert litter(only_project) == []
        assert run(client, "git status --porcelain").structured["output"] == "?? mine\n"
        said = run(client, "echo x >.claude/settings.json; mkdir .cursor/x; rmdir .vscode; mv .idea i").structured
        assert said["output"].count("bash:") + said["output"].count("mkdir:") + said["output"].count("rmdir:") == 3
        client.call("close_session", session_id="s")
        client.call("close_session", session_id="second")
        assert everything(only_project) == [".git", "mine"]
        assert "note" not in only_project.session(client)


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_git_sees_nothing_in_a_part_of_a_repository(project: Project, backend: str) -> None:
    web = project.write("packages/web/mine").parent
    with project.line.client() as client:
        project.session(client, backend=backend, working_directory=str(web))
        assert (web / ".claude").is_dir()
        assert litter(project) == []
        assert litter(project, "packages/web") == []
        client.call("close_session", session_id="s")
        assert [path.name for path in web.iterdir()] == ["mine"]


def test_what_is_a_persons_stays(project: Project) -> None:
    """An empty directory of theirs, and what they put into one of ours; git shows the latter from then on."""
    (project.root / ".claude").mkdir()
    with project.line.client() as client:
        project.session(client)
        assert not (project.root / ".claude/.gitignore").exists()
        project.write(".vscode/tasks.json")
        client.call("close_session", session_id="s")
    assert everything(project) == [".claude", ".git", ".vscode"]
    assert os.listdir(project.root / ".claude") == []
    assert os.listdir(project.root / ".vscode") == ["tasks.json"]
    assert project.git("status", "--porcelain", "--untracked-files=all") == "?? .vscode/tasks.json\n"


def test_a_person_may_remove_what_git_ignores(project: Project) -> None:
    """``git clean -fdx`` takes the empty directories as well; what the box makes in their stead is noticed."""
    with project.line.client() as client:
        project.session(client)
        assert "Would remove .claude/\n" in project.git("clean", "-ndx")
        project.git("clean", "-qfdx")
        assert noticed(run(client, "mkdir .claude && echo {} >.claude/settings.json")) == [("settings", ".claude")]
        # A session that begins makes it again, for its own box.
        project.session(client, "second")
        assert (project.root / ".codex").is_dir()
        assert noticed(run(client, "true")) == []
        plants_in(client, ".codex")
        for name in ("s", "second"):
            client.call("close_session", session_id=name)


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
@pytest.mark.parametrize("killed", first(("daemon", "holder", "box", "all of them"), "daemon", "box"))
def test_nothing_is_left_whatever_was_killed(only_project: Project, killed: str, backend: str) -> None:
    kill(only_project, killed, backend)
    with only_project.line.client() as client:
        client.call("close_session", session_id="s")
    assert everything(only_project) == [".git"]


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_nothing_is_left_once_a_daemon_runs_again_after_everything_ended_at_once(
    only_project: Project, backend: str
) -> None:
    """As when the power fails: nobody closes the session."""
    kill(only_project, "all of them", backend)
    assert litter(only_project) == []
    with only_project.line.client() as client:
        client.call("list_sessions")
        assert everything(only_project) == [".git"]


def kill(project: Project, killed: str, backend: str) -> None:
    """Of a session with that backend what is named, without a word."""
    with project.line.client() as client:
        project.session(client, backend=backend)
        box = client.call("get_session_info", session_id="s").structured["pid"]
        (daemon,) = daemon_pids(project.line.home)
    holder = int(Path(f"/proc/{box}/stat").read_text().rpartition(")")[2].split()[1])
    wanted = {"daemon": [daemon], "holder": [holder], "box": [box], "all of them": [daemon, holder, box]}[killed]
    ends = [os.pidfd_open(pid) for pid in wanted]
    for end in ends:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(end, signal.SIGKILL)
    for end in ends:
        assert select.select([end], [], [], BOUND_SECONDS)[0]
        os.close(end)


@contextmanager
def verb(project: Project, script: str) -> Generator[Forked]:
    words = ["sandbox", "--", "sh", "-c", script]
    process = forked.piped("ai_session", words, cwd=project.root, env=project.line.env, reads=True)
    try:
        yield process
    finally:
        process.close()


def test_one_command_in_a_box_says_what_it_planted(project: Project) -> None:
    with verb(project, "git init -q lib; echo {} >.mcp.json") as process:
        out, err = process.communicate(timeout=BOUND_SECONDS)
    assert out == b""
    assert b"note: " not in err, "a pipe has what the command says, and warnings"
    assert b"warning: new settings .mcp.json, new repository lib/.git" in err or b"new repository lib/.git" in err
    found = project.records("workspace.notice")
    assert {(record["kind"], record["path"]) for record in found} == {
        ("settings", ".mcp.json"),
        ("repository", "lib/.git"),
    }
    assert all(record["call"] and record["actor"]["kind"] == "person" for record in found)
    assert sorted(path.name for path in project.root.iterdir()) == [".git", ".mcp.json", "lib"]


@pytest.mark.torture  # by day sessions say it once
def test_a_person_hears_once_of_what_a_command_in_a_box_finds(only_project: Project) -> None:
    for newcomer in (True, False):
        person = only_project.line.spawn(
            "sandbox", "--workspace", str(only_project.root), "--", "echo", "d" + "one", size=(24, 300)
        )
        person.expect("done")
        assert (b"empty directories (.claude" in person.before) == newcomer
        person.close()


def test_a_command_that_was_killed_leaves_nothing(project: Project) -> None:
    with project.line.client():
        pass
    with verb(project, "echo begun; read x") as process:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        assert (project.root / ".claude").is_dir()
        process.kill()
        process.wait()
        end = time.monotonic() + BOUND_SECONDS
        while sorted(os.listdir(project.root)) != [".git"]:
            assert time.monotonic() < end, os.listdir(project.root)
            pause()


WEAK = str(Path(__file__).parents[3] / "data/start_weak.py")
"""What begins a verb on a machine of level landlock."""


def weak(project: Project, *words: str, code: int = 0) -> str:
    """Output of a verb there."""
    given = {"cwd": project.line.home, "env": project.line.env, "script": WEAK}
    status, said, errors = forked.run("ai_session", words, **given)
    assert status == code, (words, said, errors)
    return said.decode()


def weak_daemon(project: Project, least: str) -> None:
    """Serves this project's clients from a machine on which only Landlock can be had, with that minimum level."""
    text = f'{BOXED}[sandbox]\nminimum_level = "{least}"\n'
    (project.line.home / ".config/ai-session/config.toml").write_text(text)
    weak(project, "daemon", "start")


def says_what_is_not_protected(only_project: Project) -> None:
    """A session of level landlock, in its result, the lists, the verbs and the record."""
    with only_project.line.client() as client:
        words = {"working_directory": str(only_project.root), "shell": "bash"}
        made = client.call("create_session", name="s", **words)
        assert "landlock" in made.structured["sandbox"]
        (said,) = made.structured["unprotected"]
        assert "nothing in the workspace is protected" in said
        assert said in made.text
        # What it says is so, and is noticed where it can be.
        assert run(client, "cat .env").structured["output"] == "TOKEN=one\n"
        reply = run(client, "git config core.fsmonitor ./x; mkdir .claude; echo {} >.claude/settings.json")
        assert sorted(noticed(reply)) == [("changed", ".git/config"), ("settings", ".claude")]
        assert client.call("list_sessions").structured["sessions"][0]["unprotected"] == [said]
    person = only_project.line.spawn("ls", size=(24, 300))
    person.expect_exact(said)
    person.close()
    assert said in only_project.line.out("info", "s")
    assert "nothing in the workspace is protected" in weak(only_project, "doctor")
    (record,) = only_project.records("sandbox.start")
    assert (record["level"], record["unprotected"]) == ("landlock", [said])


@pytest.mark.either("least")
@pytest.mark.parametrize("least", ["bwrap", "bwrap-noproc"])
def test_more_than_the_machine_has_may_be_demanded_and_less_says_what_is_not_protected(
    only_project: Project, least: str
) -> None:
    only_project.write(".env", "TOKEN=one\n")
    weak_daemon(only_project, least)
    with only_project.line.client() as client, pytest.raises(AiSessionError) as refused:
        only_project.session(client)
    assert refused.value.code == "sandbox_unavailable"
    assert f"this machine can make landlock boxes, but {least} is required" in refused.value.message
    suggestion = refused.value.suggestion
    assert "ai-session doctor" in suggestion
    assert "no session starts" in weak(only_project, "doctor", code=1)
    # What is suggested works as it is written.
    assert 'set sandbox.minimum_level = "landlock" and run ai-session daemon restart' in suggestion
    config = only_project.line.home / ".config/ai-session/config.toml"
    config.write_text(config.read_text().replace(least, "landlock"))
    weak(only_project, "daemon", "restart")
    says_what_is_not_protected(only_project)


def test_what_stronger_boxes_need_is_no_news_where_nothing_is_protected(only_project: Project) -> None:
    """A session of level landlock lives on when the machine can make better boxes."""
    weak_daemon(only_project, "landlock")
    with only_project.line.client() as client:
        assert "landlock" in only_project.session(client)["sandbox"]
    (pid,) = daemon_pids(only_project.line.home)
    kill_process(pid)
    with only_project.line.client() as client:
        inner_session(only_project, client, "x")
        assert noticed(run(client, "true")) == []
        plants_in(client, "x/.claude")


@pytest.mark.anyio
async def test_the_strongest_level_of_linux_is_enough_for_every_demand(home: Path) -> None:
    (workspace := home / "ws").mkdir()
    machine = Machine.of(await Sandbox(runtime_directory=home / "runtime").facts())
    for least in STRENGTH[: STRENGTH.index(SandboxLevel.NONE)]:
        (directory := home / "runtime" / least).mkdir(parents=True)
        sandbox = Sandbox(runtime_directory=home / "runtime", minimum_level=least, machine=machine)
        box = await sandbox.prepare(SandboxProfile("workspace", str(workspace)), directory / "box")
        assert box.level is SandboxLevel.BWRAP, least
        box.release()


@pytest.mark.anyio
async def test_placeholders_are_not_among_what_was_there_before_a_box(home: Path) -> None:
    """The watch decides about them each time, since another box may have made them after this one was planned."""
    (inner := home / "ws/x").mkdir(parents=True)
    (home / "ws/y/.claude").mkdir(parents=True)
    runtime, known = home / "runtime", list[set[str]]()
    machine = Machine.of(await Sandbox(runtime_directory=runtime).facts())
    for name, workspace in (("inner", inner), ("outer", inner.parent)):
        (directory := runtime / name).mkdir(parents=True)
        sandbox = Sandbox(runtime_directory=runtime, machine=machine)
        box = await sandbox.prepare(SandboxProfile("workspace", str(workspace)), directory / "box")
        known.append({path for _, path in box.known})
        assert (inner / ".claude").is_dir()
    assert known == [set(), {"y/.claude"}]


def test_a_session_in_a_large_tree_starts_and_says_what_it_did_not_look_at(project: Project) -> None:
    project.root.joinpath(*"d" * 40).mkdir(parents=True)
    with project.line.client() as client:
        (line,) = project.session(client)["unprotected"]
        assert line.startswith("not searched: more than 32 directories deep: d/d/")
        assert json.dumps(line).isascii()
