"""What ``exec`` says of a command besides its output."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from ai_session.cli.commands import Run
from ai_session.client.connection import ControlClient, error_from
from ai_session.errors import AiSessionError, UnknownTool


def said(capsys: pytest.CaptureFixture[str], **facts: Any) -> str:
    """Standard error, where a command of session ``q`` ended so."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"{}\n")
        run = Run(ControlClient(ours), "q", None, quiet=False)
        run.show_notes({"status": "finished", "exit_code": 3, **facts})
    return capsys.readouterr().err


def test_a_session_that_ended_with_the_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    ending = "[session q has ended: exit status 3; ai-session new q opens it again]\n"
    note = "the session's shell has ended (exit status 3)"
    assert said(capsys, note=note) == ending
    assert said(capsys, note=f"x; {note}: create_session with its name starts it again") == ending
    assert said(capsys, note=note, status="running") == ""


def test_a_line_that_somebody_had_begun_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        said(capsys, note="the half-typed line 'rm -r' was dropped; y")
        == "warning: the half-typed line 'rm -r' was dropped\n"
    )


def test_other_notes_are_for_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, note="5 bytes omitted from the middle") == ""
    assert said(capsys) == ""


def test_an_error_that_was_sent_is_one_of_this_package_whatever_errors_the_process_has_besides() -> None:
    class UnknownToolOfOthers(AiSessionError):
        code = UnknownTool.code

    error = error_from({"code": UnknownTool.code, "message": "no such tool", "suggestion": "list them"})
    assert (type(error), error.message, error.suggestion) == (UnknownTool, "no such tool", "list them")
    assert UnknownToolOfOthers.code == error.code
    newer = error_from({"code": "of_a_newer_daemon"})
    assert (type(newer), newer.code) == (AiSessionError, "of_a_newer_daemon")
