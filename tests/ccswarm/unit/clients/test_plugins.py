"""Plug-ins are found by name, and by no other way."""

from __future__ import annotations

import pytest

from agentwire import plugins
from ccswarm.errors import ConfigInvalid


def test_names_are_those_of_plug_ins_and_not_of_their_parts() -> None:
    for kind, some in (
        ("engines", {"dbos"}),
        ("clients", {"mcp", "rpc"}),
        ("brains", {"cli", "guest", "llm", "playbook"}),
        ("servers", {"a2a", "guest", "mcp", "visionflow"}),
    ):
        assert some <= set(names := plugins.names(f"ccswarm.{kind}"))
        assert [name for name in names if "_" in name or name == "base"] == []


@pytest.mark.parametrize("name", ["base", "os.path", "../x", "", "Dbos", "nobody"])
def test_what_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid):
        plugins.load("ccswarm.engines", name)


def test_a_plug_in_is_loaded() -> None:
    assert plugins.load("ccswarm.engines", "dbos").name == "dbos"
