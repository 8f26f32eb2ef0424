"""Views of calls: for clients that show them, and as if there were none for all others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentwire.mcp.first_answers import ENVELOPE_CAPABILITIES, ENVELOPE_VERSION, MODERN_VERSION, FirstAnswers
from ai_session import __version__
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.plugin import FIRST_ANSWERS
from scripts.first_answers import HANDSHAKE, ask

pytestmark = pytest.mark.anyio

SHOWS: dict[str, Any] = {"extensions": {apps.EXTENSION: {"mimeTypes": [apps.MIME_TYPE]}}}
OTHERS: tuple[dict[str, Any], ...] = (
    {},
    {"extensions": {}},
    {"extensions": {apps.EXTENSION: {}}},
    {"extensions": {apps.EXTENSION: {"mimeTypes": ["text/html"]}}},
    {"extensions": {"other": {"mimeTypes": [apps.MIME_TYPE]}}},
)
METHODS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
READ: dict[str, Any] = {"uri": apps.URI}


def asked(capabilities: dict[str, Any], modern: bool) -> list[tuple[str, dict[str, Any]]]:
    """All that could tell of views, asked by a client of that era."""
    meta = {"_meta": {ENVELOPE_VERSION: MODERN_VERSION, ENVELOPE_CAPABILITIES: capabilities}} if modern else {}
    first = ("server/discover", meta) if modern else ("initialize", {**HANDSHAKE, "capabilities": capabilities})
    return [
        first,
        *((method, meta) for method in METHODS if method != "resources/list"),
        ("resources/read", READ | meta),
    ]


@pytest.mark.parametrize("modern", [False, True])
async def test_views_are_for_clients_that_show_them(modern: bool) -> None:
    answers = {json.dumps(one): await ask(asked(one, modern)) for one in (SHOWS, *OTHERS)}
    shown = answers.pop(json.dumps(SHOWS))
    plain, *others = answers.values()
    assert all(json.dumps(one) == json.dumps(plain) for one in others)
    assert apps.URI not in json.dumps(plain[:-1])
    assert plain[-1]["error"]["message"] == f"no resource {apps.URI!r}"
    *lists, read = shown
    recorded = FirstAnswers(FIRST_ANSWERS, __version__)
    method, params = asked(SHOWS, modern)[1]
    first = recorded.answer({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert first
    assert apps.linked(first) == lists[1], "what is answered before the SDK is there"
    linked: set[str] = set()
    for tool in lists[1]["result"]["tools"]:
        if "ui" in (meta := tool.pop("_meta", {})):
            linked.add(tool["name"])
            assert meta.pop("ui") == {"resourceUri": apps.URI}
        if meta:
            tool["_meta"] = meta
    assert linked == apps.WITH_VIEW
    assert lists == plain[:-1], "nothing else is another"
    (content,) = read["result"]["contents"]
    assert (content["uri"], content["mimeType"]) == (apps.URI, "text/html;profile=mcp-app")
    assert f'data-version="{__version__}"' in content["text"]
    assert "csp" not in content["_meta"]["ui"], "no domain is wanted"
