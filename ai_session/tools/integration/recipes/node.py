"""What the recipes for Node share: the terminal's client as source text, and how a file imports another. Apart from
reading the tree, no I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from ai_session.tools.integration.project.edits import folder_of, nearest
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.source_text import COMMENT, LITERAL, code_of
from ai_session.tools.integration.project.tree import Tree

MODULE = "ai-session-terminal"
SDK = "@modelcontextprotocol/sdk"

System = Literal["esm", "cjs"]

CLIENT = """\
const VARIABLE = 'AI_SESSION_TERMINAL_TOKEN';
const SESSION = `terminal-${createHash('sha256').update(process.cwd()).digest('hex').slice(0, 8)}`;

⟨type Facts = Record<string, unknown>;⟩

let connecting⟨: Promise<Client> | undefined⟩;

/** Starts the server at first use. It ends with this process; the session itself lives on in ai-session. */
function connected()⟨: Promise<Client>⟩ {
  connecting ??= connect().catch((error) => {
    connecting = undefined;
    throw error;
  });
  return connecting;
}

async function connect()⟨: Promise<Client>⟩ {
  const client = new Client({ name: 'app-terminal', version: '1.0.0' });
  client.onclose = () => {
    connecting = undefined;
  };
  await client.connect(new StdioClientTransport({ command: 'ai-session', args: ['mcp-server', '--stdio'] }));
  const made = await client.callTool({ name: 'create_session', arguments: { name: SESSION } });
  const problem = problemOf(made);
  if (problem && !problem.startsWith('error session_exists')) {
    await client.close();
    throw new Error(`no terminal: ${problem}`);
  }
  return client;
}

/** Why the call was refused, beginning with a code: "error session_busy: …"; undefined if it was not. */
function problemOf(result⟨: Facts⟩)⟨: string | undefined⟩ {
  if (!result.isError) return undefined;
  return (result.content⟨ as Array<{ text?: string }>⟩).map((block) => block.text ?? '').join('; ');
}

/** Ends the server, for a process that continues without it. */
⟪export ⟫async function closeTerminal()⟨: Promise<void>⟩ {
  await (await connecting)?.close();
}

/** Why a caller is refused, as a status and a message; undefined for one who sends the token. */
function refusal(authorization⟨: string | null | undefined⟩)⟨: [number, string] | undefined⟩ {
  const wanted = process.env[VARIABLE] ?? '';
  if (wanted.length < 16) return [503, `the terminal is closed: set ${VARIABLE} to 16 characters or more`];
  const digest = (text⟨: string⟩) => createHash('sha256').update(text).digest();
  const same = timingSafeEqual(digest(authorization ?? ''), digest(`Bearer ${wanted}`));
  return same ? undefined : [401, 'not authorized'];
}

/** Runs the command in a body: an HTTP status, and the command's output, exit_code and status, or a message. */
async function execute(body⟨: unknown⟩)⟨: Promise<[number, unknown]>⟩ {
  const { command, timeout_seconds = 30 } = ⟨(⟩body ?? {}⟨) as Facts⟩;
  if (typeof command !== 'string' || !command) return [400, { message: 'command is missing' }];
  const given = { session_id: SESSION, command, timeout_seconds };
  try {
    const client = await connected();
    const result = await client.callTool({ name: 'execute_command', arguments: given });
    const problem = problemOf(result);
    return problem ? [409, { message: problem }] : [200, result.structuredContent];
  } catch (error) {
    return [503, { message: String(error) }];
  }
}
"""
"""``⟨ ⟩`` is for TypeScript only, ``⟪ ⟫`` for modules that export with the keyword."""

HEAD = """\
/**
 * A real terminal of this app: POST {"command": "..."} runs a command in a session of ai-session.
 *
 * It is closed until the variable AI_SESSION_TERMINAL_TOKEN is set to at least 16 characters. Callers send it in the
 * header Authorization, as a bearer token. Anyone who has it has a shell here, in the box that ai-session makes.
 */
"""

IMPORTS = (
    ("{ createHash, timingSafeEqual }", "node:crypto"),
    ("{ Client }", f"{SDK}/client/index.js"),
    ("{ StdioClientTransport }", f"{SDK}/client/stdio.js"),
)


@dataclass(frozen=True, slots=True)
class Style:
    """How a file is written. ``ending`` is what follows the name in an import of a file of the same kind."""

    system: System
    typed: bool
    ending: str = ""

    def source(self, text: str) -> str:
        """Return a template in this style."""
        text = re.sub(r"⟨(.*?)⟩", r"\1" if self.typed else "", text, flags=re.DOTALL)
        text = re.sub(r"⟪(.*?)⟫", r"\1" if self.system == "esm" else "", text, flags=re.DOTALL)
        return re.sub(r"\n{3,}", "\n\n", text)

    def imports(self, *more: tuple[str, str]) -> str:
        """Return the lines that import what the client needs, and more."""
        return "".join(self.line(names, module) + "\n" for names, module in (IMPORTS[0], *more, *IMPORTS[1:]))

    def line(self, names: str, module: str) -> str:
        """Return one import line."""
        if self.system == "esm":
            return f"import {names} from '{module}';"
        return f"const {names} = require('{module}');"


def style_of(tree: Tree, profile: Profile, path: str, text: str) -> Style:
    """Return how ``path`` is written, by its ending, its own imports and the nearest package.json."""
    ending = path.rpartition(".")[2]
    code = code_of(text)
    has_imports = any(code[match.start()] == "i" for match in re.finditer(r"^import\b(?!\s*\()", text, re.MULTILINE))
    module = package_of(tree, profile, path).get("type") == "module"
    typed = ending in ("ts", "mts", "cts")
    esm = typed or ending == "mjs" or (ending == "js" and (module or has_imports))
    if not esm or not typed:
        return Style("esm" if esm else "cjs", typed, f".{ending}")
    relative = [match[1] for match in re.finditer(r"""\bfrom\s*['"]\.{1,2}/[^'"]*?(\.[cm]?[jt]s)?['"]""", text)]
    if relative:
        return Style("esm", typed, relative[0] or "")
    return Style("esm", typed, {"mts": ".mjs", "cts": ".cjs"}.get(ending, ".js" if module else ""))


def package_of(tree: Tree, profile: Profile, path: str) -> dict[str, Any]:
    """Return the nearest package.json above a file; empty if it cannot be read."""
    found = nearest(path, ("package.json",), profile.paths)
    try:
        data: Any = json.loads(tree.read(found) or "") if found else {}
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def statement_end(text: str, code: str, end: int) -> bool:
    """Report whether only blanks and comments follow ``end`` in its line."""
    line = code[end:].partition("\n")[0]
    return not line.strip(" \t\r" + COMMENT) and not text[end : end + len(line)].rstrip().endswith("*/")


def in_code(code: str, start: int) -> bool:
    """Report whether a match that begins there is neither a comment nor a string."""
    return code[start : start + 1] not in (COMMENT, LITERAL)


def new_file(path: str, ending: str) -> str:
    """Return the path of the terminal's module, next to ``path``."""
    return f"{folder_of(path)}{MODULE}.{ending}"
