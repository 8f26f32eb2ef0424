"""Finds an extension by name: ``PLUGIN`` of ``ccswarm/<kind>/<name>.py`` or ``ccswarm/<kind>/<name>/plugin.py``,
then entry points of the same kind.
"""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ccswarm.errors import ConfigInvalid

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


def load(kind: str, name: str) -> Any:
    """Returns the ``PLUGIN`` of ``kind`` called ``name``; raises ConfigInvalid when there is none.

    Names are looked up, never scanned, and dotted paths are refused, so configuration cannot import arbitrary code.
    """
    if not NAME.match(name) or name == "base":
        raise ConfigInvalid(
            f"{name!r} is not a name of a {kind} plugin", suggestion="use lower-case letters, digits and _"
        )
    module = f"ccswarm.{kind}.{name}"
    if (found := find_spec(module)) is not None:
        return import_module(f"{module}.plugin" if found.submodule_search_locations else module).PLUGIN
    from importlib.metadata import entry_points

    for entry in entry_points(group=f"ccswarm.{kind}", name=name):
        return entry.load()
    raise ConfigInvalid(f"no {kind} plugin is called {name!r}", suggestion=f"known: {', '.join(names(kind))}")


def names(kind: str) -> list[str]:
    """The built-in plugins of a kind, sorted; for messages and completion."""
    from pathlib import Path

    folder = Path(__file__).parents[1] / kind
    found = [*folder.glob("*.py"), *(path.parent for path in folder.glob("*/plugin.py"))]
    return sorted(path.stem for path in found if path.stem != "base" and not path.stem.startswith("_"))
