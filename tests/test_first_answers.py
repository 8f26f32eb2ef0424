"""What is recorded for a client's first questions answers those questions, whoever recorded it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentwire.mcp.first_answers import ENVELOPE_CAPABILITIES, ENVELOPE_VERSION, MODERN_VERSION, FirstAnswers

ROOT = Path(__file__).parent.parent
PACKAGES = tuple(name for name in ("ai_session", "ccswarm") if (ROOT / name).is_dir())
HOLDS = {
    "ping": set[str](),
    "tools/list": {"tools"},
    "prompts/list": {"prompts"},
    "resources/templates/list": {"resourceTemplates"},
    "server/discover": {"capabilities", "supportedVersions"},
}
ALWAYS = {"_meta", "cacheScope", "instructions", "resultType", "serverInfo", "ttlMs"}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_each_answer_is_to_its_question(package: str, era: str) -> None:
    recorded = json.loads((ROOT / package / "servers/mcp/first_answers.json").read_text())[era]
    assert {"tools/list", "prompts/list", "resources/templates/list"} <= recorded.keys() <= HOLDS.keys()
    assert {method: answer.keys() - ALWAYS for method, answer in recorded.items()} == {
        method: HOLDS[method] for method in recorded
    }


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("meta", [{}, {"_meta": {ENVELOPE_VERSION: MODERN_VERSION, ENVELOPE_CAPABILITIES: {}}}])
def test_a_cursor_that_nobody_was_given_is_left_to_whoever_refuses_it(package: str, meta: dict[str, object]) -> None:
    first = FirstAnswers(ROOT / package / "servers/mcp/first_answers.json", "1.0")
    for method in ("tools/list", "prompts/list", "resources/templates/list"):
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**meta, "cursor": None}}
        assert first.answer(request)
        assert first.answer({**request, "params": {**meta, "cursor": "bogus"}}) is None
