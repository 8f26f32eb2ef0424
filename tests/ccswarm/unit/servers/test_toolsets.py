"""What every set of tools of the MCP server is."""

from __future__ import annotations

from agentwire import plugins
from ccswarm.plan.schemas import Schema
from ccswarm.servers.mcp.handlers import KIND, TOOLSETS


def test_each_folder_with_a_plugin_is_offered_after_the_swarms_own() -> None:
    assert len(TOOLSETS) == len(plugins.names(KIND)) >= 2
    assert TOOLSETS[0] is plugins.load(KIND, "swarm")


def test_no_two_sets_have_a_tool_of_the_same_name() -> None:
    names = [name for toolset in TOOLSETS for name in toolset.tools]
    assert len(names) == len({*names}) > 15
    assert all(tool.name == name for toolset in TOOLSETS for name, tool in toolset.tools.items())
    assert all(toolset.changes_runs <= toolset.tools.keys() for toolset in TOOLSETS)


def test_each_schema_is_one() -> None:
    for toolset in TOOLSETS:
        for tool in toolset.tools.values():
            assert Schema(tool.input_schema).problem({"": 1}) or not tool.input_schema.get("required")
            assert not tool.output_schema or tool.output_schema["type"] == "object"
