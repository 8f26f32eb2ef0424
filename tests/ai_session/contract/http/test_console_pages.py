"""The console's pages in a real browser: what they show, and what nothing on them can be made to do."""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage
from wsproto.utilities import RemoteProtocolError

from ai_session.http.console.server import MAX_MESSAGE_BYTES
from ai_session.sessions.commands import KEPT
from tests.ai_session.support import asking
from tests.ai_session.support.consoles import Console, console
from tests.ai_session.support.mcp_client import living_in, running_daemon, stop_daemons
from tests.ai_session.support.person_client import Person
from tests.conftest import NO_RUNS, UNBOXED, new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.browser import Browser, Page

pytestmark = pytest.mark.browser

REBOUND = "rebound.example"
CONTROL_SHIFT = 2 + 8
LIVE = "window.wire?.live && document.querySelector('h1')"
CLOCK = """(Right => { window.Date = class Wrong extends Right {
  constructor(...given) { given.length ? super(...given) : super(Date.now()); }
  static now() { return Right.now() + %d * 1000; }
}; })(Date)"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1") as browser:
        yield browser


@pytest.fixture
def agent(daemon_home: Path) -> Iterator[Person]:
    with Person(daemon_home) as person:
        yield person
        for row in person.call("list_sessions")["structured"]["sessions"]:
            person.call("close_session", session_id=row["session_id"])


@contextmanager
def signed_in(
    browser: Browser, here: Console, width: int = 1280, height: int = 800, *, dark: bool = False
) -> Iterator[Page]:
    """A tab that has signed in; nothing may have gone wrong in it at the end."""
    page = browser.page(width, height, dark=dark)
    page.goto(here.link())
    page.wait(LIVE)
    assert page.evaluate("location.href") == here.origin + "/", "the code is not left in the address"
    yield page
    assert page.evaluate("window.violations") == []
    assert page.problems == []
    page.close()


@pytest.fixture(scope="module")
def tab(browser: Browser, here: Console) -> Iterator[Page]:
    """One whose browser's clock is wrong, which no test may notice."""
    with signed_in(browser, here) as page:
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=CLOCK % -100_000)
        page.ask("Page.reload")
        page.wait(f"Date.name !== 'Date' && {LIVE}")
        yield page


@pytest.fixture
def page(tab: Page, agent: Person) -> Iterator[Page]:
    """The module's tab with its list of terminals in view."""
    tab.wait("wire.live")
    tab.evaluate("(wire.losses = wire.gaps = 0, location.hash = '#/terminals')")
    tab.wait("document.querySelector('h1')?.textContent === 'Terminals'")
    yield tab
    tab.evaluate("(delete wire.type, document.querySelector('.views .btn')?.click())")
    assert tab.problems == []


def opened(agent: Person, name: str, *commands: str) -> str:
    """The id of a session that ran these."""
    made: str = agent.call("create_session", name=name, shell="bash", backend="pty")["structured"]["session_id"]
    for command in commands:
        run(agent, name, command)
    return made


def run(agent: Person, name: str, command: str) -> dict[str, Any]:
    return agent.call("execute_command", session_id=name, command=command)["structured"]


SCREEN = "document.querySelector('.screen')?.terminal"
LINES = f"""((term, buffer) => [...Array(term.rows).keys()].map(
    y => buffer.getLine(buffer.baseY + y).translateToString(true)).join('\\n'))({SCREEN}, {SCREEN}.buffer.active)"""
"""What the terminal of the page shows; of a screen that is not in view nothing is painted."""

HOSTILE = r"""
printf '\e]0;<img src=x onerror=window.pwned=1>\a\e]52;c;cHduZWQ=\a\e]8;;javascript:window.pwned=2\a LINK \e]8;;\a\n'
printf '\e[c\e[>c\e[5n\e[6n\e]10;?\a\e[?1$p\eP$qm\e\\'
printf '\n<script>window.pwned=3</script> \e[38;2;10;200;30mcoloured\e[0m\n'
""".strip()


def test_what_others_print_and_name_is_shown_and_does_nothing(page: Page, agent: Person) -> None:
    made = opened(
        agent, "build", "false", HOSTILE.replace("\n", "; "), "echo '<b onmouseover=\"window.pwned=4\">bold</b>'"
    )
    page.wait("document.querySelector('.term pre')?.textContent.includes('coloured')")
    page.size(1280, 800, dark=True)
    page.press("j")
    page.wait("document.activeElement.querySelector('header').textContent === 'buildexit 0'")
    page.press("Enter")
    page.shows("exit 1")
    page.shows('<b onmouseover="window.pwned=4">bold</b>')
    page.shows("<script>window.pwned=3</script>")
    assert page.evaluate("[...document.querySelectorAll('.blocks .tag')].map(e => e.textContent)") == [
        "exit 1",
        "exit 0",
        "exit 0",
    ]
    page.evaluate("window.typed = []; window.wire.type = (...given) => typed.push(given)")
    page.press("r", "t")
    page.shows("You are typing.")
    page.wait(f"({LINES}).includes('coloured')")
    assert page.evaluate("window.typed") == [], "what a program asks of a terminal the page does not answer"
    assert page.evaluate(f"{SCREEN}.buffer.active.getLine(0) && document.title") == "ai-session"
    row = "[...document.querySelectorAll('.xterm-rows > div')].find(e => e.textContent.includes('%s'))"
    page.wait(f"[...({row % 'coloured'}).children].some(e => getComputedStyle(e).color === 'rgb(10, 200, 30)')")
    link = f"(r => [r.x + 30, r.y + 5])(({row % 'LINK'}).getBoundingClientRect())"
    x, y = page.wait(link)
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        page.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    assert page.evaluate(
        "window.pwned === undefined && document.querySelectorAll('main img, main script').length === 0"
    )
    assert made in page.evaluate("location.hash")
    page.size(1280, 800)


def test_one_takes_over_types_and_gives_back(page: Page, agent: Person) -> None:
    made = opened(agent, "shared")
    before = agent.call("get_session_info", session_id=made)["structured"]
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("You are watching.")
    page.press("t")
    page.wait(f"{SCREEN} && !{SCREEN}.options.disableStdin && {SCREEN}.cols !== {before['cols']}")
    refused = run(agent, "shared", "echo no")["error"]
    assert refused["code"] == "session_taken_over"
    assert "the console" in refused["message"]
    page.wait(f"document.activeElement === {SCREEN}.textarea")
    page.write("echo $((40 + 2))tr1\n")
    page.wait(f"({LINES}).includes('42tr1')")
    sizes = page.evaluate("""(socket => { const sizes = []; socket.send = data => sizes.push(data.length);
        wire.type('none', 'é'.repeat(600000)); delete socket.send; return sizes })(wire.socket)""")
    assert (max(sizes) <= MAX_MESSAGE_BYTES, sum(sizes) > 1_200_000) == (True, True)
    page.press("F6", modifiers=CONTROL_SHIFT)
    page.wait("document.activeElement.matches('.lease .btn')")
    page.press("t")
    page.shows("You are watching.")
    page.wait(f"{SCREEN}.cols === {before['cols']}")
    assert run(agent, "shared", "echo yes")["output"] == "yes\n"
    page.press("t")
    page.shows("You are typing.")
    agent.done("take_over", session=made, who="somebody else", force=True)
    page.shows("somebody else has taken the session over.")
    page.shows("somebody else is typing.")


@pytest.mark.torture  # above it is cut into messages that the console takes
def test_a_long_paste_arrives_whole(page: Page, agent: Person, daemon_home: Path) -> None:
    made, text = opened(agent, "pasting", "stty -echo"), ("é" * 49 + "\n") * 12_000
    size = len(text.encode())
    assert size > MAX_MESSAGE_BYTES
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("You are watching.")
    page.press("t")
    page.wait(f"document.activeElement === {SCREEN}.textarea")
    page.write(f"echo go-$((1 + 1)); head -c {size} > {daemon_home}/pasted; echo all-$((6 * 7))\n")
    page.wait(f"({LINES}).includes('go-2')")
    page.evaluate(f"window.given = new DataTransfer(); given.setData('text/plain', {json.dumps(text)})")
    pasted = "new ClipboardEvent('paste', { clipboardData: given, bubbles: true, cancelable: true })"
    page.evaluate(f"{SCREEN}.textarea.dispatchEvent({pasted})")
    page.wait(f"({LINES}).includes('all-42')")
    assert page.evaluate("wire.losses") == 0
    assert (daemon_home / "pasted").read_text() == text


def test_what_has_gone_is_not_shown_as_if_it_were_there(browser: Browser, homes: Path) -> None:
    """A lease with the daemon that gave it; a console that has ended, which says how to have another, while another
    program at its port is sent nothing."""
    home = new_home(homes, UNBOXED + NO_RUNS)
    forked.daemon(living_in(home))
    with console(home) as here, Person(home) as agent:
        made = opened(agent, "held")
        page = browser.page()
        page.goto(here.link())
        page.wait(LIVE)
        page.evaluate(f"location.hash = '#/session/{made}'")
        page.shows("You are watching.")
        page.press("t")
        page.shows("You are typing.")
        assert agent.call("get_session_info", session_id=made)["structured"]["typing_by"] == "the console, tab 1"
        os.kill(agent.done("status")["pid"], signal.SIGKILL)
        page.wait("wire.losses > 0 && wire.live")
        page.shows("You are watching. The size stays")
        assert page.problems == []
        here.killed()
        page.wait("!wire.live")
        page.evaluate("document.querySelector('.nav footer .btn').click()")
        page.shows("the console does not answer")
        page.shows("The console does not answer. Where it has ended, start it again with ai-session console")
        assert not [problem for problem in page.problems if "Error:" in problem], page.problems
        assert page.evaluate("window.violations") == []
        token = page.evaluate("sessionStorage.token")
        with Impostor(here.port) as impostor:
            page.shows("This tab was signed out.")
            assert [text[:4] for text in impostor.heard] == ["who "]
            assert token not in impostor.heard[0]
            assert page.evaluate("sessionStorage.token === undefined")
        page.close()
    stop_daemons(home)


class Impostor:
    """A program that takes a port once it is free, and speaks as the console does. ``heard`` is what pages tell it."""

    def __init__(self, port: int) -> None:
        self.heard: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listening = threading.Thread(target=self._listen)

    def __enter__(self) -> Self:
        self._listening.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listening.join()
        self._listener.close()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                with self._listener.accept()[0] as link, suppress(RemoteProtocolError):
                    self._talk(link)

    def _talk(self, link: socket.socket) -> None:
        wire = WSConnection(ConnectionType.SERVER)
        while data := link.recv(1 << 16):
            wire.receive_data(data)
            for event in wire.events():
                if isinstance(event, Request):
                    link.sendall(wire.send(AcceptConnection()))
                elif isinstance(event, CloseConnection):
                    return
                elif isinstance(event, TextMessage):
                    self.heard.append(event.data)
                    for said in ("0" * 64, json.dumps({"ai_session": "0.1.0", "protocol": 2})):
                        link.sendall(wire.send(TextMessage(said)))


def test_what_is_sent_while_the_connection_ends_goes_nowhere(page: Page) -> None:
    """The browser says so itself only a moment later; a script that sends meanwhile is in error."""
    asked = "wire.ask('policy').then(() => 'answered', error => error.code)"
    reported = "wire.tell('acknowledge', { stream: 1, offset: 1 })"
    assert page.evaluate(f"(wire.socket.close(), {reported}, {asked})") == "connection_lost"
    page.wait("wire.live && wire.losses === 1")
    page.evaluate("""(sign => { crypto.subtle.sign = (...given) => {
        crypto.subtle.sign = sign; wire.socket.close(); return sign(...given) }; wire.socket.close()
    })(crypto.subtle.sign.bind(crypto.subtle))""")
    page.wait("wire.live && wire.losses === 3")


def test_a_search_leads_to_the_command_that_printed_it(page: Page, agent: Person) -> None:
    opened(
        agent,
        "long",
        "seq 1 400; echo 'the needle [1]'; seq 401 800",
        *(f"echo after {number}" for number in range(12)),
    )
    page.shows("long")
    page.press("/")
    page.wait("document.activeElement.matches('.find input')")
    page.write("NEEDLE [1]\n")
    page.click(".found li:last-child a")
    page.wait("document.querySelector('article mark')?.textContent === 'the needle [1]'")
    page.wait("(r => r.top > 0 && r.bottom < innerHeight)(document.querySelector('mark').getBoundingClientRect())")
    assert page.evaluate("document.querySelector('article[aria-current] h2').textContent").startswith("seq 1 400")


@pytest.mark.torture  # below the size changes while the connection is lost
def test_a_lost_connection_goes_on_at_the_next_byte(page: Page, agent: Person) -> None:
    made = opened(agent, "torn")
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("You are watching.")
    page.press("r")
    page.wait(f"{SCREEN} && ({LINES}).trim()")
    for turn in range(3):
        page.evaluate("window.wire.socket.close()")
        run(agent, "torn", f"seq {turn}01 {turn}09")
        page.wait(f"window.wire.live && ({LINES}).includes('{turn}09')".replace("'009'", "'9'"))
    assert page.evaluate("[window.wire.gaps, window.wire.losses]") == [0, 3]
    page.press("r")


SIZES = ((12, 40), (45, 130), (20, 77), (60, 1000), (24, 80))


@pytest.mark.torture  # above the page follows the size of whoever takes over, and of whoever gives back
def test_the_page_shows_what_the_terminal_does_at_every_size(page: Page, agent: Person) -> None:
    """Row by row: no line twice, none missing; also where the size changed while the connection was lost, and of a
    terminal whose lines are wrapped again."""
    made = opened(agent, "sized")
    run(agent, "sized", "PS1='$ '; seq -f 'line %g' 1 90; printf '%0300d\\n' 7; echo é漢字e\u0301 עברית; echo end")
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("You are watching.")
    page.press("r")
    page.wait(f"{SCREEN} && ({LINES}).includes('end')")

    def same() -> None:
        deadline = time.monotonic() + BOUND_SECONDS
        shown, seen = {}, ()
        while not shown or seen != (shown["rows"], shown["cols"], shown["screen"].rstrip()):
            assert time.monotonic() < deadline, (shown, seen)
            shown = agent.call("read_screen", session_id=made)["structured"]  # a prompt comes when it comes
            seen = tuple(page.evaluate(f"[{SCREEN}.rows, {SCREEN}.cols, ({LINES}).trimEnd()]"))

    for number, (rows, cols) in enumerate(SIZES):
        if number % 2:
            page.evaluate("window.wire.socket.close()")
        agent.call("resize_session", session_id=made, rows=rows, cols=cols)
        run(agent, "sized", f"seq -f 'at {number}: %g' 1 {7 * number}")
        same()
    assert page.evaluate("[window.wire.gaps, window.wire.losses]") == [0, 2]
    page.press("r")


AT = "document.querySelector('.slide')?.getAttribute('aria-valuetext')"
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "Zz9Yy8"


def test_a_session_is_played_again_as_it_was_seen(page: Page, agent: Person) -> None:
    """With its commands marked, its secrets masked, and nothing done of what programs print."""
    made = opened(agent, "played", "echo fir''st", "ls /nowhere; false", HOSTILE.replace("\n", "; "), f"echo {SECRET}")
    run(agent, "played", "clear; echo la''st")
    page.evaluate("window.typed = []; window.wire.type = (...given) => typed.push(given)")
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("You are watching.")
    page.press("v")
    page.wait("document.querySelectorAll('.slide .ran').length === 5")
    assert page.evaluate("[...document.querySelectorAll('.ran')].map(e => e.classList.contains('bad'))") == [
        *(False, True, False, False, False)
    ]
    assert page.evaluate("document.querySelectorAll('.noted').length") >= 5
    page.wait(f"({LINES}).startsWith('last')")
    page.evaluate("document.querySelector('.outline li:nth-child(5) button').click()")
    page.wait(f"({LINES}).includes('[REDACTED:github')")
    shown = page.evaluate(LINES)
    assert "first" in shown
    assert "coloured" in shown
    assert SECRET[4:] not in page.evaluate("document.body.innerText") + shown
    page.press("End")
    page.wait(f"({LINES}).startsWith('last')")
    page.press("Home")
    page.wait(f"({AT}).includes(', 0 s of ') && !({LINES}).startsWith('last')")
    page.press("-", "+", "+", "+", " ")
    page.wait(f"document.querySelector('[aria-label=Play]') && ({LINES}).startsWith('last')")
    assert page.evaluate("document.querySelector('.scrub .btn.num').textContent") == "8×"
    shown, of_all = page.evaluate("document.querySelector('.told .faint').textContent.match(/[\\d,]+/g)")
    assert shown == of_all, "all that was printed was played"
    x, y, left = page.wait(
        "(r => [r.x + r.width / 2, r.y + r.height / 2, r.x + 1])"
        "(document.querySelector('.slide').getBoundingClientRect())"
    )
    for kind, to in (("mousePressed", x), ("mouseMoved", left), ("mouseReleased", left)):
        page.ask("Input.dispatchMouseEvent", type=kind, x=to, y=y, button="left", buttons=1, clickCount=1)
    page.wait(f"!({LINES}).startsWith('last') && document.activeElement.matches('.slide')")
    page.evaluate("document.querySelector('.views .btn').click()")
    page.wait("document.querySelector('article:nth-of-type(3) .from')")
    page.evaluate("document.querySelector('article:nth-of-type(3) .from').click()")  # blocks move while they load
    page.wait(f"({LINES}).includes('nowhere') && !({LINES}).includes('REDACTED')")
    assert page.evaluate("[window.typed, document.title, window.pwned]") == [[], "ai-session", None]
    page.press("r")


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of another port."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


ATTACK = """
(async (origin, token) => {
  const socket = new Promise(done => {
    const ws = new WebSocket(origin.replace('http', 'ws') + '/ws');
    ws.onopen = () => done('open'); ws.onclose = e => done(e.code);
  });
  const tried = (path, options) => fetch(origin + path, options).then(answer => answer.type, () => 'failed');
  const loaded = (name, attributes) => new Promise(done => {
    const e = Object.assign(document.createElement(name), attributes);
    e.onload = () => done('loaded'); e.onerror = () => done('failed'); document.body.append(e);
  });
  return [await socket, await tried('/tabs', { headers: { Authorization: `Bearer ${token}` } }),
    await tried('/login', { method: 'POST', body: '{"code": "x"}' }), await tried('/', { mode: 'no-cors' }),
    await loaded('script', { src: origin + '/app.js', type: 'module' }),
    await loaded('link', { rel: 'stylesheet', href: origin + '/console.css' })];
})(%s, %s)
"""


def test_other_pages_reach_nothing(browser: Browser, here: Console) -> None:
    token = here.token()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            page = browser.page()
            page.goto(f"http://127.0.0.1:{server.server_port}/")
            page.wait("document.title === 'elsewhere'")
            tried = page.evaluate(ATTACK % (json.dumps(here.origin), json.dumps(token)))
            assert tried == [1006, "failed", "failed", "opaque", "failed", "failed"]
            assert {status for url, status in page.statuses if url.startswith(here.origin)} <= {403}
            page.evaluate("document.body.append(window.frame = document.createElement('iframe'))")
            page.evaluate(f"window.frame.src = '{here.origin}/'")
            page.goto(f"http://{REBOUND}:{here.port}/")
            assert page.status(f"http://{REBOUND}:{here.port}/") == 421
            page.close()
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.torture
def test_a_link_signs_in_once_and_a_tab_can_be_signed_out(browser: Browser, here: Console, agent: Person) -> None:
    link = here.link()
    first, second = browser.page(), browser.page()
    first.goto(link).shows("Terminals")
    assert first.evaluate("location.href") == here.origin + "/"
    first.evaluate("window.before = 1")
    first.ask("Page.reload")
    first.wait("window.before === undefined && window.wire?.live")
    second.goto(link).shows("This link does not sign you in: this link has been used already, or has expired.")
    second.goto(here.link()).shows("Terminals")
    second.click(".nav footer .btn")
    second.shows("this tab")
    assert second.evaluate("document.querySelectorAll('dialog li').length") >= 2
    number = "[...document.querySelectorAll('dialog li')].findIndex(e => e.innerText.includes('this tab'))"
    second.evaluate(f"document.querySelectorAll('dialog li')[{number} - 1].querySelector('button').click()")
    first.shows("This tab was signed out.")
    assert first.evaluate("sessionStorage.token === undefined")
    first.goto(f"{here.origin}/").shows("press Enter for a new link")
    for page in (first, second):
        assert page.evaluate("window.violations") == []
        page.close()


MANY = """import('./model.js').then(({ commandsOf, merge }) => {
  const one = at => ({ session_id: '%s', command_id: `cmd_${at}`, command: `number ${at}`, started_at: at });
  for (let at = 0; at < 300; at++) merge([one(at)]);
  return commandsOf('%s').value.length;
})"""
LAST_IN_VIEW = """((last, place) => last.textContent.includes('number 299')
  && last.getBoundingClientRect().bottom <= place.getBoundingClientRect().bottom + 1
)(document.querySelector('.blocks article:last-of-type'), document.querySelector('.blocks'))"""
RAN = """import('./model.js').then(({ changed, commands, commandsOf, merge }) => {
  const one = at => ({ session_id: 'ses_busy', command_id: `cmd_${at}`, command: 'true', started_at: at });
  for (let at = 0; at < 600; at += 5) merge([0, 1, 2, 3, 4].map(more => one(at + more)));
  const kept = commandsOf('ses_busy').value;
  changed([{ kind: 'session', session_id: 'ses_busy', gone: true }]);
  return [kept.length, kept.at(-1).command_id, commands.has('ses_busy')];
})"""


def test_a_page_that_stays_open_keeps_what_the_daemon_knows_of_a_session(page: Page, agent: Person) -> None:
    """Not every command that ever ran, and nothing of a session that was closed; who looks at the newest still does."""
    made = opened(agent, "busy")
    assert page.evaluate(RAN) == [KEPT + 1, "cmd_599", False]
    page.evaluate(f"location.hash = '#/session/{made}'")
    page.shows("No command has run yet")
    assert page.evaluate(MANY % (made, made)) == KEPT + 1
    page.wait(LAST_IN_VIEW)


@pytest.mark.torture
def test_a_browser_whose_clock_is_wrong_shows_what_the_servers_does(
    browser: Browser, here: Console, agent: Person
) -> None:
    opened(agent, "slow")
    agent.call("execute_command", session_id="slow", command="tail -f /dev/null", timeout_seconds=0)
    for seconds in (-100_000, 100_000):
        page = browser.page()
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=CLOCK % seconds)
        page.goto(here.link())
        page.wait("document.querySelector('.term .side')?.textContent.endsWith('s')")  # hours and days do not
        page.evaluate("location.hash = '#/audit'")
        assert ":" in page.wait("document.querySelector('tr.record .num')?.textContent.slice(0, 3)"), "of today"
        page.close()


def test_pages_fit_a_telephone_in_both_themes(page: Page, agent: Person) -> None:
    made = opened(agent, "narrow", "echo " + "wide" * 60, "ls /")
    ids = agent.call("query_commands", session_id=made)["structured"]["commands"]
    replay = f"session/{made}?from={ids[0]['command_id']}"
    page.size(390, 844, dark=True)
    for location in ("terminals", "needs", "audit", f"session/{made}", replay):
        page.evaluate(f"location.hash = '#/{location}'")
        page.wait("document.querySelector('main h1')" if location != replay else "document.querySelector('.ran')")
        if location == "audit":
            assert ":" in page.wait("document.querySelector('tr.record .num')?.textContent.slice(0, 3)"), "of today"
        for theme in ("dark", "light"):
            page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], (location, theme, wide)
    page.size(1280, 800)


ASKS = """
[[policy.rules]]
id = "asks"
decision = "ask"
tools = ["execute_command"]
[[policy.rules]]
id = "others"
decision = "allow"
tools = ["*"]
"""


@pytest.fixture
def asking_house(homes: Path) -> Iterator[Path]:
    """Where each command of a client is asked about."""
    with running_daemon(homes, UNBOXED + ASKS + NO_RUNS) as home:
        yield home


def test_a_question_is_shown_whole_and_answered_by_key(browser: Browser, asking_house: Path) -> None:
    hidden, long = "echo first # \u202egnp.exe <img src=x>", "\n".join(f"echo line {number}" for number in range(120))
    with (
        asking.client(asking_house) as peer,
        console(asking_house) as here,
        signed_in(browser, here) as page,
    ):
        asking.greet(peer, {})
        peer.call("create_session", name="main", shell="bash", backend="pty")

        def wants(command: str) -> str:
            result = peer.call("execute_command", session_id="main", command=command)
            return asking.error_of(result)["code"] if result["isError"] else "ran"

        assert {wants(command) for command in (hidden, "echo second", long, "echo fourth")} == {"consent_needed"}
        page.wait("document.title === '(4) ai-session'")
        page.press("1")
        page.shows(r"echo first # \u202egnp.exe <img src=x>")
        page.wait("document.querySelector('.card.quiet .btn.main:not(:disabled)')")
        typed = (
            "['x', 'y'].forEach(key => document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})))"
        )
        page.evaluate(typed)  # whoever types for something else answers nothing
        answer_when_quiet(page, "y")
        page.shows("allow once")
        page.shows("echo second")
        answer_when_quiet(page, "n")
        page.shows("denied")
        page.wait("document.querySelector('.cmd').textContent.includes('line 60')")
        assert page.evaluate("document.querySelector('.acts .btn.main').disabled"), "its end was not read"
        page.evaluate("document.querySelector('.cmd .end').scrollIntoView()")
        page.wait("!document.querySelector('.acts .btn.main').disabled")
        answer_when_quiet(page, "l")
        page.shows("echo fourth")
        page.wait("document.title === '(1) ai-session'")
        answer_when_quiet(page, "s")
        page.shows("Nothing waits for your answer.")
        page.shows("Show 1 put off")
        assert [wants(command) for command in (hidden, hidden)] == ["ran", "consent_needed"]
        assert [wants("echo fourth") for _ in range(2)] == ["ran", "ran"]

        page.press("5")
        config = asking_house / ".config/ai-session/config.toml"
        line = config.read_text().splitlines().index("[[policy.rules]]") + 1
        shown = page.shows("Remembered answers")
        assert f"~/{config.relative_to(asking_house)}:{line}" in shown
        assert shown.index("asked\n") < shown.index("allowed\n"), "a question counts before leave"
        page.evaluate("document.querySelector('.try [name=command]').focus()")
        page.write("echo $(x); true\n")
        page.wait("document.querySelectorAll('.verdicts li').length === 4")
        judged = page.evaluate("[...document.querySelectorAll('.verdicts .tag')].map(e => e.textContent)")
        assert judged == ["asked", "asked", "allowed", "allowed"]
        page.shows("this session, since")
        page.evaluate("document.querySelector('.answers .btn.no').click()")
        page.shows("No answer counts for more than its own call.")
        assert wants("echo fourth") == "consent_needed", "it was taken back"


def answer_when_quiet(page: Page, key: str) -> None:
    """Keys count a second after the last one."""
    page.wait("document.querySelector('.card.quiet')")
    page.press(key)
