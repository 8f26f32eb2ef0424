"""Another distribution, with a module and entry points, installed for the time of a test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def installed(directory: Path, text: str, **groups: str) -> Iterator[None]:
    """Install ``text`` as the module ``elsewhere``. ``groups`` names a plug-in by group, with __ for the dot, which
    is the module's attribute of that name in capitals."""
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
