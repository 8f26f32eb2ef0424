"""A terminal for agents of pydantic-ai: sandboxed, on the audit log, open to ``ai-session attach``.

    agent = Agent(model, toolsets=[TerminalToolset(directory="~/shop")])

The session is opened when the first run begins and closed when the last one ends; a named one stays open.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic_ai import ModelRetry
from pydantic_ai.toolsets import FunctionToolset

import ai_session
from ai_session.api.values import CommandResult

T = TypeVar("T")

MOST_CHARS = 20_000
"""The limit of one result, which then has the beginning and the end of the output."""


class TerminalToolset(FunctionToolset[Any]):
    """Tools that run commands, read the screen, type and interrupt in one session."""

    def __init__(
        self,
        name: str = "",
        *,
        directory: str | os.PathLike[str] = ".",
        profile: str = "",
        timeout: float = 60.0,
        toolset_id: str = "terminal",
    ) -> None:
        """``timeout`` seconds end the wait for a command, never the command."""
        tools = [self.run_command, self.wait_for_command, self.read_screen, self.send_input, self.interrupt_command]
        super().__init__(tools, id=toolset_id, sequential=True, max_retries=3)
        self._name = name
        self._profile = profile
        self._directory = Path(directory).expanduser()
        self._seconds = timeout
        self._session: ai_session.aio.Session | None = None
        self._running: ai_session.aio.Command | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        """Open the session for the first user."""
        if not self._users:
            self._session = await ai_session.aio.open(self._name, directory=self._directory, profile=self._profile)
        self._users += 1
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        """Close the session after the last user."""
        self._users -= 1
        if not self._users and self._session:
            session = self._session
            self._session = None
            self._running = None
            await session.__aexit__(None, None, None)
        return None

    async def run_command(self, command: str) -> str:
        """Run a command in the terminal. Directory, variables and functions persist from one command to the next.

        Args:
            command: As typed at a shell prompt; may have several lines.
        """
        self._running = await _or_retry(self._open.start(command))
        return await self.wait_for_command()

    async def wait_for_command(self) -> str:
        """Continue to wait for the running command, and return its output."""
        if not self._running:
            raise ModelRetry("no command is running: use run_command")
        return _formatted(await _or_retry(self._running.wait(self._seconds)))

    async def read_screen(self) -> str:
        """Return what the terminal shows now, for instance a full-screen program."""
        return (await _or_retry(self._open.screen())).text

    async def send_input(self, text: str = "", keys: list[str] | None = None) -> str:
        """Type into the program that runs in the terminal.

        Args:
            text: Typed unchanged, but CRLF as LF; no Enter is added.
            keys: Pressed after the text: Enter, C-c, Escape, Up, F1 …
        """
        if text:
            await _or_retry(self._open.send(text))
        if keys:
            await _or_retry(self._open.keys(*keys))
        return await self.wait_for_command() if self._running else await self.read_screen()

    async def interrupt_command(self) -> str:
        """Interrupt the running command, and return its output."""
        if not self._running:
            raise ModelRetry("no command is running: use run_command")
        return _formatted(await _or_retry(self._running.interrupt()))

    @property
    def _open(self) -> ai_session.aio.Session:
        if not self._session:
            raise RuntimeError("the toolset is not entered: async with agent, or agent.run")
        return self._session


async def _or_retry(call: Awaitable[T]) -> T:
    """Pass a refusal by the policy, or a pending approval, to the model as a retry."""
    try:
        return await call
    except ai_session.AiSessionError as error:
        raise ModelRetry(f"{error.message}; {error.suggestion}") from error


def _formatted(result: CommandResult) -> str:
    status = f"exit code {result.exit_code}" if result.status == "finished" else result.status
    if result.input_mode:
        status = f"waits for input ({result.input_mode})"
    text, half = result.output, MOST_CHARS // 2
    if len(text) > MOST_CHARS:
        text = f"{text[:half]}\n… {len(text) - MOST_CHARS} characters left out …\n{text[-half:]}"
    return f"{text.rstrip()}\n[{status}; in {result.cwd}]" if result.cwd else f"{text.rstrip()}\n[{status}]"
