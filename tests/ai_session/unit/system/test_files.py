"""What ``/proc`` lists: the kernel's own, and a directory that lists in another order."""

from __future__ import annotations

import os
from pathlib import Path

from ai_session.system.kernel_files import besides_processes


def besides() -> set[str]:
    return {name for name in os.listdir("/proc") if not name.isdigit()}


def test_what_is_no_process_is_all_there_whatever_the_order(tmp_path: Path) -> None:
    before, found, after = besides(), {entry.name for entry in besides_processes()}, besides()
    assert before & after <= found <= before | after
    for number in range(40):
        (tmp_path / str(number)).touch()
        (tmp_path / f"file{number}").touch()
    assert {entry.name for entry in besides_processes(str(tmp_path))} == {f"file{number}" for number in range(40)}
