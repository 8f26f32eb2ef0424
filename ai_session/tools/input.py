"""The tool that types into a session."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field

from ai_session.errors import InvalidArguments
from ai_session.models import Effect, ToolResult
from ai_session.sessions.commands import not_running
from ai_session.terminal import keys
from ai_session.tools.base import Context, EffectfulArguments, SessionId, Subject, Tool, encodable, output, subject_of

MODE_BYTES = 1 << 18
"""How far back the terminal's cursor-key mode is searched for; programs set it when they start and exit."""


class SendInput(EffectfulArguments):
    session_id: SessionId
    text: Annotated[
        str,
        AfterValidator(encodable),
        Field(max_length=10_000_000, description="Typed unchanged, but CRLF as LF; no Enter is added."),
    ] = ""
    keys: list[str] = Field(
        default_factory=list[str],
        max_length=1000,
        description="Keys to press after it, e.g. ['Enter'], ['C-c'], ['Escape', 'Up', 'S-Tab'].",
    )
    command_id: Annotated[str, Field(max_length=200, description="Send only while this command runs.")] = ""


def subject_of_input(context: Context, arguments: SendInput) -> Subject:
    """Return the subject as raw input, which cannot be judged as a command: half lines, here-documents, editor keys."""
    return replace(subject_of(context, arguments), raw_input=True)


async def send_input(context: Context, arguments: SendInput) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    if not arguments.text and not arguments.keys:
        raise InvalidArguments("neither text nor keys given", suggestion="pass text, keys or both")
    if arguments.command_id and (session.running is None or session.running.record.command_id != arguments.command_id):
        raise not_running(session.spec.name, arguments.command_id, str(session.state()))
    log = session.log
    cursor_mode = bool(arguments.keys) and keys.application_cursor(
        log.read(max(log.first, log.end - MODE_BYTES), log.end)
    )
    # One line end, not two, of which the second would answer the next question.
    data = arguments.text.encode("utf-8", "surrogateescape").replace(b"\r\n", b"\n")
    data += b"".join(keys.encode(name, application_cursor=cursor_mode) for name in arguments.keys)
    end = log.end
    begun = await session.typed_lines.send_lines(data, "cmd_" + secrets.token_urlsafe(16))
    running = session.running
    offset = 0 if begun else max(0, end - (running.record.start_offset if running else 0))
    command = running.record.command_id if running else "all"
    facts = {"sent_bytes": len(data), "state": str(session.state()), "command_id": command, "next_offset": offset}
    how = "wait_for='finish') waits until the prompt is back" if begun else "wait_for='output') shows the answer"
    return ToolResult(
        text=f"sent {len(data)} bytes; read_output(command_id='{command}', offset={offset}, {how}", structured=facts
    )


PLUGIN = (
    Tool(
        name="send_input",
        title="Send input",
        description="Send input to the running program: type text and press keys (answer a prompt, drive a REPL, vim or"
        " less). To run commands use execute_command instead.",
        effect=Effect.EXECUTE,
        arguments=SendInput,
        run=send_input,
        subject=subject_of_input,
        output_schema=output("state", "command_id", sent_bytes="integer", next_offset="integer"),
        destructive=True,
        open_world=True,
        reports=True,
    ),
)
