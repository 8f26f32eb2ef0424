"""The view in a chat is one file: what is put into it ends no element early, and its policy allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

from ai_session.servers.mcp.view import STYLES, WEB, view


class Elements(HTMLParser):
    """A page as a browser reads it: its tags in their order, the attributes of all, the text of each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: dict[str, str] = {}
        self.policy = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts[self.tags[-1]] = self.texts.get(self.tags[-1], "") + data


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_view_is_one_script_and_one_style_and_loads_nothing() -> None:
    page = Elements(view())
    assert page.tags == ["html", "meta", "meta", "meta", "title", "style", "body", "script"]
    assert not page.attributes & {"src", "href"}
    assert set(page.texts) == {"title", "style", "script"}
    assert page.texts["style"].strip() == "".join((WEB / name).read_text() for name in STYLES).strip()
    assert f"script-src {digest(page.texts['script'])};" in page.policy
    assert f"style-src {digest(page.texts['style'])};" in page.policy


def test_no_module_of_the_view_imports_or_exports() -> None:
    script = Elements(view()).texts["script"]
    assert [line for line in script.splitlines() if line.startswith(("import", "export"))] == []
    assert "export default" not in script
