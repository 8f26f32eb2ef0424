"""A configuration that has changed since a person used it is not used before a person agrees: whatever was done to it,
by whatever name it is reached."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.config.settings import Settings
from ccswarm.config.trust import MOST_BYTES, Change, ConfigTrust, Content, Source, Verdict, look, programs, remember_now
from ccswarm.errors import ConfigChanged, ConfigInvalid
from tests.conftest import environment

GOOD, EVIL = '[swarm]\nname = "good"\n', '[swarm]\nname = "evil"\n'


@pytest.fixture
def project(home: Path) -> Iterator[Path]:
    folder = home / "project"
    folder.mkdir()
    with chdir(folder):
        yield folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def name(path: Path | None = None) -> str:
    return config.load(path).settings.swarm.name


def yes(_: Change) -> bool:
    return True


def test_the_first_use_is_trusted_and_the_same_again(project: Path) -> None:
    write(project / "ccswarm.toml", GOOD)
    assert [name(), name(), name(Path("ccswarm.toml")), name(project / "ccswarm.toml")] == ["good"] * 4


def rewritten(project: Path) -> None:
    write(project / "ccswarm.toml", EVIL)


def replaced(project: Path) -> None:
    write(project / "other", EVIL).replace(project / "ccswarm.toml")


def linked(project: Path) -> None:
    (project / "ccswarm.toml").unlink()
    (project / "ccswarm.toml").symlink_to(write(project / "other.toml", EVIL))


def linked_to_the_same(project: Path) -> None:
    """Another file can be put there later."""
    (project / "ccswarm.toml").rename(project / "other.toml")
    (project / "ccswarm.toml").symlink_to("other.toml")


def of_another_project(project: Path) -> None:
    """A file that a person trusts, where it is."""
    other = write(project.parent / "other/ccswarm.toml", EVIL)
    assert name(other) == "evil"
    (project / "ccswarm.toml").unlink()
    (project / "ccswarm.toml").symlink_to(other)


def gone(project: Path) -> None:
    (project / "ccswarm.toml").unlink()


def gone_for_another(project: Path) -> None:
    """With it away the next one would be used."""
    write(project / "config/ccswarm.toml", EVIL)
    (project / "ccswarm.toml").unlink()


def touched_by_a_byte(project: Path) -> None:
    (project / "ccswarm.toml").write_bytes(GOOD.encode() + b"\n")


@pytest.mark.parametrize(
    "attack",
    [
        rewritten,
        replaced,
        linked,
        linked_to_the_same,
        of_another_project,
        gone,
        gone_for_another,
        touched_by_a_byte,
    ],
)
def test_what_has_changed_is_not_used_and_nothing_is_recorded(project: Path, attack: Callable[[Path], None]) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    assert name() == "good"
    attack(project)
    for _ in range(2):
        with pytest.raises(ConfigChanged) as refused:
            config.load()
    assert str(file) in refused.value.message
    assert refused.value.suggestion == f"ccswarm trust {file}"
    assert config.load_last().settings.swarm.name == "good"
    assert config.load_last().changed
    with pytest.raises(ConfigChanged):
        config.load(confirm=lambda _: False)
    shown: list[Change] = []
    loaded = config.load(confirm=lambda change: not shown.append(change))
    assert len(shown) == (2 if attack is gone_for_another else 1)
    assert shown[0].before.data == GOOD.encode()
    assert config.load().settings == loaded.settings, "and it is not asked again"


def test_a_file_that_was_looked_for_in_vain_has_changed_when_it_appears(project: Path) -> None:
    write(project.parent / ".config/ccswarm/config.toml", GOOD)
    assert name() == "good"
    for file in (project / "ccswarm.toml", project / "config/ccswarm.toml"):
        assert config.load(remember_absent=True).settings.swarm.name == "good"
        write(file, EVIL)
        with pytest.raises(ConfigChanged, match="exists now, but did not when it was last checked"):
            name()
        assert config.load_last().settings.swarm.name == "good"
        file.unlink()
        assert name() == "good"


def test_a_person_who_only_looks_around_writes_a_configuration_afterwards(project: Path) -> None:
    assert config.load().settings == Settings()
    write(project / "ccswarm.toml", GOOD)
    assert name() == "good"


def test_no_other_name_makes_a_file_one_that_nobody_has_used(project: Path) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    (project.parent / "way").symlink_to(project)
    (project.parent / "link.toml").symlink_to(file)
    assert name(file) == "good"
    names = [
        project.parent / "way/ccswarm.toml",
        project.parent / "link.toml",
        project / "../project/ccswarm.toml",
        Path("./ccswarm.toml"),
    ]
    assert [name(one) for one in names[:1]] == ["good"]
    write(file, EVIL)
    for one in names:
        with pytest.raises(ConfigChanged):
            config.load(one)
    config.load(names[0], confirm=yes)
    assert [name(one) for one in (file, *names)] == ["evil"] * 5


def test_a_directory_that_is_changed_for_another_is_noticed(project: Path) -> None:
    write(project / "config/ccswarm.toml", GOOD)
    assert name() == "good"
    write(project / "evil/ccswarm.toml", EVIL)
    (project / "config").rename(project / "old")
    (project / "config").symlink_to("evil")
    with pytest.raises(ConfigChanged, match="is not the file last used"):
        name()


def test_plans_and_suites_are_files_like_this_one(project: Path) -> None:
    plan = write(project / "plan.toml", '[[tasks]]\nid = "a"\n')
    assert config.load_plan(plan, Settings()).settings.tasks[0].id == "a"
    write(plan, '[[tasks]]\nid = "b"\n')
    with pytest.raises(ConfigChanged, match=r"plan\.toml"):
        config.load_plan(plan, Settings())
    assert config.peek_plan(plan, Settings()).tasks[0].id == "b"
    assert config.load_plan(plan, Settings(), confirm=yes).settings.tasks[0].id == "b"
    with pytest.raises(ConfigChanged):
        config.load_as(Settings, write(plan, ""), "")


def test_what_is_wrong_is_told_before_anybody_is_asked_and_is_no_use(project: Path) -> None:
    file = write(project / "ccswarm.toml", "[swarm]\nname = 7\n")
    for text in ("[swarm]\nname = 7\n", "[[[", GOOD):
        write(file, text)
        if text != GOOD:
            with pytest.raises(ConfigInvalid):
                name()
    assert name() == "good", "nobody has used it before"
    write(file, "[[[")

    def never(_: Change) -> bool:
        raise AssertionError

    with pytest.raises(ConfigInvalid):
        config.load(confirm=never)
    with pytest.raises(ConfigChanged):
        config.load()


def test_a_server_uses_what_it_found_when_it_began(project: Path) -> None:
    for number, text in enumerate(("", GOOD, "[[[")):
        folder = project / str(number)
        folder.mkdir()
        os.chdir(folder)
        if text:
            write(folder / "ccswarm.toml", text)
        remember_now(None)
        write(folder / "ccswarm.toml", EVIL)
        with pytest.raises(ConfigChanged):
            name()
    remember_now(project / "named.toml")
    write(project / "named.toml", EVIL)
    with pytest.raises(ConfigChanged, match="exists now"):
        name(project / "named.toml")


def test_a_server_that_begins_later_agrees_to_nothing(project: Path) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    assert name() == "good"
    write(file, EVIL)
    remember_now(None)
    with pytest.raises(ConfigChanged):
        name()


@pytest.mark.parametrize("kind", ["fifo", "directory", "socket", "huge", "unreadable text"])
def test_what_is_no_file_is_refused_at_once(project: Path, kind: str) -> None:
    file = project / "ccswarm.toml"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    elif kind == "socket":
        os.mknod(file, stat.S_IFSOCK | 0o600)
    elif kind == "huge":
        with file.open("wb") as stream:
            stream.truncate(MOST_BYTES + 1)
    else:
        file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigInvalid, match=r"ccswarm\.toml"):
        name()


@pytest.mark.parametrize("times", [60, pytest.param(300, marks=pytest.mark.torture)])
def test_the_bytes_that_are_judged_are_those_that_are_used(project: Path, times: int) -> None:
    """While somebody writes one and the other, as fast as possible."""
    file = write(project / "ccswarm.toml", GOOD)
    assert name() == "good"
    over = threading.Event()

    def flip() -> None:
        number = 0
        while not over.is_set():
            number += 1
            other = write(project / f"next{number % 2}", EVIL if number % 2 else GOOD)
            other.replace(file)

    thread = threading.Thread(target=flip)
    thread.start()
    used, tried, refused = set[str](), 0, 0
    try:
        while tried < times or not refused:
            tried += 1
            try:
                used.add(name())
            except ConfigChanged:
                refused += 1
    finally:
        over.set()
        thread.join()
    assert used <= {"good"}


def test_a_pipe_of_the_persons_shell_is_what_it_is(project: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b'[[tasks]]\nid = "a"\n')
    os.close(writing)
    try:
        assert config.load_plan(Path(f"/dev/fd/{reading}"), Settings()).settings.tasks[0].id == "a"
    finally:
        os.close(reading)
    assert list(ConfigTrust(config.state_directory()).records()) == []


def test_records_are_private_and_one_that_is_damaged_is_no_agreement(project: Path) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    name()
    folder = config.state_directory() / "trust"
    (record,) = folder.iterdir()
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(record.stat().st_mode)) == (0o700, 0o600)
    for damage in (b"", b"{", b"[]", b'{"path": 1}'):
        record.write_bytes(damage)
        with pytest.raises(ConfigChanged, match="is damaged"):
            name()
    assert config.load(file, confirm=yes).settings.swarm.name == "good"
    assert name() == "good"


def test_a_run_goes_on_with_what_it_was_started_with_or_what_was_used_since(project: Path) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    plan = write(project / "plan.toml", '[[tasks]]\nid = "a"\n')
    loaded = config.load()
    sources = [*loaded.sources, *config.load_plan(plan, loaded.settings).sources]

    def now() -> tuple[str, str] | None:
        found = config.as_started(sources)
        return found and (found.swarm.name, found.tasks[0].id)

    assert now() == ("good", "a")
    write(file, EVIL)
    assert now() == ("good", "a")
    write(plan, '[[tasks]]\nid = "b"\n')
    assert now() == ("good", "a")
    config.load(confirm=yes)
    assert now() == ("evil", "a")
    config.load_plan(plan, Settings(), confirm=yes)
    assert now() == ("evil", "b")
    plan.unlink()
    assert now() is None
    assert config.as_started([]) is None


def test_on_another_machine_only_the_very_files_of_the_run_are_used(project: Path) -> None:
    """Where nobody has used them: an agent may have written what lies there."""
    file = write(project / "ccswarm.toml", GOOD)
    sources = config.load().sources
    with environment({**os.environ, "XDG_STATE_HOME": str(project / "elsewhere")}):
        found = config.as_started(sources)
        assert found
        assert found.swarm.name == "good"
        write(file, EVIL)
        with pytest.raises(ConfigChanged, match="not the file that the run was started from"):
            config.as_started(sources)
        with pytest.raises(ConfigChanged):
            config.as_started([str(file)])
        assert list(ConfigTrust(config.state_directory()).records()) == []


@pytest.mark.parametrize("path", ["/a/b.toml", "/a:b/sha256-0:c.toml", "/sha256-abc:/x", "/ü \n"])
def test_sources_are_read_as_they_are_written(path: str) -> None:
    for source in (Source(Path(path), "sha256-" + "0" * 64), Source(Path(path))):
        assert Source.parse(str(source)) == source


def test_what_is_looked_at_is_not_used(project: Path) -> None:
    file = write(project / "ccswarm.toml", GOOD)
    assert config.peek().settings.swarm.name == "good"
    trust = ConfigTrust(config.state_directory())
    assert trust.verdict(look(file)) is Verdict.FIRST
    config.load_last()
    assert trust.verdict(look(file)) is Verdict.FIRST
    config.load()
    assert trust.verdict(look(file)) is Verdict.SAME


# A configuration that nobody named, and that takes the place of another


def own(project: Path) -> Path:
    return write(project.parent / ".config/ccswarm/config.toml", GOOD)


@pytest.mark.parametrize("planted", ["ccswarm.toml", "config/ccswarm.toml"])
def test_what_is_come_upon_does_not_displace_the_persons_own(project: Path, planted: str) -> None:
    file = own(project)
    planted_file = write(project / planted, EVIL)
    for _ in range(2):
        with pytest.raises(ConfigChanged, match="is new here and would be used instead of") as refused:
            config.load()
    assert str(file) in refused.value.message
    assert refused.value.suggestion == f"ccswarm trust {planted_file}"
    assert config.load_last().settings.swarm.name == "good"
    assert [change.now.path for change in config.changes()] == [planted_file]
    remember_now(None)
    with pytest.raises(ConfigChanged, match="is new here"):
        name()
    assert config.load(confirm=yes).settings.swarm.name == "evil"
    assert name() == "evil"
    assert config.changes() == []


def test_a_link_to_a_file_that_is_trusted_elsewhere_displaces_nothing(project: Path) -> None:
    other = write(project.parent / "other/ccswarm.toml", EVIL)
    own(project)
    assert name(other) == "evil"
    (project / "ccswarm.toml").symlink_to(other)
    with pytest.raises(ConfigChanged, match="is new here"):
        name()


def test_whoever_has_used_another_file_is_asked_about_a_new_one(project: Path) -> None:
    assert name(write(project / "other.toml", GOOD)) == "good"
    write(project / "ccswarm.toml", EVIL)
    with pytest.raises(ConfigChanged, match="is new here and has not been used before"):
        name()


def test_what_a_person_names_is_no_discovery(project: Path) -> None:
    own(project)
    assert name() == "good"
    file = write(project / "ccswarm.toml", EVIL)
    with environment({**os.environ, "CCSWARM_CONFIG": str(file)}):
        assert name() == "evil"
    assert name() == "evil", "it has been used"
    other = write(project / "config/ccswarm.toml", GOOD)
    assert name(other) == "good"


def test_a_newcomer_has_agreed_by_the_first_use(project: Path) -> None:
    config.load(remember_absent=True)
    folder = project / "inner"
    folder.mkdir()
    with chdir(folder):
        write(folder / "ccswarm.toml", GOOD)
        assert [config.load().begun for _ in range(2)] == [True, False]
    with chdir(project):
        assert not config.load(write(project / "other.toml", GOOD)).begun


# Files that commands name


SERVER = '[[mcp.servers]]\nname = "srv"\ncommand = "python3 tools/srv.py"\n'


def script(project: Path, text: str = "good") -> Path:
    return write(project / "tools/srv.py", text)


def test_a_program_that_has_changed_is_asked_about(project: Path) -> None:
    write(project / "ccswarm.toml", SERVER)
    file = script(project)
    config.load()
    config.load()
    before = file.stat()
    file.write_text("evil")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    for load in (config.load, lambda: config.load(project / "ccswarm.toml")):
        with pytest.raises(ConfigChanged, match="named by the command of server srv, has changed") as refused:
            load()
        assert refused.value.suggestion == f"ccswarm trust {file}"
    shown: list[Change] = []
    config.load(confirm=lambda change: not shown.append(change))
    assert [(one.before.data, one.now.data) for one in shown] == [(b"good", b"evil")]
    config.load()
    file.unlink()
    config.load()
    script(project)
    with pytest.raises(ConfigChanged, match="has changed"):
        config.load()


def test_several_who_use_it_first_at_the_same_moment_all_agree(project: Path) -> None:
    file = write(project / "ccswarm.toml", SERVER)
    script(project)
    trust, begun = ConfigTrust(config.state_directory()), list[Future[object]]()

    def used() -> Iterator[Content]:
        yield from (program.content for program in programs(look(file), None))
        begun.extend(others.submit(config.load) for _ in range(3))
        yield look(file)

    with ThreadPoolExecutor() as others:
        trust.use(used())
        assert len([one.result() for one in begun]) == 3


def moved_away(file: Path) -> None:
    file.parent.rename(file.parent.parent / "old")
    script(file.parent.parent, "evil")


def linked_out(file: Path) -> None:
    file.unlink()
    file.symlink_to(write(file.parents[2] / "outside.py", "good"))


def linked_in(file: Path) -> None:
    file.rename(file.parent / "other.py")
    file.symlink_to("other.py")


def made_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def emptied(file: Path) -> None:
    file.write_text("")


@pytest.mark.parametrize("attack", [moved_away, linked_out, linked_in, made_a_pipe, emptied])
def test_no_other_thing_takes_the_place_of_a_program(project: Path, attack: Callable[[Path], None]) -> None:
    write(project / "ccswarm.toml", SERVER)
    file = script(project)
    config.load()
    attack(file)
    with pytest.raises((ConfigChanged, ConfigInvalid), match=r"srv\.py"):
        config.load()


def test_a_link_that_leads_out_counts_as_it_is(project: Path) -> None:
    """What it leads to is no agent's; whoever changes the link has changed the program."""
    outside = write(project.parent / "outside.py", "good")
    (project / "tools").mkdir()
    link = project / "tools/srv.py"
    link.symlink_to(outside)
    write(project / "ccswarm.toml", SERVER)
    config.load()
    outside.write_text("better")
    config.load()
    link.unlink()
    link.symlink_to(write(project.parent / "other.py", "good"))
    with pytest.raises(ConfigChanged, match="is not the file last used"):
        config.load()
    link.unlink()
    link.write_text("good")
    with pytest.raises(ConfigChanged, match=r"srv\.py"):
        config.load()


@pytest.mark.parametrize("new", ["pkg/__main__.py", "pkg.py", "node_modules/pkg/package.json"])
def test_a_program_that_appears_is_new(project: Path, new: str) -> None:
    """Where another one, installed elsewhere, was meant."""
    program = "npx -y pkg" if "node" in new else "python3 -m pkg"
    write(project / "ccswarm.toml", f'[[mcp.servers]]\nname = "srv"\ncommand = "{program}"\n')
    config.load()
    write(project / new, "evil")
    with pytest.raises(ConfigChanged, match="is new and has not been used before"):
        config.load()
    config.load(confirm=yes)
    config.load()


def test_what_is_new_is_not_agreed_to_with_an_edit_of_the_configuration(project: Path) -> None:
    file = write(project / "ccswarm.toml", SERVER)
    config.load()
    script(project, "evil")
    write(file, SERVER + "# more\n")
    shown: list[Path] = []
    config.load(confirm=lambda change: not shown.append(change.now.path))
    assert shown == [file, project / "tools/srv.py"]


def test_the_persons_own_configuration_starts_nothing_new_in_another_directory(project: Path) -> None:
    write(project.parent / ".config/ccswarm/config.toml", SERVER)
    script(project)
    config.load()
    other = project.parent / "other"
    script(other, "evil")
    with chdir(other), pytest.raises(ConfigChanged, match="is new"):
        config.load()
    with pytest.raises(ConfigChanged, match="is new"):
        config.load(workspace=other)


def test_programs_of_plans_and_suites_are_like_this(project: Path) -> None:
    plan = write(project / "plan.toml", SERVER)
    script(project)
    config.load_plan(plan, Settings())
    script(project, "evil")
    with pytest.raises(ConfigChanged, match="named by the command of server srv, has changed"):
        config.load_plan(plan, Settings())


def test_data_that_a_server_writes_is_no_program(project: Path) -> None:
    text = SERVER.replace("srv.py", "srv.py data.db") + 'data_files = ["data.db"]\n'
    write(project / "ccswarm.toml", text)
    script(project)
    config.load()
    write(project / "data.db", "1")
    config.load()


def test_of_a_long_program_only_the_digest_is_kept(project: Path) -> None:
    write(project / "ccswarm.toml", SERVER)
    file = script(project, "x" * (17 << 20))
    config.load()
    config.load()
    with file.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"y")
    with pytest.raises(ConfigChanged, match="has changed"):
        config.load()
    change = config.change_of(file)
    assert change
    assert change.before.data is None
    ConfigTrust(config.state_directory()).record(change.now)
    config.load()


def test_a_server_that_begins_knows_its_programs(project: Path) -> None:
    write(project / "ccswarm.toml", SERVER)
    script(project)
    begun = remember_now(None)
    assert begun
    assert begun.path == project / "ccswarm.toml"
    assert not remember_now(None)
    config.load()
    script(project, "evil")
    with pytest.raises(ConfigChanged, match="has changed"):
        config.load()
