"""Runs in the console, in a real browser: a whole job by the page alone; what others wrote does nothing there."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ai_session.support.asking import ABOUT_DEPLOYS
from tests.ai_session.support.consoles import Console, console
from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.conftest import UNBOXED, client_environment, environment, new_home
from tests.support import accessibility, forked
from tests.support.browser import Browser, Page
from tests.together.support.runs import FINISHES, PLAN, Shop, work

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=window.pwned=1>\u202egnp.exe"
"""In the texts of tasks, in the names of files and in what they hold."""

LINES = f"""'{HOSTILE}' '<script>window.pwned=2</script>' $'\\e[2J'"""
WRITE = f"""read -r line <"$HOME/go"; printf '%s\\n' "$line" {LINES} >'{HOSTILE}.txt'"""
JOB = work("api", "ada", WRITE, f'text = "Write {HOSTILE}"', FINISHES) + work(
    "after", "bob", "false", 'needs = ["api"]'
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@contextmanager
def living(homes: Path, rules: str = "") -> Generator[Path]:
    """A home with a daemon whose policy has these rules."""
    home = new_home(homes, UNBOXED + rules)
    with environment(client_environment(home)):
        forked.daemon(living_in(home))
        yield home
        stop_daemons(home)


@pytest.fixture
def daemon_home(homes: Path) -> Iterator[Path]:
    with living(homes) as home:
        yield home


@pytest.fixture
def asking_house(homes: Path) -> Iterator[Path]:
    """Where ai-session asks about each deploy."""
    with living(homes, ABOUT_DEPLOYS) as home:
        yield home


def signed_in(browser: Browser, here: Console, width: int = 1280, height: int = 900) -> Page:
    page = browser.page(width, height, dark=True).goto(here.link())
    page.wait("window.wire?.live && document.querySelector('h1')")
    return page


def nothing_happened(page: Page) -> None:
    """Nothing of what others wrote was executed, and nothing went wrong."""
    assert page.evaluate("window.pwned === undefined && !document.querySelector('main img, main script')")
    assert page.evaluate("window.violations") == []
    assert page.problems == []


def choose(page: Page, selector: str) -> None:
    """A link or a button, wherever a page that changes has it by then."""
    page.wait(f"(e => e && !e.disabled && (e.click(), true))(document.querySelector({json.dumps(selector)}))")


def accept(page: Page) -> None:
    """As one does who has read it."""
    page.wait("document.querySelector('.card .diff')")
    page.evaluate("document.querySelector('.cmd .end').scrollIntoView()")
    page.wait("document.querySelector('.card.quiet .btn.main:not(:disabled)')")
    page.press("y")


def test_a_run_is_watched_and_its_work_accepted(browser: Browser, daemon_home: Path) -> None:
    shop = Shop(daemon_home, work("api", "ada", f"echo done {LINES} >'{HOSTILE}.txt'", f'text = "Write {HOSTILE}"'))
    with console(daemon_home) as here, shop.running():
        page = signed_in(browser, here)
        page.press("3")
        page.shows("release-24")
        page.press("j", "Enter")
        page.wait("document.querySelector('.node')")
        page.wait("document.title === '(1) ai-session'")
        page.press("1")
        shown = page.shows("+done")
        assert r"<img src=x onerror=window.pwned=1>\u202egnp.exe" in shown
        accept(page)
        page.shows("Nothing waits for your answer.")
        page.press("3")
        page.wait("document.querySelector('.runs .tag')?.textContent === 'done'")
        assert (shop.project / f"{HOSTILE}.txt").read_text().startswith("done ")
        listed = forked.run("ai_session", ["top"], cwd=daemon_home, env=living_in(daemon_home))
        assert listed[1].decode().split("\t")[:2] == ["release-24", "succeeded"]
        nothing_happened(page)
        page.close()


@pytest.mark.torture  # above the same with one task, and without the log of calls
def test_a_whole_job_by_the_console_alone(browser: Browser, daemon_home: Path) -> None:
    go = daemon_home / "go"
    os.mkfifo(go)
    held = os.open(go, os.O_RDWR)  # so that a line that is written stays until it is read
    shop = Shop(daemon_home, JOB)
    with console(daemon_home) as here, shop.running():
        page = signed_in(browser, here)
        page.press("3")
        page.shows("release-24")
        page.wait("document.querySelector('.runs .tag.busy')")
        page.press("j")
        page.wait("document.activeElement.matches('.runs a')")
        page.press("Enter")
        choose(page, ".attempt .terminals a")
        page.shows("read -r line")
        page.wait("document.querySelector('.blocks .tag.busy')")
        page.evaluate("history.back()")
        page.wait("document.querySelector('.node.busy')")
        os.write(held, b"First of all.\n")

        page.wait("document.title === '(1) ai-session'")
        page.press("1")
        shown = page.shows("First of all.")
        assert r"<img src=x onerror=window.pwned=1>\u202egnp.exe" in shown
        assert r"\x1b[2J" in shown
        accept(page)
        page.shows("accepted")
        page.shows("Nothing waits for your answer.")
        page.press("3")
        page.wait("document.querySelector('.runs .tag.bad')")
        page.press("j", "Enter")
        page.wait("document.querySelector('.node.bad')")
        rows = page.evaluate("[...document.querySelectorAll('.timeline .track[role=img]')].map(e => e.ariaLabel)")
        assert rows[0].startswith("attempt 1 by ada: done, ")
        assert " of which it waited " in rows[0]
        assert rows[1].startswith("attempt 1 by bob: failed")
        page.evaluate("location.hash += '?task=api&view=transcript'")
        page.wait("document.querySelector('.typed')?.textContent.includes('read -r line')")
        page.evaluate("location.hash = location.hash.replace('transcript', 'happened')")
        choose(page, ".attempt .terminals a[href*=audit]")
        page.wait(
            "[...document.querySelectorAll('.record .what')].some(e => e.textContent.startsWith('create_session'))"
        )
        choose(page, ".record .more")
        page.wait("document.querySelector('.whole .related')")
        page.evaluate("location.hash = '#/session/ses_gone'")
        page.shows("This session is closed.")
        choose(page, "main a[href*=audit]")
        page.shows("No record matches.")
        page.size(390, 844)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a telephone"
        assert (shop.project / f"{HOSTILE}.txt").read_text().startswith("First of all.\n")
        page.press("4")
        page.shows("Each record follows the one before")
        nothing_happened(page)
        page.close()
    os.close(held)


TYPED = "From the console, by hand."
DEPLOY = """
[[tasks.steps]]
id = "other"
tool = "ai-session.create_session"
args = { name = "deployer", shell = "bash" }
[[tasks.steps]]
id = "deploy"
tool = "ai-session.execute_command"
args = { session_id = "${steps.other.session_id}", command = "deploy now; true" }
expect = { exit_code = 0 }
"""
BY_HAND = work("note", "ada", "pwd", 'text = "Open a terminal, then deploy."') + DEPLOY
"""A task that asks before it deploys, and whether its work is merged: what a person has typed in its terminal."""


@pytest.mark.torture
def test_a_whole_job_without_a_shell(browser: Browser, asking_house: Path) -> None:
    """Started, answered, taken over, given back, read, accepted, replayed and verified in the page."""
    shop = Shop(asking_house, BY_HAND)
    with console(asking_house, directory=shop.project) as here:
        page = signed_in(browser, here)
        page.press("3")
        page.shows("There are no runs.")
        page.press("n")
        page.wait("document.querySelector('form.card select')")
        choose(page, ".acts .btn.main")
        shown = page.shows("What would be done")
        assert "Open a terminal, then deploy." in shown
        assert "Nothing has been started yet." in shown
        page.wait("document.activeElement.textContent === 'Start'")
        page.press("Enter")

        page.wait("location.hash.startsWith('#/run/')")
        page.wait("document.title === '(1) ai-session'")
        page.wait("document.querySelectorAll('.attempt .terminals a').length === 2")
        session = (
            "[...document.querySelectorAll('.attempt .terminals a')].find(e => e.textContent.startsWith('note')).hash"
        )
        page.evaluate(f"location.hash = {session}")
        page.shows("pwd")
        page.press("t")
        page.shows("You are typing.")
        page.wait("document.activeElement.matches('.xterm-helper-textarea')")
        page.write(f"echo '{TYPED}' | tee note.txt\n")
        page.wait(f"document.querySelector('.xterm-rows').textContent.split({TYPED!r}).length >= 3")
        page.press("F6", modifiers=10)
        page.wait("document.activeElement.matches('.lease .btn')")
        page.press("t")
        page.shows("You are watching.")
        page.press("v")
        page.wait("document.querySelectorAll('.ran').length && document.querySelectorAll('.noted').length")
        choose(page, ".outline .pair:first-child a")
        choose(page, ".related a[href*='clock=']")
        page.wait("(e => e && +e.ariaValueNow < +e.ariaValueMax)(document.querySelector('.slide'))")
        page.press("Home")
        page.wait("document.querySelector('.slide').ariaValueNow === '0.0'")
        choose(page, ".scrub .play")
        page.wait(f"document.querySelector('.xterm-rows')?.textContent.split({TYPED!r}).length >= 3")

        page.press("1")
        page.shows("    deploy now; true")
        page.wait("document.querySelector('.card.quiet .btn.main:not(:disabled)')")
        page.press("y")
        page.shows("Merge this work?")
        assert f"+{TYPED}" in page.shows(TYPED)
        accept(page)
        page.shows("Nothing waits for your answer.")
        page.press("3")
        page.wait("document.querySelector('.runs .tag')?.textContent === 'done'")
        assert (shop.project / "note.txt").read_text() == f"{TYPED}\n"

        page.press("4")
        choose(page, ".chain .btn")
        page.shows("The whole log is sound")
        page.evaluate("document.querySelector('form.about input').focus()")
        page.write("deploy now\n")
        page.wait("[...document.querySelectorAll('tr.record')].every(e => e.textContent.includes('deploy now'))")
        choose(page, "tr.record:first-of-type .more")
        choose(page, ".related a[href*='view=transcript']")
        page.wait("document.querySelector('.events [aria-current]')?.textContent.includes('deploy now; true')")
        choose(page, ".events [aria-current] a.from")
        page.wait("document.querySelectorAll('tr.record').length === 1")
        page.shows('"request": "ccall_')
        page.wait("window.wire.ask('runs.list').then(found => !found.workers.length)")
        nothing_happened(page)
        page.close()


@pytest.mark.torture
def test_work_is_returned_with_a_comment_and_a_run_cancelled(browser: Browser, daemon_home: Path) -> None:
    shop = Shop(daemon_home)
    with console(daemon_home) as here, shop.running():
        page = signed_in(browser, here)
        page.press("3")
        page.wait("document.querySelector('.runs .tag.warn')")
        choose(page, ".runs a")
        page.wait("document.querySelectorAll('.node').length === 6 && document.querySelectorAll('.arrow').length === 7")
        labels = page.evaluate("[...document.querySelectorAll('.node')].map(e => e.textContent)")
        assert labels[-1] == "publishneeds integrate"
        assert page.shows("Attempt 2").count("FAIL test_due_dates") == 1
        page.wait("document.querySelector('.card.quiet .diff')")
        page.press("c")
        page.wait("document.activeElement.matches('.reason input')")
        page.write("Say it shorter.")
        choose(page, ".acts .btn:nth-of-type(2)")
        page.shows("returned for more work by")
        page.shows("Say it shorter.")
        choose(page, ".run-head .btn.no")
        choose(page, ".run-head .btn.no")
        page.wait("[...document.querySelectorAll('.run-head .tag')].some(e => e.textContent === 'cancelled')")
        nothing_happened(page)
        page.close()


@pytest.mark.torture
def test_questions_of_runs_and_of_ai_session_stand_in_one_list_once(browser: Browser, asking_house: Path) -> None:
    asked = "deploy now; true"
    shop = Shop(asking_house, work("api", "ada", asked), 'approval = "all"')
    with console(asking_house) as here, shop.running():
        page = signed_in(browser, here)
        page.press("1")
        assert "ai-session.create_session" in page.shows("name = api-run_")
        page.wait("document.querySelector('.card.quiet .btn.main:not(:disabled)')")
        page.press("y")
        page.shows("allow once")
        page.shows(f"command = {asked}")
        page.wait("document.querySelector('.card.quiet .btn.main:not(:disabled)')")
        page.press("p")
        page.shows("all calls, whole run")
        page.shows("Rule")
        page.shows(f"    {asked}")
        page.wait("import('/model.js').then(model => model.runsAsked.value.length === 1)")
        assert page.evaluate("document.querySelectorAll('.asks li').length") == 1
        page.wait("document.querySelector('.card.quiet')")
        page.press("n")
        page.shows("denied")
        page.shows("Nothing waits for your answer.")
        page.press("3")
        page.wait("document.querySelector('.runs .tag.bad')")
        nothing_happened(page)
        page.close()


@pytest.mark.clients
def test_every_page_fits_a_telephone_and_is_for_everybody(browser: Browser, daemon_home: Path) -> None:
    """By axe-core, which comes from npm with the packages of clients."""
    shop = Shop(daemon_home, PLAN)
    with console(daemon_home, directory=shop.project) as here, shop.running():
        page = signed_in(browser, here, 390, 844)
        page.wait("document.title === '(1) ai-session'")
        run = page.evaluate("import('/model.js').then(model => model.runs.value.runs[0].run)")
        made = forked.run(
            "ai_session", ["new", "build", "--shell", "bash", "--json"], cwd=daemon_home, env=living_in(daemon_home)
        )
        assert made[0] == 0, made
        page.wait("document.querySelector('.sub')")
        session = page.evaluate("document.querySelector('.sub').hash")
        ready = {
            "#/terminals": ".term",
            session: ".blocks",
            f"{session}?from=none": ".slide",
            f"{session}?clock=1": ".pair",
            "#/needs": ".card.quiet .diff",
            "#/runs": ".runs a",
            f"#/run/{run}": ".card.quiet .diff",
            f"#/run/{run}?task=api&view=transcript": ".typed",
            f"#/run/{run}?task=api&view=diff": ".task .diff",
            f"#/compare/{run}?with={run}": ".empty .btn",
            "#/audit": "tr.record",
            f"#/audit?event=&about={run}": "tr.record",
            "#/start": "form.card .btn.main:not(:disabled)",
            "#/policy?command=ls": ".verdicts li",
        }
        wrong: dict[str, list[str]] = {}
        for location, mark in ready.items():
            page.evaluate(f"location.hash = '{location}'")
            page.wait(f"document.querySelector('{mark}')")
            if location == "#/start":
                choose(page, mark)
                page.wait("document.querySelector('.checked li')")
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            wrong[location] = accessibility.found(page, "dark") + ([f"too wide: {wide}"] if wide[0] > wide[1] else [])
            page.size(1280, 900)
            wrong[location] += accessibility.found(page, "light")
            page.size(390, 844)
        reported = "\n".join(f"{location}: {one}" for location, found in wrong.items() for one in found)
        assert not reported, reported
        nothing_happened(page)
        page.close()
