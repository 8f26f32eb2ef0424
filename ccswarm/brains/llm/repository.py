"""Facts about the working directory for a model, so that it need not explore.

The files are untrusted: no link is followed, nothing is run, and only what is shown is read, once and within limits.
Functions block.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

MOST_NAMES = 60
"""The most files and directories at the top that are named."""
MOST_COUNTED = 4000
MOST_LANGUAGES = 4
NOTE_CHARS = 8000
"""The longest text of AGENTS.md or CLAUDE.md."""
FILE_BYTES = 64 << 10

NOTES = ("AGENTS.md", "CLAUDE.md")
LEFT_OUT = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build", "vendor"})
LANGUAGES = {
    "py": "Python",
    "js": "JavaScript",
    "mjs": "JavaScript",
    "jsx": "JavaScript",
    "ts": "TypeScript",
    "tsx": "TypeScript",
    "go": "Go",
    "rs": "Rust",
    "java": "Java",
    "kt": "Kotlin",
    "rb": "Ruby",
    "php": "PHP",
    "c": "C",
    "h": "C",
    "cc": "C++",
    "cpp": "C++",
    "hpp": "C++",
    "cs": "C#",
    "swift": "Swift",
    "sh": "shell",
    "bash": "shell",
    "lua": "Lua",
    "ex": "Elixir",
    "exs": "Elixir",
    "hs": "Haskell",
    "scala": "Scala",
    "zig": "Zig",
}
TARGET = re.compile(r"^test\s*:(?!=)", re.MULTILINE)
BRANCH = re.compile(r"ref: refs/heads/(\S+)")


def describe_directory(directory: str) -> str:
    """Return branch, top-level names, languages, test command and people's notes for agents, as text. The test command
    is given only if a file states it. ``""`` if the directory does not exist."""
    try:
        top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        lines = list(_lines(top, directory))
        notes = list(_notes(top))
    finally:
        os.close(top)
    return "\n".join([*lines, *notes])


def _lines(top: int, directory: str) -> Iterator[str]:
    if branch := _branch(top):
        yield f"Branch: {branch}"
    with os.scandir(top) as entries:
        names = sorted(f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name for one in entries)
    names = [name for name in names if name != ".git/"]
    more = f", … ({len(names) - MOST_NAMES} more)" if len(names) > MOST_NAMES else ""
    yield f"At the top: {', '.join(map(_printable, names[:MOST_NAMES])) or 'nothing'}{more}"
    if languages := _languages(directory):
        yield f"Languages, by number of files: {', '.join(languages)}"
    if command := _test_command(top):
        yield f"Command for tests: {command}"


def _notes(top: int) -> Iterator[str]:
    """Yield each text once: one file is often a copy of the other, or refers to it."""
    seen = {f"@{name}" for name in NOTES}
    for name in NOTES:
        text = _text(top, name).strip()
        if text and text not in seen:
            seen.add(text)
            left = len(text) - NOTE_CHARS
            yield f"\n{name}:\n{text[:NOTE_CHARS]}" + (f"\n… ({left} characters more: read {name})" if left > 0 else "")


def _branch(top: int) -> str:
    head = _text(top, ".git/HEAD")
    found = BRANCH.match(head)
    return _printable(found[1]) if found else ""


def _languages(directory: str) -> list[str]:
    counts: Counter[str] = Counter()
    counted = 0
    for _, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        counted += len(files) + len(folders)
        counts.update(filter(None, (LANGUAGES.get(name.rpartition(".")[2].lower()) for name in files)))
        if counted > MOST_COUNTED:
            break
    return [f"{name} {count}" for name, count in counts.most_common(MOST_LANGUAGES)]


def _test_command(top: int) -> str:
    """Return the command that a file of the repository states, not one usual for its language."""
    with suppress(ValueError, RecursionError):
        package: Any = json.loads(_text(top, "package.json") or "{}")
        scripts: Any = cast("dict[str, Any]", package).get("scripts") if isinstance(package, dict) else None
        if isinstance(scripts, dict) and "test" in scripts:
            return "npm test"
    if any(TARGET.search(_text(top, name)) for name in ("Makefile", "makefile", "GNUmakefile")):
        return "make test"
    if "[tool.pytest" in _text(top, "pyproject.toml") or _text(top, "pytest.ini"):
        return "python3 -m pytest"
    return ""


def _text(top: int, name: str) -> str:
    """Return the beginning of a regular file; ``""`` if there is none, or it is a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened: list[int] = []
    try:
        at = top
        *folders, last = Path(name).parts
        for folder in folders:
            at = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
            opened.append(at)
        opened.append(os.open(last, flags, dir_fd=at))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return ""
        return os.read(opened[-1], FILE_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        for one in opened:
            os.close(one)


def _printable(name: str) -> str:
    """Return a name as one word of a line."""
    return name if name.isprintable() and len(name) <= 100 else repr(name[:100])
