"""A terminal for a FastAPI app: one new module whose router has a life cycle of its own, included in the app."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from ai_session.tools.integration.project.edits import MAX_TRIED, Edit, Proposal, folder_of, insert_line
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.tree import Tree

MODULE = "ai_session_terminal"
MAX_PARSED_CHARS = 100_000
"""Nothing else runs during parsing: 0.1 s for these, 0.5 s at worst."""

SOURCE = '''\
"""A real terminal of this app: POST /terminal {"command": "..."} runs a command in a session of ai-session.

It is closed until the variable AI_SESSION_TERMINAL_TOKEN is set to at least 16 characters. Callers send it in the
header Authorization, as a bearer token. Anyone who has it has a shell here, in the box that ai-session makes.
"""

import hashlib
import hmac
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Request
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import BaseModel, Field

VARIABLE = "AI_SESSION_TERMINAL_TOKEN"
SERVER = StdioServerParameters(command="ai-session", args=["mcp-server", "--stdio"])
SESSION = f"terminal-{hashlib.sha256(os.getcwd().encode()).hexdigest()[:8]}"


class Command(BaseModel):
    """A command line, and how long to wait for its end; it continues if that is not enough."""

    command: str = Field(min_length=1, max_length=100_000)
    timeout_seconds: float = Field(default=30.0, ge=0, le=50)


def expected() -> str:
    """What callers have to send; empty while the terminal is closed."""
    value = os.environ.get(VARIABLE, "")
    return value if len(value) >= 16 else ""


async def guard(authorization: Annotated[str, Header()] = "") -> None:
    """Lets only callers with the token in."""
    if not (wanted := expected()):
        raise HTTPException(503, f"the terminal is closed: set {VARIABLE} to 16 characters or more")
    if not hmac.compare_digest(authorization.encode(), f"Bearer {wanted}".encode()):
        raise HTTPException(401, "not authorized", headers={"WWW-Authenticate": "Bearer"})


@asynccontextmanager
async def opened(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Starts the server with the app and ends it with the app; the session itself lives on in ai-session."""
    if not expected():
        yield {}
        return
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        made = await call(client, "create_session", {"name": SESSION})
        if (problem := problem_of(made)) and not problem.startswith("error session_exists"):
            raise RuntimeError(f"no terminal: {problem}")
        yield {"ai_session": client}


async def call(client: ClientSession, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The result of a tool as the protocol writes it."""
    result = await client.call_tool(tool, arguments)
    return result.model_dump(mode="json", by_alias=True)


def problem_of(result: dict[str, Any]) -> str:
    """Why the call was refused, beginning with a code: "error session_busy: ..."; empty if it was not."""
    texts = [str(block.get("text", "")) for block in result["content"]]
    return "; ".join(texts) if result.get("isError") else ""


terminal = APIRouter(prefix="/terminal", tags=["terminal"], dependencies=[Depends(guard)], lifespan=opened)


@terminal.post("")
async def execute(body: Command, request: Request) -> dict[str, Any]:
    """Runs a command: output, exit_code, status. State stays from one command to the next."""
    client = getattr(request.state, "ai_session", None)
    if client is None:
        raise HTTPException(503, "the terminal was not opened when the app started")
    try:
        result = await call(client, "execute_command", {"session_id": SESSION, **body.model_dump()})
    except Exception as error:
        raise HTTPException(503, "the terminal's server does not answer; start the app again") from error
    if problem := problem_of(result):
        raise HTTPException(409, problem)
    return result["structuredContent"]
'''


@dataclass(frozen=True, slots=True)
class _App:
    """A statement that creates an app, from ``start`` to ``end`` in characters."""

    name: str
    start: int
    end: int
    indent: str


def propose(tree: Tree, profile: Profile) -> Proposal:
    """Propose edits of the first file that creates a FastAPI app in a statement of its own."""
    for path in profile.entry_points[:MAX_TRIED]:
        text = tree.read(path) if path.endswith(".py") else None
        if text is None or (module := parsed(text)) is None:
            continue
        lines = _offsets(text)
        apps = [app for node in ast.walk(module) if (app := _app(node, text, lines))]
        if apps:
            app = next((one for one in apps if one.name == "app"), apps[0])
            return _proposal(tree, profile, path, text, module, app, len(apps))
    why = (
        "no statement like app = FastAPI() was found in the entry points; pass the profile with the file in entryPoints"
    )
    return Proposal("No edits for FastAPI.", warnings=(why,))


def _proposal(
    tree: Tree, profile: Profile, path: str, text: str, module: ast.Module, app: _App, count: int
) -> Proposal:
    new = f"{folder_of(path)}{MODULE}.py"
    name, sure = _module_name(path, module, profile)
    line = f"from {name} import terminal as ai_session_terminal"
    use = f"{app.indent}{app.name}.include_router(ai_session_terminal)"
    warnings = [] if sure else [f"{path}: how the app is started is not known; the import {line!r} may have to change"]
    if count > 1:
        warnings.append(f"{path} makes {count} apps; the terminal is added to {app.name!r}")
    edits: list[Edit | None] = []
    present = tree.read(new)
    if present is None and tree.kind(new):
        return Proposal("No edits for FastAPI.", warnings=(f"{new} exists but cannot be read",))
    if present is not None and "ai-session" not in present:
        return Proposal(
            "No edits for FastAPI.", warnings=(f"{new} exists and was not made by ai-session: rename it first",)
        )
    if present is None:
        edits.append(Edit(new, "create_file", SOURCE))
    import_line = _import_line(module, text, app)
    if import_line is None and line not in text and use.strip() not in text:
        edits.append(insert_line(path, text, app.start, app.end, f"{app.indent}{line}\n{use}"))
    else:
        if line not in text:
            start, end = import_line or (app.start, app.end)
            edits.append(
                insert_line(path, text, start, end, line if import_line else app.indent + line, is_import=True)
            )
        if use.strip() not in text:
            edits.append(insert_line(path, text, app.start, app.end, use))
    if None in edits:
        where = f"{path}: there is no unique text at the right position; add by hand: {line}; {use.strip()}"
        return Proposal("No edits for FastAPI.", warnings=(where,))
    return Proposal(
        f"Add a terminal to the FastAPI app {app.name!r} of {path}: POST /terminal, guarded by a token.",
        tuple(edit for edit in edits if edit),
        (f"python -m py_compile {new} {path}", "start the app with AI_SESSION_TERMINAL_TOKEN set, then POST /terminal"),
        tuple(warnings),
        present=not edits,
    )


def parsed(text: str) -> ast.Module | None:
    """Parse the text; None if it is not Python, or so long that parsing it would delay everything else."""
    if len(text) > MAX_PARSED_CHARS:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _offsets(text: str) -> list[int]:
    """Return where each line begins, as ``ast`` counts lines."""
    offsets = [0]
    for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text):
        offsets.append(offsets[-1] + len(line))
    return offsets


def _offset(text: str, lines: list[int], line: int, column: int) -> int:
    """Return the character offset of a column, which ``ast`` counts in bytes of UTF-8."""
    start = lines[line - 1]
    return start + len(text[start : lines[line]].encode()[:column].decode(errors="ignore"))


def _app(node: ast.AST, text: str, lines: list[int]) -> _App | None:
    """Return the app if the node is ``name = FastAPI(...)`` on lines of its own."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=made)):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=made)):
            pass
        case _:
            return None
    called = made.id if isinstance(made, ast.Name) else made.attr if isinstance(made, ast.Attribute) else ""
    if called != "FastAPI" or (node.end_lineno or 0) >= len(lines):
        return None
    start = _offset(text, lines, node.lineno, node.col_offset)
    end = _offset(text, lines, node.end_lineno or 0, node.end_col_offset or 0)
    indent = text[lines[node.lineno - 1] : start]
    rest = text[end : lines[node.end_lineno or 0]].strip()
    if indent.strip() or (rest and not rest.startswith("#")):
        return None
    return _App(name, start, end, indent)


def _import_line(module: ast.Module, text: str, app: _App) -> tuple[int, int] | None:
    """Return start and end of the last import before the app."""
    lines = _offsets(text)
    best: tuple[int, int] | None = None
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom) and (node.end_lineno or 0) < len(lines):
            start = _offset(text, lines, node.lineno, node.col_offset)
            end = _offset(text, lines, node.end_lineno or 0, node.end_col_offset or 0)
            rest = text[end : lines[node.end_lineno or 0]].strip()
            if start < app.start and not node.col_offset and (not rest or rest.startswith("#")):
                best = start, end
    return best


def _module_name(path: str, module: ast.Module, profile: Profile) -> tuple[str, bool]:
    """Return how the file would import the new module next to it, and whether that is certain: as it imports others."""
    folder = folder_of(path).rstrip("/")
    imports = [node for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    if any(node.level for node in imports):
        return f".{MODULE}", True
    if not folder:
        return MODULE, True
    known, top = set(profile.paths), folder.split("/")
    names = [node.module or "" for node in imports]
    names += [alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names]
    for depth in range(len(top)):
        dotted = ".".join(top[depth:])
        if any(name == dotted or name.startswith(f"{dotted}.") for name in names):
            return f"{dotted}.{MODULE}", True
    if any(f"{folder}/{name.partition('.')[0]}{end}" in known for name in names for end in (".py", "/__init__.py")):
        return MODULE, True
    return f".{MODULE}", f"{folder}/__init__.py" in known
