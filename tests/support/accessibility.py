"""Accessibility checks of a page by axe-core, for people who cannot see it or use no mouse."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.browser import Page

AXE = Path(__file__).parents[2] / ".venv/clients/node_modules/axe-core/axe.min.js"
RUN = """axe.run(document, { resultTypes: ['violations'] }).then(found => JSON.stringify(found.violations.map(
    one => [one.impact, one.id, one.nodes.map(node => node.html.slice(0, 200))])))"""


def found(page: Page, theme: str) -> list[str]:
    """Return the violations on the page as it is now in a theme: impact, rule and elements."""
    assert AXE.exists(), "run first: scripts/bootstrap test"
    if not page.evaluate("window.axe !== undefined"):
        page.evaluate(AXE.read_text() + "; 1")
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    return [f"{theme}: {one}" for one in json.loads(page.evaluate(RUN))]
