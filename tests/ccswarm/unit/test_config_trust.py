"""A configuration that has changed since a person used it is not used before a person agrees: whatever was done to it,
by whatever name it is reached."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from ccswarm import config
from ccswarm.config_trust import (
    MOST_BYTES,
    Change,
    ConfigTrust,
    Source,
    Verdict,
    look,
    remember_now,
)
from ccswarm.errors import ConfigChanged, ConfigInvalid
from ccswarm.settings import Settings
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
    assert len(shown) == 1
    assert shown[0].before.data == GOOD.encode()
    assert config.load().settings == loaded.settings, "and it is not asked again"


def test_a_file_that_was_looked_for_in_vain_has_changed_when_it_appears(project: Path) -> None:
    write(project.parent / ".config/ccswarm/config.toml", GOOD)
    assert name() == "good"
    for file in (project / "ccswarm.toml", project / "config/ccswarm.toml"):
        assert config.load(remember_absent=True).settings.swarm.name == "good"
        write(file, EVIL)
        with pytest.raises(ConfigChanged, match="is there now, and was not when it was last looked for"):
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
    with pytest.raises(ConfigChanged, match="is another file than the one last used"):
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
    with pytest.raises(ConfigChanged, match="is there now"):
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


def test_the_bytes_that_are_judged_are_those_that_are_used(project: Path) -> None:
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
    used, refused = set[str](), 0
    try:
        for _ in range(300):
            try:
                used.add(name())
            except ConfigChanged:
                refused += 1
    finally:
        over.set()
        thread.join()
    assert used <= {"good"}
    assert refused


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
