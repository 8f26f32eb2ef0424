"""A terminal for a NestJS app: one new module with a guarded controller, imported by the app's root module."""

from __future__ import annotations

import re

from ai_session.tools.integration.project.edits import MAX_TRIED, Edit, Proposal, folder_of, insert_here, insert_line
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.source_text import code_of
from ai_session.tools.integration.project.tree import Tree
from ai_session.tools.integration.recipes.node import HEAD, MODULE, SDK, in_code, statement_end, style_of

NAME = "AiSessionTerminalModule"

SOURCE = (
    HEAD
    + """\
import { createHash, timingSafeEqual } from 'node:crypto';
import {
  Body,
  type CanActivate,
  Controller,
  type ExecutionContext,
  HttpCode,
  HttpException,
  Inject,
  Injectable,
  Module,
  type OnApplicationBootstrap,
  type OnModuleDestroy,
  Post,
  UseGuards,
} from '@nestjs/common';
import { Client } from '"""
    + SDK
    + """/client/index.js';
import { StdioClientTransport } from '"""
    + SDK
    + """/client/stdio.js';

const VARIABLE = 'AI_SESSION_TERMINAL_TOKEN';
const SESSION = `terminal-${createHash('sha256').update(process.cwd()).digest('hex').slice(0, 8)}`;

type Facts = Record<string, unknown>;

/** What callers have to send; empty while the terminal is closed. */
function expected(): string {
  const value = process.env[VARIABLE] ?? '';
  return value.length < 16 ? '' : value;
}

/** Why the call was refused, beginning with a code: "error session_busy: …"; undefined if it was not. */
function problemOf(result: Facts): string | undefined {
  if (!result.isError) return undefined;
  return (result.content as Array<{ text?: string }>).map((block) => block.text ?? '').join('; ');
}

/** Starts the server with the app and ends it with the app; the session itself lives on in ai-session. */
@Injectable()
export class AiSessionTerminal implements OnApplicationBootstrap, OnModuleDestroy {
  private client?: Client;

  async onApplicationBootstrap(): Promise<void> {
    if (expected()) await this.connect();
  }

  async onModuleDestroy(): Promise<void> {
    await this.client?.close();
  }

  private async connect(): Promise<Client> {
    const client = new Client({ name: 'app-terminal', version: '1.0.0' });
    await client.connect(new StdioClientTransport({ command: 'ai-session', args: ['mcp-server', '--stdio'] }));
    const problem = problemOf(await client.callTool({ name: 'create_session', arguments: { name: SESSION } }));
    if (problem && !problem.startsWith('error session_exists')) {
      await client.close();
      throw new Error(`no terminal: ${problem}`);
    }
    client.onclose = () => {
      this.client = undefined;
    };
    this.client = client;
    return client;
  }

  /** Output, exit_code and status of a command; state stays from one to the next. */
  async execute(command: string, timeoutSeconds: unknown): Promise<unknown> {
    const given = { session_id: SESSION, command, timeout_seconds: timeoutSeconds ?? 30 };
    const client = this.client ?? (await this.connect());
    const result = await client.callTool({ name: 'execute_command', arguments: given });
    const problem = problemOf(result);
    if (problem) throw new HttpException(problem, 409);
    return result.structuredContent;
  }
}

/** Lets only callers with the token in. */
@Injectable()
export class AiSessionTerminalGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const wanted = expected();
    if (!wanted) {
      throw new HttpException(`the terminal is closed: set ${VARIABLE} to 16 characters or more`, 503);
    }
    const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, string | undefined> }>();
    const digest = (text: string) => createHash('sha256').update(text).digest();
    if (!timingSafeEqual(digest(headers.authorization ?? ''), digest(`Bearer ${wanted}`))) {
      throw new HttpException('not authorized', 401);
    }
    return true;
  }
}

@Controller('terminal')
@UseGuards(AiSessionTerminalGuard)
export class AiSessionTerminalController {
  constructor(@Inject(AiSessionTerminal) private readonly terminal: AiSessionTerminal) {}

  @Post()
  @HttpCode(200)
  async execute(@Body('command') command: unknown, @Body('timeout_seconds') timeout: unknown): Promise<unknown> {
    if (typeof command !== 'string' || !command) throw new HttpException('command is missing', 400);
    return this.terminal.execute(command, timeout);
  }
}

@Module({
  controllers: [AiSessionTerminalController],
  providers: [AiSessionTerminal, AiSessionTerminalGuard],
})
export class AiSessionTerminalModule {}
"""
)

CREATED = re.compile(r"\bNestFactory\s*\.\s*create\w*\s*(?:<[^>]{0,200}>)?\(\s*(\w+)")


def propose(tree: Tree, profile: Profile) -> Proposal:
    """Propose edits of the root module that the file which creates the app names."""
    for path in profile.entry_points[:MAX_TRIED]:
        text = tree.read(path) if path.endswith(".ts") else None
        if text is None:
            continue
        code = code_of(text)
        for made in CREATED.finditer(text):
            if in_code(code, made.start()) and (root := _root(tree, path, text, made[1])):
                return _proposal(tree, profile, *root, made[1])
    why = "no TypeScript file among the entry points calls NestFactory.create with a module that it imports by a path"
    return Proposal("No edits for NestJS.", warnings=(why,))


def _root(tree: Tree, path: str, text: str, name: str) -> tuple[str, str] | None:
    """Return the file of the root module, and its text."""
    if re.search(rf"\bclass\s+{name}\b", text):
        return path, text
    found = re.search(
        rf"""import\s*(?:type\s*)?\{{[^}}]{{0,400}}\b{name}\b[^}}]{{0,400}}\}}\s*from\s*['"]\./([\w./-]+?)(?:\.[jt]s)?['"]""",
        text,
    )
    if found and ".." not in found[1].split("/"):
        module = f"{folder_of(path)}{found[1]}.ts"
        if (body := tree.read(module)) is not None:
            return module, body
    return None


def _proposal(tree: Tree, profile: Profile, path: str, text: str, name: str) -> Proposal:
    style = style_of(tree, profile, path, text)
    new = f"{folder_of(path)}{MODULE}.module.ts"
    line = f"import {{ {NAME} }} from './{MODULE}.module{style.ending}';"
    present = tree.read(new)
    if tree.kind(new) and (present is None or "ai-session" not in present):
        return Proposal(
            "No edits for NestJS.", warnings=(f"{new} exists and was not made by ai-session: rename it first",)
        )
    edits: list[Edit | None] = [] if present else [Edit(new, "create_file", SOURCE)]
    code = code_of(text)
    if f"{MODULE}.module" not in text:
        edits.append(_import_edit(path, text, code, line))
    if not re.search(rf"\b{NAME}\b", re.sub(r"^import\b[^;]{0,400};", "", text, flags=re.MULTILINE)):
        edits.append(_use_edit(path, text, code, name))
    if None in edits:
        why = f"{path}: add by hand: {line} and {NAME} among the imports of {name}"
        return Proposal("No edits for NestJS.", warnings=(why,))
    return Proposal(
        f"Add a terminal to the NestJS app: {NAME} among the imports of {name} in {path}, POST /terminal, guarded by a "
        "token.",
        tuple(edit for edit in edits if edit),
        ("npx tsc --noEmit", "start the app with AI_SESSION_TERMINAL_TOKEN set, then POST /terminal"),
        ("a global prefix of the app stands before /terminal",) if edits else (),
        present=not edits,
    )


def _import_edit(path: str, text: str, code: str, line: str) -> Edit | None:
    """Insert the import below the last one."""
    import_lines = [
        (found.start(), found.end())
        for found in re.finditer(r"""^import\b(?!\s*\()[^;'"]{0,400}?['"][^'"\n]+['"][ \t]*;?""", text, re.MULTILINE)
        if in_code(code, found.start()) and statement_end(text, code, found.end())
    ]
    return insert_line(path, text, *import_lines[-1], line, is_import=True) if import_lines else None


def _use_edit(path: str, text: str, code: str, name: str) -> Edit | None:
    """Insert the module first in the module's ``imports``, which are added if missing."""
    made = re.search(rf"\bclass\s+{name}\b", code)
    head = list(re.finditer(r"@Module\s*\(\s*\{", code[: made.start()])) if made else []
    if not made or not head:
        return None
    start, end = head[-1].start(), head[-1].end()
    listed = _own_list(code, end, made.start())
    if listed is None:
        return None
    if not listed:
        empty = code[end:].lstrip().startswith("}")
        return insert_here(path, text, start, end, f" imports: [{NAME}] " if empty else f"\n  imports: [{NAME}],")
    rest = code[listed:].lstrip()
    if rest.startswith("]"):
        return insert_here(path, text, start, listed, NAME)
    gap = code[listed : len(code) - len(rest)]
    return insert_here(path, text, start, listed, f"{gap}{NAME}," if "\n" in gap else f"{NAME}, ")


def _own_list(code: str, position: int, limit: int) -> int | None:
    """Return the position after ``[`` of the object's own ``imports``; 0 if it has none, None if it is not a list."""
    depth = 0
    while position < limit:
        found = re.compile(r"[\[({})\]]|\bimports\s*:\s*(\[)?").search(code, position, limit)
        if found is None or (found[0] == "}" and not depth):
            return 0
        if found[0].startswith("imports"):
            if not depth:
                return found.end() if found[1] else None
            position = found.end() - len(found[1] or "")
            continue
        depth += 1 if found[0] in "[({" else -1
        position = found.end()
    return 0
