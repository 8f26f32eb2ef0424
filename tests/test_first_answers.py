"""What is recorded for a client's first questions answers those questions, whoever recorded it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
