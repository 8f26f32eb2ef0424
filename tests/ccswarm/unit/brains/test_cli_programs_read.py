"""What programs print and how they are started, without any of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccswarm.brains.cli import programs
from ccswarm.brains.cli.diagnosis import explain_end
from ccswarm.brains.cli.events import EventReader
from ccswarm.brains.cli.plugin import PLUGIN
from ccswarm.brains.cli.settings import CliSettings
from ccswarm.bridge.keeper import format_line
from ccswarm.config.settings import AgentSettings


def read(*events: dict[str, Any] | str, before: dict[str, float] | None = None) -> EventReader:
    reading = EventReader(before or {})
    for event in events:
        reading.read_line(event if isinstance(event, str) else json.dumps(event))
    return reading


def spoken(number: str, text: str, tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": tokens, "cache_read_input_tokens": 10, "output_tokens": 0}
    return {"type": "assistant", "message": {"id": number, "content": [{"type": "text", "text": text}], "usage": usage}}


def test_claude_is_read() -> None:
    reading = read(
        {"type": "system", "subtype": "init", "session_id": "s1", "mcp_servers": [{"status": "connected"}]},
        spoken("m1", "One.", 100),
        spoken("m1", "One and a half.", 100),
        spoken("m2", "Two.", 200),
    )
    assert reading.take_new() == {
        "said": ["One.", "One and a half.", "Two."],
        "session": "s1",
        "usage": {"tokens": 320},
    }
    assert reading.take_new() == {"session": "s1"}
    usage = {"input_tokens": 300, "cache_read_input_tokens": 20, "output_tokens": 80}
    reading.read_line(
        json.dumps({"type": "result", "subtype": "success", "result": "Bye", "usage": usage, "total_cost_usd": 2})
    )
    facts = reading.facts()
    assert (facts["result"], facts["error"], facts["usage"]) == ("Bye", "", {"tokens": 80, "dollars": 2})


def test_what_a_session_cost_before_is_not_counted_again() -> None:
    result = {"type": "result", "result": "", "total_cost_usd": 0.5, "usage": {"output_tokens": 7}}
    facts = read(result, before={"dollars": 0.25}).facts()
    assert facts["usage"] == {"tokens": 7, "dollars": 0.25}
    assert facts["totals"] == {"dollars": 0.5}
    turn = {"type": "turn.completed", "usage": {"input_tokens": 300, "output_tokens": 30}}
    facts = read(turn, before={"tokens": 220}).facts()
    assert (facts["usage"]["tokens"], facts["totals"]) == (110, {"tokens": 330})


def test_success_with_an_error_is_an_error() -> None:
    reading = read(
        {"type": "result", "subtype": "success", "is_error": True, "result": "Not logged in · Please run /login"}
    )
    assert (reading.result, reading.error) == (None, "Not logged in · Please run /login")


def test_a_server_that_failed_is_noticed_before_a_model_is_asked() -> None:
    failed = {"type": "system", "subtype": "init", "mcp_servers": [{"name": "ccswarm", "status": "failed"}]}
    assert read(failed).toolless
    assert "could not use its MCP server" in explain_end(
        "claude", {"exit": -15, "error": "it started without its tools"}
    )


def test_codex_is_read() -> None:
    reading = read(
        {"type": "thread.started", "thread_id": "t1"},
        {"type": "error", "message": "Reconnecting... 1/5"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}},
        {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 50, "output_tokens": 10}},
    )
    facts = reading.facts()
    assert (facts["session"], facts["said"], facts["result"], facts["error"]) == ("t1", ["Done."], "Done.", "")
    assert facts["usage"]["tokens"] == 110
    failed = read({"type": "turn.failed", "error": {"message": "Quota exceeded."}})
    assert (failed.error, failed.result) == ("Quota exceeded.", None)


def test_gemini_is_read() -> None:
    reading = read(
        {"type": "init", "session_id": "g1"},
        {"type": "message", "role": "user", "content": "the prompt"},
        {"type": "message", "role": "assistant", "content": "Hel", "delta": True},
        {"type": "message", "role": "assistant", "content": "lo.", "delta": True},
        {"type": "result", "status": "success", "stats": {"total_tokens": 42}},
    )
    facts = reading.facts()
    assert (facts["session"], facts["said"], facts["result"]) == ("g1", ["Hello."], "Hello.")
    assert facts["usage"]["tokens"] == 42
    failed = read({"type": "result", "status": "error", "error": {"type": "x", "message": "API key not valid"}})
    assert failed.error == "API key not valid"


def test_what_is_no_event_is_kept_in_part() -> None:
    reading = read("[" * 100_000, "oops", "[1]", '{"no": "type"}', "x" * 5000)
    assert len(reading.stray) == 2000
    assert reading.events == 0


WORDS: list[tuple[Any, str]] = [
    ("plain \x1b]52;c;evil\x07", "plain ·]52;c;evil·\n"),
    ("", ""),
    ('{"no": "event"}', '{"no": "event"}\n'),
    ({"type": "assistant", "message": {"content": [{"type": "text", "text": "Hi.\x1b[2J"}]}}, "Hi.·[2J\n"),
    (
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "do", "input": {"a": 1}}]}},
        '> do {"a": 1}\n',
    ),
    ({"type": "assistant", "message": "broken"}, '{"type": "assistant", "message": "broken"}\n'),
    ({"type": "tool_use"}, '{"type": "tool_use"}\n'),
    ("[" * 100_000, "[" * 100_000 + "\n"),
    ({"type": "message", "role": "assistant", "content": "Hel", "delta": True}, "Hel\n"),
    ({"type": "tool_use", "tool_name": "do", "parameters": {}}, "> do {}\n"),
    ({"type": "item.started", "item": {"type": "mcp_tool_call", "tool": "do", "arguments": None}}, "> do {}\n"),
    ({"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}, "Done.\n"),
    ({"type": "turn.failed", "error": {"message": "no"}}, "error: {'message': 'no'}\n"),
    ({"type": "result", "subtype": "success"}, "(ended: success)\n"),
    ({"type": "system", "subtype": "init"}, ""),
]


@pytest.mark.parametrize(("event", "words"), WORDS)
def test_who_watches_reads_words_and_no_orders_to_the_terminal(event: Any, words: str) -> None:
    line = event if isinstance(event, str) else json.dumps(event)
    assert format_line(line.encode()) == words


ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("claude", {"exit": 0, "result": "fine"}, ""),
    ("gemini", {"exit": 0, "result": None}, "gemini exited 0 without a result and printed nothing"),
    ("mine", {"exit": 0, "result": None}, ""),
    ("codex", {"exit": 1, "error": "Missing environment variable: `MY_KEY`."}, "codex is not logged in"),
    ("codex", {"exit": 1, "error": "unexpected status 401 Unauthorized: no"}, "has a key that was rejected"),
    ("gemini", {"exit": 41, "errors": "you must specify the GEMINI_API_KEY environment variable."}, "not logged in"),
    ("gemini", {"exit": 173, "error": "You have exhausted your daily quota on this model."}, "used up its quota"),
    ("claude", {"exit": 1, "error": "Credit balance is too low"}, "used up its quota"),
    ("codex", {"exit": 1, "errors": "required MCP servers failed to initialize: ccswarm"}, "could not use its MCP"),
    ("claude", {"exit": 1, "error": "No conversation found with session ID: x"}, "does not know the session"),
    ("claude", {"failed": "FileNotFoundError", "message": "x"}, "npm install -g @anthropic-ai/claude-code"),
    ("mine", {"failed": "PermissionError", "message": "denied"}, "mine cannot be started: denied"),
]


@pytest.mark.parametrize(("program", "facts", "words"), ENDS)
def test_an_end_is_named(program: str, facts: dict[str, Any], words: str) -> None:
    found = explain_end(program, facts)
    assert words in found
    assert bool(words) == bool(found)


@pytest.mark.parametrize("program", list(programs.KNOWN))
def test_a_program_gets_one_server_and_its_key_in_no_word(program: str) -> None:
    key = {"claude": "ANTHROPIC_API_KEY", "codex": "CODEX_API_KEY", "gemini": "GEMINI_API_KEY"}[program]
    settings = CliSettings(program=program, environment={key: "sk-secret"}, base_url="http://there", model="m")
    options = programs.StartOptions(settings, "/private", ["python", "-m", "ccswarm"], ["CCSWARM_GUEST"], "session-1")
    launch = programs.make_launch(options)
    whole = json.dumps([list(launch.command), dict(launch.environment), dict(launch.files)])
    assert "sk-secret" not in whole
    assert "session-1" in launch.command
    assert "CCSWARM_GUEST" in whole
    assert any("/private" in value for value in launch.environment.values()), "it writes where we say"


def test_another_program_is_started_as_its_settings_say() -> None:
    settings = CliSettings(
        program="mine", command=("mine", "--mcp={mcp_config}", "{prompt_file}"), resume=("mine", "{session}")
    )
    options = programs.StartOptions(settings, "/private", ["python"], ["CCSWARM_GUEST"])
    launch = programs.make_launch(options)
    assert list(launch.command) == ["mine", "--mcp=/private/mcp.json", "/private/prompt.txt"]
    config = json.loads(launch.files["mcp.json"])["mcpServers"]["ccswarm"]
    assert config == {"command": "python", "args": [], "env": {"CCSWARM_GUEST": "${CCSWARM_GUEST}"}}
    again = programs.StartOptions(settings, "/private", ["python"], [], "s1")
    assert list(programs.make_launch(again).command) == ["mine", "s1"]


PROBLEMS: list[tuple[dict[str, Any], bool, str]] = [
    ({"program": "python3", "command": ["python3"]}, False, ""),
    ({}, False, "settings.program: is missing"),
    ({"program": "python3", "command": ["python3"], "modle": "x"}, False, "settings.modle: is not known"),
    ({"program": "cluade"}, False, "cluade is not one of claude, codex, gemini"),
    ({"program": "mine", "command": ["no-such-program"]}, False, "no-such-program is not installed"),
    ({"program": "p", "command": ["python3"], "environment": {"A": "$NONE"}}, False, "no variable or secret NONE"),
    ({"program": "p", "command": ["python3"]}, True, "does not report its cost"),
]


@pytest.mark.parametrize(("options", "priced", "words"), PROBLEMS)
def test_what_keeps_it_from_working_is_told_before(options: dict[str, Any], priced: bool, words: str) -> None:
    agent = AgentSettings(name="ada", brain="cli", settings=options)
    found = "; ".join(PLUGIN.problems(agent, lambda _: "", priced=priced))
    assert words in found
    assert bool(words) == bool(found)
