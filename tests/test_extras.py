"""What says that an extra is missing names a command that installs it into this very environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentwire.extras import install

FORMS = {
    "pipx_metadata.json": "pipx runpip ai-session install 'ai-session[llm]'",
    "uv-receipt.toml": "uv pip install --python '/a b/python' 'ai-session[llm]'",
    "pyvenv.cfg": "'/a b/python' -m pip install 'ai-session[llm]'",
}


@pytest.mark.parametrize("left", FORMS)
def test_an_extra_is_installed_by_what_installed_the_program(left: str, tmp_path: Path) -> None:
    (tmp_path / left).touch()
    assert install("llm", str(tmp_path), "/a b/python") == FORMS[left]


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    root = Path(__file__).parent.parent
    pages = [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "config").glob("*.toml")]
    lines = [line for page in pages for line in page.read_text().splitlines()]
    assert [
        line for line in lines if "install ai-session" in line.replace("uninstall", "") or "uvx ai-session" in line
    ] == []
