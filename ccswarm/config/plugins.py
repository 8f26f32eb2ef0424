"""Extensions of this package, by kind and name."""

from __future__ import annotations

from typing import Any

from agentwire.plugins import Plugins
from ccswarm.config import starters
from ccswarm.errors import ConfigInvalid

_PLUGINS = Plugins("ccswarm")
names = _PLUGINS.names


def load(kind: str, name: str) -> Any:
    """Whoever names a program or a model as a brain is told how an agent gets it."""
    try:
        return _PLUGINS.load(kind, name)
    except ConfigInvalid as error:
        if kind == "brains" and (meant := starters.brain_for(name)):
            raise ConfigInvalid(error.message, suggestion=meant) from None
        raise
