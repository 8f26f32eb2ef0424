"""The verb docs: the pages that are installed with the programs."""

from __future__ import annotations

from typing import Annotated

from agentwire.cli.options import Argument, Json
from agentwire.cli.output import show_json, show_rows
from ai_session.cli.output import write_text
from ai_session.errors import InvalidArguments
from ai_session.system import manual


def docs(
    page: Annotated[
        str, Argument(metavar="[PAGE]", help="Its name, such as sandbox, or its path, such as howto/clients.md.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Print a page of the documentation, or the list of all pages.

    The pages describe the installed version of both programs. ai-session mcp-server --once --query "…" answers a
    question from them.

    Exit codes: 0 printed, 2 there is no such page.
    """
    root = manual.folder()
    if root is None:
        raise InvalidArguments("the documentation is not installed", suggestion="install ai-session again")
    pages = manual.read_pages(root)
    if not page:
        rows = [{"page": _short(path), "title": manual.title(text)} for path, text in pages.items()]
        show_json(rows) if as_json else show_rows(rows, ["page", "title"])
        return
    found = manual.named(pages, page)
    if len(found) > 1:
        several = " or ".join(f"ai-session docs {_short(path)}" for path in found)
        raise InvalidArguments(f"{len(found)} pages are called {page!r}", suggestion=several)
    if not found:
        raise InvalidArguments(f"there is no page {page!r}", suggestion=_nearest(pages, page))
    text = pages[found[0]]
    if as_json:
        show_json({"page": _short(found[0]), "title": manual.title(text), "text": text})
    else:
        write_text(text)


def _short(path: str) -> str:
    return path.removeprefix("docs/").removesuffix(".md")


def _nearest(pages: dict[str, str], name: str) -> str:
    from difflib import get_close_matches

    by_name = {path.rpartition("/")[2].removesuffix(".md"): path for path in pages}
    near = get_close_matches(name.lower().rpartition("/")[2].removesuffix(".md"), by_name, n=2)
    return ", ".join([*(f"ai-session docs {each}" for each in near), "ai-session docs lists all"])
