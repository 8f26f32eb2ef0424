"""Who belongs to the client behind a relay, from process tables as real clients make them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ai_session.gate.consent.ancestry import ProcessAncestry

TERMINAL = 34816
"""A controlling terminal's number; 0 is none."""


class Table:
    """A process table: pid → parent, group, session, terminal, and what marks it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "self").mkdir()
        (folder / "self/stat").write_text("")
        self.add(1, 0, 1, 1)
        self.add(2, 1, 2, 2)  # systemd --user, a display server, a terminal program
        self.add(100, 2, 100, 100, TERMINAL)  # the person's shell

    @property
    def process_ancestry(self) -> ProcessAncestry:
        """As a daemon sees it whose HOME is /home/me."""
        return ProcessAncestry(Path("/home/me"), self.folder)

    def add(
        self,
        pid: int,
        parent: int,
        group: int,
        session: int,
        terminal: int = 0,
        environ: bytes = b"HOME=/home/me\0",
        line: str = "a",
        user: int = os.geteuid(),
    ) -> None:
        (self.folder / str(pid)).mkdir()
        rest = f"S {parent} {group} {session} {terminal}" + " 0" * 14 + f" {pid * 10} 0"
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a ) S 1 (b) {rest}")
        (self.folder / str(pid) / "environ").write_bytes(environ)
        (self.folder / str(pid) / "cmdline").write_bytes(line.replace(" ", "\0").encode() + b"\0")
        (self.folder / str(pid) / "status").write_text(f"Name:\ta\nUid:\t{user}\t{user}\t{user}\t{user}\nGid:\t0\n")

    def asking(self, pid: int) -> set[int]:
        return numbers(self.process_ancestry.asking(pid))

    def clients(self) -> set[int]:
        return numbers(self.process_ancestry.clients())


def numbers(identities: frozenset[str]) -> set[int]:
    return {int(identity.partition(":")[0]) for identity in identities}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def answering(process_ancestry: ProcessAncestry, pid: int | None) -> frozenset[str]:
    return frozenset(process.identity for process in process_ancestry.chain(pid))


def test_a_client_in_a_shell_is_its_relays_parent_and_the_shell_is_the_persons(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)  # claude
    table.add(201, 200, 200, 100, TERMINAL)  # its relay
    assert table.asking(201) == {201, 200}


def test_wrappers_in_the_clients_group_hide_nothing(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)
    table.add(201, 200, 200, 100, TERMINAL)  # npx
    table.add(202, 201, 200, 100, TERMINAL)  # sh -c
    table.add(203, 202, 200, 100, TERMINAL)
    assert table.asking(203) == {203, 202, 201, 200}


def test_a_server_in_a_group_of_its_own_belongs_to_who_made_the_group(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)  # codex
    table.add(201, 200, 201, 100, TERMINAL)  # uv
    table.add(202, 201, 201, 100, TERMINAL)
    assert table.asking(202) == {202, 201, 200}


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_server_in_a_session_of_its_own_belongs_to_who_made_it(table: Table, wrapped: bool) -> None:
    table.add(200, 100, 200, 100, TERMINAL)  # a program on the Python SDK
    table.add(201, 200, 201, 201)
    table.add(202, 201, 201, 201)
    assert table.asking(202 if wrapped else 201) == ({202, 201, 200} if wrapped else {201, 200})


def test_a_desktop_program_is_its_own_group_and_the_login_stays_the_persons(table: Table) -> None:
    table.add(300, 2, 300, 300)  # a desktop client started by systemd
    table.add(301, 300, 300, 300)  # one of its helpers
    table.add(302, 301, 300, 300)
    assert table.asking(302) == {302, 301, 300}


def test_a_client_that_leads_its_terminal_leaves_the_terminal_program_out(table: Table) -> None:
    table.add(300, 2, 300, 300, TERMINAL)  # terminal -- claude
    table.add(301, 300, 300, 300, TERMINAL)
    assert table.asking(301) == {301, 300}


@pytest.mark.parametrize(("more", "known"), [("", {201}), (" --no-auth", {201, 200})])
def test_whoever_started_a_front_that_others_sign_into_may_answer_them(
    table: Table, more: str, known: set[int]
) -> None:
    table.add(200, 100, 200, 100, TERMINAL)
    table.add(201, 200, 201, 100, TERMINAL, line=f"/usr/bin/python3 -m ai_session mcp-server --http{more}")
    assert table.asking(201) == known


def test_who_answers_is_a_process_with_all_its_ancestors(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)
    table.add(201, 200, 200, 100, TERMINAL)
    table.add(250, 200, 250, 250)  # the client's own shell tool
    table.add(251, 250, 250, 250)  # ai-session approve
    table.add(400, 2, 400, 400, TERMINAL)  # another window
    table.add(401, 400, 401, 400, TERMINAL)
    table.add(402, 100, 402, 100, TERMINAL)  # the client's window, the client stopped with ^Z
    process_ancestry = table.process_ancestry
    asking = process_ancestry.asking(201)
    assert asking & answering(process_ancestry, 251)
    assert not asking & answering(process_ancestry, 401)
    assert not asking & answering(process_ancestry, 402)
    assert (
        answering(process_ancestry, 999)
        == process_ancestry.asking(999)
        == process_ancestry.asking(None)
        == answering(process_ancestry, None)
        == set()
    )


def test_a_number_that_is_used_again_is_another_process(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)
    before = answering(table.process_ancestry, 200)
    stat = table.folder / "200/stat"
    stat.write_text(stat.read_text().replace(" 2000 0", " 2001 0"))
    assert before - answering(table.process_ancestry, 200) == {"200:2000"}


@pytest.mark.parametrize("environ", [b"AI_SESSION_ID=x\0A=b\0", b"A=b\0AI_SESSION_ID=x\0"])
def test_what_a_session_started_is_known_by_any_ancestors_mark(table: Table, environ: bytes) -> None:
    table.add(500, 1, 500, 500, TERMINAL, environ)
    table.add(501, 500, 501, 500, TERMINAL, b"PATH=/bin\0")  # env -i
    table.add(502, 100, 502, 100, TERMINAL, b"NOT_AI_SESSION_ID=x\0")
    process_ancestry = table.process_ancestry
    marked = process_ancestry.first_in_session(process_ancestry.chain(501))
    assert marked
    assert marked.pid == 500
    assert process_ancestry.first_in_session(process_ancestry.chain(502)) is None
    assert process_ancestry.first_in_session(process_ancestry.chain(None)) is None


def test_a_table_that_goes_round_ends(table: Table) -> None:
    table.add(600, 601, 600, 600)
    table.add(601, 600, 601, 601)
    assert len(answering(table.process_ancestry, 600)) == 2


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    process_ancestry = ProcessAncestry(tmp_path, tmp_path / "none")
    assert not process_ancestry.known
    assert process_ancestry.asking(os.getpid()) == answering(process_ancestry, os.getpid()) == frozenset()
    assert process_ancestry.first_in_session(process_ancestry.chain(os.getpid())) is None


def test_this_machine_tells() -> None:
    process_ancestry = ProcessAncestry(Path.home())
    assert process_ancestry.known
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            mine = answering(process_ancestry, os.getpid())
            assert mine < answering(process_ancestry, child.pid)
            assert any(identity.startswith(f"{os.getpid()}:") for identity in process_ancestry.asking(child.pid))
        finally:
            child.kill()


def test_every_client_with_a_relay_is_known_and_nobody_else(table: Table) -> None:
    table.add(200, 100, 200, 100, TERMINAL)  # claude
    table.add(201, 200, 200, 100, TERMINAL, line="/usr/bin/python3 -m ai_session mcp-server --stdio")
    table.add(300, 2, 300, 300)  # a desktop client
    table.add(301, 300, 301, 301, line="/opt/bin/python /home/me/.local/bin/ai-session mcp-server")
    table.add(400, 100, 400, 100, TERMINAL, line="other-thing mcp-server --stdio")
    table.add(401, 100, 401, 100, TERMINAL, line="/usr/bin/python3 -m ai_session policy mode trusted")
    assert table.clients() == {200, 201, 300, 301}
    assert ProcessAncestry(Path("/home/me"), table.folder / "nothing").clients() == frozenset()


RELAY = "/usr/bin/python3 -m ai_session mcp-server --stdio"


def test_clients_of_other_daemons_are_none_of_this_one(table: Table) -> None:
    table.add(201, 200, 200, 100, environ=b"HOME=/tmp/other\0", line=RELAY)
    table.add(301, 300, 300, 300, user=os.geteuid() + 1, line=RELAY)
    (table.folder / "301/environ").unlink()  # which only its own user and root may read
    table.add(401, 400, 400, 400, environ=b"A=b\0", line=RELAY)
    assert table.clients() == set()


def test_who_hides_where_a_relay_leads_gains_nothing(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("homes") / "me"
    link.symlink_to("/home/me")
    table.add(201, 200, 200, 100, environ=b"XHOME=/tmp\0HOME=" + bytes(link) + b"\0HOME=/tmp\0", line=RELAY)
    table.add(301, 300, 300, 300, line=RELAY)
    (table.folder / "301/environ").unlink()
    table.add(401, 400, 400, 400, line=RELAY)
    (table.folder / "401/status").unlink()
    assert table.clients() == {201, 301, 401}
