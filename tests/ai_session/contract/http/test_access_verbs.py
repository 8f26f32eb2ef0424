"""The verbs about who may sign in, beside a front that is running."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from ai_session.http.oauth.store import FILE
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.oauth_servers import (
    BASE,
    PASSWORD,
    Browser,
    Clock,
    Pkce,
    add_person,
    granted,
    opened,
    request_for,
)

STATE = Path(".local/state/ai-session")


@pytest.fixture
def cli(home: Path) -> CommandLine:
    return CommandLine(home)


def listed(cli: CommandLine, what: str) -> Any:
    return json.loads(cli.out("http", what, "list", "--json"))


def test_people_come_and_go(cli: CommandLine) -> None:
    cli.run("http", "user", "add", "bob", "--scope", "sessions:read,admin", input=f"{PASSWORD}\n")
    assert [(row["name"], row["scopes"]) for row in listed(cli, "users")] == [("bob", ["sessions:read", "admin"])]
    assert cli.out("http", "users", "list").splitlines()[0].split("\t")[:2] == ["bob", "sessions:read admin"]
    assert "user bob exists already" in cli.run("http", "user", "add", "bob", input=f"{PASSWORD}\n", code=2).stderr
    cli.run("http", "users", "revoke", "bob")
    assert "no user 'bob'" in cli.run("http", "users", "revoke", "bob", code=3).stderr
    assert PASSWORD.encode() not in (cli.home / STATE / FILE).read_bytes()


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["user", "add", "alice"], "too short\n"),
        (["user", "add", "alice"], ""),
        (["user", "add", "Alice"], f"{PASSWORD}\n"),
        (["user", "add", "a/b"], f"{PASSWORD}\n"),
        (["user", "add", "alice", "--scope", "root"], f"{PASSWORD}\n"),
        (["client", "add", "ci", "--scope", "sessions:reads"], ""),
        (["client", "add", "a\nb"], ""),
        (["tokens", "revoke"], ""),
        (["tokens", "revoke", "g_1", "--all"], ""),
    ],
)
def test_what_is_not_taken(cli: CommandLine, words: list[str], given: str) -> None:
    answer = cli.run("http", *words, "--json", input=given, code=2)
    assert json.loads(answer.stdout)["error"]["suggestion"]


def test_a_person_types_the_password_twice_unseen(cli: CommandLine) -> None:
    person = cli.spawn("http", "user", "add", "alice")
    # The last blank comes when the terminal no longer shows what is typed; what came before that is thrown away.
    person.expect("Password: ")
    person.sendline(PASSWORD)
    person.expect("confirmation: ")
    person.sendline(PASSWORD)
    person.expect("alice may sign in")
    assert person.wait() == 0
    assert PASSWORD not in str(person.before)
    assert [(row["name"], row["scopes"]) for row in listed(cli, "users")] == [
        ("alice", ["sessions:read", "sessions:write", "sessions:execute"])
    ]


def test_machines(cli: CommandLine) -> None:
    made = json.loads(cli.out("http", "client", "add", "ci", "--scope", "sessions:read", "--json"))
    assert made["scopes"] == ["sessions:read"]
    row = listed(cli, "clients")[0]
    assert (row["client_id"], row["name"], row["kind"]) == (made["client_id"], "ci", "machine")
    assert made["client_secret"] not in json.dumps(row)
    assert "client ci exists already" in cli.run("http", "client", "add", "ci", code=2).stderr
    cli.run("http", "clients", "revoke", "ci")
    assert listed(cli, "clients") == []
    cli.run("http", "clients", "revoke", "ci", code=3)


@pytest.mark.anyio
async def test_what_was_granted_is_shown_and_ended(cli: CommandLine) -> None:
    state = cli.home / STATE
    state.mkdir(parents=True, mode=0o700)

    async def verb(*words: str, **options: Any) -> str:
        return await asyncio.to_thread(cli.out, "http", *words, **options)

    async with opened(state, clock=Clock(time.time())) as front:
        await add_person(front)
        (client, first), (_, second) = await granted(front), await granted(front)
        rows = json.loads(await verb("tokens", "list", "--json"))
        facts = ("subject", "client", "resource")
        assert [[row[fact] for fact in facts] for row in rows] == [["alice", "Probe", f"{BASE}/mcp"]] * 2
        await verb("tokens", "revoke", rows[0]["id"])
        assert (await front.holds(first["access_token"]), await front.holds(second["access_token"])) == (False, True)
        await verb("tokens", "revoke", "--all")
        assert not await front.holds(second["access_token"])

        _, third = await granted(front)
        await verb("clients", "revoke", client["client_id"])
        async with front.client() as http:
            assert (await http.get(request_for(client["client_id"], Pkce()))).status_code == 400
        assert await front.holds(third["access_token"])
        await verb("users", "revoke", "alice")
        assert not await front.holds(third["access_token"])
        async with Browser(front) as browser:
            other = await front.register()
            page = await browser.http.get(request_for(other["client_id"], Pkce()))
            assert front.said, "with nobody left, the terminal's code is the way in again"
            assert page.status_code == 200


@pytest.mark.parametrize("spoilt", ["mode", "rubbish", "newer", "link"])
def test_a_store_that_cannot_be_used(cli: CommandLine, spoilt: str) -> None:
    cli.run("http", "users", "list")
    file = cli.home / STATE / FILE
    if spoilt == "mode":
        file.chmod(0o640)
    elif spoilt == "rubbish":
        file.write_bytes(b"not a database, but as long as one has to be" * 40)
    elif spoilt == "newer":
        with sqlite3.connect(file) as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
    else:
        file.rename(cli.home / "elsewhere")
        file.symlink_to(cli.home / "elsewhere")
    answer = cli.run("http", "users", "list", code=4 if spoilt == "mode" else 1)
    assert "hint:" in answer.stderr
    assert "Traceback" not in answer.stderr
