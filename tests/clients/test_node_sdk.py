"""The official Node SDKs drive the server: v1, and v2 in every way it can negotiate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.node import Sdk, person_without_writable_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clients.node import Person

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
VARIANTS = {"v1": HANDSHAKE, "legacy": HANDSHAKE, "auto": MODERN, MODERN: MODERN}
EACH = ["v1", MODERN, *(pytest.param(name, marks=pytest.mark.clients) for name in ("legacy", "auto"))]
"""Every run has one of each era; the other two speak the same once they are connected."""

TOOLS = {
    "close_session",
    "create_session",
    "execute_command",
    "get_session_info",
    "interrupt_command",
    "list_sessions",
    "read_output",
    "read_screen",
    "resize_session",
    "send_input",
}
UNICODE = "žluťoučký – 漢字 🎉 e\u0301 \u2028 end"


@pytest.fixture(scope="module", params=EACH)
def connected(request: pytest.FixtureRequest, sharer: Person) -> Iterator[Sdk]:
    with Sdk(request.param, sharer) as client:
        yield client


@pytest.fixture
def sdk(connected: Sdk, home: Path) -> Iterator[Sdk]:
    connected.facts("create_session", name="sdk", working_directory=str(home))
    yield connected
    connected.facts("close_session", session_id="sdk")


@pytest.mark.parametrize(
    ("variant", "version"),
    [
        pytest.param(variant, version, marks=pytest.mark.torture if variant != "auto" else ())
        for variant, version in VARIANTS.items()
    ],
)
def test_cold_start_lists_the_tools(variant: str, version: str) -> None:
    with Sdk(variant) as client:
        assert client.met["version"] == version
        assert client.met["server"]["name"] == "ai-session"
        assert {tool["name"] for tool in client.met["tools"]} == TOOLS
        assert all(tool["title"] and tool["annotations"]["title"] for tool in client.met["tools"])


def test_output_and_exit_code(sdk: Sdk) -> None:
    result = sdk.call("execute_command", session_id="sdk", command="echo $((6*7)); (exit 3)")
    assert result["structuredContent"]["output"] == "42\n"
    assert result["structuredContent"]["exit_code"] == 3
    (block,) = result["content"]
    assert block["text"].startswith("[exit code 3, finished")
    assert block["text"].endswith("]\n42\n")


@pytest.mark.either("connected")
def test_text_of_every_kind_arrives(sdk: Sdk) -> None:
    facts = sdk.facts("execute_command", session_id="sdk", command=f"printf '%s\\n' '{UNICODE}'")
    assert facts["output"] == UNICODE + "\n"
    broken = sdk.facts("execute_command", session_id="sdk", command=r"printf 'a\377\355\240\275b\n'")
    assert (broken["output"][0], broken["output"][-2:]) == ("a", "b\n")
    assert set(broken["output"][1:-2]) == {"\ufffd"}


@pytest.mark.either("connected")
def test_timeout_then_reading_then_interrupt(sdk: Sdk) -> None:
    facts = sdk.facts("execute_command", session_id="sdk", command="echo begun; sleep 1000", timeout_seconds=0)
    assert facts["status"] == "running"
    command = facts["command_id"]
    facts = sdk.facts("read_output", session_id="sdk", command_id=command, wait_for="pattern", pattern="begun")
    assert (facts["status"], facts["waited"]) == ("running", "pattern")
    sdk.facts("interrupt_command", session_id="sdk")
    facts = sdk.facts("read_output", session_id="sdk", command_id=command, wait_for="finish")
    assert (facts["status"], facts["exit_code"]) == ("interrupted", 130)
    assert facts["output"].startswith("begun\n")


@pytest.mark.either("connected")
def test_big_output_is_cut_and_can_be_read_on(sdk: Sdk) -> None:
    whole = "".join(f"{number}\n" for number in range(1, 60_001))
    facts = sdk.facts("execute_command", session_id="sdk", command="seq 1 60000")
    assert len(facts["output"]) <= 7000
    assert facts["output"].startswith("1\n2\n")
    assert facts["output"].endswith("59999\n60000\n")
    page = {"session_id": "sdk", "command_id": facts["command_id"], "max_output_chars": 200_000}
    read = ""
    while facts.get("end_offset") != facts["next_offset"]:
        facts = sdk.facts("read_output", offset=facts["next_offset"], **page)
        read += facts["output"]
    assert len(read) > len(whole) - 7000
    assert whole.endswith(read)


@pytest.mark.either("connected")
def test_a_result_of_200_000_characters_passes(sdk: Sdk) -> None:
    facts = sdk.facts("execute_command", session_id="sdk", command="seq 1 35000", max_output_chars=200_000)
    assert facts["output"] == "".join(f"{number}\n" for number in range(1, 35_001))


@pytest.mark.either("connected")
def test_a_caller_s_mistake_is_a_result_that_says_what_to_do(sdk: Sdk) -> None:
    missing = sdk.call("execute_command", session_id="nowhere", command="true")
    assert missing["isError"]
    assert "session_not_found" in missing["content"][0]["text"]
    assert "'sdk'" in missing["content"][0]["text"]
    wrong = sdk.call("execute_command", session_id="sdk")
    assert wrong["isError"]
    assert "command" in wrong["content"][0]["text"]
    unknown = sdk.call("execute_comand", session_id="sdk", command="true")
    assert unknown["code"] == -32602
    assert "execute_command" in unknown["thrown"]


@pytest.mark.either("connected")
def test_a_call_given_up_leaves_the_command_alone(sdk: Sdk, home: Path) -> None:
    started = home / "started"
    given_up = sdk.call(
        "execute_command", session_id="sdk", command=f": >{started}; read -r line; echo got $line", abort_on=started
    )
    assert "enough" in given_up["thrown"]
    sdk.facts("send_input", session_id="sdk", text="tea", keys=["enter"])
    facts = sdk.facts("read_output", session_id="sdk", wait_for="finish")
    assert (facts["status"], facts["exit_code"]) == ("finished", 0)
    assert "got tea\n" in facts["output"]


@pytest.mark.torture  # test_mcp_points.py has it without Node
def test_a_session_outlives_its_client_and_serves_another_era() -> None:
    with Sdk("v1") as first:
        first.facts("create_session", name="kept")
        first.facts("execute_command", session_id="kept", command="kept=secret")
    with Sdk(MODERN) as second:
        assert second.facts("execute_command", session_id="kept", command="echo $kept")["output"] == "secret\n"


@pytest.mark.torture  # in test_relay.py there is such a home, too
@pytest.mark.parametrize("variant", [MODERN, pytest.param("v1", marks=pytest.mark.clients)])
def test_a_home_that_cannot_be_written_to(variant: str, home: Path) -> None:
    before = sorted(home.rglob("*"))
    with person_without_writable_home(home) as person:
        assert person.run("sh", "-c", ": >$HOME/file").returncode != 0
        with Sdk(variant, person) as client:
            client.facts("create_session", name="guest")
            facts = client.facts("execute_command", session_id="guest", command="id -u; (exit 3)")
            assert facts["exit_code"] == 3
            assert facts["output"] == person.run("id", "-u").stdout
        with Sdk(variant, person) as client:
            (session,) = client.facts("list_sessions")["sessions"]
            assert session["name"] == "guest"
    assert sorted(home.rglob("*")) == before
