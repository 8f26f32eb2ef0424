"""The pages that are installed with the package: README and docs, by the paths that messages use for them."""

from __future__ import annotations

from pathlib import Path

MAX_PAGE_BYTES = 1 << 20


def folder() -> Path | None:
    """Return the directory of the pages, inside the package or around it in a source tree; None if there is none."""
    package = Path(__file__).parents[1]
    for root in (package / "manual", package.parent):
        if (root / "README.md").is_file() and (root / "docs").is_dir():
            return root
    return None


def read_pages(root: Path) -> dict[str, str]:
    """Return README and all of docs, by their path below ``root``."""
    found: dict[str, str] = {}
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        with path.open("rb") as file:
            found[path.relative_to(root).as_posix()] = file.read(MAX_PAGE_BYTES).decode(errors="replace")
    return found


def title(page: str) -> str:
    """Return the first heading of a page."""
    return next((line.removeprefix("# ").strip() for line in page.splitlines() if line.startswith("# ")), "")


def named(pages: dict[str, str], name: str) -> list[str]:
    """Return the paths of the pages that a name may mean: a path or the end of one, with or without ``.md`` and a
    heading after ``#``, as in links and answers."""
    wanted = name.partition("#")[0].strip().lower().removesuffix(".md").lstrip("./").removeprefix("docs/")
    plain = {path: path.lower().removesuffix(".md").removeprefix("docs/") for path in pages}
    return [path for path, short in plain.items() if short == wanted] or [
        path for path, short in plain.items() if wanted and short.endswith(f"/{wanted}")
    ]
