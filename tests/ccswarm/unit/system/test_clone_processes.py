"""What a git of the clones may take: nobody waits for more, and no more of its answer is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccswarm.system.bounded_process import Bounds, OutOfBounds, run


@pytest.mark.parametrize(
    ("command", "bounds", "why"),
    [
        ("yes", Bounds(seconds=200, cpu_seconds=200, output_bytes=1000), "lists more than 1000 bytes"),
        ("read x", Bounds(seconds=0.01, cpu_seconds=200), "takes longer than 0.01 seconds"),
        ("kill -XCPU $$", Bounds(seconds=200, cpu_seconds=200), "takes more than 200 seconds of computing"),
    ],
)
def test_what_is_beyond_its_bounds_is_ended(command: str, bounds: Bounds, why: str, tmp_path: Path) -> None:
    kept, giver = os.pipe()
    try:
        with pytest.raises(OutOfBounds, match=why), open(kept, "rb") as given, (tmp_path / "said").open("wb") as stderr:
            run(["sh", "-c", command], tmp_path, {"PATH": os.environ["PATH"]}, bounds, stdin=given, stderr=stderr)
    finally:
        os.close(giver)


def test_the_system_knows_them_too(tmp_path: Path) -> None:
    """What computes for longer it ends, and what writes to more memory it refuses."""
    bounds, asked = Bounds(seconds=200, cpu_seconds=90, memory_bytes=1 << 30), "ulimit -St; ulimit -Ht; ulimit -d"
    with open(os.devnull, "rb") as given, (tmp_path / "said").open("wb") as said:
        found = run(["sh", "-c", asked], tmp_path, {"PATH": os.environ["PATH"]}, bounds, stdin=given, stderr=said)
    assert found == (0, b"90\n95\n1048576\n")


def test_what_keeps_to_them_is_answered(tmp_path: Path) -> None:
    bounds = Bounds(seconds=200, cpu_seconds=200, output_bytes=1000)
    with open(os.devnull, "rb") as given, (tmp_path / "said").open("wb") as stderr:
        found = run(
            ["sh", "-c", "echo a; exit 3"], tmp_path, {"PATH": os.environ["PATH"]}, bounds, stdin=given, stderr=stderr
        )
    assert found == (3, b"a\n")
    assert (tmp_path / "said").read_bytes() == b""
