"""A terminal for a Next.js app: one new route, of the app router if there is one, else of the pages router."""

from __future__ import annotations

import re

from ai_session.tools.integration.project.edits import Edit, Proposal, folder_of, nearest
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.tree import Tree
from ai_session.tools.integration.recipes.node import CLIENT, HEAD, SDK, Style, package_of

APP = """
export const runtime = 'nodejs';
export const dynamic = 'force-dynamic';

/** Runs a command. */
export async function POST(request⟨: Request⟩)⟨: Promise<Response>⟩ {
  const refused = refusal(request.headers.get('authorization'));
  if (refused) return Response.json({ message: refused[1] }, { status: refused[0] });
  const [status, facts] = await execute(await request.json().catch(() => undefined));
  return Response.json(facts, { status });
}
"""

PAGES = """
/** Runs a command. */
export default async function handler(request⟨: NextApiRequest⟩, response⟨: NextApiResponse⟩)⟨: Promise<void>⟩ {
  if (request.method !== 'POST') {
    response.setHeader('Allow', 'POST').status(405).json({ message: 'POST only' });
    return;
  }
  const refused = refusal(request.headers.authorization);
  if (refused) {
    response.status(refused[0]).json({ message: refused[1] });
    return;
  }
  const [status, facts] = await execute(request.body);
  response.status(status).json(facts);
}
"""

ROUTERS = (
    ("app", re.compile(r"((?:.*/)?(?:src/)?)app/(?:.*/)?(?:layout|page|route)\.[jt]sx?"), "app/api/terminal/route"),
    (
        "pages",
        re.compile(r"((?:.*/)?(?:src/)?)pages/(?:_app|_document|index|api/.*|.*)\.[jt]sx?"),
        "pages/api/terminal",
    ),
)


def propose(tree: Tree, profile: Profile) -> Proposal:
    """Propose the new route of the app whose package.json or configuration is nearest to the top."""
    tops = {folder_of(nearest(path, ("package.json",), profile.paths) or path) for path in _pages(profile)}
    for name, sign, route in ROUTERS:
        for path in profile.paths:
            found = sign.fullmatch(path)
            package = nearest(path, ("package.json",), profile.paths)
            base = folder_of(package)
            if found and base in tops and found[1] in (base, f"{base}src/") and _is_next(tree, profile, path):
                typed = bool(nearest(path, ("tsconfig.json",), profile.paths)) or path.endswith(("ts", "tsx"))
                return _proposal(tree, name, f"{found[1]}{route}.{'ts' if typed else 'js'}", typed=typed)
    why = "no page of an app or pages folder was found next to a package.json that names next"
    return Proposal("No edits for Next.js.", warnings=(why,))


def _pages(profile: Profile) -> list[str]:
    return [path for path in profile.paths if any(sign.fullmatch(path) for _, sign, _ in ROUTERS)]


def _is_next(tree: Tree, profile: Profile, path: str) -> bool:
    package = package_of(tree, profile, path)
    return any(
        "next" in names for part in ("dependencies", "devDependencies") if isinstance(names := package.get(part), dict)
    )


def _proposal(tree: Tree, router: str, path: str, *, typed: bool) -> Proposal:
    for ending in ("ts", "js", "tsx", "jsx"):
        there = f"{path.rpartition('.')[0]}.{ending}"
        if tree.kind(there):
            ours = "ai-session" in (tree.read(there) or "")
            why = () if ours else (f"{there} exists and was not made by ai-session: rename it first",)
            return Proposal("No edits for Next.js.", warnings=why, present=ours)
    return Proposal(
        f"Add a terminal to the Next.js app: POST /api/terminal in {path}, guarded by a token.",
        (Edit(path, "create_file", _source(router, typed=typed)),),
        ("npx tsc --noEmit" if typed else "npx next build", "start the app with AI_SESSION_TERMINAL_TOKEN set"),
        (f"{SDK} runs on the server only; a middleware that answers /api itself has to let /api/terminal through",),
    )


def _source(router: str, *, typed: bool) -> str:
    style = Style("esm", typed)
    # Only handlers and settings may be exported by a route.
    client = style.source(CLIENT).replace("export async function closeTerminal", "async function closeTerminal")
    client = re.sub(r"\n/\*\* Ends the server.*?\n}\n", "", client, flags=re.DOTALL)
    types = (("type { NextApiRequest, NextApiResponse }", "next"),) if typed and router == "pages" else ()
    return HEAD + style.imports(*types) + "\n" + client + style.source(APP if router == "app" else PAGES)
