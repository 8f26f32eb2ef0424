"""A terminal for agents of LangChain and LangGraph: sandboxed, on the audit log, ``ai-session attach`` joins it.

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
"""Of one answer: the beginning and the end of what was printed."""


def terminal_tools(session: ai_session.Session, *, timeout: float = 60.0) -> list[BaseTool]:
    """Tools that run commands, read the screen, type and interrupt in ``session``. ``timeout`` ends the wait for a
    command, never the command. What the policy refuses is told to the model as the tool's error."""
    running: list[ai_session.Command] = []

    def run_command(command: Annotated[str, "As typed at the prompt of a shell; it may have several lines."]) -> str:
        """Run a command in the terminal. Directory, variables and functions stay from one command to the next."""
        running[:] = [_explained(lambda: session.start(command))]
        return wait_for_command()

    def wait_for_command() -> str:
        """Wait on for the command that still runs, and return what it has printed."""
        return _shown(_explained(lambda: _last(running).wait(timeout)))

    def read_screen() -> str:
        """What the terminal shows now, as of a full-screen program."""
        return _explained(session.screen).text

    def send_input(
        text: Annotated[str, "Typed unchanged; no Enter is added."] = "",
        keys: Annotated[list[str] | None, "Pressed after that: Enter, C-c, Escape, Up, F1 …"] = None,
    ) -> str:
        """Type into the program that runs in the terminal."""
        if text:
            _explained(lambda: session.send(text))
        if keys:
            _explained(lambda: session.keys(*keys))
        return wait_for_command() if running else read_screen()

    def interrupt_command() -> str:
        """End the command that runs, and return what it has printed."""
        return _shown(_explained(_last(running).interrupt))

    functions = (run_command, wait_for_command, read_screen, send_input, interrupt_command)
    return [StructuredTool.from_function(function, handle_tool_error=True) for function in functions]


def _last(running: list[ai_session.Command]) -> ai_session.Command:
    if not running:
        raise ToolException("no command is running: use run_command")
    return running[0]


def _explained(call: Callable[[], T]) -> T:
    try:
        return call()
    except ai_session.AiSessionError as error:
        raise ToolException(f"{error.message}; {error.suggestion}") from error


def _shown(result: CommandResult) -> str:
    how = f"exit code {result.exit_code}" if result.status == "finished" else result.status
    if result.input_mode:
        how = f"waits for input ({result.input_mode})"
    text, half = result.output, MOST_CHARS // 2
    if len(text) > MOST_CHARS:
        text = f"{text[:half]}\n… {len(text) - MOST_CHARS} characters left out …\n{text[-half:]}"
    return f"{text.rstrip()}\n[{how}]"
