"""kill -9 of a process that records calls, and torn writes: the log is sound each time, and what was said is in it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ai_session.audit.chain import Anchor, Report
from ai_session.audit.files import lines, records, segments, verify
from ai_session.audit.keys import check, public_key
from ai_session.audit.log import AuditLog

ROOT = Path(__file__).parents[3]
FEW, MANY = 5, 100
MOMENTS: list[Callable[[random.Random], int]] = [
    lambda dice: dice.randrange(40, 1500),
    lambda dice: dice.randrange(3, 40),
    lambda _: 2,
    lambda _: 1,
]
"""Lines the process has said when it is killed: in the midst, soon, opened just now, about to open."""

CALLER = """
import asyncio, os, sys
from pathlib import Path
from ai_session.audit.log import AuditLog
from ai_session.models import Principal
me = Principal("mcp", uid=0, client="torture")
def say(*words): os.write(1, " ".join(map(str, words)).encode() + b"\\n")
say("starting")
audit = AuditLog(Path(sys.argv[1]), segment_bytes=1 << 14)
say("open", *audit.head)
async def calls(caller):
    number = 0
    while True:
        number += 1
        call = f"{sys.argv[2]}.{caller}.{number}"
        entry = await audit.begin(call, me, "execute_command", {"command": "x" * (number * 37 % 900)})
        say("begun", call)
        await asyncio.sleep(0)
        say("ended", call, *audit.end(entry, "ok", facts={"exit_code": number % 256}))
        audit.event("note", call=call)
async def main(): await asyncio.gather(*(calls(caller) for caller in range(4)))
asyncio.run(main())
"""


def judged(directory: Path, anchors: list[Anchor]) -> Report:
    return verify(directory, check, key=public_key(directory.parent / "audit.key"), anchors=anchors)


def killed(directory: Path, name: str, after: int) -> list[list[str]]:
    """What the process said before it was killed, which happens when it has said ``after`` lines."""
    command = [sys.executable, "-c", CALLER, str(directory), name]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout
        said = [process.stdout.readline() for _ in range(after)]
        process.kill()
        said += process.stdout.read().splitlines(keepends=True)
    return [line.decode().split() for line in said if line.endswith(b"\n")]


@pytest.mark.torture  # unit/audit: test_files.py cuts it anywhere, test_log.py has calls left open
@pytest.mark.parametrize(
    "rounds", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.torture)]
)
def test_killed_at_any_moment_and_torn(home: Path, rounds: int) -> None:
    directory = home / "audit"
    anchors: list[Anchor] = []
    torn = segments_seen = 0
    for seed in range(rounds):
        dice = random.Random(seed)
        said = killed(directory, str(seed), MOMENTS[seed % len(MOMENTS)](dice))
        begun = {words[1] for words in said if words[0] == "begun"}
        ended = {words[1]: Anchor(int(words[2]), words[3]) for words in said if words[0] == "ended"}
        anchors += ended.values()
        anchors += [Anchor(int(words[1]), words[2]) for words in said if words[0] == "open"]
        report = judged(directory, anchors)
        assert report.problems == [], (seed, report.problems)
        check_join(directory, seed, begun, ended)
        if dice.random() < 0.4 and (paths := segments(directory)):
            torn += 1
            tear(paths[-1], dice)
            report = judged(directory, [])
            assert report.problems == [], (seed, report.problems)
            anchors = [anchor for anchor in anchors if anchor.seq <= report.last_seq]
        segments_seen = len(segments(directory))
    assert torn
    said = killed(directory, "last", 100)
    assert judged(directory, anchors).problems == []
    assert segments_seen > 1
    # A recovery's own record may have been torn away, or its writer killed before it was written.
    assert len(list(directory.glob("*.torn.*"))) >= judged(directory, anchors).recoveries > 0
    AuditLog(directory).close()
    assert judged(directory, anchors).open_calls == 0
    found = list(records(lines(directory)))
    starts = [(record["seq"], record["call"]) for record in found if record["event"] == "tool.start"]
    assert starts == sorted((record["start"], record["call"]) for record in found if record["event"] == "tool.end")


def check_join(directory: Path, seed: int, begun: set[str], ended: dict[str, Anchor]) -> None:
    """One begin record for each call that went on, and one end record for each that was answered."""
    starts: list[str] = []
    ends: dict[str, list[int]] = {}
    for record in records(lines(directory)):
        if str(record.get("call", "")).startswith(f"{seed}."):
            if record["event"] == "tool.start":
                starts.append(record["call"])
            elif record["event"] == "tool.end":
                ends.setdefault(record["call"], []).append(record["seq"])
    assert len(starts) == len(set(starts))
    assert begun <= set(starts)
    assert {call: [anchor.seq] for call, anchor in ended.items()} == {call: ends.get(call) for call in ended}
    assert all(len(numbers) == 1 for numbers in ends.values())


def tear(path: Path, dice: random.Random) -> None:
    """What a power cut may leave of the newest segment."""
    size = path.stat().st_size
    kind = dice.randrange(3)
    if kind == 0:
        os.truncate(path, max(0, size - dice.randrange(1, 3000)))
    elif kind == 1:
        os.truncate(path, max(0, size - dice.randrange(1, 600)))
        os.truncate(path, path.stat().st_size + dice.randrange(1, 5000))
    else:
        with path.open("ab") as file:
            file.write(dice.randbytes(dice.randrange(1, 3000)).replace(b"\n", b""))
