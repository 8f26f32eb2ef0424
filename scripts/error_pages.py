"""The reference page of error codes: the meaning, fault, exit code and suggestions of each."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import ai_session.cli.output
import ai_session.errors
import ccswarm.cli.output
import ccswarm.errors

ROOT = Path(__file__).resolve().parent.parent
MOST_SUGGESTIONS = 6
FAULTS = {
    "caller": "the caller can fix it",
    "operator": "the machine or its configuration",
    "internal": "a defect of the program",
}
PACKAGES = (
    ("ai_session", "ai-session", ai_session.errors, ai_session.cli.output),
    ("ccswarm", "ccswarm", ccswarm.errors, ccswarm.cli.output),
)


def errors() -> dict[str, str]:
    """Return one page for both programs."""
    lines = ["# Errors and exit codes", ""]
    lines += ["Every error has a code that stays the same, a message, and a suggestion: the next step. In a tool's"]
    lines += ["result the three are text and structured content; `--json` prints them as one document. Messages and"]
    lines += ["suggestions are for reading and may change. `…` stands for a name or a number.", ""]
    for package, program, classes, output in PACKAGES:
        lines += [f"## {program}", "", str(output.EXIT_CODES), ""]
        lines += _codes(package, classes, output)
    return {"errors.md": "\n".join(lines)}


def _codes(package: str, classes: ModuleType, output: Any) -> Iterator[str]:
    suggestions_by_class = _suggestions(package)
    exits = cast("dict[str, int]", vars(output)["_BY_ERROR"])
    yield from ("| Code | Means | Exit code | What is suggested |", "|---|---|---|---|")
    for name, found in inspect.getmembers(classes, inspect.isclass):
        error: Any = found
        if issubclass(found, Exception) and found.__subclasses__() == [] and "code" in vars(found):
            means = " ".join((error.__doc__ or "").split()).replace("``", "`")
            suggestions = "<br>".join(map(_plain, suggestions_by_class[name][:MOST_SUGGESTIONS]))
            yield f"| `{error.code}` | {means} ({FAULTS[error.fault]}) | {exits.get(error.code, 1):d} | {suggestions} |"
    yield ""


def _suggestions(package: str) -> defaultdict[str, list[str]]:
    """Return the distinct suggestions that each class of errors is raised with, in the order of the files."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in [*sorted((ROOT / package).rglob("*.py")), *sorted((ROOT / "agentwire").rglob("*.py"))]:
        source = path.read_text()
        if "suggestion=" not in source:
            continue  # two files in three; parsing them takes most of the time
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                for keyword in call.keywords:
                    words = _text(keyword.value) if keyword.arg == "suggestion" else ""
                    if words and words not in found[call.func.id]:
                        found[call.func.id].append(words)
    return found


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


def _plain(text: str) -> str:
    for sign in "\\|<*_`":
        text = text.replace(sign, "\\" + sign)
    return text
