"""What the audit log says of one session, found in its newest part."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai_session.audit.files import segments
from ai_session.audit.log import AuditLog
from ai_session.models import Principal
from ai_session.tools.records import calls_of

pytestmark = pytest.mark.anyio

CLIENT = Principal("mcp", 1, 7, "test", subject="ada")


async def written(home: Path, count: int = 300) -> Path:
    """A log of several segments, in which sessions take turns; its folder."""
    log = AuditLog(home / "audit", segment_bytes=1 << 15)
    for number in range(count):
        given = {"session_id": f"name-{number % 3}", "command": f"echo {number}"}
        entry = await log.begin(f"call_{number}", CLIENT, "execute_command", given, agent="scout")
        denied = number % 2 == 1
        facts = {"session": f"ses_{number % 3}", "exit_code": 0, "consent": {"by": "person"}}
        log.end(entry, "denied" if denied else "ok", rule="r", code="denied" if denied else "", facts=facts)
    log.close()
    return home / "audit"


async def test_calls_of_a_session_are_found_across_segments_newest_last(home: Path) -> None:
    folder = await written(home)
    assert len(segments(folder)) > 1
    rows = calls_of(folder, "ses_1", 60)
    assert [row["command"] for row in rows] == [f"echo {number}" for number in range(121, 300, 3)]
    assert rows[-1] == {
        "at": rows[-1]["at"],
        "who": "ada",
        "agent": "scout",
        "tool": "execute_command",
        "outcome": "ok",
        "rule": "r",
        "exit_code": 0,
        "command": "echo 298",
        "consent": {"by": "person"},
    }
    assert rows[-2]["code"] == rows[-2]["outcome"] == "denied"
    assert calls_of(folder, "ses_9", 60) == []
    assert len(calls_of(folder, "ses_0", 1000)) == 100


async def test_records_that_were_changed_say_nothing(home: Path) -> None:
    folder = await written(home, 12)
    (path,) = segments(folder)
    path.write_bytes(path.read_bytes().replace(b"echo 4", b"echo X").replace(b'"agent":"scout"', b'"agent":"other"', 1))
    rows = calls_of(folder, "ses_1", 60)
    assert [row.get("command") for row in rows] == ["echo 1", None, "echo 7", "echo 10"]


async def test_a_line_that_is_being_written_is_left_out(home: Path) -> None:
    folder = await written(home, 3)
    with segments(folder)[0].open("ab") as file:
        file.write(b'{"event":"tool.end","session":"ses_1"')
    assert len(calls_of(folder, "ses_1", 60)) == 1
