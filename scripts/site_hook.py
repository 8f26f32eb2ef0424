"""A hook of mkdocs that adds the files outside docs/ that pages link to, so that no link leads out of the site.

Links stay as they work in the repository: ``../ARCHITECTURE.md``, ``../config/ccswarm.toml``.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(\]\()([^)\s:#]+)(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the top directory and the examples of config/ at the top of the site."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for path in sorted((ROOT / "config").iterdir()):
        files.append(File.generated(config, f"config/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Translate links within the repository to links within the site."""
    here = PurePosixPath(page.file.src_uri)
    # The page's directory in the repository, relative to docs/.
    folder = PurePosixPath("..") if here.name in PAGES else here.parent

    def inside(match: re.Match[str]) -> str:
        target = _normal(folder / match[2])
        if target.parts[:1] != ("..",):
            return match[1] + _relative(target, here.parent)
        rest = PurePosixPath(*target.parts[1:])
        if rest.parts[:1] == ("docs",):
            rest = PurePosixPath(*rest.parts[1:])
        return match[1] + _relative(rest, here.parent)

    return LINK.sub(inside, markdown)


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def _relative(target: PurePosixPath, start: PurePosixPath) -> str:
    up = "../" * len(start.parts)
    return f"{up}{target}"
