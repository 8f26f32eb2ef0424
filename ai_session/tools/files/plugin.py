"""Files of the caller's workspace, for clients that work without a shell. Not listed as tools."""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ai_session.errors import Denied, InvalidArguments
from ai_session.models import Effect, SandboxProfile, ToolResult
from ai_session.sessions.workspaces import StartDirectory
from ai_session.system.turns import Steps
from ai_session.terminal.masking import Spans
from ai_session.tools.base import Arguments, Context, EffectfulArguments, Subject, Tool, output
from ai_session.tools.files import confined

MAX_READ_BYTES = 1 << 20
MAX_ENTRIES = 5000
ALIAS = "/data"
"""What AgentVault's clients call the server's working directory."""

WORDS = {"directory": "[DIR]", "file": "[FILE]", "link": "[LINK]"}

Path = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4096,
        description="Path relative to the workspace, or absolute and below it; /data stands for the workspace.",
    ),
]
Encoding = Annotated[
    Literal["utf-8", "base64"], Field(description="base64: content is the bytes in base64. Default: utf-8.")
]


class ReadFile(Arguments):
    path: Path


class WriteFile(EffectfulArguments):
    path: Path
    content: str
    encoding: Encoding = "utf-8"


class ListDirectory(Arguments):
    path: Path = "."


def subject_of_path(context: Context, arguments: ReadFile | WriteFile | ListDirectory) -> Subject:
    """Return where the path leads. It is inside the workspace, whatever box sessions have."""
    start = context.workspaces.start_directory("", context.principal.working_directory, make=False)
    at = confined.locate(start.workspace, arguments.path, ALIAS)
    boxes = context.sessions.boxes
    template = boxes.profile("")
    if template.name == "trusted":
        template = boxes.profile("workspace")
    profile = replace(template, workspace=start.workspace, home=context.workspaces.home)
    return Subject(
        profile=profile, level=boxes.minimum_level, start=StartDirectory(at.path, start.workspace), path=at.path
    )


def _at(context: Context) -> tuple[confined.Location, SandboxProfile]:
    """Return the path that was judged, which is not resolved again, and the profile. Creates the workspace."""
    subject = context.subject
    context.workspaces.start_directory("", context.principal.working_directory)
    root = subject.profile.workspace
    names = subject.path.removeprefix(root.rstrip("/")).split("/")
    return confined.Location(root, tuple(filter(None, names))), subject.profile


async def read_file(context: Context, arguments: ReadFile) -> ToolResult:
    at, profile = _at(context)

    def work() -> bytes:
        confined.check_visible(at, profile.masked)
        return confined.read(at, MAX_READ_BYTES)

    data = await asyncio.to_thread(work)
    text, encoding = await context.sessions.work(encoded(data, context.spans))
    return ToolResult(text, {"path": at.path, "encoding": encoding})


def encoded(data: bytes, spans: Spans | None) -> Steps[tuple[str, str]]:
    """Return bytes as text, and its encoding: base64, without secrets, if they are not UTF-8."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        parts: list[bytes] = []
        at = 0
        for start, end, label in (yield from spans(data)) if spans else ():
            parts += (data[at:start], label)
            at = end
        return base64.b64encode(b"".join((*parts, data[at:]))).decode(), "base64"


async def write_file(context: Context, arguments: WriteFile) -> ToolResult:
    at, profile = _at(context)
    if profile.name == "read-only":
        raise Denied("the workspace is read-only", suggestion="ask the person, whose configuration sets this")
    data = _bytes_of(arguments)

    def work() -> bool:
        confined.check_visible(at, profile.masked)
        ways = confined.locate(at.root, arguments.path, ALIAS).ways
        confined.check_writable(replace(at, ways=ways), profile)
        return confined.write(at, data)

    created = await asyncio.to_thread(work)
    facts = {"path": at.path, "bytes": len(data), "created": created}
    return ToolResult(f"Successfully wrote to '{arguments.path}'", facts)


def _bytes_of(arguments: WriteFile) -> bytes:
    try:
        if arguments.encoding == "base64":
            return base64.b64decode(arguments.content, validate=True)
        return arguments.content.encode()
    except (binascii.Error, ValueError):
        what = "base64" if arguments.encoding == "base64" else "text: it contains an unpaired surrogate"
        raise InvalidArguments(f"write_file: content: is not {what}") from None


async def list_directory(context: Context, arguments: ListDirectory) -> ToolResult:
    at, profile = _at(context)

    def work() -> tuple[list[dict[str, Any]], bool]:
        confined.check_visible(at, profile.masked)
        return confined.entries(at, MAX_ENTRIES)

    rows, whole = await asyncio.to_thread(work)
    lines = [f"{WORDS.get(row['type'], '[OTHER]')} {row['name']}" for row in rows]
    if not whole:
        lines.append(f"… only {MAX_ENTRIES} of the names are listed")
    text = "\n".join(lines) or f"Directory '{arguments.path}' is empty."
    return ToolResult(text, {"path": at.path, "entries": rows, "complete": whole})


PLUGIN = (
    Tool(
        name="read_file",
        title="Read file",
        description="Read a file of the workspace as UTF-8 text, or as base64 if it is not text. Secrets are masked;"
        f" a file of more than {MAX_READ_BYTES >> 20} MiB is refused.",
        effect=Effect.READ,
        arguments=ReadFile,
        subject=subject_of_path,
        run=read_file,
        output_schema=output("path", "encoding"),
        read_only=True,
        idempotent=True,
        listed=False,
    ),
    Tool(
        name="write_file",
        title="Write file",
        description="Write a file of the workspace atomically, replacing an existing one; missing directories are"
        " created.",
        effect=Effect.WRITE,
        arguments=WriteFile,
        subject=subject_of_path,
        run=write_file,
        output_schema=output("path", bytes="integer", created="boolean"),
        destructive=True,
        idempotent=True,
        listed=False,
    ),
    Tool(
        name="list_directory",
        title="List directory",
        description="List a directory of the workspace: [DIR], [FILE], [LINK] or [OTHER] before each name.",
        effect=Effect.READ,
        arguments=ListDirectory,
        subject=subject_of_path,
        run=list_directory,
        output_schema={
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "entries": {"type": "array", "items": {"type": "object"}},
                "complete": {"type": "boolean"},
            },
            "required": ["path", "entries", "complete"],
        },
        read_only=True,
        idempotent=True,
        listed=False,
    ),
)
