"""Extensions of this package, by kind and name."""

from __future__ import annotations

from agentwire.plugins import Plugins

_PLUGINS = Plugins("ai_session")
load, names = _PLUGINS.load, _PLUGINS.names
