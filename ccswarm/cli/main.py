"""The command line: every verb, loaded when used; shell completion; the reporting of failures."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.completion import completion_init  # pyright: ignore[reportPrivateImportUsage]
from typer.core import TyperGroup

from agentwire.cli import parser
from agentwire.cli.ending import wants_json
from agentwire.cli.output import EXIT_INTERRUPTED, leave
from agentwire.cli.parser import ClickException
from agentwire.cli.usage import meant
from ccswarm import __version__
from ccswarm.cli import quick
from ccswarm.cli.output import EXIT_CODES, report, show_text
from ccswarm.errors import UsageInvalid


class Verb(NamedTuple):
    """A verb: ``load`` returns its function, or a Typer with verbs of its own; ``help`` its first sentence."""

    load: Callable[[], Any]
    help: str


SECTIONS: dict[str, dict[str, Verb]] = {
    "Begin": {
        "init": Verb(
            lambda: import_module("ccswarm.cli.init").init, "Write a starter configuration, or add agents to one."
        ),
        "doctor": Verb(
            lambda: import_module("ccswarm.cli.doctor").doctor, "Check that everything a run needs is there."
        ),
        "config": Verb(lambda: import_module("ccswarm.cli.config").app, "Check, show and explain the configuration."),
        "trust": Verb(lambda: import_module("ccswarm.cli.trust").trust, "Approve a configuration that has changed."),
        "login": Verb(
            lambda: import_module("ccswarm.cli.login").login, "Log in to a server, for all runs of this user."
        ),
        "logout": Verb(lambda: import_module("ccswarm.cli.login").logout, "Forget the login to a server."),
        "plan": Verb(lambda: import_module("ccswarm.cli.plan").app, "Check a plan, and show what it would do."),
    },
    "Runs": {
        "run": Verb(
            lambda: import_module("ccswarm.cli.run").run, "Carry out the tasks of the configuration, or a plan."
        ),
        "resume": Verb(lambda: import_module("ccswarm.cli.run").resume, "Resume a run where it stopped."),
        "pause": Verb(lambda: import_module("ccswarm.cli.stop").pause, "Stop a run for now; resume continues."),
        "cancel": Verb(lambda: import_module("ccswarm.cli.stop").cancel, "End a run and all its tasks."),
        "status": Verb(lambda: import_module("ccswarm.cli.runs").status, "Show the progress of a run."),
        "ps": Verb(lambda: import_module("ccswarm.cli.runs").ps, "Show what is running now, and the workers."),
        "top": Verb(lambda: import_module("ccswarm.cli.top").top, "Watch runs, questions and terminals on one screen."),
        "logs": Verb(lambda: import_module("ccswarm.cli.logs").logs, "Show what happened in a run."),
        "transcript": Verb(
            lambda: import_module("ccswarm.cli.transcript").transcript, "Show what agents thought and did."
        ),
        "result": Verb(lambda: import_module("ccswarm.cli.transcript").result, "Show the result of a run."),
        "diff": Verb(lambda: import_module("ccswarm.cli.diff").diff, "Show what the tasks of a run changed."),
        "runs": Verb(lambda: import_module("ccswarm.cli.runs").app, "List, show, compare and replay runs."),
        "worker": Verb(lambda: import_module("ccswarm.cli.worker").worker, "Carry out queued runs, until Ctrl-C."),
        "clean": Verb(lambda: import_module("ccswarm.cli.clean").clean, "Remove clones and refs of unmerged work."),
        "eval": Verb(
            lambda: import_module("ccswarm.cli.eval").evaluate,
            "Evaluate agents with a suite of small tasks, judged by gates.",
        ),
    },
    "People": {
        "approvals": Verb(
            lambda: import_module("ccswarm.cli.approvals").approvals, "Show what waits for a person's approval."
        ),
        "say": Verb(lambda: import_module("ccswarm.cli.say").say, "Say something to an agent while it works."),
        "approve": Verb(lambda: import_module("ccswarm.cli.approvals").approve, "Approve what an agent asks."),
        "reject": Verb(lambda: import_module("ccswarm.cli.approvals").reject, "Reject what an agent asks."),
        "accept": Verb(lambda: import_module("ccswarm.cli.approvals").accept, "Accept the work of a task for merging."),
        "return": Verb(
            lambda: import_module("ccswarm.cli.approvals").give_back, "Return the work of a task with a comment."
        ),
        "notify": Verb(
            lambda: import_module("ccswarm.cli.notify").app, "Test the notices that a run is over or waits for you."
        ),
    },
    "Look": {
        "tools": Verb(lambda: import_module("ccswarm.cli.tools").tools, "List the tools of all servers."),
        "call": Verb(lambda: import_module("ccswarm.cli.call").call, "Call one tool, and show its answer."),
        "agents": Verb(lambda: import_module("ccswarm.cli.tools").agents, "List the agents and what they may use."),
        "tasks": Verb(lambda: import_module("ccswarm.cli.tools").tasks, "List the tasks and the agents that do them."),
        "journal": Verb(lambda: import_module("ccswarm.cli.journal").app, "Verify and show the record of calls."),
    },
    "Programs": {
        "mcp-server": Verb(
            lambda: import_module("ccswarm.cli.mcp_server").mcp_server,
            "Serve the swarm to an MCP client, which starts this.",
        ),
        "mcp": Verb(lambda: import_module("ccswarm.cli.install").app, "Set MCP clients up."),
        "serve": Verb(
            lambda: import_module("ccswarm.cli.serve").serve, "Serve the swarm at an address: VisionFlow over TCP."
        ),
        "feed": Verb(
            lambda: import_module("ccswarm.cli.feed").feed,
            "Report runs to a program, such as the console of ai-session.",
        ),
        "token": Verb(
            lambda: import_module("ccswarm.cli.token").token,
            "Show the token for ccswarm serve.",
        ),
    },
    "Shell": {
        "completion": Verb(lambda: completion, "Print a shell's completion script."),
    },
}
VERBS = {name: verb for section in SECTIONS.values() for name, verb in section.items()}


SENTENCE = re.compile(r"No such command '(\S*\s.*)'\.", re.DOTALL)
"""A task where a verb is expected."""
NO_CHOICE = re.compile(r"for '--with': '(.+?)' is not one of")
WORDS_LEFT = "Got unexpected extra argument"
SHOWN = "ccswarm top shows all runs, ccswarm run its own as it happens, ccswarm logs RUN --follow any other"
MODEL = "ccswarm init --with anthropic, or openai, gemini, local; settings = { model = … } names the model"
SETTINGS = "ccswarm config path names the file to edit; ccswarm config reference lists every setting"
INSTEAD = {
    "start": "ccswarm run",
    **dict.fromkeys(
        ("up", "begin", "exec", "execute", "do", "go", "ask", "chat", "prompt", "build"), 'ccswarm run "…"'
    ),
    "test": 'ccswarm run "run the tests"',
    **dict.fromkeys(("stop", "kill", "down", "abort", "terminate"), "ccswarm cancel RUN, or ccswarm pause RUN"),
    **dict.fromkeys(("retry", "restart", "continue"), "ccswarm resume RUN"),
    "task": 'ccswarm run "…" does one, ccswarm tasks lists them',
    "tail": "ccswarm logs RUN --follow",
    "watch": "ccswarm top, or ccswarm logs RUN --follow",
    "cost": "ccswarm runs show RUN",
    "replay": "ccswarm runs replay RUN",
    "review": "gates and [tasks.review] in ccswarm.toml: ai-session docs playbooks",
    "quality": "gates and [tasks.review] in ccswarm.toml: ai-session docs playbooks",
    "delegate": "agents delegate work with the tool swarm.delegate: ai-session docs playbooks",
    "worktree": 'workspace = "clone" of an agent: ai-session docs playbooks',
    **dict.fromkeys(("session", "sessions", "terminals"), "ai-session ls"),
    "attach": "ai-session attach NAME; ai-session ls lists them",
    "harness": "ccswarm eval",
    "queue": "ccswarm run --detach queues, ccswarm worker carries out",
    "auto": "ccswarm worker",
    "auto-create": 'ccswarm init --with claude, then ccswarm run "…"',
    **dict.fromkeys(("create", "new"), 'ccswarm init writes a configuration, ccswarm run "…" begins a run'),
    **dict.fromkeys(("setup", "quickstart"), "ccswarm init"),
    "tutorial": "ccswarm init, then ai-session docs first-swarm",
    **dict.fromkeys(("docs", "doc", "man", "manual", "documentation", "readme"), "ai-session docs"),
    **dict.fromkeys(("update", "upgrade"), "ai-session docs upgrading"),
    **dict.fromkeys(("agent", "add", "spawn"), "ccswarm agents lists agents, ccswarm init --with claude adds one"),
    **dict.fromkeys(("merge", "commit"), "ccswarm accept TASK; ccswarm approvals lists what waits"),
    **dict.fromkeys(("yes", "allow"), "ccswarm approve ID; ccswarm approvals lists what waits"),
    **dict.fromkeys(("no", "deny"), "ccswarm reject ID; ccswarm approvals lists what waits"),
    "auth": "ccswarm login SERVER",
    "workspace": "ccswarm run --workspace DIRECTORY",
    **dict.fromkeys(("server", "stdio"), "ccswarm mcp-server --stdio, which a client starts: ccswarm mcp install"),
    **dict.fromkeys(("install", "mcp add"), "ccswarm mcp install --client claude-code"),
    **dict.fromkeys(("mcp list", "mcp ls"), "ccswarm mcp status"),
    "mcp remove": "ccswarm mcp uninstall --client claude-code",
    **dict.fromkeys(("settings", "config set", "config get", "config edit", "config list"), SETTINGS),
    **dict.fromkeys(("rm", "remove", "delete", "prune"), "ccswarm clean"),
    "template": "ccswarm init --with claude, or openai, local, none",
    **dict.fromkeys(("tui", "ui", "web", "dashboard", "console", "monitor"), SHOWN),
    **dict.fromkeys(("list", "ls", "history"), "ccswarm runs list"),
    **dict.fromkeys(("show", "view", "inspect", "report"), "ccswarm runs show RUN"),
    **dict.fromkeys(("run -p", "run --prompt", "run --task", "run -m", "run --message"), 'ccswarm run "…"'),
    **dict.fromkeys(("run --dir", "run --cwd", "run -C", "run --directory"), "ccswarm run --workspace DIRECTORY"),
    **dict.fromkeys(("run --plan", "run -f", "run --file"), "ccswarm run FILE"),
    **dict.fromkeys(("run --model",), MODEL),
    "run --agent": "the key agent of a task in ccswarm.toml; ccswarm agents lists the agents",
    **dict.fromkeys(("help", "-?"), "ccswarm --help"),
    **dict.fromkeys(("version", "-v", "-V"), "ccswarm --version"),
    "undo": "git revert of what a run merged; ccswarm diff RUN shows it",
}
"""Verbs and first options of the predecessor with this name, and of similar programs, with what to use here."""


class Verbs(TyperGroup):
    """The program. A verb's module is imported when the verb is used; listing the verbs imports none."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = dict.fromkeys(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in VERBS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs under the headings of SECTIONS."""
        del ctx
        for heading, verbs in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, verb.help) for name, verb in verbs.items()])


def command(name: str) -> Any:
    """Return the verb as a command of typer."""
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    parser.add(alone, name, VERBS[name].load())
    made: Any = typer.main.get_group(alone)
    return made.commands[name]


app = parser.program(
    Verbs,
    f"ccswarm {__version__}",
    help="Carries out plans with agents that use the tools of MCP servers.",
    epilog=EXIT_CODES,
)


def completion(shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print a shell's completion script. Use: source <(ccswarm completion bash)"""
    from agentwire.cli.completion import SHELLS, completion_script

    if shell not in SHELLS:
        raise UsageInvalid(f"no completion for {shell!r}", suggestion="use bash, zsh or fish")
    show_text(completion_script("ccswarm", shell))


def main() -> NoReturn:
    """Run the verb in ``sys.argv`` and exit with its code."""
    words = sys.argv[1:]
    completion_init()
    quick.end(_run, words)


def _run() -> None:
    try:
        code = app(prog_name="ccswarm", standalone_mode=False) or 0
    except ClickException as error:
        code = _report_usage(error, wants_json(sys.argv[1:]))
    except typer.Abort:
        code = EXIT_INTERRUPTED
    leave(code)


def _report_usage(error: Any, as_json: bool) -> int:
    from agentwire.cli.corrections import corrected

    if type(error).__name__ == "NoArgsIsHelpError":
        show_text(f"{error.format_message()}\n")
        return 0
    if line := meant(error, sys.argv[1:], "ccswarm"):
        misplaced = UsageInvalid(f"option {error.option_name} must come after its verb", suggestion=line)
        return report(misplaced, as_json=as_json)
    words = sys.argv[1:]
    message: str = error.format_message()
    command_path = error.ctx.command_path if getattr(error, "ctx", None) else "ccswarm"
    problem, suggestion = message[0].lower() + message[1:], f"{command_path} --help"
    if getattr(error, "option_name", "") in ("--with", "--for"):
        suggestion = f"ccswarm init {error.option_name} … adds agents, and ccswarm run uses them"
    elif better := corrected(error, words, "ccswarm", INSTEAD):
        problem, suggestion = better
    elif found := NO_CHOICE.search(message):
        suggestion = _init_command(found[1]) or suggestion
    suggestion = _as_task(message, command_path, words, suggestion) or suggestion
    return report(UsageInvalid(problem, suggestion=suggestion), as_json=as_json)


def _as_task(message: str, command_path: str, words: list[str], suggestion: str) -> str:
    """Return the command line that starts a run with these words, given without the verb or quotes; else ``""``."""
    if found := SENTENCE.match(message):
        return shlex.join(("ccswarm", "run", found[1]))
    if any(word.startswith("-") for word in words):
        return ""
    if command_path == "ccswarm run" and message.startswith(WORDS_LEFT):
        return shlex.join(("ccswarm", "run", " ".join(words[1:])))
    if len(words) > 2 and (words[0] in INSTEAD or suggestion == "ccswarm --help"):
        line = shlex.join(("ccswarm", "run", " ".join(words)))
        return line if suggestion == "ccswarm --help" else f"{line}, or {suggestion}"
    return ""


def _init_command(model: str) -> str:
    """Return how to add an agent with that model; ``""`` if its name does not show its provider."""
    from ccswarm.config.starters import maker_of

    maker = maker_of(model)
    return f"ccswarm init --with {maker}" if maker else ""
