from pathlib import Path

import pytest

from ai_session.errors import DirectoryUnusable, SandboxRefused
from ai_session.sessions.workspaces import DEFAULT_NAME, Workspaces, unboxed


@pytest.fixture
def tree(home: Path) -> Path:
    for name in ("project/src", "other", "home/.local", "private/sub"):
        (home / name).mkdir(parents=True)
    return home


def make(tree: Path, *roots: str) -> Workspaces:
    return Workspaces(roots, str(tree / "home"), [str(tree / "private")])


def test_the_deepest_workspace_around_a_directory_is_its_box(tree: Path) -> None:
    workspaces = make(tree, str(tree / "project"), str(tree / "project/src"))
    for wanted, workspace in (("project", "project"), ("project/src", "project/src")):
        location = workspaces.start_directory(str(tree / wanted), "")
        assert (location.directory, location.workspace, location.outside) == (
            str(tree / wanted),
            str(tree / workspace),
            False,
        )


def test_the_clients_directory_is_a_workspace_and_where_a_session_starts(tree: Path) -> None:
    location = make(tree).start_directory("", str(tree / "project"))
    assert (location.directory, location.workspace, location.outside) == (str(tree / "project"),) * 2 + (False,)
    assert make(tree).start_directory("src", str(tree / "project")).workspace == str(tree / "project")


def test_a_client_may_name_the_directory_around_its_own_as_the_workspace(tree: Path) -> None:
    client, around = str(tree / "project/src"), str(tree / "project")
    for wanted in ("", "..", around):
        location = make(tree).start_directory(wanted, client, around=around)
        assert (location.directory, location.workspace, location.outside) == (
            client if not wanted else around,
            around,
            False,
        )
    assert make(tree, client).start_directory("", client, around=around).workspace == client
    (tree / "link").symlink_to(tree / "project")
    for unfit in (str(tree / "other"), str(tree / "home"), str(tree), "/", "..", str(tree / "link"), "gone", "a\0b"):
        assert make(tree).start_directory("", client, around=unfit).workspace == client


def test_what_lies_in_no_workspace_is_outside_also_behind_a_link(tree: Path) -> None:
    (tree / "project/link").symlink_to(tree / "other")
    for wanted in (str(tree / "other"), "link", "../other"):
        location = make(tree).start_directory(wanted, str(tree / "project"))
        assert (location.directory, location.workspace, location.outside) == (
            str(tree / "other"),
            str(tree / "other"),
            True,
        )


def test_a_link_that_took_the_place_of_the_clients_directory_is_not_followed(tree: Path) -> None:
    """Around that directory a box of another session may be at work."""
    client = str(tree / "project/src")
    for moved, link in (("project/src", "project/src"), ("project", "project")):
        (tree / moved).rename(tree / "moved")
        (tree / link).symlink_to(tree / "other")
        (tree / "other/src").mkdir(exist_ok=True)
        for workspaces in (make(tree), make(tree, str(tree / "private/sub"))):
            for wanted in ("", ".", "src"):
                with pytest.raises(DirectoryUnusable, match="replaced by a link") as caught:
                    workspaces.start_directory(wanted, client)
                assert "absolute" in caught.value.suggestion
            assert workspaces.start_directory(client, client).outside
        assert not make(tree, str(tree / "home/.local")).start_directory(str(tree / "home/.local"), client).outside
        (tree / link).unlink()
        (tree / "moved").rename(tree / moved)
    assert make(tree).start_directory("", client).directory == client


@pytest.mark.parametrize(
    "directory", ["/", "home", "", "private", "private/sub", "/etc", "/usr/lib", "/tmp", "/proc/self"]
)
def test_what_can_be_nobodys_workspace_is_refused(tree: Path, directory: str) -> None:
    with pytest.raises(SandboxRefused) as caught:
        make(tree).start_directory(str(tree / directory), str(tree / "project"))
    assert "trusted" in caught.value.suggestion


def test_a_client_started_nowhere_in_particular_gets_a_workspace_of_its_own(tree: Path) -> None:
    for nowhere in ("/", "", str(tree / "home"), str(tree), str(tree / "gone")):
        location = make(tree).start_directory("", nowhere)
        assert location.directory == location.workspace == str(tree / "home" / DEFAULT_NAME)
        assert not location.outside
    assert Path(location.directory).stat().st_mode & 0o777 == 0o700


def test_a_configured_workspace_may_be_named_from_the_home(tree: Path) -> None:
    (tree / "home/code").mkdir()
    assert make(tree, "code").start_directory("", "/").workspace == str(tree / "home/code")


def test_a_directory_that_is_none_is_refused(tree: Path) -> None:
    (tree / "file").touch()
    for wanted in ("gone", "../file", "a\0b"):
        with pytest.raises(DirectoryUnusable):
            make(tree).start_directory(wanted, str(tree / "project"))
        with pytest.raises(DirectoryUnusable):
            unboxed(wanted, str(tree / "project"), "")
