"""A terminal for agents of LangChain and LangGraph: sandboxed, on the audit log, open to ``ai-session attach``.

with ai_session.open("build") as session:
    agent = create_agent(model, terminal_tools(session))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

from langchain_core.tools import BaseTool, StructuredTool, ToolException

import ai_session
from ai_session.api.values import CommandResult

T = TypeVar("T")

MOST_CHARS = 20_000
"""The limit of one result, which then has the beginning and the end of the output."""


def terminal_tools(session: ai_session.Session, *, timeout: float = 60.0) -> list[BaseTool]:
    """Return tools that run commands, read the screen, type and interrupt in ``session``. ``timeout`` seconds end the
    wait for a command, never the command. A refusal by the policy reaches the model as a tool error."""
    running: list[ai_session.Command] = []

    def run_command(command: Annotated[str, "As typed at a shell prompt; may have several lines."]) -> str:
        """Run a command in the terminal. Directory, variables and functions persist from one command to the next."""
        running[:] = [_or_tool_error(lambda: session.start(command))]
        return wait_for_command()

    def wait_for_command() -> str:
        """Continue to wait for the running command, and return its output."""
        return _formatted(_or_tool_error(lambda: _last(running).wait(timeout)))

    def read_screen() -> str:
        """Return what the terminal shows now, for instance a full-screen program."""
        return _or_tool_error(session.screen).text

    def send_input(
        text: Annotated[str, "Typed unchanged, but CRLF as LF; no Enter is added."] = "",
        keys: Annotated[list[str] | None, "Pressed after the text: Enter, C-c, Escape, Up, F1 …"] = None,
    ) -> str:
        """Type into the program that runs in the terminal."""
        if text:
            _or_tool_error(lambda: session.send(text))
        if keys:
            _or_tool_error(lambda: session.keys(*keys))
        return wait_for_command() if running else read_screen()

    def interrupt_command() -> str:
        """Interrupt the running command, and return its output."""
        return _formatted(_or_tool_error(_last(running).interrupt))

    functions = (run_command, wait_for_command, read_screen, send_input, interrupt_command)
    return [StructuredTool.from_function(function, handle_tool_error=True) for function in functions]


def _last(running: list[ai_session.Command]) -> ai_session.Command:
    if not running:
        raise ToolException("no command is running: use run_command")
    return running[0]


def _or_tool_error(call: Callable[[], T]) -> T:
    try:
        return call()
    except ai_session.AiSessionError as error:
        raise ToolException(f"{error.message}; {error.suggestion}") from error


def _formatted(result: CommandResult) -> str:
    status = f"exit code {result.exit_code}" if result.status == "finished" else result.status
    if result.input_mode:
        status = f"waits for input ({result.input_mode})"
    text, half = result.output, MOST_CHARS // 2
    if len(text) > MOST_CHARS:
        text = f"{text[:half]}\n… {len(text) - MOST_CHARS} characters left out …\n{text[-half:]}"
    return f"{text.rstrip()}\n[{status}]"
