"""What ai-session can be integrated into, by what pattern, and how certainly a repository is one. No I/O."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from math import prod
from typing import Any

from ai_session.errors import InvalidArguments
from ai_session.tools.integration.project.profile import NODE, PYTHON, Evidence, Profile


@dataclass(frozen=True, slots=True)
class Framework:
    """``pattern`` names the kind of integration, ``doc`` the page about it. ``managers`` can install what it needs."""

    name: str
    title: str
    pattern: str
    doc: str
    managers: tuple[str, ...] = ()

    @property
    def is_client(self) -> bool:
        """Whether it is a client's configuration, not an app."""
        return not self.managers


PAGE = "docs/howto/integrate.md"
CLIENT, ROUTER = "mcp-client-config", "guarded-http-endpoint"

FRAMEWORKS = {
    one.name: one
    for one in (
        Framework("express", "Express", ROUTER, f"{PAGE}#express", NODE),
        Framework("fastapi", "FastAPI", ROUTER, f"{PAGE}#fastapi", PYTHON),
        Framework("nextjs", "Next.js", ROUTER, f"{PAGE}#nextjs", NODE),
        Framework("nestjs", "NestJS", ROUTER, f"{PAGE}#nestjs", NODE),
        Framework("claude-code", "Claude Code (.mcp.json)", CLIENT, f"{PAGE}#clients"),
        Framework("cursor", "Cursor (.cursor/mcp.json)", CLIENT, f"{PAGE}#clients"),
        Framework("vscode", "VS Code (.vscode/mcp.json)", CLIENT, f"{PAGE}#clients"),
        Framework("codex", "Codex (.codex/config.toml)", CLIENT, f"{PAGE}#clients"),
        Framework("gemini", "Gemini CLI (.gemini/settings.json)", CLIENT, f"{PAGE}#clients"),
        Framework("ccswarm", "ccswarm (ccswarm.toml)", CLIENT, f"{PAGE}#ccswarm"),
    )
}

OTHER_NAMES = {
    "next": "nextjs",
    "nest": "nestjs",
    "claude": "claude-code",
    "claudecode": "claude-code",
    "mcpjson": "claude-code",
    "vscodemcpjson": "vscode",
    "copilot": "vscode",
    "cursormcpjson": "cursor",
    "codexconfigtoml": "codex",
    "geminicli": "gemini",
    "geminisettingsjson": "gemini",
    "ccswarmtoml": "ccswarm",
    "nestjscore": "nestjs",
    "expressjs": "express",
}

WEIGHTS = {"app": 0.85, "dependency": 0.7, "file": 0.7, "import": 0.6, "named": 0.6, "entry": 0.3}
"""The weight of each kind of evidence alone, where 1 would be certain. Several count as independent."""

ENTRIES = {
    "fastapi": r"(?:.*/)?(?:app/)?main\.py",
    "express": r"(?:.*/)?server\.[cm]?[jt]s",
    "nestjs": r"(?:.*/)?src/main\.ts",
}
MOST, MAX_ANCHORS = 0.99, 20
EVIDENCE_TEXTS = {
    "app": "{path} makes the app: {pattern}",
    "dependency": "{path} names {pattern} among its dependencies",
    "file": "{path} exists",
    "import": "{path} imports it",
    "named": "the profile names it among its frameworkCandidates",
    "entry": "{path} is named as its apps often are",
}


def framework(name: str) -> Framework:
    """Return the framework of that name in any spelling. Raises InvalidArguments that lists the names."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower()[:60])
    for known in (name.lower().strip(), plain, OTHER_NAMES.get(plain, "")):
        if known in FRAMEWORKS:
            return FRAMEWORKS[known]
    near = difflib.get_close_matches(plain, FRAMEWORKS, n=1)
    raise InvalidArguments(
        f"no integration for framework {name[:60]!r}",
        suggestion=(f"did you mean {near[0]}? " if near else "") + f"frameworks: {', '.join(FRAMEWORKS)}",
    )


def detect(profile: Profile) -> dict[str, Any]:
    """Return frameworks with their confidence (0 to 0.99), most likely first, and the evidence for each."""
    found: list[tuple[float, Framework, list[Evidence]]] = []
    for one in FRAMEWORKS.values():
        evidence = _evidence(one, profile)
        if evidence:
            doubt = prod(1 - WEIGHTS[kind] for kind in {each.kind for each in evidence})
            found.append((round(min(MOST, 1 - doubt), 2), one, evidence))
    found.sort(key=lambda row: -row[0])
    return {
        "frameworks": [
            {
                "name": one.name,
                "confidence": confidence,
                "insertAnchors": [
                    {"filepath": each.path, "pattern": each.pattern} for each in evidence if each.kind == "app"
                ][:MAX_ANCHORS],
                "reasons": [
                    EVIDENCE_TEXTS[each.kind].format(path=each.path, pattern=each.pattern) for each in evidence
                ][:MAX_ANCHORS],
            }
            for confidence, one, evidence in found
        ],
        "recommended_patterns": [
            {"framework": one.name, "runner_pattern": one.pattern, "doc_url": one.doc, "confidence": confidence}
            for confidence, one, _ in found
        ],
    }


def _evidence(one: Framework, profile: Profile) -> list[Evidence]:
    """Return the profile's evidence, or without any, what its names suggest."""
    given = [each for each in profile.evidence if each.framework == one.name and each.kind in EVIDENCE_TEXTS]
    if given:
        return given
    named = [Evidence(one.name, "named", "")] if one.name in profile.candidates else []
    custom = ENTRIES.get(one.name)
    fitting = [path for path in profile.entry_points if custom and re.fullmatch(custom, path)]
    return named + [Evidence(one.name, "entry", path) for path in fitting]


def choose(profile: Profile, question: str = "") -> tuple[Framework, str]:
    """Return the framework in the question or the most likely one, apps before clients; and a warning if neither."""
    for word in re.findall(r"[a-z0-9.+-]+", question.lower()[:2000]):
        plain = word.strip(".").removesuffix(".js")
        if plain in FRAMEWORKS or word.strip(".") in ("next.js", "nest.js"):
            return framework(plain), ""
    detected = [FRAMEWORKS[row["name"]] for row in detect(profile)["frameworks"]]
    for one in sorted(detected, key=lambda one: one.is_client):
        return one, ""
    return FRAMEWORKS["claude-code"], "no framework was detected; a .mcp.json fits any project"
