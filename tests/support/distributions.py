"""A distribution of somebody else, installed for as long as a test: its module and its entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def installed(directory: Path, text: str, **groups: str) -> Iterator[None]:
    """``text`` as the module ``elsewhere``; ``groups`` are names of plug-ins by group, with __ for the dot, each being
    that attribute of the module."""
    facts = directory / "elsewhere-1.0.dist-info"
    facts.mkdir(parents=True)
    (directory / "elsewhere.py").write_text(text)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    points = [f"[{group.replace('__', '.')}]\n{name} = elsewhere:{name.upper()}\n" for group, name in groups.items()]
    (facts / "entry_points.txt").write_text("".join(points))
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        sys.modules.pop("elsewhere", None)
        importlib.invalidate_caches()
