"""Programs write and read texts as UTF-8, whatever encoding the locale has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
"""Python as it is in a locale such as en_US.ISO-8859-1, which few machines have."""


def ran(home: Path, *words: str) -> str:
    line = [sys.executable, "-m", *words]
    environment = {**os.environ, **ASCII, "HOME": str(home)}
    done = subprocess.run(line, env=environment, cwd=home, capture_output=True, timeout=BOUND_SECONDS, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def test_texts_are_utf8_in_every_locale(home: Path) -> None:
    assert "…" in ran(home, "ai_session", "docs", "sandbox")
    (home / "größe.toml").write_text("[engine]\nat_once = 2  # größe\n", encoding="utf-8")
    assert "größe.toml" in ran(home, "ccswarm", "config", "check", "größe.toml")
