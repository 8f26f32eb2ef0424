"""A terminal for an Express app: one new module with a router, used where the app is created."""

from __future__ import annotations

import re

from ai_session.tools.integration.project.edits import MAX_TRIED, Edit, Proposal, insert_line
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.source_text import code_of
from ai_session.tools.integration.project.tree import Tree
from ai_session.tools.integration.recipes.node import (
    CLIENT,
    HEAD,
    MODULE,
    Style,
    in_code,
    new_file,
    statement_end,
    style_of,
)

ROUTER = """
/** POST / runs a command; mount it before handlers that would answer the request. */
⟪export ⟫function terminalRouter()⟨: Router⟩ {
  const router = express.Router();
  router.post(
    '/',
    (request, response, next) => {
      const refused = refusal(request.get('authorization'));
      if (!refused) return next();
      response.status(refused[0]).json({ message: refused[1] });
    },
    express.json({ limit: '256kb' }),
    async (request, response) => {
      const [status, facts] = await execute(request.body);
      response.status(status).json(facts);
    },
  );
  return router;
}
"""

IMPORT = re.compile(r"""^import\b(?!\s*\()[^;'"]{0,200}?(?:\bfrom\s*)?['"]express['"][ \t]*;?""", re.MULTILINE)
REQUIRE = re.compile(r"""^[ \t]*(?:const|let|var)\s+\w+\s*=\s*require\(\s*['"]express['"]\s*\)[ \t]*;?""", re.MULTILINE)
BOUND = re.compile(
    r"""(?:import\s+(?:\*\s*as\s+)?(\w+)[^;'"]{0,200}?from\s*|(?:const|let|var)\s+(\w+)\s*=\s*require\(\s*)['"]express['"]"""
)


def propose(tree: Tree, profile: Profile) -> Proposal:
    """Propose edits of the first file that creates an Express app in a statement of its own."""
    for path in profile.entry_points[:MAX_TRIED]:
        text = tree.read(path) if re.search(r"\.[cm]?[jt]s\Z", path) else None
        if text is None:
            continue
        code = code_of(text)
        if found := _app(text, code):
            return _proposal(tree, profile, path, text, code, found)
    why = "no statement like const app = express() was found in the entry points; pass the profile with the file in"
    return Proposal("No edits for Express.", warnings=(f"{why} entryPoints",))


def _app(text: str, code: str) -> re.Match[str] | None:
    """Return the statement that creates the app; one named ``app`` is preferred."""
    names = [m[1] or m[2] for m in BOUND.finditer(text) if in_code(code, m.start())] or ["express"]
    made = re.compile(
        r"^([ \t]*)(?:export[ \t]+)?(?:const|let|var)[ \t]+(\w+)[ \t]*(?::[^=\n]{1,200})?=[ \t]*"
        rf"(?:{'|'.join(set(names))})\(\)[ \t]*;?",
        re.MULTILINE,
    )
    found = [m for m in made.finditer(text) if in_code(code, m.end(1)) and statement_end(text, code, m.end())]
    return next((m for m in found if m[2] == "app"), found[0] if found else None)


def _proposal(tree: Tree, profile: Profile, path: str, text: str, code: str, made: re.Match[str]) -> Proposal:
    style = style_of(tree, profile, path, text)
    new = new_file(path, path.rpartition(".")[2])
    line = style.line("{ terminalRouter }", f"./{MODULE}{style.ending}")
    use = f"{made[1]}{made[2]}.use('/terminal', terminalRouter());"
    present = tree.read(new)
    if tree.kind(new) and (present is None or "ai-session" not in present):
        return Proposal(
            "No edits for Express.", warnings=(f"{new} exists and was not made by ai-session: rename it first",)
        )
    edits: list[Edit | None] = [] if present else [Edit(new, "create_file", _source(style))]
    imported = MODULE in text
    import_line = _import_line(text, code, style, made)
    if not imported and import_line is None and (made[1] == "" or style.system == "cjs"):
        edits.append(insert_line(path, text, made.start(), made.end(), f"{made[1]}{line}\n{use}"))
    else:
        if not imported:
            edits.append(insert_line(path, text, *import_line, line, is_import=True) if import_line else None)
        if use.strip() not in text:
            edits.append(insert_line(path, text, made.start(), made.end(), use))
    if None in edits:
        why = f"{path}: there is no unique text at the right position; add by hand: {line} {use.strip()}"
        return Proposal("No edits for Express.", warnings=(why,))
    typed = ["npx tsc --noEmit"] if style.typed else [f"node --check {new}", f"node --check {path}"]
    return Proposal(
        f"Add a terminal to the Express app {made[2]!r} of {path}: POST /terminal, guarded by a token.",
        tuple(edit for edit in edits if edit),
        (*typed, "start the app with AI_SESSION_TERMINAL_TOKEN set, then POST /terminal"),
        present=not edits,
    )


def _import_line(text: str, code: str, style: Style, made: re.Match[str]) -> tuple[int, int] | None:
    """Return the top-level statement that imports express before the app is created."""
    sign = IMPORT if style.system == "esm" else REQUIRE
    for found in sign.finditer(text):
        begin = found.end() - len(found[0].lstrip())
        if found.end() <= made.start() and in_code(code, begin) and statement_end(text, code, found.end()):
            return begin, found.end()
    return None


def _source(style: Style) -> str:
    names = "express, { type Router }" if style.typed else "express"
    tail = "" if style.system == "esm" else "\nmodule.exports = { closeTerminal, terminalRouter };\n"
    return HEAD + style.imports((names, "express")) + "\n" + style.source(CLIENT + ROUTER) + tail
