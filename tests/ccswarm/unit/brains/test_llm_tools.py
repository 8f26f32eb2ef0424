"""The tools of an agent under names that models may use."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ccswarm.brains.llm.tools import OWN, offer_tools
from ccswarm.models import ToolInfo

NAMES = st.text(st.sampled_from("ab._-/ é"), min_size=1, max_size=80)
TOOLS = st.lists(st.builds(ToolInfo, st.sampled_from(["s", "s_", "long" * 20, "finish"]), NAMES), max_size=12)


@given(TOOLS, st.randoms())
def test_names_are_allowed_and_differ_and_do_not_depend_on_the_order(tools: list[ToolInfo], random: object) -> None:
    tools = list({tool.full_name: tool for tool in tools}.values())
    found = offer_tools(tools)
    names = {one.tool: one.name for one in found}
    assert len(set(names.values())) == len(tools) + len(OWN)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert [one.tool for one in found] == ["finish", "recall", *(tool.full_name for tool in tools)]
    assert {one.tool: one.name for one in offer_tools(list(reversed(tools)))} == names


def test_a_plain_tool_is_named_after_its_server() -> None:
    (one,) = offer_tools([ToolInfo("ai-session", "execute_command", "Runs it.")])[len(OWN) :]
    assert (one.name, one.tool, one.description) == (
        "ai-session__execute_command",
        "ai-session.execute_command",
        "Runs it.",
    )


def test_schemas_are_what_every_provider_takes() -> None:
    schema = {
        "properties": {"text": {"type": "string"}, "call_key": {"type": "string"}},
        "required": ["text", "call_key", "gone"],
        "anyOf": [{"required": ["text"]}],
        "$defs": {"a": {}},
    }
    (one,) = offer_tools([ToolInfo("srv", "put", input_schema=schema)])[len(OWN) :]
    assert one.schema == {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "$defs": {"a": {}},
    }
    (bare,) = offer_tools([ToolInfo("srv", "look")])[len(OWN) :]
    assert (bare.schema, bare.description) == ({"type": "object", "properties": {}}, "srv.look")
