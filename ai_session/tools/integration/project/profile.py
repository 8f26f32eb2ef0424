"""What a repository consists of, judged by its files: languages, package managers, entry points, frameworks.

A profile travels through clients as JSON, so what comes back is untrusted: what does not fit is ignored.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, cast

from ai_session.config.config import read_toml
from ai_session.errors import InvalidArguments
from ai_session.tools.integration.project.tree import Tree, checked_path

LANGUAGES = {
    "py": "python",
    "pyi": "python",
    "ts": "typescript",
    "tsx": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "js": "javascript",
    "jsx": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "go": "go",
    "rs": "rust",
    "rb": "ruby",
    "java": "java",
    "kt": "kotlin",
    "cs": "csharp",
    "php": "php",
    "c": "c",
    "h": "c",
    "cc": "cpp",
    "cpp": "cpp",
    "hpp": "cpp",
    "swift": "swift",
    "scala": "scala",
    "ex": "elixir",
    "sh": "shell",
    "bash": "shell",
    "lua": "lua",
    "dart": "dart",
    "zig": "zig",
}
"""Languages by file name extension."""

SCRIPTS = ("javascript", "typescript")
LOCKS = {
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
    "bun.lock": "bun",
    "bun.lockb": "bun",
    "package-lock.json": "npm",
    "npm-shrinkwrap.json": "npm",
    "uv.lock": "uv",
    "poetry.lock": "poetry",
    "Pipfile": "pip",
}
NODE, PYTHON = ("pnpm", "yarn", "bun", "npm"), ("uv", "poetry", "pip")

CLIENT_FILES = {
    ".mcp.json": "claude-code",
    "CLAUDE.md": "claude-code",
    ".cursor/mcp.json": "cursor",
    ".cursorrules": "cursor",
    ".vscode/mcp.json": "vscode",
    ".codex/config.toml": "codex",
    ".gemini/settings.json": "gemini",
    "GEMINI.md": "gemini",
    "ccswarm.toml": "ccswarm",
}
"""Files at the top that show which client people use."""

NODE_DEPENDENCIES = {"express": "express", "next": "nextjs", "@nestjs/core": "nestjs"}
NEXT = re.compile(r"(?:.*/)?(?:next\.config\.(?:js|mjs|cjs|ts|mts)|app/layout\.[jt]sx?|pages/_app\.[jt]sx?)\Z")
NEXT_ROOT = re.compile(r"(?:.*/)?(?:app/layout|pages/_app|pages/index)\.[jt]sx?")
NAMED = re.compile(
    r"(?:manage|wsgi|asgi|main|__main__)\.py|(?:src/|app/)?(?:main|asgi)\.py|(?:src/)?(?:server|main|index|app)\.[cm]?[jt]s"
)
"""Where programs begin by convention, if nothing more specific is found."""

EVIDENCE_PATTERNS = (
    ("fastapi", "python", "import", re.compile(r"^[ \t]*(?:from|import)[ \t]+fastapi\b", re.MULTILINE)),
    ("fastapi", "python", "app", re.compile(r"^[ \t]*\w[^=\n#]{0,200}=[ \t]*(?:\w{1,80}\.)?FastAPI\(", re.MULTILINE)),
    (
        "express",
        "javascript",
        "import",
        re.compile(r"""(?:\bfrom\s*|\brequire\(\s*|^import\s*)['"]express['"]""", re.MULTILINE),
    ),
    ("express", "javascript", "app", re.compile(r"(?:const|let|var)[ \t]{1,20}\w[^=\n]{0,200}=[ \t]*express\(\)")),
    ("nestjs", "javascript", "import", re.compile(r"""\bfrom\s*['"]@nestjs/core['"]""")),
    ("nestjs", "javascript", "app", re.compile(r"\bNestFactory\s*\.\s*create\b")),
    ("nextjs", "javascript", "import", re.compile(r"""\bfrom\s*['"]next(?:/[\w/.-]+)?['"]""")),
)
"""What in a file is evidence of a framework: a use of it, or where the app is created."""

MAX_EVIDENCE = 200
MAX_NAMES = 100
MAX_TEXT = 400
MAX_MATCHES = 20
COMMENTS = ("//", "/*", "*")
TESTS = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec|examples?|docs?|fixtures?|benchmarks?|scripts|migrations)/|[._](?:test|spec)\."
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason to think that a framework is used: ``kind`` is dependency, import, app or file."""

    framework: str
    kind: str
    path: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """A repository in brief. Sequences are ordered: languages by their number of files, files shallow first."""

    root: str = ""
    languages: tuple[str, ...] = ()
    package_managers: tuple[str, ...] = ()
    entry_points: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    files: int = 0
    lines: int = 0
    evidence: tuple[Evidence, ...] = ()
    warnings: tuple[str, ...] = ()
    paths: tuple[str, ...] = field(default=(), repr=False)

    def facts(self) -> dict[str, Any]:
        """Return the profile as clients see it; ``stats`` counts the files with source text and their lines."""
        facts: dict[str, Any] = {
            "root": self.root,
            "languages": list(self.languages),
            "packageManagers": list(self.package_managers),
            "entryPoints": list(self.entry_points),
            "frameworkCandidates": list(self.candidates),
            "riskFlags": list(self.risks),
            "stats": {"files": self.files, "loc": self.lines},
            "evidence": [
                {"framework": e.framework, "kind": e.kind, "filepath": e.path, "pattern": e.pattern}
                for e in self.evidence
            ],
        }
        return facts | ({"warnings": list(self.warnings)} if self.warnings else {})


def read_profile(given: Mapping[str, Any]) -> Profile:
    """Read a profile that a client sends. What has the wrong type, is too long or leads out of root is ignored."""
    rows = given.get("evidence")
    evidence: list[Evidence] = []
    for row in cast("list[object]", rows)[:MAX_EVIDENCE] if isinstance(rows, list) else ():
        if isinstance(row, Mapping):
            one = {str(key): value for key, value in cast("Mapping[object, object]", row).items()}
            paths = _files([one.get("filepath")])
            words = _texts([one.get("framework"), one.get("kind")])
            pattern = one.get("pattern")
            if paths and len(words) == 2:
                plain = pattern if isinstance(pattern, str) and len(pattern) <= MAX_TEXT else ""
                evidence.append(Evidence(words[0], words[1], paths[0], plain))
    root = given.get("root")
    return Profile(
        root=root if isinstance(root, str) and len(root) <= 4000 else "",
        languages=tuple(_texts(given.get("languages"))),
        package_managers=tuple(_texts(given.get("packageManagers"))),
        entry_points=tuple(_files(given.get("entryPoints"))),
        candidates=tuple(_texts(given.get("frameworkCandidates"))),
        evidence=tuple(evidence),
    )


def _texts(given: object) -> list[str]:
    items = cast("Sequence[object]", given)[:MAX_NAMES] if isinstance(given, list | tuple) else ()
    return [text.lower() for text in items if isinstance(text, str) and 0 < len(text) <= 60 and text.isprintable()]


def _files(given: object) -> list[str]:
    found: list[str] = []
    for path in cast("list[object]", given)[:MAX_NAMES] if isinstance(given, list) else ():
        try:
            found.append(checked_path(path))
        except InvalidArguments:
            continue
    return found


class _Findings:
    """The findings so far."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.languages: Counter[str] = Counter()
        self.managers: dict[str, None] = {}
        self.entries: dict[str, None] = {}
        self.named: dict[str, None] = {}
        self.evidence: dict[Evidence, None] = {}
        self.lines = 0
        self.risks: dict[str, None] = {}
        self.paths: list[str] = []

    def add(self, path: str) -> None:
        self.paths.append(path)
        name = path.rpartition("/")[2]
        if framework := CLIENT_FILES.get(path):
            self._add_evidence(framework, "file", path)
        if NEXT.match(path):
            self._add_evidence("nextjs", "file", path)
        if manager := LOCKS.get(name):
            self.managers[manager] = None
        if name == "package.json":
            self._package(path)
        elif name == "pyproject.toml":
            self._project(path)
        elif re.fullmatch(r"requirements[\w.-]*\.(?:txt|in)", name):
            self._python(path, (self.tree.read(path, counted=True) or "").splitlines())
        language = LANGUAGES.get(name.rpartition(".")[2].lower()) if "." in name else None
        if language:
            self._source(path, language)

    def _add_evidence(self, framework: str, kind: str, path: str, pattern: str = "") -> None:
        self.evidence[Evidence(framework, kind, path, pattern)] = None

    def _source(self, path: str, language: str) -> None:
        self.languages[language] += 1
        text = self.tree.read(path, counted=True)
        if text is None:
            return
        self.lines += text.count("\n") + (not text.endswith("\n") and bool(text))
        if TESTS.search(path):
            return
        family = "javascript" if language in SCRIPTS else language
        for framework, written, kind, sign in EVIDENCE_PATTERNS:
            if written == family and (match := _outside_comments(sign, text, written)):
                self._add_evidence(framework, kind, path, _line(text, match) if kind == "app" else "")
                if kind == "app":
                    self.entries[path] = None
        if NAMED.fullmatch(path) or path.endswith("/__main__.py"):
            self.named[path] = None

    def _package(self, path: str) -> None:
        self.managers.setdefault("npm", None)
        data = _json(self.tree.read(path, counted=True))
        if data is None:
            self.risks["unreadable_manifest"] = None
            return
        if isinstance(wanted := data.get("packageManager"), str) and (name := wanted.partition("@")[0]) in NODE:
            self.managers = {name: None, **self.managers}
        for part in ("dependencies", "devDependencies"):
            if isinstance(names := data.get(part), dict):
                for name, framework in NODE_DEPENDENCIES.items():
                    if name in names:
                        self._add_evidence(framework, "dependency", path, f'"{name}"')
        if isinstance(main := data.get("main"), str):
            folder = path.rpartition("/")[0]
            for found in _files([f"{folder}/{main}".removeprefix("/").replace("/./", "/").removeprefix("./")]):
                if self.tree.kind(found) == "file":
                    self.named[found] = None

    def _project(self, path: str) -> None:
        text = self.tree.read(path, counted=True)
        try:
            data = read_toml(text or "")
        except (ValueError, RecursionError):
            self.risks["unreadable_manifest"] = None
            return
        tool, project = _table(data, "tool"), _table(data, "project")
        self.managers["poetry" if "poetry" in tool else "uv" if "uv" in tool else "pip"] = None
        lists = [project.get("dependencies"), *_table(project, "optional-dependencies").values()]
        lists += [list(_table(_table(tool, "poetry"), "dependencies")), *_table(data, "dependency-groups").values()]
        self._python(path, [line for lines in lists for line in _strings(lines)])

    def _python(self, path: str, lines: Iterable[str]) -> None:
        if path.rpartition("/")[2] != "pyproject.toml":
            self.managers.setdefault("pip", None)
        if any(re.match(r"\s*fastapi\b(?!-)", line, re.IGNORECASE) for line in lines):
            self._add_evidence("fastapi", "dependency", path, "fastapi")


def profile_tree(tree: Tree, globs: Sequence[str] = ()) -> Profile:
    """Return what the tree is made of. ``globs`` select files by path or name; without them all count."""
    found = _Findings(tree)
    for entry in tree.walk():
        if not globs or _chosen(entry.path, globs):
            found.add(entry.path)
    return _profile(found)


def _profile(found: _Findings) -> Profile:
    # A lock file is better evidence than a manifest that several managers read.
    managers = [name for name in found.managers if name not in ("npm", "pip")]
    for plain, family in (("npm", NODE), ("pip", PYTHON)):
        if plain in found.managers and (not set(managers) & set(family) or _locked(found, plain)):
            managers.append(plain)
    if any(one.framework == "nextjs" for one in found.evidence):
        roots = (path for path in found.paths if NEXT_ROOT.fullmatch(path))
        found.entries |= dict.fromkeys(islice(roots, 1))
    entries = tuple(found.entries or found.named)[:MAX_NAMES]
    if not entries:
        found.risks["missing_entrypoint"] = None
    elif len(entries) > 1:
        found.risks["multiple_entrypoints"] = None
    for name, family in (("node", NODE), ("python", PYTHON)):
        if len(set(managers) & set(family)) > 1:
            found.risks[f"multiple_package_managers_{name}"] = None
    if not managers:
        found.risks["missing_manifest"] = None
    if found.tree.bounds:
        found.risks["scan_bounded"] = None
    evidence = tuple(found.evidence)
    return Profile(
        root=found.tree.root,
        languages=tuple(name for name, _ in sorted(found.languages.items(), key=lambda item: (-item[1], item[0]))),
        package_managers=tuple(managers),
        entry_points=entries,
        candidates=tuple(dict.fromkeys(one.framework for one in sorted(evidence, key=lambda e: e.framework))),
        risks=tuple(found.risks),
        files=found.languages.total(),
        lines=found.lines,
        evidence=evidence[:MAX_EVIDENCE],
        warnings=tuple(f"not everything was read: {bound}" for bound in found.tree.bounds),
        paths=tuple(found.paths),
    )


def _locked(found: _Findings, manager: str) -> bool:
    return any(LOCKS.get(path.rpartition("/")[2]) == manager for path in found.paths)


def _chosen(path: str, globs: Sequence[str]) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path, glob) or fnmatchcase(name, glob.removeprefix("**/")) for glob in globs)


def _outside_comments(sign: re.Pattern[str], text: str, language: str) -> re.Match[str] | None:
    """Return the first match that is not after the beginning of a comment in its line; edits check more closely."""
    for found in islice(sign.finditer(text), MAX_MATCHES):
        before = text[text.rfind("\n", 0, found.start() + 1) + 1 : found.start() + 1].strip()
        if language == "python" or not before.startswith(COMMENTS):
            return found
    return None


def _line(text: str, match: re.Match[str]) -> str:
    """Return the matching line, if it is short enough to be an anchor."""
    start = text.rfind("\n", 0, match.start()) + 1 if not match[0].startswith("\n") else match.start() + 1
    line = text[start:].partition("\n")[0].strip()
    return line if len(line) <= MAX_TEXT else match[0].strip()[:MAX_TEXT]


def _json(text: str | None) -> dict[str, Any] | None:
    try:
        data: Any = json.loads((text or "").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _table(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _strings(given: object) -> list[str]:
    return [item for item in cast("list[object]", given) if isinstance(item, str)] if isinstance(given, list) else []
