"""Finds an extension of a package by name: ``PLUGIN`` of ``<package>/<kind>/<name>.py`` or
``<package>/<kind>/<name>/plugin.py``, then entry points of the group ``<package>.<kind>``."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from agentwire.errors import ConfigInvalid

NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


def load(group: str, name: str) -> Any:
    """Return the ``PLUGIN`` called ``name`` of ``<package>.<kind>``. Raises ConfigInvalid if there is none, or if its
    file exports none.

    Names are looked up, never scanned, and dotted paths are refused, so that configuration cannot import arbitrary
    code.
    """
    kind = group.partition(".")[2]
    if not NAME.match(name) or name == "base":
        raise ConfigInvalid(
            f"{name!r} is not a name of a {kind} plugin", suggestion="use lower-case letters, digits and _"
        )
    module = f"{group}.{name}"
    if (found := find_spec(module)) is not None:
        imported = import_module(f"{module}.plugin" if found.submodule_search_locations else module)
        if not hasattr(imported, "PLUGIN"):
            raise ConfigInvalid(
                f"{imported.__file__} exports no PLUGIN",
                suggestion=f"end it with PLUGIN = …, an object as {group}.base describes it",
            )
        return imported.PLUGIN
    from importlib.metadata import entry_points

    for entry in entry_points(group=group, name=name):
        return entry.load()
    raise ConfigInvalid(f"no {kind} plugin is called {name!r}", suggestion=f"known: {', '.join(names(group))}")


def names(group: str) -> list[str]:
    """Return the names of the built-in plugins of a kind, sorted; for messages and completion."""
    return [*_found(group)]


@cache
def _found(group: str) -> tuple[str, ...]:
    from pathlib import Path

    package, _, kind = group.partition(".")
    spec = find_spec(package)
    assert spec
    found = [
        path if path.name != "plugin.py" else path.parent
        for root in spec.submodule_search_locations or ()
        for pattern in ("*.py", "*/plugin.py")
        for path in Path(root, *kind.split(".")).glob(pattern)
    ]
    return tuple(sorted(path.stem for path in found if path.stem != "base" and not path.stem.startswith("_")))
