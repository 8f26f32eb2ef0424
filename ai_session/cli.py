"""The command line: every verb, the shells' completion, and how a failure is told."""

from __future__ import annotations

import copy
import os
import sys
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.completion import completion_init, get_completion_script  # pyright: ignore[reportPrivateImportUsage]

from ai_session import (
    __version__,
    cli_audit,
    cli_config,
    cli_daemon,
    cli_http_access,
    cli_install,
    cli_person,
    cli_policy,
    cli_record,
    relay,
)
from ai_session.cli_approvals import approvals, approve, reject
from ai_session.cli_attach import attach
from ai_session.cli_commands import exec_, logs, screen, send
from ai_session.cli_doctor import doctor
from ai_session.cli_output import EXIT_CODES, EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, leave, report, write_text
from ai_session.cli_sandbox import sandbox
from ai_session.cli_serve import serve
from ai_session.cli_sessions import info, interrupt, kill, ls, new, rename, share
from ai_session.cli_token import token
from ai_session.errors import AiSessionError, InvalidArguments

ClickException: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    help="Real, persistent terminals that people and AI agents share.",
    epilog=EXIT_CODES,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # its tables cost 60 ms
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (new, ls, info, exec_, send, screen, logs, attach, interrupt, kill, rename, share, cli_record.replay):
    app.command(verb.__name__.rstrip("_"))(verb)
app.add_typer(cli_record.app, name="record", no_args_is_help=True)
for verb in (approvals, approve, reject):
    app.command()(verb)
app.add_typer(cli_person.app, name="person", no_args_is_help=True)
app.add_typer(cli_audit.app, name="audit", no_args_is_help=True)
app.add_typer(cli_policy.app, name="policy", no_args_is_help=True)
app.add_typer(cli_daemon.app, name="daemon", no_args_is_help=True)
app.command()(sandbox)
app.command()(serve)
app.command()(token)
app.command()(doctor)
app.add_typer(cli_config.app, name="config", no_args_is_help=True)
app.add_typer(cli_install.app, name="mcp", no_args_is_help=True)
app.add_typer(cli_http_access.app, name="http", no_args_is_help=True)


def print_version(wanted: bool) -> None:
    """What --version does."""
    if wanted:
        write_text(__version__ + "\n")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Options before any verb."""


@app.command()
def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script. Use: source <(ai-session completion bash)"""
    if shell not in ("bash", "zsh", "fish"):
        raise InvalidArguments(f"no completion for {shell!r}", suggestion="use bash, zsh or fish")
    script = get_completion_script(prog_name="ai-session", complete_var="_AI_SESSION_COMPLETE", shell=shell)
    if shell == "zsh":  # where zsh itself loads the script, the first Tab has been pressed already
        script += '\n[[ $funcstack[1] != _ai-session ]] || _ai_session_completion "$@"'
    write_text(script + "\n")


@app.command("mcp-server")
def mcp_server(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve on standard input and output (as it does unless --http).")
    ] = False,
    dialect: Annotated[
        Literal["auto", "mcp", "fluxloop"],
        typer.Option(help="What the client speaks; auto: what its first line shows."),
    ] = "auto",
    no_daemon: Annotated[
        bool, typer.Option("--no-daemon", help="Serve in this process; sessions end with it.")
    ] = False,
    http: Annotated[bool, typer.Option("--http", help="Serve many clients over HTTP instead, until ended.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on, with --http.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, with --http.", show_default=False)] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="With --http: ask nobody; every user of this machine is you.")
    ] = False,
    legacy_sse: Annotated[
        bool, typer.Option("--legacy-sse", help="With --http: serve clients of 2024-11-05 too, at /sse.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Answer --query as FluxLoop does, and exit.")] = False,
    query: Annotated[
        str | None, typer.Option(help="With --once: a question about ai-session or ccswarm.", show_default=False)
    ] = None,
) -> None:
    """Serve MCP to the client that starts it, or over HTTP."""
    if once or query is not None:
        if query is None or not once:
            raise InvalidArguments("--once goes with --query, and --query with --once")
        if http or no_daemon or dialect == "mcp":
            raise InvalidArguments("--once goes with neither --http nor --no-daemon nor --dialect mcp")
        from ai_session import cli_once

        leave(cli_once.ask(query))
    if http:
        if stdio or no_daemon or dialect != "auto":
            raise InvalidArguments("--http goes with neither --stdio nor --no-daemon nor --dialect")
        from ai_session import cli_http

        cli_http.serve({"http.host": host, "http.port": port, "http.legacy_sse": legacy_sse or None}, no_auth=no_auth)
        return
    role = "fluxloop" if dialect == "fluxloop" else "mcp"
    more = ',"dialect":"mcp"' if dialect == "mcp" else ""
    if no_daemon:
        from ai_session import daemon

        daemon.serve_stdio(role=role, more=more)
    relay.main(role, more)


def with_only(verb: list[str]) -> typer.Typer:
    """The program with that verb alone, when there is one; what all take to be made is a fifth of a verb's time."""
    commands = [
        each for each in app.registered_commands if [each.name or getattr(each.callback, "__name__", "")] == verb
    ]
    groups = [each for each in app.registered_groups if [each.name] == verb]
    if not commands and not groups:
        return app
    program = copy.copy(app)
    program.registered_commands, program.registered_groups = commands, groups
    return program


def main() -> NoReturn:
    """Run the verb in ``sys.argv`` and exit with its code."""
    words = sys.argv[1:]
    as_json = "--json" in words[: words.index("--") if "--" in words else None]
    completion_init()
    try:
        code = with_only(words[:1])(prog_name="ai-session", standalone_mode=False) or 0
    except AiSessionError as error:
        code = report(error, as_json=as_json)
    except ClickException as error:
        code = _report_usage(error, as_json)
    except (typer.Abort, KeyboardInterrupt):
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_ERROR
    except OSError as error:
        code = report(AiSessionError(str(error), suggestion="ai-session doctor"), as_json=as_json)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone; nobody is left to tell, and the exit must not try to flush again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = code or EXIT_ERROR
    sys.exit(code)


def _report_usage(error: Any, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return EXIT_USAGE
    place = error.ctx.command_path if getattr(error, "ctx", None) else "ai-session"
    message: str = error.format_message()
    wrong = InvalidArguments(message[0].lower() + message[1:], suggestion=f"{place} --help")
    return report(wrong, as_json=as_json)
