"""Root in a box can give files to others, as archives and installers do, and gets no right over those of others."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ai_session.sandbox import users
from tests.ai_session.support.box_users import MOSTLY_ROOT, USERS
from tests.ai_session.support.boxes import BoxUser, box_user

OTHER, STRANGER = 1000, 4321


@pytest.fixture(params=MOSTLY_ROOT)
def here(request: pytest.FixtureRequest) -> Iterator[BoxUser]:
    with box_user(request.param) as made:
        yield made


def archive(here: BoxUser) -> None:
    """Of files of another user's, in a directory that nobody else may write to."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, kind, mode in (("tree", tarfile.DIRTYPE, 0o755), ("tree/file", tarfile.REGTYPE, 0o600)):
            entry = tarfile.TarInfo(name)
            entry.uid = OTHER
            entry.gid = OTHER + 1
            entry.type = kind
            entry.mode = mode
            tar.addfile(entry)
    (here.workspace / "a.tar").write_bytes(content.getvalue())
    os.chown(here.workspace / "a.tar", here.uid, here.uid)


def test_an_archive_with_files_of_others_is_unpacked_and_worked_in(here: BoxUser) -> None:
    archive(here)
    done = here.run("tar xf a.tar && echo new >tree/new && echo more >>tree/file && rm -r tree/new && ls -n tree")
    assert (done.returncode, done.stderr) == (0, "")
    owner = f" {OTHER} {OTHER + 1} " if here.uid == 0 else f" {here.uid} {here.uid} "
    assert owner in done.stdout


def test_what_was_given_away_is_nobodys_outside_and_the_same_users_in_the_next_box(here: BoxUser) -> None:
    done = here.run(f"touch mine file && chown {OTHER}:{OTHER} file; cp -a file copy; stat -c %u:%g file copy mine")
    if here.uid != 0:
        assert "not permitted" in done.stderr or "Invalid" in done.stderr
        return
    assert (done.stdout.split(), done.stderr) == ([f"{OTHER}:{OTHER}"] * 2 + ["0:0"], "")
    assert (here.workspace / "file").stat().st_uid == users.FIRST + OTHER
    again = here.run(
        "stat -c %u file && chmod 600 file && echo x >>file && cat file && chown 0:0 file && stat -c %u file"
    )
    assert (again.stdout.split(), again.stderr) == ([str(OTHER), "x", "0"], "")


ATTEMPTS = (
    "cat {0}/secret",
    "echo x >>{0}/secret",
    "chmod 666 {0}/secret",
    "chown 0:0 {0}/secret",
    "ls {0}/closed",
    "touch {0}/closed/new",
    "rm -f {0}/closed/file",
    "touch {0}/new",
)


def test_files_of_others_stay_closed_wherever_they_lie(here: BoxUser) -> None:
    """In the workspace, and in a directory that is shown: neither read nor changed nor taken over."""
    if os.geteuid() != 0:
        return
    shown = here.root / "shown"
    for folder in (here.workspace / "theirs", shown):
        (folder / "closed").mkdir(parents=True)
        (folder / "secret").write_text("secret")
        (folder / "closed/file").touch()
        for path in (folder, folder / "secret", folder / "closed", folder / "closed/file"):
            os.chown(path, STRANGER, STRANGER)
            path.chmod(0o700 if path.is_dir() else 0o600)
        folder.chmod(0o755)
    here.profile = replace(here.profile, readable=(str(shown),))
    scripts = [attempt.format(folder) for folder in (here.workspace / "theirs", shown) for attempt in ATTEMPTS]
    for script, done in here.run_each(scripts).items():
        assert done.returncode != 0, script
    for folder in (here.workspace / "theirs", shown):
        assert {path.name for path in folder.iterdir()} == {"secret", "closed"}
        assert (folder / "secret").read_text() == "secret"
        assert (folder / "secret").stat().st_uid == STRANGER
        assert [path.name for path in (folder / "closed").iterdir()] == ["file"]


@pytest.mark.parametrize("here", USERS, indirect=True)
def test_the_capabilities_are_those_that_files_need_and_no_other_and_no_descriptor_is_left(here: BoxUser) -> None:
    done = here.run("grep ^Cap /proc/self/status /proc/1/status; ls /proc/self/fd; unshare -U true; mknod x c 1 3")
    wanted = "000000000000000b" if here.uid == 0 else "0" * 16
    rows = [row.split()[-1] for row in done.stdout.splitlines() if "Cap" in row]
    assert set(rows) <= {wanted, "0" * 16}
    assert done.stdout.split()[-4:] == ["0", "1", "2", "3"]
    assert done.stderr.count("not permitted") == 2


READ_ONLY = (
    *("echo x >/proc/sys/kernel/core_pattern", "echo x >>/etc/hostname", "chown 1000 /etc/hostname"),
    *("touch /usr/x", "chmod 777 /usr", "cat /etc/shadow | grep root", "echo b >/proc/sysrq-trigger"),
)


def test_the_system_stays_read_only(here: BoxUser) -> None:
    for script, done in here.run_each(READ_ONLY).items():
        assert done.returncode != 0, script


def test_where_there_are_no_other_users_tar_gives_nothing_away(here: BoxUser) -> None:
    """As in a container that has no ids to spare."""
    archive(here)
    here.others = False
    done = here.run('tar xf a.tar && stat -c %u tree/file && echo "${TAR_OPTIONS-none}"')
    assert done.stdout.split() == [str(here.uid), "--no-same-owner" if here.uid == 0 else "none"]
    assert done.returncode == 0
