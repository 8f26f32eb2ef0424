"""The page about AgentVault's proxy is true: its conversation, byte for byte, with its configuration and a tool server
of ai-session; only ids, times and places are others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import served
from tests.ccswarm.support.a2a_vault_server import IDS, JSON, Vault
from tests.ccswarm.support.runs import RunVerbs
from tests.together.support.swarms import AI_SESSION, QUICK, ROOT, open_swarm_home
from tests.together.support.tool_servers import tool_server

PAGE = (ROOT / "docs/protocols/agentvault-proxy.md").read_text()
CONFIGURATION, CONVERSATIONS = (
    re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for kind in ("toml", "json-lines")
)
UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
ID = re.compile(IDS.pattern.removesuffix(r"\Z"))
OTHER = (
    (r'"(timestamp|createdAt|updatedAt)":"[^"]*Z"', r'"\1":"2026-01-01T12:00:00.000000Z"'),
    (r'"seq":\d+,"head":"[0-9a-f]{64}"', '"seq":1,"head":"…"'),
    (r'"call_[\w-]{22}"', '"call_…"'),
    (r"below /[\w/.-]+/project", "below /home/me/project"),
)


def plain(text: str, known: dict[str, str]) -> str:
    """Without what is another one each time, and with the page's ids."""
    for pattern, instead in OTHER:
        text = re.sub(pattern, instead, text)
    return ID.sub(lambda found: known.get(found[0], found[0]), text)


def answers(vault: Vault, body: str) -> list[str]:
    """What a request is answered with: one text, or the data of each event. A task that it began is over then."""
    answer = vault.http.post("/a2a", content=body, headers=JSON)
    if not answer.headers["content-type"].startswith("application/json"):
        return [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    found: Any = json.loads(answer.text)
    if json.loads(body)["method"] == "tasks/send":
        vault.over(found["result"]["id"])
    return [answer.text]


@pytest.mark.torture
def test_the_conversation_is_as_the_page_has_it(homes: Path) -> None:
    (conversation,) = CONVERSATIONS
    with open_swarm_home(homes, QUICK + CONFIGURATION[-1], UNBOXED) as swarm_home:
        (swarm_home.project / "script.py").write_text("print(6 * 7)\n")
        words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
        with tool_server(swarm_home.home, swarm_home.project) as url:
            servers = json.dumps({"filesystem": url, "code": url})
            ours: dict[str, str] = {}  # by the server's ids the page's
            with (
                served(RunVerbs(swarm_home.home), *words, MCP_SERVER_MAP=servers) as server,
                Vault(server.port) as vault,
            ):
                for exchange in re.findall(r"^> .*\n(?:< .*\n)*", conversation, re.MULTILINE):
                    asked, *reported = exchange.splitlines()
                    theirs = {page: real for real, page in ours.items()}
                    found = answers(vault, ID.sub(lambda one: theirs.get(one[0], one[0]), asked[2:]))  # noqa: B023
                    shown = [line[2:] for line in reported]
                    new = [one for one in ID.findall("".join(shown)) if one not in theirs]
                    ours |= dict(zip([one for one in ID.findall("".join(found)) if one not in ours], new, strict=True))
                    assert [plain(one, ours) for one in found] == [plain(one, {}) for one in shown], asked


@pytest.mark.torture  # test_a2a_vault.py: a server of the configuration
def test_what_one_task_opens_the_next_one_finds(homes: Path) -> None:
    agent = '[[agents]]\nname = "proxy"\ngrants = ["ai-session.*"]\n'
    with open_swarm_home(homes, QUICK + AI_SESSION + agent, UNBOXED) as swarm_home:
        words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
        with served(RunVerbs(swarm_home.home), *words) as server, Vault(server.port) as vault:
            opened = vault.said("ai-session", "create_session", name="w")["mcp_result"]["structuredContent"]
            session = opened["session_id"]
            vault.said("ai-session", "execute_command", session_id=session, command="X=42")
            ran = vault.said("ai-session", "execute_command", session_id=session, command="echo $X; false")
            facts = ran["mcp_result"]["structuredContent"]
            assert (facts["output"], facts["exit_code"]) == ("42\n", 1)
            unknown = vault.said("ai-session", "execute_command", session_id="nobody", command="true")["error"]
            assert (unknown["source"], unknown["code"]) == ("MCP_TOOL", "TOOL_EXECUTION_FAILED")
            assert vault.said("ai-session", "close_session", session_id=session)["success"]
        report = swarm_home.joined()
        assert (report.problems, report.calls, report.joined) == ([], 5, 5)
