"""What is taken of a server's words: schemas, answers, filters, eras."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ccswarm.clients.mcp.answers import to_answer
from ccswarm.clients.mcp.eras import EraFile
from ccswarm.clients.mcp.output_schemas import MAX_NODES, OutputSchemas
from ccswarm.clients.mcp.process import child_environment, command_of
from ccswarm.clients.mcp.tools import foreign_reference
from ccswarm.config.settings import ServerSettings, ToolFilter
from ccswarm.errors import ServerUnavailable


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": "https://json-schema.org/draft/2020-12/schema",
        },
        {"$defs": {"a": {"$id": "https://example.com/a"}}, "$ref": "https://example.com/a#/x"},
        {"properties": {"$ref": {"type": "string", "default": {"$ref": "https://example.com"}}}},
        {"const": {"$ref": "https://example.com"}},
    ],
)
def test_schemas_that_stand_alone(schema: dict[str, Any]) -> None:
    assert foreign_reference(schema) == ""


@pytest.mark.parametrize("reference", ["https://example.com/a.json", "a.json#/b", "file:///etc/passwd", "//host/a"])
def test_schemas_that_refer_elsewhere(reference: str) -> None:
    for schema in ({"$ref": reference}, {"items": [{"not": {"$dynamicRef": reference}}]}):
        assert reference in foreign_reference(schema)


def test_a_schema_without_end_is_given_up() -> None:
    deep: dict[str, Any] = {}
    for _ in range(101_000):
        deep = {"not": deep}
    assert foreign_reference(deep) == "its schema is too large"


def test_a_program_that_path_lacks_is_the_one_that_was_installed_beside_this(tmp_path: Path) -> None:
    settings = ServerSettings(name="ai-session", command="ai-session mcp-server --stdio")
    own = [str(Path(sys.executable).with_name("ai-session")), "mcp-server", "--stdio"]
    assert command_of(settings, {"PATH": str(tmp_path)}) == own
    (tmp_path / "ai-session").touch(0o755)
    assert command_of(settings, {"PATH": str(tmp_path)}) == ["ai-session", "mcp-server", "--stdio"]
    for missing in ("no-such-program", f"{tmp_path}/gone"):
        with pytest.raises(ServerUnavailable, match=f"no program '{missing}'"):
            command_of(ServerSettings(name="x", command=missing), {"PATH": str(tmp_path)})


def test_filters() -> None:
    assert ToolFilter().sees("read_file")
    assert not ToolFilter(allow=("read_*",)).sees("Read_file")
    assert not ToolFilter(deny=("*_file",)).sees("read_file")


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"content": None},
        {"content": 5},
        {"content": [None, 1, {}, {"type": "text"}]},
        {"_meta": 5, "isError": "x"},
    ],
)
def test_answers_that_say_nothing(result: dict[str, Any]) -> None:
    answer = to_answer(result)
    assert (answer.text, answer.structured, answer.is_error, answer.meta) == ("", None, False, {})


@pytest.mark.parametrize("content", ["found", {"type": "text", "text": "found"}])
def test_a_text_where_a_list_belongs_is_the_answer(content: Any) -> None:
    assert to_answer({"content": content}).text == "found"


@pytest.mark.parametrize("value", [[1], "text", 0, False])
def test_structured_content_that_is_no_object_can_be_looked_up(value: Any) -> None:
    assert to_answer({"structuredContent": value}).structured == {"result": value}


def test_output_schemas() -> None:
    check = OutputSchemas().problem
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"pattern": "(x+)+y"}}}
    assert check("t", schema, {"a": 1, "b": "x" * 100}) == ""
    assert check("t", schema, {"a": "b"}) == "a: 'b' is not of type 'integer'"
    assert check("t", schema, None) == "structuredContent is missing"
    assert check("t", schema, {"c": [0] * MAX_NODES, "a": "b"}) == ""
    assert check("t", {"type": "string"}, {}).startswith("structuredContent: {} is not of type")
    for broken in ({"type": 5}, {"$ref": "https://example.com/x"}, {"$ref": "#/nowhere"}):
        assert check("u", broken, {}).startswith("the schema itself cannot be used: ")


def test_eras_are_kept_for_who_comes_next(tmp_path: Path) -> None:
    file = tmp_path / "state/eras.json"
    EraFile(file)["a"] = "legacy"
    EraFile(file)["b"] = "modern"
    kept = EraFile(file)
    assert dict(kept) == {"a": "legacy", "b": "modern"}
    del kept["a"]
    assert list(kept) == ["b"]
    assert [path.name for path in file.parent.iterdir()] == ["eras.json"]
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_state_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    eras = EraFile(tmp_path / "file/eras.json")
    eras["a"] = "legacy"
    assert dict(eras) == {}


def test_an_environment() -> None:
    given = {"HOME": "/h", "PATH": "/p", "LC_TIME": "C", "API_KEY": "x", "LCX": "x"}
    assert child_environment(given, {"TOKEN": "t", "PATH": "/q"}) == {
        "HOME": "/h",
        "PATH": "/q",
        "LC_TIME": "C",
        "TOKEN": "t",
    }
