"""The verbs about the audit log, on what a real daemon recorded."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.command_line import CommandLine

LOG = Path(".local/state/ai-session/audit")
MEMORY = Path(".local/share/ai-session/audit-anchor.json")


@pytest.fixture(scope="module")
def recorded(homes: Path) -> Path:
    """The home of a daemon that has ended: one session ran two commands."""
    home = Path(tempfile.mkdtemp(prefix="", dir=homes))
    with CommandLine(home, HOME=str(home)) as line:
        line.run("new", "build", "--profile", "trusted")
        line.run("exec", "build", "--", "echo", "hello")
        line.run("exec", "build", "--", "sh -c 'exit 3'", code=3)
    return home


@pytest.fixture
def cli(home: Path, recorded: Path) -> CommandLine:
    """The verbs beside a copy of what was recorded."""
    state = LOG.parent
    (home / state).mkdir(mode=0o700, parents=True)
    shutil.copytree(recorded / LOG, home / LOG)
    shutil.copy2(recorded / state / "audit.key", home / state)
    return CommandLine(home)


def judged(cli: CommandLine, *words: str, code: int = 0) -> dict[str, Any]:
    return json.loads(cli.run("audit", "verify", "--json", *words, code=code).stdout)


def test_every_call_has_its_two_records(cli: CommandLine) -> None:
    records = json.loads(cli.out("audit", "tail", "-n", "1000", "--json"))
    begins = {r["seq"]: r for r in records if r["event"] == "tool.start"}
    ends = {r["start"]: r for r in records if r["event"] == "tool.end"}
    assert begins.keys() == ends.keys()
    assert len([r for r in records if r["event"] == "tool.end"]) == len(ends)
    commands = [seq for seq, r in begins.items() if r["tool"] == "execute_command"]
    assert [ends[seq]["outcome"] for seq in commands] == ["ok", "ok"]
    assert begins[commands[0]]["args"]["command"]["text"] == "echo hello"
    assert begins[commands[0]]["actor"]["kind"] == "person"
    call = begins[commands[0]]["call"]
    shown = json.loads(cli.out("audit", "show", call, "--json"))
    assert shown == [begins[commands[0]], ends[commands[0]]]
    assert json.loads(cli.out("audit", "show", str(commands[0]), "--json")) == [begins[commands[0]]]
    assert f"call\t{call}\n" in cli.out("audit", "show", call)
    row = cli.out("audit", "tail").splitlines()
    assert len(row) == min(20, len(records))
    assert any("execute_command echo hello" in line for line in row)


def test_a_sound_log_is_remembered_and_a_cut_one_found(cli: CommandLine) -> None:
    first = judged(cli)
    assert (first["sound"], first["problems"], first["open_calls"]) == (True, [], 0)
    assert json.loads((cli.home / MEMORY).read_text())["head"] == first["head"]
    assert (cli.home / MEMORY).stat().st_mode & 0o777 == 0o600
    assert judged(cli)["anchored_seq"] == first["last_seq"]
    assert "verdict\tsound" in cli.out("audit", "verify")
    (path,) = (cli.home / LOG).glob("audit-*.jsonl")
    data = path.read_bytes()
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:-3]))
    assert "its tail was cut" in judged(cli, code=1)["problems"][0]["what"]
    reported = cli.run("audit", "verify", code=1)
    assert "its tail was cut" in reported.stderr
    assert f"rm {cli.home / MEMORY}" in reported.stderr
    path.unlink()
    assert "is gone" in json.loads(cli.run("audit", "verify", "--json", code=1).stdout)["error"]["message"]
    (cli.home / MEMORY).unlink()
    assert "no audit log" in json.loads(cli.run("audit", "verify", "--json", code=3).stdout)["error"]["message"]
    assert "no audit log" in cli.run("audit", "tail", code=3).stderr


def test_a_log_that_cannot_be_remembered_is_judged_all_the_same(cli: CommandLine) -> None:
    memory = (cli.home / MEMORY).parent
    memory.parent.mkdir(parents=True, exist_ok=True)
    memory.symlink_to("nowhere")
    reported = cli.run("audit", "verify")
    assert "verdict\tsound" in reported.stdout
    assert reported.stderr.startswith("not saved for the next check: ")


def test_an_anchor_from_outside(cli: CommandLine) -> None:
    (newest,) = json.loads(cli.out("audit", "tail", "-n", "1", "--json"))
    assert judged(cli, "--anchor", f"{newest['seq']}:{newest['hash']}")["anchored_seq"] == newest["seq"]
    assert judged(cli, "--anchor", f"{newest['seq']}:{'0' * 64}", code=1)["sound"] is False
    assert judged(cli, "--anchor", f"{newest['seq'] + 1}:{'0' * 64}", code=1)["sound"] is False
    assert "is not an anchor" in cli.run("audit", "verify", "--anchor", "7", code=2).stderr


def test_a_copy_is_judged_where_it_is(cli: CommandLine) -> None:
    shutil.copytree(cli.home / LOG, cli.home / "copy")
    report = judged(cli, "--directory", "copy")
    assert report["sound"]
    assert not (cli.home / MEMORY).exists()
    (path,) = (cli.home / "copy").glob("audit-*.jsonl")
    path.write_bytes(path.read_bytes().replace(b"echo hello", b"echo hullo"))
    assert judged(cli, "--directory", "copy", code=1)["problems"][0]["location"].startswith("audit-000001.jsonl:")


def test_an_export_of_records_is_the_log_itself(cli: CommandLine) -> None:
    (path,) = (cli.home / LOG).glob("audit-*.jsonl")
    assert cli.out("audit", "export") == path.read_text()
    assert cli.out("audit", "export", "--since", "3") == "".join(path.read_text().splitlines(keepends=True)[2:])


def test_ocsf(cli: CommandLine) -> None:
    events = [json.loads(line) for line in cli.out("audit", "export", "--format", "ocsf").splitlines()]
    for event in events:
        assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
        assert event["category_uid"] == event["class_uid"] // 1000
        assert {"metadata", "severity_id", "time", "actor", "device"} <= event.keys()
        assert event["metadata"]["version"] == "1.6.0"
    first, second = (event for event in events if event["class_uid"] == 1007)
    assert (first["process"]["cmd_line"], first["status_id"], first["exit_code"]) == ("echo hello", 1, 0)
    assert second["exit_code"] == 3
    assert "create_session" in {event["api"]["operation"] for event in events if event["class_uid"] == 6003}


def test_opentelemetry(cli: CommandLine) -> None:
    documents = [json.loads(line) for line in cli.out("audit", "export", "--format", "otel").splitlines()]
    spans = [d["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for d in documents if "resourceSpans" in d]
    logs = [d["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0] for d in documents if "resourceLogs" in d]
    assert len(spans) + len(logs) == len(documents)
    assert "audit.open" in {log["eventName"] for log in logs}
    for span in spans:
        assert (len(span["traceId"]), len(span["spanId"])) == (32, 16)
        assert int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"])
    commands = [span for span in spans if span["name"] == "execute_command"]
    facts = {fact["key"]: fact["value"] for fact in commands[1]["attributes"]}
    assert facts["gen_ai.tool.name"] == {"stringValue": "execute_command"}
    assert facts["process.exit.code"] == {"intValue": "3"}
