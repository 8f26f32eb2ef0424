"""The store of runs in a new home, copied from one that is created once: its tables cost 45 ms."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.support import forked

SCRIPT = Path(__file__).parents[2] / "data/empty_store.py"


@cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory(prefix="store-", dir="/tmp") as directory:
        found = Path(directory)
        code, _, errors = forked.run("ccswarm", [directory], cwd=found, env={}, script=str(SCRIPT))
        assert code == 0, errors
        (file,) = found.iterdir()
        return file.read_bytes()


def add_store(state: Path) -> None:
    """Add an empty store to a state directory, unless it has one."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = state / "engine.db"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(_empty())
