"""The command line as typer runs it: help, the shells' completion, mistakes, and verbs with rare kinds of options."""

from __future__ import annotations

import re
import shlex
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]
from typer.core import TyperGroup

from agentwire.cli.output import leave
from agentwire.cli.parser import add
from agentwire.cli.usage import in_order
from ai_session import __version__
from ai_session.cli import quick
from ai_session.cli.output import EXIT_CODES, EXIT_INTERRUPTED, report, write_text
from ai_session.cli.verbs import SECTIONS, VERBS
from ai_session.errors import InvalidArguments

ClickException: Any = typer.BadParameter.__mro__[2]


class Sections(TyperGroup):
    """The program: its help has the verbs under the headings of SECTIONS."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See TyperGroup."""
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(1000)) for name in verbs if name in self.commands]
                )


def print_version(wanted: bool) -> None:
    """What --version does."""
    if wanted:
        write_text(__version__ + "\n")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Options before any verb."""


def program(only: str = "") -> typer.Typer:
    """All verbs, or one of them where there is one of that name: what all take to be made is most of a verb's time."""
    app = typer.Typer(
        cls=Sections,
        help="Real, persistent terminals that people and AI agents share.",
        epilog=EXIT_CODES,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,  # its tables cost 60 ms
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for name in [only] if only in VERBS else VERBS:
        add(app, name, VERBS[name]())
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
        code = _report_usage(error, "--json" in words[: words.index("--") if "--" in words else None])
    except typer.Abort:
        code = EXIT_INTERRUPTED
    leave(code or 0)


NO_COMMAND = re.compile(r"No such command '([\w-]+)'")
INSTEAD = {
    "create": "ai-session new NAME",
    "list": "ai-session ls",
    "start": "ai-session new NAME",
    "stop": "ai-session kill NAME",
    "status": "ai-session ls",
    "run": "ai-session exec NAME -- COMMAND",
    "context": "ai-session logs NAME shows what was printed, ai-session info NAME how it is",
    "interactive": "ai-session attach NAME",
    "migrate": "ai-session new NAME in each of tmux's directories: their programs cannot be taken over",
    "batch": "ai-session exec NAME COMMAND for each",
    "remote": "ai-session mcp-server --http",
    "claude-chat": "ai-session mcp install --client claude-code, then claude",
    "claude-start": "ai-session mcp install --client claude-code, then claude",
    "claude-resume": "ai-session mcp install --client claude-code, then claude",
    "tui": "ai-session attach NAME",
    "setup": "ai-session mcp install --client claude-code",
    "help": "ai-session --help",
    "version": "ai-session --version",
}
"""Verbs of the program that had this name before, and of its like: what does it here."""


def _report_usage(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        write_text(f"{error.format_message()}\n")
        return 0
    if line := _meant(error):
        misplaced = InvalidArguments(f"option {error.option_name} stands before its verb", suggestion=line)
        return report(misplaced, as_json=as_json)
    first = not error.ctx or error.ctx is error.ctx.find_root()
    if first and (found := NO_COMMAND.match(error.format_message())) and found[1] in INSTEAD:
        gone = InvalidArguments(f"there is no verb {found[1]!r} here", suggestion=INSTEAD[found[1]])
        return report(gone, as_json=as_json)
    place = error.ctx.command_path if getattr(error, "ctx", None) else "ai-session"
    message: str = error.format_message()
    wrong = InvalidArguments(message[0].lower() + message[1:], suggestion=f"{place} --help")
    return report(wrong, as_json=as_json)


def _meant(error: Any) -> str:
    """The command line with its options behind the verb, where one was not known since it stands before it."""
    if type(error).__name__ != "NoSuchOption" or not error.ctx:
        return ""
    words = in_order(error.ctx.find_root().command, sys.argv[1:])
    return shlex.join(("ai-session", *words)) if words else ""
