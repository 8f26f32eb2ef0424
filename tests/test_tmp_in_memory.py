"""With scripts/tmp_in_memory a program has a /tmp that ends with it and still its own folders, or nothing changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts/tmp_in_memory"
WITHOUT_MOUNTS = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")
LOOK = 'stat -f -c %T /tmp; pwd; cat here; echo "${TMP_IN_MEMORY:-no}"; touch "$1"; exit 7'


@pytest.mark.parametrize("permitted", sorted({os.getuid() == 0, False}))
def test_files_in_tmp_end_with_the_run_and_the_folders_it_needs_stay(home: Path, permitted: bool) -> None:
    (home / "here").write_text("kept\n")
    (home / "own").mkdir()
    beside = Path("/tmp", f"beside-{home.name}")
    env = {"PATH": os.environ["PATH"], "HOME": str(home / "own")}
    before = WITHOUT_MOUNTS if os.getuid() == 0 and not permitted else ()
    words = [*before, str(SCRIPT), "sh", "-c", LOOK, "sh", str(beside)]
    done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, check=False)
    kind, *rest = done.stdout.splitlines()
    assert (done.returncode, done.stderr, rest) == (7, "", [str(home), "kept", "1" if permitted else "no"])
    assert kind == "tmpfs" or not permitted
    assert beside.exists() != permitted
    beside.unlink(missing_ok=True)
