"""The contents of a project's directory: counted, never guessed, and with a list of what was left out."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

from ccswarm.servers.mcp.toolsets.orchestre.repository.git import history
from ccswarm.servers.mcp.toolsets.orchestre.repository.languages import LOCKS, NO_CODE, TESTS, cases_in, language_of
from ccswarm.servers.mcp.toolsets.orchestre.repository.manifests import Manifest, manifest_of
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import File, Tree, secret

Facts = dict[str, Any]

SHOWN = 20
LARGE_LINES = 1000
"""The number of lines from which on a file of code is reported as large."""

CI = re.compile(
    r"^(?:\.github/workflows/[^/]+\.ya?ml|\.gitlab-ci\.yml|\.circleci/config\.yml|Jenkinsfile|azure-pipelines\.yml"
    r"|\.travis\.yml|bitbucket-pipelines\.yml|\.drone\.yml|\.woodpecker(?:\.yml|/.+)|appveyor\.yml|\.ci/[^/]+)$"
)
LICENCE = re.compile(r"^(?:LICEN[CS]E|COPYING|UNLICENSE)(?:[.-][^/]*)?$", re.IGNORECASE)
LICENCES = (
    ("Apache-2.0", r"Apache License"),
    ("AGPL", r"GNU AFFERO GENERAL PUBLIC LICENSE"),
    ("LGPL", r"GNU LESSER GENERAL PUBLIC LICENSE"),
    ("GPL", r"GNU GENERAL PUBLIC LICENSE"),
    ("MPL-2.0", r"Mozilla Public License"),
    ("MIT", r"Permission is hereby granted, free of charge"),
    ("ISC", r"Permission to use, copy, modify, and(?:/or)? distribute"),
    ("BSD", r"Redistribution and use in source and binary forms"),
    ("Unlicense", r"released into the public domain"),
)
STARTS = re.compile(
    r"(?:^|/)(?:__main__\.py|manage\.py|app\.py|main\.(?:py|go|rs|c|cpp|swift|dart)|Program\.cs|Main\.(?:java|kt)"
    r"|Dockerfile|Procfile|index\.html|(?:docker-)?compose\.ya?ml)$"
)
TEST_SETUPS = {
    "pytest.ini": "pytest",
    "conftest.py": "pytest",
    "tox.ini": "tox",
    "noxfile.py": "nox",
    "jest.config.js": "jest",
    "jest.config.ts": "jest",
    "vitest.config.ts": "vitest",
    "vitest.config.js": "vitest",
    "playwright.config.ts": "playwright",
    "cypress.config.js": "cypress",
    "cypress.config.ts": "cypress",
    "karma.conf.js": "karma",
    "phpunit.xml": "phpunit",
    "phpunit.xml.dist": "phpunit",
    ".rspec": "rspec",
    ".mocharc.json": "mocha",
}
TEST_PACKAGES = {"pytest", "jest", "vitest", "mocha", "playwright", "cypress", "rspec", "phpunit/phpunit", "unittest"}


class Count:
    """The counts of a tree, to which files are added."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()
        self.bytes = 0
        self.tests: Counter[str] = Counter()
        self.test_files = 0
        self.large: list[tuple[int, str]] = []
        self.manifests: list[Manifest] = []
        self.locks: dict[str, str] = {}
        self.setups: set[str] = set()
        self.ci: list[str] = []
        self.starts: list[str] = []
        self.licences: dict[str, str] = {}
        self.readme = ""
        self.secrets: list[str] = []

    def add(self, file: File) -> None:
        language = language_of(file.name)
        self.bytes += file.size
        self._note_role(file)
        if file.name in LOCKS:
            self.locks[file.path] = LOCKS[file.name]
            return
        if file.data is None or not language:
            return
        lines = file.data.count(b"\n") + (not file.data.endswith(b"\n") and bool(file.data))
        self.files[language] += 1
        self.lines[language] += lines
        if language not in NO_CODE and lines >= LARGE_LINES:
            self.large.append((lines, file.path))
        self.test_files += bool(TESTS.search(file.path)) and language not in NO_CODE
        if found := cases_in(language, file.path, file.data):
            self.tests[language] += found

    def _note_role(self, file: File) -> None:
        path, name = file.path, file.name
        if secret(name):
            self.secrets.append(path)
        if file.data is not None and (manifest := manifest_of(path, file.text)):
            self.manifests.append(manifest)
        if setup := TEST_SETUPS.get(name):
            self.setups.add(setup)
        if CI.match(path):
            self.ci.append(path)
        if STARTS.search(path) and not TESTS.search(path):
            self.starts.append(path)
        if LICENCE.match(path):
            text = file.text
            self.licences[path] = next((name for name, words in LICENCES if re.search(words, text)), "not recognised")
        if not self.readme and re.match(r"README(\.\w+)?$", path, re.IGNORECASE):
            self.readme = path


def count_files(tree: Tree) -> Facts:
    """Return everything except ``git``. Blocks."""
    count = Count()
    for file in tree.files():
        count.add(file)
    return _facts(tree, count)


async def scan(root: Path) -> Facts:
    """Return what the directory contains: ``count_files``, and the history as ``git``."""
    found, git = await asyncio.gather(asyncio.to_thread(count_files, Tree(root)), history(root))
    return {**found, "git": git}


def _facts(tree: Tree, count: Count) -> Facts:
    total = sum(lines for language, lines in count.lines.items() if language not in NO_CODE)
    ranked = sorted(count.lines, key=lambda one: (one in NO_CODE, -count.lines[one], one))
    needs, develops = (
        {name for one in count.manifests for name in getattr(one, which)} for which in ("needs", "develops")
    )
    setups = count.setups | ((needs | develops) & TEST_PACKAGES)
    named_licence = next((one.licence for one in count.manifests if one.licence), "")
    command, directory = _test_command(count)
    return {
        "files": tree.seen,
        "directories": tree.directories,
        "bytes": count.bytes,
        "lines": total,
        "languages": [
            {
                "name": name,
                "files": count.files[name],
                "lines": count.lines[name],
                "share": round(count.lines[name] / total, 3) if total and name not in NO_CODE else 0.0,
            }
            for name in ranked[:SHOWN]
        ],
        "buildFiles": [
            {"path": one.path, "manager": one.manager, **({"unread": one.unread} if one.unread else {})}
            for one in count.manifests[:SHOWN]
        ],
        "packageManagers": sorted({*count.locks.values(), *(one.manager for one in count.manifests if one.manager)}),
        "lockFiles": sorted(count.locks)[:SHOWN],
        "dependencies": {
            "direct": len(needs),
            "development": len(develops - needs),
            "named": sorted(needs)[:100],
        },
        "tests": {
            "files": count.test_files,
            "cases": sum(count.tests.values()),
            "byLanguage": dict(sorted(count.tests.items())),
            "setups": sorted(setups),
            "command": command,
            "directory": directory,
        },
        "entryPoints": [*dict.fromkeys(s for one in count.manifests for s in one.starts), *count.starts][:SHOWN],
        "ci": count.ci[:SHOWN],
        "licence": {"name": next(iter(count.licences.values()), "") or named_licence, "files": sorted(count.licences)},
        "readme": count.readme,
        "largestFiles": [
            {"path": path, "lines": lines} for lines, path in sorted(count.large, key=lambda one: (-one[0], one[1]))[:5]
        ],
        "secretFiles": count.secrets[:SHOWN],
        "leftOut": tree.left_out(),
    }


def _test_command(count: Count) -> tuple[str, str]:
    """Return the highest directory's test command, preferably a Makefile's, and the directory; or two ``""``."""
    known = [one for one in count.manifests if one.tests and not TESTS.search(one.path)]
    known.sort(key=lambda one: (one.path.count("/"), one.manager != "make", one.path))
    if not known:
        return "", ""
    first = known[0]
    here = {manager for path, manager in count.locks.items() if path.rpartition("/")[0] == first.directory}
    command = first.tests
    if first.manager == "npm" and (other := here & {"pnpm", "yarn", "bun"}):
        command = f"{min(other)} test" if min(other) != "bun" else "bun run test"
    elif command.startswith("python ") and (other := here & {"uv", "poetry", "pdm", "pipenv"}):
        command = f"{min(other)} run {command}"
    return command, first.directory
