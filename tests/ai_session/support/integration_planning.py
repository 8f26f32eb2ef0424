"""Integration plans of a directory, and their validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ai_session.gate.redaction.redactor import Redactor
from ai_session.tools.integration.frameworks import framework
from ai_session.tools.integration.plans import propose, validate
from ai_session.tools.integration.project.profile import Profile, profile_tree
from ai_session.tools.integration.project.tree import Tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ai_session.support.integration_projects import Plan

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
REDACTOR = Redactor((), (), b"key")


def secret(text: str) -> bool:
    return bool(REDACTOR.spans(text.encode(errors="surrogatepass")))


def planned(root: Path, name: str, reported: Profile | None = None) -> Plan:
    with Tree(str(root)) as tree:
        return propose(tree, framework(name), profile_tree(tree), reported or Profile(), secret)


def judged(root: Path, plan: Plan) -> dict[str, Any]:
    with Tree(str(root)) as tree:
        return validate(tree, plan, secret)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
