"""What the system refused is told in words, with a step that helps against it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentwire.cli.refusals import describe, next_step


def refused(number: int, *names: str) -> OSError:
    return OSError(number, os.strerror(number), *names)


def test_the_file_is_named_and_the_number_is_not() -> None:
    assert describe(refused(errno.ENOSPC)) == "No space left on device"
    assert describe(refused(errno.EROFS, "/ro/x")) == "/ro/x: Read-only file system"
    assert describe(OSError("closed")) == "closed"


def test_the_step_helps_against_what_is_wrong() -> None:
    assert next_step(refused(errno.ENOSPC), "look") == "free disk space"
    assert next_step(refused(errno.EROFS), "look").startswith("use a directory that can be written")
    assert next_step(refused(errno.EACCES), "look") == "look"
    assert next_step(refused(errno.ENOENT, "/none"), "look") == "look"


def test_a_directory_that_is_gone_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for error in (refused(errno.ENOENT), refused(errno.ENOENT, "ccswarm.toml")):
        assert describe(error) == "the directory you are in no longer exists"
        assert next_step(error, "look") == "cd"
