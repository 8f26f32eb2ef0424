"""What Orchestre's tools are given and told: missing and wrong arguments, how often, no secrets, whole starters."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.toolsets.base import Answer, MissingFields
from ccswarm.servers.mcp.toolsets.orchestre import plugin
from ccswarm.servers.mcp.toolsets.orchestre.base import OrchestreTool, Refusal, takes
from ccswarm.servers.mcp.toolsets.orchestre.context import MOST_CHARS, MOST_KEYS, get_context, set_context
from ccswarm.servers.mcp.toolsets.orchestre.plugin import BY_NAME, Limits, validate
from ccswarm.servers.mcp.toolsets.orchestre.redaction import Redaction
from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT, FOLDER, HIDDEN, NEXT, files_of
from ccswarm.servers.mcp.wire_log import MOST_WAITING, Trace
from ccswarm.servers.mcp.workbench import Workbench
from tests.support.bounds import BOUND_SECONDS

ANALYZE, BEGIN = BY_NAME["analyze_project"], BY_NAME["initialize_project"]
KEYS = ("$ref", "anyOf", "oneOf", "allOf", "$defs")
SECRET = "hunter2-hunter2"


def refused(tool: OrchestreTool, **given: Any) -> Refusal:
    with pytest.raises(Refusal) as found:
        validate(tool, given)
    return found.value


def _parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A schema and all schemas in it."""
    yield schema
    for inner in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        yield from _parts(inner)


@pytest.mark.parametrize("tool", BY_NAME.values(), ids=list(BY_NAME))
def test_schemas_are_flat_and_usable(tool: OrchestreTool) -> None:
    assert tool.input_schema["type"] == "object"
    assert set(tool.input_schema.get("required", ())) <= set(tool.input_schema["properties"])
    assert not any(f'"{key}"' in json.dumps(tool.input_schema) for key in KEYS)
    assert tool.arguments.unusable == ""
    assert [one for one in _parts(tool.input_schema) if not set(one) - {"description"}] == []  # some clients complain
    assert tool.title
    assert 40 < len(tool.description) < 400


def test_what_is_not_there_is_named_all_at_once() -> None:
    with pytest.raises(MissingFields, match=r"^Missing required field: requirements$"):
        validate(ANALYZE, {})
    with pytest.raises(MissingFields) as found:
        validate(BEGIN, {"template": "x"})
    assert found.value.details == "Missing required field: projectName; Missing required field: projectPath"


def test_what_is_empty_is_refused_as_the_document_has_it() -> None:
    for empty in ("", "   \n"):
        reported = refused(ANALYZE, requirements=empty)
        assert (reported.error, reported.code, reported.suggestion) == (
            "Requirements are required",
            "MISSING_REQUIREMENTS",
            "Provide project requirements as a string",
        )


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("x" * 9, False),
        ("x" * 10, True),
        (f"  {'x' * 9}  ", False),
        ("é" * 10, True),
        ("x" * 5000, True),
        ("x" * 5001, False),
        (f"{'x' * 5000}\n", True),
    ],
)
def test_requirements_have_10_to_5000_characters(text: str, fits: bool) -> None:
    if fits:
        assert validate(ANALYZE, {"requirements": text})["requirements"] == text.strip()
    else:
        assert refused(ANALYZE, requirements=text).code == "INVALID_ARGUMENTS"


def test_all_that_is_wrong_is_said_in_one_answer() -> None:
    reported = refused(ANALYZE, requirements="short", constraints=[1], projectPath=7)
    assert (reported.code, reported.error.count(";")) == ("INVALID_ARGUMENTS", 2)
    assert re.findall(r"requirements|constraints\[0\]|projectPath", reported.error) == [
        "constraints[0]",
        "projectPath",
        "requirements",
    ]
    reported = refused(BEGIN, projectName="", template="", projectPath="x" * 4001)
    assert reported.code == "MISSING_PROJECT_NAME"
    assert reported.error.startswith("Project name is required; Template is required; projectPath: ")
    for name in ("Shop", "a b", "ä", "a\n", "x" * 101):
        assert "projectName" in refused(BEGIN, projectName=name, template="a", projectPath="/").error


def test_a_call_too_many_waits_until_the_first_is_a_minute_old() -> None:
    now = [1000.0]
    limits = Limits(lambda: now[0])
    for _ in range(10):
        limits.count("research")
        now[0] += 1
    for _ in range(3):  # what was refused does not count
        with pytest.raises(Refusal) as found:
            limits.count("research")
        assert found.value.code == "RATE_LIMIT_EXCEEDED"
        assert found.value.more == {"retryAfterSeconds": 50}
        assert "50 seconds" in found.value.suggestion
    limits.count("analyze_project")
    now[0] = 1059.5
    with pytest.raises(Refusal, match="research was called 10 times within 60 seconds") as found:
        limits.count("research")
    assert found.value.more == {"retryAfterSeconds": 1}
    now[0] = 1060.0
    limits.count("research")
    with pytest.raises(Refusal):
        limits.count("research")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (f"it is {SECRET}.", "it is [REDACTED]."),
        ({"apiKey": "anything"}, {"apiKey": "[REDACTED]"}),
        ({"GEMINI_API_KEY": "short"}, {"GEMINI_API_KEY": "[REDACTED]"}),
        ({"env": [{"password": "x", "user": "y"}]}, {"env": [{"password": "[REDACTED]", "user": "y"}]}),
        ({"token": "", "tokens": 5, "authentication": "by mail", "keyComponents": ["Auth"]}, None),
        ({"api_key": None, "accessToken": "t"}, {"api_key": None, "accessToken": "[REDACTED]"}),
        (f"sk-ant-{'a1' * 12} and task-list-of-everything", "[REDACTED] and task-list-of-everything"),
        ("ghp_" + "a1" * 18, "[REDACTED]"),
        ("AKIAABCDEFGHIJKLMNOP", "[REDACTED]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nrest", "[REDACTED]\nrest"),
        ({f"a {SECRET}": 1}, {"a [REDACTED]": 1}),
        ({"status": "ok", "n": [1, 2.5, True, None]}, None),
    ],
)
def test_secrets_are_never_shown(value: Any, shown: Any) -> None:
    assert Redaction({"MY_API_KEY": SECRET, "PATH": "/usr/bin"})(value) == (value if shown is None else shown)


async def _told(verbs: Workbench, name: str, **given: Any) -> Any:
    reported = await plugin.call(verbs, name, given)
    return reported.facts if isinstance(reported, Answer) else json.loads(reported.text)


@pytest.mark.anyio
async def test_context_is_bounded_and_each_client_has_its_own() -> None:
    verbs, other = Workbench(ServerOptions()), Workbench(ServerOptions())
    for number in range(MOST_KEYS):
        await set_context(verbs, {"key": str(number), "value": number})
    with pytest.raises(Refusal) as found:
        await set_context(verbs, {"key": "more", "value": 1})
    assert (found.value.code, found.value.more) == ("CONTEXT_FULL", {"limit": MOST_KEYS})
    await set_context(verbs, {"key": "7", "value": {"is": ["there", None]}})
    with pytest.raises(Refusal, match="65539 characters"):
        await set_context(verbs, {"key": "7", "value": "x" * (MOST_CHARS + 1)})
    assert await get_context(verbs, {"key": "7"}) == {"key": "7", "value": {"is": ["there", None]}}
    assert (await set_context(verbs, {"key": "8", "value": None}))["removed"]
    await set_context(verbs, {"key": "more", "value": 1})
    assert await get_context(other, {}) == {"context": {}}


@pytest.mark.anyio
async def test_the_envelope() -> None:
    verbs = Workbench(ServerOptions())
    reported = await plugin.call(verbs, "set_context", {"key": "k", "value": 1, "ttl": 5, "scope": None})
    assert reported.facts is not None
    assert json.loads(reported.text) == reported.facts
    assert reported.text.startswith('{\n  "success": true,\n  "key": "k"')
    assert reported.facts["metadata"]["ignored"] == ["ttl"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", reported.facts["metadata"]["timestamp"])
    assert await _told(verbs, "get_context", key="z") == {
        "error": "Nothing is kept under 'z'",
        "code": "CONTEXT_NOT_FOUND",
        "keys": ["k"],
        "suggestion": "Use one of the keys there are, or set_context",
    }


def test_a_trace_tells_messages_without_secrets_and_waits_for_nobody() -> None:
    lines: list[str] = []
    trace = Trace(lines.append)
    trace.received(b'{"id":1,"apiKey":"hush"}\n')
    trace.received(b"no json \xff sk-aaaaaaaaaaaaaaaaaaaaaaaa\n")
    trace.sent({"id": 1, "result": {}})
    trace.close(10)
    assert lines == [
        '[MCP] <- {"id":1,"apiKey":"[REDACTED]"}\n',
        "[MCP] <- no json \ufffd [REDACTED]\n",
        '[MCP] -> {"id":1,"result":{}}\n',
    ]

    def gone(_: str) -> None:
        raise BrokenPipeError

    trace = Trace(gone)
    for number in range(MOST_WAITING + 5):
        trace.sent({"id": number})
    trace.close(0.01)


@pytest.mark.parametrize("template", ABOUT)
def test_a_starter_is_whole(template: str, tmp_path: Path) -> None:
    files = files_of(template, "my-app", "Sell shoes, and ${more}.")
    kept = [path.relative_to(FOLDER / template) for path in (FOLDER / template).rglob("*") if path.is_file()]
    assert len(files) == len(kept)
    assert {".gitignore", "README.md", "package.json"} <= set(files)
    assert not any("__" in text.replace("__dirname", "") or HIDDEN in path for path, text in files.items())
    assert all(re.fullmatch(r"[A-Za-z0-9._/-]+", path) and text.endswith("\n") for path, text in files.items())
    assert files["README.md"].endswith("\n\n## Requirements\n\nSell shoes, and ${more}.\n")
    assert "Requirements" not in files_of(template, "my-app")["README.md"]
    package = json.loads(files["package.json"])
    assert package["name"] == "my-app"
    pinned = {**package["dependencies"], **package["devDependencies"]}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in pinned.values())
    assert {line.removeprefix("npm ").removeprefix("run ") for line in NEXT[template]} <= {
        "install",
        *package["scripts"],
    }
    for path, text in files.items():
        if path.endswith((".json", ".jsonc")):
            json.loads(text)
    if node := shutil.which("node"):
        for path in (path for path in files if path.endswith(".js")):
            (tmp_path / "one.cjs").write_text(files[path])
            subprocess.run([node, "--check", str(tmp_path / "one.cjs")], check=True, timeout=BOUND_SECONDS)


def test_requirements_given_or_not_are_of_one_schema() -> None:
    limited = [tool.input_schema["properties"]["requirements"] for tool in (ANALYZE, BEGIN, BY_NAME["generate_plan"])]
    assert {(one["minLength"], one["maxLength"]) for one in limited} == {(10, 5000)}
    tool = OrchestreTool("t", "T", "", takes({"requirements": limited[0]}), get_context)
    assert validate(tool, {}) == {}
    assert refused(tool, requirements="").code == "INVALID_ARGUMENTS"
