"""Python code that runs once, in a box and a session of its own that are then removed. Not listed as a tool.

A terminal would merge both outputs and translate them, so they are written to files in the part of the session's
directory that the box may write to. They are read before the session ends and removed with it.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import os
import secrets
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from ai_session.errors import AiSessionError, ShellUnavailable
from ai_session.models import Effect, ToolResult
from ai_session.sessions import wait
from ai_session.sessions.commands import ended
from ai_session.sessions.report import open_plain, record_facts, result
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession
from ai_session.system.turns import Steps
from ai_session.terminal.masking import CONTEXT_BYTES, Spans
from ai_session.tools.base import Context, EffectfulArguments, Subject, Tool, output

PROGRAM = "python3 -u -X utf8 -"
"""Unbuffered, so that its output is there when its time is up."""

MAX_OUTPUT_BYTES = 256 << 10
MAX_FILE_BYTES = 64 << 20
"""No file of the box may grow beyond it, including the outputs."""

NO_PROGRAM = 127
_ending: set[asyncio.Task[None]] = set()


def characters(text: str) -> str:
    """Return ``text`` if it has no unpaired surrogates. Raises ValueError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("contains an unpaired surrogate") from None
    return text


class RunPython(EffectfulArguments):
    code: Annotated[str, AfterValidator(characters), Field(description="Python 3; its standard input is empty.")]
    timeout_seconds: Annotated[
        float, Field(gt=0, description="Time limit, after which it is ended (default 30, at most 50).")
    ] = -1.0


def subject_of_code(context: Context, arguments: RunPython) -> Subject:
    """Return a box, even if sessions are configured to have none, and the command, for rules to see."""
    boxes = context.sessions.boxes
    template = boxes.profile("")
    if template.name == "trusted":
        template = boxes.profile("workspace")
    principal = context.principal
    start = context.workspaces.start_directory("", principal.working_directory, around=principal.workspace, make=False)
    profile = replace(
        template,
        workspace=start.workspace,
        home=context.workspaces.home,
        file_bytes=min(template.file_bytes, MAX_FILE_BYTES),
    )
    return Subject(profile=profile, level=boxes.minimum_level, start=start, command=PROGRAM)


async def run_python(context: Context, arguments: RunPython) -> ToolResult:
    """Run the code and end its session, also if the caller is cancelled while that is still being created."""
    start = context.workspaces.start_directory("", context.principal.working_directory)
    request = NewSession(  # noqa: S604 - the name of a shell
        name=f"python-{secrets.token_hex(4)}",
        client_env=context.principal.env,
        env={},
        shell="sh",
        backend="pty",
        working_directory=start.directory,
        profile=context.subject.profile,
        once=True,
    )
    creating = asyncio.ensure_future(context.sessions.create(request))
    try:
        session = await asyncio.shield(creating)
        return await _run(context, arguments, session)
    finally:
        ending = asyncio.ensure_future(_end(context, creating))
        _ending.add(ending)
        ending.add_done_callback(_ending.discard)
        await asyncio.shield(ending)


async def _end(context: Context, creating: asyncio.Future[Session]) -> None:
    with suppress(AiSessionError, OSError):
        session = await creating
        await context.sessions.close(session)


async def _run(context: Context, arguments: RunPython, session: Session) -> ToolResult:
    notes: list[str] = []
    seconds, _ = context.bounded(arguments.timeout_seconds, 0, notes)
    path = session.files / "out/stdout"
    command = (
        f"if command -v python3 >/dev/null; then command {PROGRAM} >{shlex.quote(str(path))}; "
        f"else (exit {NO_PROGRAM}); fi"
    )
    running = await session.begin(
        command,
        command_id="cmd_" + secrets.token_urlsafe(16),
        stdin=arguments.code.encode(),
        separate_stderr=True,
    )
    reason = await wait.for_command(session, running, seconds, until_input=False)
    record = running.record
    if record.exit_code == NO_PROGRAM and not path.exists():
        raise ShellUnavailable(
            "there is no python3 in the sandbox", suggestion="install it in a directory on the box's PATH"
        )
    facts = record_facts(record)
    if reason == "timeout":
        facts["status"] = "timed_out"
        notes.append(f"ended after {seconds:g} s")
    await session.ended()
    if running.never_ran:
        raise ended(session.spec.name, session.ending)
    if session.exit is not None:
        notes.append(f"the session's shell has ended ({session.exit})")
    sizes: dict[str, int] = {}
    exact: dict[str, str] = {}
    out = await session.work(_read(path, context.spans))
    err = await session.work(_read(Path(record.stderr_path), context.spans, end=True))
    for name, (_, size, cut, encoded) in {"stdout": out, "stderr": err}.items():
        if cut:
            which = "first" if name == "stdout" else "last"
            notes.append(f"{name} has {size} bytes; only the {which} are shown")
            sizes[f"{name}_bytes"] = size
        if encoded is not None:
            exact[f"{name}_base64"] = encoded
    answer = result(facts, out[0], notes=notes, extra=sizes, stderr=err[0])
    return replace(answer, structured={**answer.structured, **exact})


def _read(path: Path, spans: Spans | None, *, end: bool = False) -> Steps[tuple[str, int, bool, str | None]]:
    """Read the beginning or the end of a file, without secrets. Returns text, the file's size, whether it was cut, and
    the bytes in base64 if they are not UTF-8."""
    data, size = b"", 0
    with suppress(OSError), open(path, "rb", opener=open_plain) as file:
        size = os.fstat(file.fileno()).st_size
        window = MAX_OUTPUT_BYTES + CONTEXT_BYTES
        file.seek(max(0, size - window) if end else 0)
        data = file.read(window)
    cut = len(data) > MAX_OUTPUT_BYTES
    start = max(0, len(data) - MAX_OUTPUT_BYTES) if end else 0
    found = (yield from spans(data)) if spans else ()
    kept = _without(data, start, start + MAX_OUTPUT_BYTES, found)
    if cut and end:
        kept = kept.lstrip(bytes(range(0x80, 0xC0)))  # the rest of a character
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(kept, final=not cut or end), size, cut, None
    except UnicodeDecodeError:
        return kept.decode(errors="replace"), size, cut, base64.b64encode(kept).decode()


def _without(data: bytes, start: int, stop: int, found: Any) -> bytes:
    """Return ``data`` from ``start`` to ``stop``, with a label for each secret that begins there."""
    parts: list[bytes] = []
    at = start
    for begin, end, label in found:
        if begin >= stop or end <= start:
            continue
        parts += [data[at : max(at, begin)], label if begin >= start else b""]
        at = max(at, end)
    return b"".join([*parts, data[at:stop]])


PLUGIN = (
    Tool(
        name="run_python",
        title="Run Python",
        description="Run Python code once, in a sandbox with the workspace as its directory; everything it started is "
        "ended afterwards. Returns standard output, standard error and exit code.",
        effect=Effect.EXECUTE,
        arguments=RunPython,
        subject=subject_of_code,
        run=run_python,
        output_schema=output(
            "status", "output", "stderr", exit_code="integer?", duration_seconds="number?", note="string?"
        ),
        destructive=True,
        open_world=True,
        listed=False,
        opens=True,
    ),
)
