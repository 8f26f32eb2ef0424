"""The command line as typer runs it: help, the shells' completion, wrong lines, and verbs with rare options."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]
from typer.core import TyperGroup

from agentwire.cli import parser
from agentwire.cli.ending import wants_json
from agentwire.cli.output import EXIT_INTERRUPTED, leave
from agentwire.cli.parser import ClickException
from agentwire.cli.usage import meant
from ai_session import __version__
from ai_session.cli import quick
from ai_session.cli.output import EXIT_CODES, report, write_text
from ai_session.cli.verbs import SECTIONS, VERBS
from ai_session.errors import InvalidArguments


class Sections(TyperGroup):
    """The program, whose help shows the verbs under the headings of SECTIONS."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(1000)) for name in verbs if name in self.commands]
                )


def program(only: str = "") -> typer.Typer:
    """Return the program with all verbs, or only with the verb ``only``: creating all takes most of a verb's time."""
    app = parser.program(
        Sections, __version__, help="Real, persistent terminals that people and AI agents share.", epilog=EXIT_CODES
    )
    for name in [only] if only in VERBS else VERBS:
        parser.add(app, name, VERBS[name]())
    return app


def main() -> NoReturn:
    """Run the verb in ``sys.argv`` and exit with its code."""
    words = sys.argv[1:]
    completion_init()
    quick.end(lambda: _run(words), words)


def _run(words: list[str]) -> None:
    try:
        code = program(words[0] if words else "")(args=words, prog_name="ai-session", standalone_mode=False)
    except ClickException as error:
        code = _report_usage(error, wants_json(words))
    except typer.Abort:
        code = EXIT_INTERRUPTED
    leave(code or 0)


NEW = "ai-session new NAME"
ATTACH = "ai-session attach NAME"
LIST = "ai-session ls"
KILL = "ai-session kill NAME"
CLIENT = "ai-session mcp install --client claude-code"
SEEN = "ai-session screen NAME shows the terminal, ai-session logs NAME all that was printed"
SETTINGS = "ai-session config path names the file to edit; ai-session config show prints the values in force"
INSTEAD = {
    **dict.fromkeys(("create", "start", "spawn", "up", "open-session", "new-session", "newsession"), NEW),
    **dict.fromkeys(("new-window", "neww", "split-window", "-S", "-d", "-s"), NEW),
    **dict.fromkeys(("a", "at", "attach-session", "connect", "join", "open", "resume", "reattach", "enter"), ATTACH),
    **dict.fromkeys(("interactive", "watch", "shell", "ssh", "-r", "-x", "-R", "-a"), ATTACH),
    **dict.fromkeys(("list", "status", "ps", "sessions", "list-sessions", "-ls", "-l", "--list", "-list"), LIST),
    **dict.fromkeys(("stop", "kill-session", "rm", "remove", "delete", "close", "destroy", "end", "down"), KILL),
    **dict.fromkeys(("terminate", "exit", "quit"), KILL),
    **dict.fromkeys(("kill-server", "shutdown", "daemon kill"), "ai-session daemon stop"),
    **dict.fromkeys(("restart",), "ai-session daemon restart"),
    **dict.fromkeys(("detach", "d"), "ctrl-] detaches from a session, which keeps running"),
    **dict.fromkeys(("run", "do"), "ai-session exec NAME -- COMMAND"),
    "batch": "ai-session exec NAME COMMAND for each",
    **dict.fromkeys(("send-keys", "type", "write", "paste"), "ai-session send NAME TEXT"),
    **dict.fromkeys(("context",), "ai-session logs NAME shows its output, ai-session info NAME its state"),
    **dict.fromkeys(("capture-pane", "show", "cat", "output", "history", "tail"), SEEN),
    **dict.fromkeys(("has-session", "inspect", "describe"), "ai-session info NAME"),
    **dict.fromkeys(("rename-session", "mv"), "ai-session rename NAME NEW"),
    "migrate": "ai-session new NAME in each of tmux's directories: their programs cannot be taken over",
    "clone": "git clone, then ai-session new NAME -C DIRECTORY",
    **dict.fromkeys(("remote",), "ai-session mcp-server --http"),
    **dict.fromkeys(
        ("server", "stdio"), "ai-session mcp-server --stdio, which a client starts: ai-session mcp install"
    ),
    **dict.fromkeys(("setup", "init", "install", "login", "add", "mcp add"), CLIENT),
    **dict.fromkeys(("mcp list", "mcp ls"), "ai-session mcp status"),
    **dict.fromkeys(("mcp remove", "uninstall"), "ai-session mcp uninstall --client claude-code"),
    **dict.fromkeys(("mcp serve", "mcp start", "mcp run"), "ai-session mcp-server --stdio"),
    **dict.fromkeys(("claude-chat", "claude-start", "claude-resume"), f"{CLIENT}, then claude"),
    **dict.fromkeys(("web", "ui", "gui", "dashboard"), "ai-session console"),
    **dict.fromkeys(("tui", "monitor", "htop"), "ai-session top"),
    **dict.fromkeys(("accept", "allow", "yes"), "ai-session approve ID; ai-session approvals lists what waits"),
    **dict.fromkeys(("deny", "no"), "ai-session reject ID; ai-session approvals lists what waits"),
    **dict.fromkeys(("audit log", "audit list", "audit ls"), "ai-session audit tail"),
    **dict.fromkeys(("settings", "config set", "config get", "config edit", "config list"), SETTINGS),
    **dict.fromkeys(("man", "manual", "documentation", "readme", "tutorial"), "ai-session docs"),
    **dict.fromkeys(("update", "upgrade"), "ai-session docs upgrading"),
    **dict.fromkeys(("new --name", "new -n", "new -s", "new -d", "new --detach"), NEW),
    "attach -t": ATTACH,
    "kill -t": KILL,
    **dict.fromkeys(("ls -l", "ls -a", "ls --all"), LIST),
    **dict.fromkeys(("exec -i", "exec --name", "exec -c"), "ai-session exec NAME -- COMMAND"),
    **dict.fromkeys(("help", "-?"), "ai-session --help"),
    **dict.fromkeys(("version", "-v", "-V"), "ai-session --version"),
}
"""Verbs and first options of this program's predecessor, of tmux, screen and docker, with what does the same here."""


def _report_usage(error: Any, as_json: bool) -> int:
    from agentwire.cli.corrections import corrected

    if type(error).__name__ == "NoArgsIsHelpError":
        write_text(f"{error.format_message()}\n")
        return 0
    if line := meant(error, sys.argv[1:], "ai-session"):
        misplaced = InvalidArguments(f"option {error.option_name} must come after its verb", suggestion=line)
        return report(misplaced, as_json=as_json)
    if better := corrected(error, sys.argv[1:], "ai-session", INSTEAD):
        return report(InvalidArguments(better[0], suggestion=better[1]), as_json=as_json)
    command = error.ctx.command_path if getattr(error, "ctx", None) else "ai-session"
    message: str = error.format_message()
    wrong = InvalidArguments(message[0].lower() + message[1:], suggestion=f"{command} --help")
    return report(wrong, as_json=as_json)
