"""What ``/proc`` lists: the kernel's own, and a directory that lists in another order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai_session.system.kernel_files import besides_processes


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_what_is_no_process_is_all_there_whatever_the_order(tmp_path: Path) -> None:
    besides = {name for name in os.listdir("/proc") if not name.isdigit()}
    assert {entry.name for entry in besides_processes()} == besides
    for number in range(40):
        (tmp_path / str(number)).touch()
        (tmp_path / f"file{number}").touch()
    assert {entry.name for entry in besides_processes(str(tmp_path))} == {f"file{number}" for number in range(40)}
