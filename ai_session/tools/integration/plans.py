"""A plan of edits for one repository in its current state: proposed, and validated before it is applied."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from agentwire.json_lines import unique_keys
from ai_session.config.config import read_toml
from ai_session.errors import InvalidArguments
from ai_session.tools.integration.frameworks import Framework
from ai_session.tools.integration.project.edits import STRATEGIES, Edit, Proposal
from ai_session.tools.integration.project.profile import Profile
from ai_session.tools.integration.project.source_text import occurrences, unbalanced
from ai_session.tools.integration.project.tree import MAX_FILE_BYTES, Tree, checked_path
from ai_session.tools.integration.recipes import clients, express, fastapi, nestjs, nextjs

PRESENT = "already present"
MAX_EDITS = 100
MAX_FINDINGS = 50
MAX_TEXTS = 2 << 20
CHECKS = (
    "shape: every edit has filepath, strategy, anchors and payload",
    "path: below root, without links, not a file of git or of secrets, not settings that a sandbox protects",
    "strategy: create_file needs a free path, insert and append an existing text file",
    "anchor: occurs exactly once, character for character, after the edits before it",
    "payload: not present yet, and without secrets",
    "syntax: of the file after all edits; JSON, TOML and Python of up to 100,000 characters are parsed",
)
BRACKETS = "brackets: JavaScript and TypeScript are not parsed here, only their brackets are balanced"

RECIPES: Mapping[str, Callable[[Tree, Profile], Proposal]] = {
    "fastapi": fastapi.propose,
    "express": express.propose,
    "nextjs": nextjs.propose,
    "nestjs": nestjs.propose,
    "ccswarm": lambda tree, _: clients.propose_swarm(tree),
}

Secret = Callable[[str], bool]
"""Reports whether a text contains what looks like a secret."""


def propose(tree: Tree, framework: Framework, now: Profile, sent: Profile, secret: Secret) -> dict[str, Any]:
    """Return the plan. ``now`` is the tree's profile, ``sent`` the client's, whose entry points are tried first."""
    known = [path for path in sent.entry_points if tree.kind(path) == "file"]
    profile = replace(now, entry_points=tuple(dict.fromkeys((*known, *now.entry_points))))
    recipe = RECIPES.get(framework.name)
    made = recipe(tree, profile) if recipe else clients.propose(tree, framework.name)
    if made.present:
        why = f"{PRESENT}: nothing left to do for {framework.title}"
        made = Proposal(f"No edits for {framework.title}.", warnings=(why,))
    if any(secret(edit.anchor) for edit in made.edits):
        why = "the text around the anchor contains what looks like a secret: add the lines by hand"
        made = Proposal(f"No edits for {framework.title}.", warnings=(why, *(_by_hand(edit) for edit in made.edits)))
    return replace(made, warnings=(*made.warnings, *now.warnings)).facts()


def _by_hand(edit: Edit) -> str:
    return f"{edit.filepath}: {edit.text.strip()[:2000]}"


def validate(tree: Tree, plan: Mapping[str, Any], secret: Secret) -> dict[str, Any]:
    """Return whether a plan can be applied: ``valid`` if there are no ``issues``. An edit that is already present
    causes a warning and is skipped."""
    validation = _Validation(tree, secret)
    edits = plan.get("edits")
    if not isinstance(plan.get("summary"), str):
        validation.warnings.append("the plan has no summary")
    if not isinstance(edits, list):
        validation.issues.append("edits must be a list")
    elif not edits:
        validation.warnings.append("the plan has no edits")
    elif len(cast("list[object]", edits)) > MAX_EDITS:
        validation.issues.append(f"more than {MAX_EDITS} edits")
    else:
        for number, row in enumerate(cast("list[object]", edits)):
            validation.validate_edit(number, row)
        validation.check_syntax()
        if not plan.get("postChecks"):
            validation.warnings.append("postChecks is empty: there is no way to check that it works")
    rollback = plan.get("rollback")
    if not (isinstance(rollback, dict) and cast("dict[str, object]", rollback).get("instruction")):
        validation.warnings.append("rollback.instruction is missing")
    return {
        "valid": not validation.issues,
        "issues": validation.issues[:MAX_FINDINGS],
        "warnings": validation.warnings[:MAX_FINDINGS],
        "checks_performed": [*CHECKS, *([BRACKETS] if validation.brackets else [])],
    }


def named_files(plan: Mapping[str, Any]) -> list[str]:
    """Return the files below root that the plan's edits name, as far as their paths are valid."""
    rows = plan.get("edits")
    found: dict[str, None] = {}
    for row in cast("list[object]", rows)[:MAX_EDITS] if isinstance(rows, list) else ():
        try:
            found[checked_path(_object(row, "the edit").get("filepath"))] = None
        except InvalidArguments:
            continue
    return list(found)


class _Validation:
    """The problems of a plan, and the texts that its edits would produce."""

    def __init__(self, tree: Tree, secret: Secret) -> None:
        self._tree = tree
        self._secret = secret
        self._texts: dict[str, str | None] = {}
        self._changed: dict[str, None] = {}
        self.issues: list[str] = []
        self.warnings: list[str] = []
        self.brackets = False

    def validate_edit(self, number: int, row: object) -> None:
        """Validate one edit, after those before it."""
        try:
            edit = read_edit(row)
            before = self._before(edit)
        except InvalidArguments as error:
            self.issues.append(f"edit {number}: {error.message}")
            return
        named = f"edit {number} ({edit.filepath})"
        if self._secret(edit.text):
            self.issues.append(f"{named}: the payload contains what looks like a secret; keep it out of files")
        elif edit.present(before):
            self.warnings.append(f"{named}: {PRESENT}; it would change nothing and is left out")
        elif problem := self._problem(edit, before):
            self.issues.append(f"{named}: {problem}")
        else:
            after = edit.applied(before)
            size = len(after) + sum(len(self._texts[path] or "") for path in self._changed if path != edit.filepath)
            if len(after) > MAX_FILE_BYTES or size > MAX_TEXTS:
                self.issues.append(f"{named}: the files would be too large to be checked")
                return
            self._texts[edit.filepath] = after
            self._changed[edit.filepath] = None

    @cached_property
    def _own(self) -> list[Edit]:
        """What is proposed here for settings of clients, about which a person is then asked."""
        made = [clients.propose(self._tree, client) for client in clients.clients()]
        return [edit for proposal in (*made, clients.propose_swarm(self._tree)) for edit in proposal.edits]

    def _before(self, edit: Edit) -> str | None:
        """Return the file's text after the edits before. Raises InvalidArguments if it must not be changed."""
        path = edit.filepath
        if path in self._texts:
            return self._texts[path]
        kind = self._tree.kind(path)
        if kind not in ("", "file"):
            why = {"link": "is a link, or below one", "folder": "is a directory"}.get(kind, "is not a regular file")
            raise InvalidArguments(f"{path!r} {why}")
        if self._tree.hidden(path):
            raise InvalidArguments(f"{path!r} is a file of secrets, which is not changed")
        if self._tree.is_protected(path) and edit not in self._own:
            raise InvalidArguments(f"{path!r} is protected: programs outside the sandbox read settings from it")
        text = self._tree.read(path) if kind else None
        if kind and text is None:
            raise InvalidArguments(f"{path!r} cannot be read as text")
        self._texts[path] = text
        return text

    @staticmethod
    def _problem(edit: Edit, before: str | None) -> str:
        if edit.strategy == "create_file":
            return "" if before is None else "the file exists already"
        if before is None:
            return "the file does not exist"
        if edit.strategy == "insert" and (count := occurrences(before, edit.anchor)) != 1:
            return f"the anchor {edit.anchor[:80]!r} {'occurs more than once' if count else 'does not occur'}"
        return ""

    def check_syntax(self) -> None:
        """Check the syntax of every file that would be changed."""
        for path in self._changed:
            problem = syntax_of(path, self._texts[path] or "")
            self.brackets |= path.rpartition(".")[2] in SCRIPT
            before = self._tree.read(path)
            if not problem:
                continue
            if before is not None and syntax_of(path, before):
                self.warnings.append(f"{path}: was not valid before, and is not after: {problem}")
            else:
                self.issues.append(f"{path}: would not be valid: {problem}")


SCRIPT = ("js", "mjs", "cjs", "ts", "mts", "cts")


def syntax_of(path: str, text: str) -> str:
    """Return what is wrong with the text of such a file; empty if no problem is known."""
    ending = path.rpartition(".")[2]
    try:
        if ending == "py" and len(text) <= fastapi.MAX_PARSED_CHARS:
            ast.parse(text)
        elif ending == "json":
            json.loads(text.removeprefix("\ufeff"), object_pairs_hook=unique_keys)
        elif ending == "toml":
            read_toml(text)
        elif ending in SCRIPT:
            return unbalanced(text)
    except (SyntaxError, ValueError) as error:
        return str(error)[:300]
    except (RecursionError, MemoryError):
        return "nested too deeply to be read"
    return ""


def read_edit(row: object) -> Edit:
    """Read an edit as a client sends it. Raises InvalidArguments that says what is wrong."""
    given = _object(row, "the edit")
    path = checked_path(given.get("filepath"))
    strategy = given.get("strategy")
    if strategy not in STRATEGIES:
        raise InvalidArguments(f"strategy {str(strategy)[:40]!r} is not one of {', '.join(STRATEGIES)}")
    payload = _object(given.get("payload"), "payload")
    imports, code = payload.get("import", ""), payload.get("code", "")
    if not isinstance(imports, str) or not isinstance(code, str) or not (imports + code).strip():
        raise InvalidArguments("payload has no text in import or code")
    try:
        (imports + code).encode()
    except UnicodeEncodeError:
        raise InvalidArguments("payload contains an unpaired surrogate") from None
    return Edit(path, str(strategy), code, imports, _anchor(given.get("anchors"), wanted=strategy == "insert"))


def _anchor(given: object, *, wanted: bool) -> str:
    rows = cast("Sequence[object]", given) if isinstance(given, list) else ()
    if not wanted:
        return ""
    if len(rows) != 1:
        raise InvalidArguments("insert takes exactly one anchor")
    one = _object(rows[0], "the anchor")
    pattern = one.get("pattern")
    if one.get("type") != "after_match" or not isinstance(pattern, str) or not pattern:
        raise InvalidArguments("the anchor needs type 'after_match' and a pattern")
    return pattern


def _object(given: object, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise InvalidArguments(f"{what} is not an object")
    return {str(key): value for key, value in cast("dict[object, object]", given).items()}
