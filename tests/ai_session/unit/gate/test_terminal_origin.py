"""Where terminals come from, told from process tables as logins, containers and agents make them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai_session.gate.consent.ancestry import ProcessAncestry
from ai_session.gate.consent.terminal_origin import Finding, Origin, Terminals

CONSOLE = os.makedev(4, 1)
WINDOW = os.makedev(136, 7)
ME = os.geteuid() or 1000
VERB = 900


class Table:
    """A process table: pid → name, parent, session, terminal; each leads its group, which is in the foreground."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "proc"
        (self.folder / "self").mkdir(parents=True)
        (self.folder / "self/stat").write_text("")
        self.program = folder / "terminal"
        self.program.write_text("")
        self.add(1, "systemd", 0, 1, user=0)
        self.add(2, "systemd", 1, 2)

    def add(
        self,
        pid: int,
        name: str,
        parent: int,
        session: int,
        terminal: int = 0,
        *,
        user: int = ME,
        started: int = 0,
        line: str = "a",
        environ: bytes = b"",
        front: bool = True,
        program: Path | None = None,
    ) -> None:
        process = self.folder / str(pid)
        (process / "fd").mkdir(parents=True, exist_ok=True)
        foreground = pid if front else 1
        rest = f"S {parent} {pid} {session} {terminal} {foreground}" + " 0" * 13 + f" {started or pid * 10} 0"
        (process / "stat").write_text(f"{pid} ({name}) {rest}")
        (process / "environ").write_bytes(environ)
        (process / "cmdline").write_bytes(line.replace(" ", "\0").encode() + b"\0")
        (process / "status").write_text(f"Name:\ta\nUid:\t{user}\t{user}\t{user}\t{user}\nGid:\t0\n")
        (process / "mountinfo").write_text("25 20 0:24 / /dev/pts rw - devpts devpts rw\n")
        if program:
            (process / "exe").symlink_to(program)

    def holds(self, pid: int, number: int) -> None:
        """``pid`` has the other side of that terminal open."""
        (self.folder / str(pid) / "fd/3").symlink_to("/dev/ptmx")
        (self.folder / str(pid) / "fdinfo").mkdir()
        (self.folder / str(pid) / "fdinfo/3").write_text(f"pos:\t0\ntty-index:\t{number}\n")

    def find(self, pid: int | None = VERB, identity: str = "") -> Finding:
        process_ancestry = ProcessAncestry(Path("/home/me"), self.folder)
        return Terminals(process_ancestry, [str(self.program)]).find(pid, identity)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def window(table: Table) -> None:
    """A terminal program with a shell in it."""
    table.add(50, "terminal", 2, 50, program=table.program)
    table.add(51, "bash", 50, 51, WINDOW)
    table.holds(50, 7)


def test_a_login_at_a_console_is_local_where_root_runs_it(table: Table) -> None:
    table.add(40, "login", 1, 40, CONSOLE, user=0)
    table.add(41, "bash", 40, 41, CONSOLE)
    table.add(VERB, "python", 41, 41, CONSOLE)
    assert table.find().origin is Origin.LOCAL
    table.add(40, "login", 1, 40, CONSOLE, user=ME)
    assert table.find().origin is Origin.DETACHED


def test_a_window_is_local_by_its_program_and_not_by_its_name(table: Table) -> None:
    window(table)
    table.add(VERB, "python", 51, 51, WINDOW)
    assert table.find().origin is Origin.LOCAL
    (table.folder / "50/exe").unlink()
    table.add(50, "gnome-terminal-", 2, 50, program=table.folder / "self/stat")
    found = table.find()
    assert found.origin is Origin.DETACHED
    assert "held by gnome-terminal- (pid 50), which is not a known terminal program" in found.why


@pytest.mark.parametrize("name", ["sshd", "sshd-session", "dropbear", "mosh-server", "ttyd", "containerd-shim"])
def test_what_lets_people_in_from_elsewhere_is_remote(table: Table, name: str) -> None:
    table.add(30, name, 1, 30, user=0)
    table.add(31, "bash", 30, 31, WINDOW)
    table.add(VERB, "python", 31, 31, WINDOW)
    assert table.find().origin is Origin.REMOTE
    table.add(30, name, 1, 30, user=ME)
    assert table.find().origin is Origin.DETACHED


def test_what_sshd_hands_on_to_a_user_is_remote_and_what_calls_itself_so_is_not(table: Table) -> None:
    table.add(29, "sshd", 1, 29, user=0)
    table.add(30, "sshd", 29, 29)
    table.holds(30, 7)
    table.add(31, "bash", 30, 31, WINDOW)
    table.add(VERB, "python", 31, 31, WINDOW)
    assert table.find().origin is Origin.REMOTE
    table.add(29, "systemd", 1, 29, user=0)
    found = table.find()
    assert (found.origin, "held by sshd" in found.why) == (Origin.DETACHED, True)


def test_what_was_put_into_a_container_from_outside_is_remote(table: Table) -> None:
    table.add(30, "bash", 0, 30, WINDOW)
    table.add(VERB, "python", 30, 30, WINDOW)
    assert table.find().origin is Origin.REMOTE


@pytest.mark.parametrize("name", ["cron", "atd", "systemd-run", "bash"])
def test_what_has_no_terminal_or_made_its_own_is_nobodys(table: Table, name: str) -> None:
    table.add(30, name, 1, 30)
    table.add(VERB, "python", 30, 30)
    assert table.find().origin is Origin.NONE
    table.add(31, "sh", 30, 31, WINDOW)
    table.add(VERB, "python", 31, 31, WINDOW)
    assert table.find().origin is Origin.DETACHED


def test_what_a_program_types_into_a_terminal_of_its_own_is_not_its_persons(table: Table) -> None:
    window(table)
    table.add(60, "agent", 51, 51, WINDOW)
    table.add(61, "bash", 60, 61, os.makedev(136, 8))
    table.holds(60, 8)
    table.add(VERB, "python", 61, 61, os.makedev(136, 8))
    assert table.find().origin is Origin.DETACHED


def test_clients_sessions_the_background_and_orphans_in_a_window_are_refused(table: Table) -> None:
    window(table)
    table.add(60, "agent", 51, 51, WINDOW)
    table.add(VERB, "python", 60, 51, WINDOW)
    assert table.find().origin is Origin.LOCAL  # nothing says yet that it is an agent
    table.add(
        61,
        "relay",
        60,
        51,
        WINDOW,
        line="python -m ai_session mcp-server",
        environ=b"HOME=/home/me\0",
        user=os.geteuid(),
    )
    assert table.find().origin is Origin.AGENT
    table.add(62, "sh", 51, 51, WINDOW, environ=b"AI_SESSION_ID=x\0")
    table.add(VERB, "python", 62, 51, WINDOW)
    assert table.find().origin is Origin.AGENT
    table.add(VERB, "python", 51, 51, WINDOW, front=False)
    assert "in the background" in table.find().why
    table.add(VERB, "python", 2, 51, WINDOW)
    assert "its parents are gone" in table.find().why


def test_what_hides_itself_is_nobodys(table: Table) -> None:
    window(table)
    table.add(VERB, "python", 51, 51, WINDOW)
    (table.folder / f"{VERB}/mountinfo").unlink()
    assert table.find().origin is Origin.DETACHED


def test_a_number_used_again_is_not_the_process_that_connected(table: Table) -> None:
    window(table)
    table.add(VERB, "python", 51, 51, WINDOW)
    assert table.find(identity=f"{VERB}:{VERB * 10}").origin is Origin.LOCAL
    for pid, identity in ((VERB, f"{VERB}:1"), (None, ""), (999, "")):
        assert table.find(pid, identity) == Finding(Origin.NONE, "nothing is known about the process that answers")


def test_a_name_cannot_write_into_a_message(table: Table) -> None:
    table.add(VERB, "a\x1b[2J", 2, VERB)
    assert table.find().why == f"a?[2J (pid {VERB}) has no terminal, so no person can have typed in it"
