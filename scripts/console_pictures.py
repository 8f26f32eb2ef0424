"""Write docs/assets/console-*.png, the console's pages in a real browser, and docs/assets/top-*.svg, the verb top in a
terminal, all of a real daemon.

Everything in them happened: a client runs commands, two of which need approval; a swarm works on a release, and asks
whether to merge its work.

    python -m scripts.console_pictures [FOLDER]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from scripts import top_pictures
from tests.ai_session.support import asking
from tests.ai_session.support.consoles import Console, console
from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.conftest import UNBOXED, client_environment, environment, new_home
from tests.support import forked
from tests.support.browser import Browser, Page
from tests.together.support.runs import Shop

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "docs/assets"
MOST_BYTES = 170_000
SIZES = {"wide": (1180, 740), "narrow": (390, 844)}
PAGES = ("needs", "terminals", "session", "replay", "runs", "start", "run", "compare", "audit", "policy")
NAMES = [f"{page}-{size}-{theme}" for page in PAGES for size in SIZES for theme in ("dark", "light")]
"""Every picture that docs/reference/console.md shows."""

RULES = """
[[policy.rules]]
id = "no-force"
decision = "deny"
commands = ["git push --force", "git push -f"]
reason = "History is shared; push a new branch instead."
[[policy.rules]]
id = "deploys"
decision = "ask"
commands = ["deploy *"]
reason = "It reaches customers."
[[policy.rules]]
id = "others"
decision = "allow"
tools = ["*"]
"""
ALLOWED = "deploy docs --to preview"
"""A command that needs approval, and is approved until somebody revokes that."""

COMMANDS = (
    ("api", "git init -q && git status -sb"),
    ("api", r"""printf '\e[31mProgrammingError:\e[0m column "due_at" of "invoices" already exists\n'; (exit 1)"""),
    ("api", r"seq -f 'tests/billing/test_%g.py .........' 1 40; printf '\e[32m64 passed\e[0m in 12.41s\n'"),
    ("web", r"printf '  \e[32m✓\e[0m pays by card (2.1s)\n  \e[31m✗\e[0m keeps the cart (5.0s)\n'; (exit 1)"),
    ("docs", r"printf 'INFO - Cleaning site directory\nINFO - Documentation built in 37.84 s\n'"),
    (
        "core",
        r"printf '   \e[1;32mCompiling\e[0m %s\n' 'syn 2.0.106' 'tokio 1.48.0' 'rustls 0.23.35'; tail -f /dev/null",
    ),
    ("probe", "seq -f 'epoch %g  loss 0.4127  lr 2.9e-4' 3 12; tail -f /dev/null"),
    ("docs", "deploy docs --to production"),
    ("api", "deploy staging --migrate --from migrations/0042_invoices_due_at.sql"),
)


@contextmanager
def scene(root: Path) -> Generator[Console]:
    """Yield a console with data to show."""
    home = new_home(root, UNBOXED + RULES)
    billing = home / "billing"
    billing.mkdir()
    forked.daemon(living_in(home))
    try:
        with environment(client_environment(home)), ExitStack() as stack:
            shop = Shop(home)
            shop.run("run", "--no-wait", code=3)
            shop.run("cancel", "last")
            agent = stack.enter_context(asking.client(home))
            shop_console = stack.enter_context(console(home, directory=shop.project))
            asking.greet(agent, {}, name="claude-code")
            for name in dict.fromkeys(name for name, _ in COMMANDS):
                given: dict[str, Any] = {
                    "shell": "bash",
                    "backend": "pty",
                    "working_directory": str(billing),
                    "rows": 40,
                    "cols": 130,
                }
                agent.call("create_session", name=name, **given)
                agent.call("execute_command", session_id=name, command="PS1='$ '; clear")
            agent.call("execute_command", session_id="docs", command=ALLOWED)
            asking.approve(home, asking.approvals(home)["questions"][0], scope="always")
            for name, command in COMMANDS:
                agent.call("execute_command", session_id=name, command=command, timeout_seconds=2)
            with shop.running():
                yield shop_console
    finally:
        stop_daemons(home)


def pictures(page: Page, folder: Path, suffix: str) -> None:
    """Take a picture of each page."""
    in_view = "[...document.querySelectorAll('.term pre')].filter(e => e.getBoundingClientRect().top < innerHeight)"
    page.wait(f"{in_view}.every(e => e.textContent.trim())")
    page.picture(folder / f"terminals-{suffix}.png")
    page.evaluate("location.hash = '#/needs'")
    page.wait("document.querySelector('.card.quiet')")
    page.picture(folder / f"needs-{suffix}.png")
    page.evaluate("location.hash = [...document.querySelectorAll('.sub')].find(e => e.textContent === 'api').hash")
    page.wait("document.querySelectorAll('.blocks article pre').length > 2")
    at_end = "(e => e.scrollHeight - e.scrollTop - e.clientHeight < 1)(document.querySelector('.blocks'))"
    page.wait(f"innerWidth < 900 || {at_end}")
    page.wait("document.querySelector('.blocks').textContent.includes('claude-code')")
    page.picture(folder / f"session-{suffix}.png")
    page.click(".views .btn:nth-child(2)")
    page.wait("document.querySelector('.xterm-rows')?.textContent.includes('64 passed')")
    page.picture(folder / f"terminal-{suffix}.png")
    page.press("v")
    page.wait("document.querySelectorAll('.ran').length > 3 && document.querySelector('.ran.bad')")
    page.evaluate("document.querySelector('.outline li:last-child button').click()")
    page.evaluate("document.querySelector('.screen').scrollIntoView({block: 'nearest'})")
    page.wait("document.querySelector('.xterm-rows')?.textContent.includes('ProgrammingError')")
    page.picture(folder / f"replay-{suffix}.png")
    page.click(".views .btn:nth-child(1)")
    page.evaluate("location.hash = '#/runs'")
    page.wait("document.querySelectorAll('.runs a').length === 2 && document.querySelector('.runs .tag.warn')")
    page.picture(folder / f"runs-{suffix}.png")
    page.evaluate("location.hash = '#/start'")
    page.wait("(e => e && (e.click(), true))(document.querySelector('form.card .btn.main:not(:disabled)'))")
    page.wait("document.querySelectorAll('.checked li').length === 6")
    page.picture(folder / f"start-{suffix}.png")
    page.evaluate("location.hash = '#/runs'")
    page.wait("document.querySelectorAll('.runs a').length === 2")
    run, before = page.evaluate("[...document.querySelectorAll('.runs a')].map(e => e.hash.slice(6))")
    page.evaluate(f"location.hash = '#/run/{run}'")
    page.wait("document.querySelector('.card.quiet .diff') && document.querySelector('.bar.wait')")
    page.picture(folder / f"run-{suffix}.png")
    page.evaluate(f"location.hash = '#/compare/{run}?with={before}'")
    page.wait("document.querySelector('.compare td')")
    page.picture(folder / f"compare-{suffix}.png")
    page.evaluate("location.hash = '#/audit'")
    page.wait("document.querySelector('tr.record')")
    page.evaluate("document.querySelector('.chain .btn').click()")
    page.wait("document.querySelector('.judged').textContent.includes('sound')")
    page.picture(folder / f"audit-{suffix}.png")
    page.evaluate("location.hash = '#/policy?command=' + encodeURIComponent('cd api && git push --force')")
    page.wait("document.querySelectorAll('.verdicts li').length === 4")
    page.picture(folder / f"policy-{suffix}.png")


def main(chosen: Path | None) -> None:
    """Take all pictures; without a folder they replace those of the documentation."""
    with tempfile.TemporaryDirectory(prefix="ais-", dir="/tmp") as name, environment(client_environment(Path(name))):
        folder = chosen or Path(name, "pictures")
        folder.mkdir(exist_ok=True)
        with scene(Path(name)) as shop_console, Browser() as browser:
            for size, (width, height) in SIZES.items():
                for dark in (True, False):
                    page = browser.page(width, height, dark=dark).goto(shop_console.link())
                    page.wait("window.wire?.live && document.querySelector('.term pre span')")
                    page.wait("document.title === '(3) ai-session'")
                    pictures(page, folder, f"{size}-{'dark' if dark else 'light'}")
                    page.close()
            top_pictures.pictures(Path(os.environ["HOME"]), folder)
        for picture in () if chosen else top_pictures.NAMES:
            shutil.copy(folder / f"{picture}.svg", ASSETS / f"{picture}.svg")
        for picture in () if chosen else NAMES:
            assert (folder / f"{picture}.png").stat().st_size < MOST_BYTES, picture
            shutil.copy(folder / f"{picture}.png", ASSETS / f"console-{picture}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
