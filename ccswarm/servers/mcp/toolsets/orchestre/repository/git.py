"""The history of a repository: its age, its authors, and what changes most. Git runs within limits, and the
repository's own configuration starts no program."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentwire.system import program_path
from ccswarm.config import config

MOST_COMMITS = 5000
CHURN_COMMITS = 300
CHURN_SHOWN = 10
MOST_BYTES = 4_000_000
GIT_SECONDS = 15.0
SAFE = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "log.showSignature=false",
    "-c",
    "diff.external=",
    "--no-pager",
    "--literal-pathspecs",
)
OUTWARD = ("commondir", "objects/info/alternates", "objects/info/http-alternates")
"""Files of a repository that make git read objects elsewhere."""

PASSED = ("PATH", "HOME", "LANG", "TMPDIR")
KEPT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C.UTF-8",
}
"""These prevent questions, locks, network access and foreign settings."""


async def history(root: Path) -> dict[str, Any]:
    """Return the history of the repository whose top is ``root``.

    It has ``commits`` (counted up to ``MOST_COMMITS``), ``authors`` by address, ``topAuthorShare``, ``firstCommit`` and
    ``lastCommit`` in seconds since 1970, and ``churn``: the files most often changed in the last ``CHURN_COMMITS``.
    Without a readable repository, it has only ``unread``, the reason.
    """
    if why := await asyncio.to_thread(_unusable, root):
        return {"unread": why}
    failed, lines = await _git(root, "log", f"-n{MOST_COMMITS}", "--format=%ct %ae", "HEAD")
    if failed or not lines:
        return {"unread": failed or "it has no commits"}
    commits = [line.partition(" ") for line in lines.decode(errors="replace").splitlines()]
    times = [int(one[0]) for one in commits if one[0].isdecimal()]
    if not times:
        return {"unread": "git's answer cannot be read"}
    authors = Counter(one[2].lower() for one in commits)
    _, changed = await _git(
        root,
        "log",
        f"-n{CHURN_COMMITS}",
        "--no-merges",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--name-only",
        "-z",
        "--format=",
        "HEAD",
    )
    names = Counter(name.strip("\n") for name in changed.decode(errors="replace").split("\0") if name.strip("\n"))
    return {
        "commits": len(commits),
        "more": len(commits) >= MOST_COMMITS,
        "authors": len(authors),
        "topAuthorShare": round(authors.most_common(1)[0][1] / len(commits), 2),
        "firstCommit": min(times),
        "lastCommit": max(times),
        "churn": [
            {"path": name, "commits": count}
            for name, count in sorted(names.items(), key=lambda one: (-one[1], one[0]))[:CHURN_SHOWN]
        ],
        "churnOf": min(len(commits), CHURN_COMMITS),
    }


def _unusable(root: Path) -> str:
    """Return why git must not read the repository: it would follow these links out of the directory."""
    directory = root / ".git"
    try:
        if directory.is_symlink() or directory.is_file():
            return ".git leads out of the directory"
        if not directory.is_dir():
            return "it is not the top of a git repository"
        inner = (directory, directory / "objects", directory / "objects/info", directory / "refs", directory / "HEAD")
        within = (entry for one in ("objects", "objects/pack") for entry in os.scandir(directory / one))
        links = any(one.is_symlink() for one in (*inner, *within))
        if links or any((directory / name).exists() for name in OUTWARD):
            return "its objects lie elsewhere"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return ""


async def _git(root: Path, *words: str) -> tuple[str, bytes]:
    """Return why git failed, else ``""``, and its output."""
    variables = await asyncio.to_thread(program_path.environment, config.server_environment(), (str(root),))
    environ = {name: variables[name] for name in PASSED if name in variables}
    environ |= {**KEPT, "GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_DIR": str(root / ".git")}
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *SAFE,
            *words,
            cwd=root,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return f"git cannot be started: {error.strerror}", b""
    assert process.stdout
    output = b""
    try:
        async with asyncio.timeout(GIT_SECONDS):
            while len(output) < MOST_BYTES and (part := await process.stdout.read(1 << 16)):
                output += part
            if len(output) < MOST_BYTES and await process.wait():
                return "git refused to read it", b""
    except TimeoutError:
        return f"git did not answer within {GIT_SECONDS:g} s", b""
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return "", output
