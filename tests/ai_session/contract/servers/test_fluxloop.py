"""FluxLoop as its document has it, and as its programs really speak it, behind relay and daemon."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session import __version__
from tests.ai_session.support.entries import SHUT, Audit, DaemonHome, verb
from tests.ai_session.support.fluxloop_client import FLUXLOOP, TOOLS, Flux, connected
from tests.ai_session.support.mcp_client import DATA, SERVER, Client, Message, living_in, runtime, stop_daemons
from tests.conftest import UNBOXED, new_home

HANDSHAKE = {"type": "handshake", "id": "1"}
GREETING = {"name": "fluxloop-mcp", "version": __version__, "capabilities": {"tools": TOOLS}}
GREETED = {"type": "response", "id": "1", "result": GREETING}
UNKNOWN = {"code": "tool_not_found", "message": "Unknown tool: faqz", "details": {"availableTools": TOOLS}}
QUESTION = "How is a terminal shared with a person?"
OPENINGS: dict[str, list[Message]] = json.loads((DATA / "openings.json").read_text())


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    """A HOME with a daemon that has answered a question."""
    home = new_home(homes)
    with Flux(home) as client:
        assert client.tool("faq", query=QUESTION)["type"] == "response"
    yield home
    stop_daemons(home)


@pytest.fixture(scope="module")
def pipe(daemon_home: Path) -> Iterator[Flux]:
    """One connection for all that needs no new one."""
    with Flux(daemon_home) as client:
        yield client


@pytest.fixture(scope="module")
def mcp(daemon_home: Path) -> Iterator[Client]:
    """For which all that MCP needs has been loaded."""
    with Client(env=living_in(daemon_home)) as client:
        client.initialize()
        client.call("list_sessions")
        yield client


def error_of(answer: Message) -> tuple[str, str]:
    assert answer["type"] == "error"
    return answer["error"]["code"], answer["error"]["message"]


def test_the_messages_of_the_document_get_its_answers(pipe: Flux) -> None:
    assert pipe.answer_to(HANDSHAKE) == GREETED
    params = {"query": "How do I integrate FastAPI?"}
    answer = pipe.answer_to({"type": "request", "id": "42", "tool": "faq", "params": params})
    assert (answer.keys(), answer["type"], answer["id"]) == ({"type", "id", "result"}, "response", "42")
    assert {"answer", "citations"} <= answer["result"].keys() <= {"answer", "citations", "score"}
    answer = pipe.answer_to({"type": "request", "id": "42", "tool": "faqz", "params": {}})
    assert answer == {"type": "error", "id": "42", "error": UNKNOWN}


def test_an_answer_consists_of_sentences_with_their_sources(pipe: Flux) -> None:
    result = pipe.tool("faq", query=QUESTION, topK=3)["result"]
    assert result["score"] == result["citations"][0]["score"] > 0.5
    assert {"path": "docs/howto/share-a-terminal.md", "section": "Share a terminal with a person"}.items() <= (
        result["citations"][0].items()
    )
    assert 1 <= len(result["citations"]) <= 3
    assert [one["score"] for one in result["citations"]] == sorted(
        (one["score"] for one in result["citations"]), reverse=True
    )
    assert all(line.startswith("- ") for line in result["answer"].splitlines())
    assert pipe.tool("faq", query="zxqv wvut")["result"] == {
        "answer": "No relevant information available.",
        "citations": [],
    }


def test_what_its_shipped_programs_send_is_served_too(pipe: Flux) -> None:
    expected = pipe.tool("faq", query=QUESTION, topK=2)["result"]
    assert pipe.answer_to({"tool": "handshake", "id": "1"}) == GREETED
    assert pipe.answer_to({"type": "request", "tool": "handshake", "id": "1"}) == GREETED
    beside = {"tool": "faq", "id": 7, "query": QUESTION, "topK": 2}
    assert pipe.answer_to(beside) == {"type": "response", "id": 7, "result": expected}
    assert (
        pipe.answer_to({**beside, "type": "request", "params": {"topK": 1}})["result"]["citations"]
        == (expected["citations"][:1])
    )
    assert pipe.answer_to({"tool": "faq", "query": QUESTION, "topK": 2}) == {
        "type": "response",
        "id": None,
        "result": expected,
    }


@pytest.mark.parametrize("request_id", ["1", "", "é\u2028", 0, -7, 10**17, 2.5, 1e300, None])
def test_ids_come_back_as_they_are(pipe: Flux, request_id: Any) -> None:
    answer = pipe.answer_to({"type": "handshake", "id": request_id})
    assert json.dumps(answer["id"]) == json.dumps(request_id)


BAD: list[tuple[bytes, Any, str]] = [
    (b"nope", None, "a line is not one JSON message: Expecting value"),
    (b"[]", None, "a message must be a JSON object"),
    (b"7", None, "a message must be a JSON object"),
    (b"\xff\xfe", None, "a line is not one JSON message: not UTF-8"),
    (b'{"type":"request","id":"7","tool":', "7", "a line is not one JSON message: Expecting value"),
    (b'{"type":"request","id":"\\u001f\\"","tool":', '\x1f"', "a line is not one JSON message: Expecting value"),
    (b'{"type":"request","id":"\\ud800","tool":', None, "a line is not one JSON message: Expecting value"),
    (b'{"id": 8, "type":"request"', 8, "a line is not one JSON message: Expecting"),
    (b'{"type":"request","id":7,"tool":"faq","params":{"query":NaN}}', 7, "a line is not one JSON message: NaN is"),
    (b'{"type":"handshake","id":"9","x":' + b"[" * 9000 + b"]" * 9000 + b"}", "9", "the message is nested too deeply"),
    (b'{"type":"handshake","id":"\\ud800"}', None, "a line is not one JSON message: not UTF-8"),
    (b'{"type":"handshake","id":true}', None, "id must be a string or a number"),
    (b'{"type":"handshake","id":{}}', None, "id must be a string or a number"),
    (b'{"type":"handshake","id":[1]}', None, "id must be a string or a number"),
    (b'{"type":"handshake","id":1e999}', None, "id must be a string or a number"),
    (b'{"type":"greeting","id":1}', 1, "type must be handshake or request, not 'greeting'"),
    (b'{"type":"response","id":1,"result":{}}', 1, "type must be handshake or request, not 'response'"),
    (b'{"type":7,"id":1}', 1, "type must be handshake or request, not not text"),
    (b'{"type":null,"id":1,"tool":"faq"}', 1, "type must be handshake or request, not not text"),
    (b'{"id":1}', 1, "a request must name its tool"),
    (b'{"type":"request","id":1}', 1, "a request must name its tool"),
    (b'{"type":"request","id":1,"tool":["faq"]}', 1, "a request must name its tool"),
    (b'{"type":"request","id":1,"tool":"faq","params":[]}', 1, "params must be an object"),
    (b'{"type":"request","id":1,"tool":"faq","params":"x"}', 1, "params must be an object"),
    (b'{"type":"request","id":1,"tool":"faq"}', 1, "faq: query: is missing"),
    (b'{"type":"request","id":1,"tool":"faq","params":{"query":""}}', 1, "faq: query: is empty"),
    (b'{"type":"request","id":1,"tool":"faq","params":{"query":"a","topK":21}}', 1, "faq: topK: should be at most"),
]


@pytest.mark.parametrize(("line", "request_id", "message"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_bad_line_is_answered_and_the_server_lives(pipe: Flux, line: bytes, request_id: Any, message: str) -> None:
    pipe.write(line + b"\n\n \r\n")
    answer = pipe.read()
    assert answer["id"] == request_id
    code, reported = error_of(answer)
    assert (code, reported[: len(message)]) == ("invalid_payload", message)
    assert pipe.answer_to(HANDSHAKE) == GREETED


def test_a_line_that_is_too_long_is_answered_and_the_server_lives(pipe: Flux) -> None:
    for head, request_id in ((b'{"type":"request","id":"long",', "long"), (b"", None)):
        pipe.write(head + b"x" * (9 << 20) + b"\n")
        answer = pipe.read()
        assert (answer["id"], answer["error"]["code"]) == (request_id, "invalid_payload")
    long = {"type": "request", "id": 1, "tool": "handshake", "params": {"x": "y" * (3 << 20)}}
    assert pipe.answer_to(long)["result"] == GREETING


def test_what_a_tool_refuses_has_a_code_of_the_protocol(pipe: Flux) -> None:
    answer = pipe.tool("analyze_repository", root="/nowhere/at/all")
    assert answer["error"]["code"] == "tool_error"
    assert "/nowhere/at/all" in answer["error"]["message"]
    assert answer["error"]["details"].keys() == {"code", "suggestion"}
    assert error_of(pipe.tool("execute_command", command="echo > made")) == (
        "tool_not_found",
        "Unknown tool: execute_command",
    )


def test_requests_are_answered_in_order_and_all_before_the_end(daemon_home: Path) -> None:
    asked = [{"type": "request", "id": n, "tool": ("faq", "handshake")[n % 2], "query": QUESTION} for n in range(20)]
    with Flux(daemon_home) as client:
        client.write("\n".join(map(json.dumps, asked)))  # the last one without its end
        status, _ = client.end()
        answers = [json.loads(line) for line in iter(client.line, b"")]
    assert status == 0
    assert [answer["id"] for answer in answers] == list(range(20))
    assert {answer["type"] for answer in answers} == {"response"}


def test_the_socket_serves_it_by_its_role(daemon_home: Path) -> None:
    with connected(daemon_home) as link:
        assert link.hello["version"] == __version__
        link.send(json.dumps(HANDSHAKE).encode()[:10])
        link.send(json.dumps(HANDSHAKE).encode()[10:] + b"\n")
        assert link.read() == GREETED
        link.send(json.dumps({"type": "request", "id": 1, "tool": "faq", "params": {"query": QUESTION}}).encode())
        (answer,) = link.rest()
        assert (answer["id"], answer["type"]) == (1, "response")


FIRST_LINES = (
    HANDSHAKE,
    {"id": "1", "type": "handshake"},
    {"tool": "handshake", "id": "1"},
    {"type": "request", "id": "1", "tool": "handshake", "params": {"method": 'says "jsonrpc"'}},
)


@pytest.mark.parametrize("first", FIRST_LINES, ids=["handshake", "id first", "no type", "request"])
def test_a_first_line_tells_which_dialect_it_is(daemon_home: Path, first: Message) -> None:
    with Flux(daemon_home, SERVER) as client:
        client.write(b"\n \r\n")
        for byte in json.dumps(first).encode():
            client.write(bytes([byte]))
        client.write(b"\n")
        assert client.read() == GREETED
        assert error_of(client.answer_to({"jsonrpc": "2.0", "id": 1, "method": "ping"}))[0] == "invalid_payload"
        assert client.tool("faq", query=QUESTION)["result"]["citations"]


def test_who_says_mcp_gets_mcp_whatever_the_first_line_is(daemon_home: Path) -> None:
    with Flux(daemon_home, [*SERVER, "--dialect", "mcp"]) as client:
        assert client.answer_to(HANDSHAKE)["error"]["code"] == -32600
        assert client.answer_to({"jsonrpc": "2.0", "id": 1, "method": "ping"}) == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {},
        }


@pytest.mark.either("name")
@pytest.mark.parametrize("name", sorted(OPENINGS))
def test_mcp_clients_are_served_byte_for_byte_as_without_detection(daemon_home: Path, mcp: Client, name: str) -> None:
    assert mcp.result("ping") == {}
    said: list[list[bytes]] = []
    for more in ({}, {"dialect": "mcp"}):
        with connected(daemon_home, "mcp", **more) as link:
            lines: list[bytes] = []
            for message in OPENINGS[name]:
                link.send(json.dumps(message).encode() + b"\n")
                lines += [link.line()] if "id" in message else []
            said.append(lines)
    assert said[0] == said[1]
    assert len(said[0]) > 0


NOT_OURS = {
    b"nope": -32700,
    b'{"id":1,"type":7': -32700,
    b'{"jsonrpc":"2.0","id":3,"method":"nothing","params":{},"type":"request"}': -32601,
    b'{"id":3,"method":"ping","type":"request"}': -32600,
}


@pytest.mark.parametrize("line", NOT_OURS)
def test_a_first_line_that_tells_nothing_is_mcps(daemon_home: Path, line: bytes) -> None:
    with connected(daemon_home, "mcp") as link:
        link.send(line + b"\n")
        assert link.read()["error"]["code"] == NOT_OURS[line]
        link.send(json.dumps(HANDSHAKE).encode() + b"\n")
        assert link.read()["error"]["code"] == -32600


PARAMS: dict[str, dict[str, Any]] = {
    "faq": {"query": QUESTION},
    "analyze_repository": {},
    "detect_frameworks": {"repository_profile": {}},
    "generate_integration_steps": {"framework": "fastapi"},
    "propose_edit_plan": {"framework": "fastapi"},
    "validate_edit_plan": {"plan": {"edits": []}},
    "run_integration_workflow": {},
}


def test_every_request_of_a_tool_passes_the_gate_once(daemon_home: Path, pipe: Flux) -> None:
    pipe.answer_to(HANDSHAKE)
    audit = Audit(runtime(daemon_home))
    assert ["handshake", *PARAMS] == TOOLS
    for tool, params in PARAMS.items():
        answer = pipe.tool(tool, **params)
        ((begin, end),) = audit.calls()
        assert (begin["tool"], begin["actor"]["client"], begin["actor"]["kind"]) == (tool, "fluxloop", "mcp")
        assert end["outcome"] == ("ok" if answer["type"] == "response" else "tool_error"), answer
    pipe.tool("execute_command", command="echo > made")
    ((begin, end),) = audit.calls()
    assert (begin["tool"], end["outcome"]) == ("fluxloop.execute_command", "invalid")
    pipe.answer_to(HANDSHAKE)
    pipe.answer_to({"id": 1})
    assert audit.calls() == []


def test_where_all_is_denied_no_tool_answers(homes: Path) -> None:
    home = new_home(homes, UNBOXED + SHUT)
    try:
        with Flux(home) as client:
            assert client.answer_to(HANDSHAKE) == GREETED
            audit = Audit(runtime(home))
            for tool, params in PARAMS.items():
                error = client.tool(tool, **params)["error"]
                assert (error["code"], error["details"]["code"]) == ("tool_error", "denied")
                assert audit.denied() == [tool]
        code, printed = verb(home, "mcp-server", "--once", "--query", QUESTION)
        assert (code, json.loads(printed)["error"]["details"]["code"]) == (1, "denied")
    finally:
        DaemonHome(home).end_daemon()  # as all, it would be denied to whoever asks for it


def test_one_question_on_the_command_line(daemon_home: Path, pipe: Flux) -> None:
    code, printed = verb(daemon_home, "mcp-server", "--once", "--query", QUESTION)
    expected = pipe.tool("faq", query=QUESTION)["result"]
    assert (code, json.loads(printed)) == (0, {"type": "response", "result": expected})
    assert printed.count("\n") == 1
    code, printed = verb(daemon_home, "mcp-server", "--once", "--query", "zxqv", "--dialect", "fluxloop", "--stdio")
    nothing = {"answer": "No relevant information available.", "citations": []}
    assert (code, json.loads(printed)) == (0, {"type": "response", "result": nothing})
    code, printed = verb(daemon_home, "mcp-server", "--once", "--query", "")
    assert (code, json.loads(printed)["error"]["code"]) == (1, "invalid_payload")


WRONG = {
    "--once": "--once and --query must be",
    "--query x": "--once and --query must be",
    "--once --query x --http": "--once cannot be combined",
    "--once --query x --dialect mcp": "--once cannot be combined",
    "--dialect fluxlop": "'auto', 'mcp', 'fluxloop'",
    "--http --dialect fluxloop": "--http cannot be combined",
}


@pytest.mark.parametrize("words", WRONG)
def test_flags_that_do_not_go_together_are_refused(daemon_home: Path, words: str) -> None:
    code, printed = verb(daemon_home, "mcp-server", *words.split())
    assert code == 2
    assert WRONG[words] in printed


def test_it_needs_no_daemon_and_never_the_sdk(home: Path) -> None:
    command = [sys.executable, "-X", "importtime", *SERVER[1:], "--no-daemon"]
    with (home / "imports").open("wb") as imports, Flux(home, command, stderr=imports) as client:
        assert client.answer_to(HANDSHAKE) == GREETED
        assert client.tool("faq", query=QUESTION)["result"]["citations"]
        assert client.end()[0] == 0
    loaded = {line.rpartition("|")[2].strip() for line in (home / "imports").read_text().splitlines()}
    assert {"ai_session.tools.documentation.index", "ai_session.gate.gate"} <= loaded
    assert not {name for name in loaded if name.partition(".")[0] in ("mcp", "mcp_types")}
    assert not (home / ".local/state/ai-session/sock").exists()


def test_its_relay_starts_as_fast_as_mcps() -> None:
    """It loads nothing that the other one does not."""
    code = "import sys; from ai_session.__main__ import main; sys.argv[1:] = {!r}; {}main()"
    tell = "import os; from ai_session.client import relay; relay.connect = lambda *a, **k: (print(a, k, sorted("
    tell += "m for m in sys.modules if m.startswith(('ai_session', 'agentwire')))), sys.stdout.flush(), os._exit(0)); "
    said: list[str] = []
    for words in (FLUXLOOP[3:], SERVER[3:]):
        with Client([sys.executable, "-c", code.format(words, tell)], env=dict(os.environ)) as client:
            said.append(client.line().decode())
    assert [line.partition(")")[0] for line in said] == ["('fluxloop',", "('mcp',"]
    loaded = {"ai_session", *(f"ai_session.{one}" for one in ("__main__", "client", "client.relay"))}
    loaded |= {
        "ai_session.system",
        "ai_session.system.runtime_directory",
        "agentwire",
        "agentwire.system",
        "agentwire.system.inherited_signals",
        "agentwire.system.interrupts",
        "agentwire.system.utf8",
    }
    found = [set(re.findall(r"'((?:ai_session|agentwire)[.\w]*)'", line)) for line in said]
    assert found == [loaded, loaded | {"ai_session.client.resume"}]
