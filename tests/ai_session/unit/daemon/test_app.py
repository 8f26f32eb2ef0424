"""What a file of tools may export."""

from __future__ import annotations

from typing import Any

import pytest

from ai_session.daemon.app import by_name, installed_tools
from ai_session.errors import ConfigInvalid

(TOOL, *_) = installed_tools().values()


@pytest.mark.parametrize("several", [tuple, list])
def test_tools_are_found_by_their_names(several: type[tuple[Any, ...] | list[Any]]) -> None:
    assert by_name({"one": several([TOOL])}) == {TOOL.name: TOOL}


@pytest.mark.parametrize(
    ("exported", "problem", "advice"),
    [
        ({"one": TOOL}, "tools plug-in 'one' is not a tuple", "with the comma"),
        ({"one": (TOOL,), "two": (TOOL,)}, f"tools plug-in 'two' exports {TOOL.name}", "another name"),
    ],
)
def test_what_is_no_set_of_tools_is_named(exported: dict[str, Any], problem: str, advice: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        by_name(exported)
    assert problem in refused.value.message
    assert advice in refused.value.suggestion
