"""The console in a real browser: keys, torn connections, many sessions, long recordings; violations of its policy."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import select
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles

import ai_session
from ai_session.client.connection import connect
from ai_session.http.console.recordings import Recording
from ai_session.terminal.marks import strip_marks
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED
from tests.ai_session.support.consoles import Console, console
from tests.ai_session.support.mcp_client import runtime
from tests.support.browser import Browser, Page, program

FLOODS, KEYS, GAP_SECONDS = sized((20, 150, 0.05), (2, 5, 0.001))
MOST_MS = 2000
TEARS, LINES = sized((50, 1_000_000), (3, 20_000))
SESSIONS, LOADS = sized((200, 5), (3, 1))
RECORDED_MB, SEEKS = sized((200, 60), (1, 5))
QUICK = {
    "AI_SESSION_SANDBOX_PROFILE": "trusted",
    "AI_SESSION_POLICY_MODE": "trusted",
    "AI_SESSION_RATES_SESSIONS_PER_MINUTE": "10000",
    "AI_SESSION_SESSION_MAX_SESSIONS": "300",
    "AI_SESSION_SESSION_MAX_SESSIONS_PER_OWNER": "250",
}
FLOOD = "yes 'a line of a flood that goes on and on and on'"

WATCH_KEYS = """
window.samples = []; window.heard = 0;
(term => {
  let down = 0, before = 0;
  const take = wire.take.bind(wire);
  wire.take = data => { take(data); if (typeof data !== 'string') heard = performance.now(); };
  addEventListener('keydown', event => { down = event.timeStamp; before = heard; }, true);
  term.onRender(() => {
    if (!down || heard === before) return;
    const found = [heard - down, 0], since = down;
    down = 0;
    requestAnimationFrame(() => setTimeout(() => { found[1] = performance.now() - since; samples.push(found); }));
  });
})(document.querySelector('.screen').terminal)
"""
WATCH_FIELD = """
window.samples = []; window.heard = 0;
(field => {
  field.focus();
  const shown = down => samples.push([0, performance.now() - down]);
  field.addEventListener('keydown', ({ timeStamp }) => requestAnimationFrame(() => setTimeout(shown, 0, timeStamp)));
})(document.querySelector('.find input'))
"""
WATCH_LIST = """
(look => requestAnimationFrame(look))(function look() {
  if (document.querySelectorAll('.terms > li').length < %d) return requestAnimationFrame(look);
  requestAnimationFrame(() => setTimeout(() => performance.mark('painted')));
})
"""
WATCH_BYTES = """
(ask => {
  wire.ask = (method, given, bytes) => ask(method, method === 'stream' ? { ...given, exact: true } : given, bytes);
})(wire.ask.bind(wire));
window.kept = []; window.size = 0;
window.reading = wire.stream(%s, (facts, bytes, done) => {
  if (facts.event === 'output') { kept.push(bytes); size += bytes.length; }
  done();
});
reading.next = %d; 1
"""
DIGEST = """
new Blob(kept).arrayBuffer().then(all => crypto.subtle.digest('SHA-256', all)).then(
  digest => [...new Uint8Array(digest)].map(one => one.toString(16).padStart(2, '0')).join(''))
"""


async def run(report: Report, directory: Path) -> None:
    os.environ.update(UNLIMITED | QUICK)
    await asyncio.to_thread(measure_recording, report, directory)
    if program() is None:
        report.title("The console's pages are left out: no Chromium here")
        return
    try:
        await asyncio.to_thread(measure_pages, report, directory)
    finally:
        with connect() as daemon:
            daemon.request("stop", sessions=True)
            daemon.wait_closed()


def measure_pages(report: Report, directory: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ai_session.open("typed", shell="bash", backend="pty"))
        here = stack.enter_context(console(directory))
        browser = stack.enter_context(Browser())
        wrong = measure_keys(report, stack, here, browser, first.id)
        wrong += measure_reconnections(report, directory, here, browser)
        wrong += measure_list(report, stack, here, browser)
        report.row("violations of the content security policy, errors of scripts", len(wrong), "", most=0)
        for what in wrong:
            print(f"    {what}")


@contextmanager
def signed_in(here: Console, browser: Browser) -> Generator[Page]:
    page = browser.page()
    page.goto(here.link())
    page.wait("window.wire?.live && document.querySelector('h1')")
    yield page
    page.close()


def problems_in(page: Page) -> list[str]:
    """Return what the policy prevented and other errors, each with its location."""
    return [*page.evaluate("window.violations"), *page.problems]


def measure_keys(report: Report, stack: ExitStack, here: Console, browser: Browser, session: str) -> list[str]:
    """Measure the time from key to echo in one terminal, without and with floods in others that another tab shows; the
    floor is a key in a field of the page."""
    report.title(f"Key to echo in the browser, next to {FLOODS} terminals that another tab shows")
    others = [
        stack.enter_context(ai_session.open(f"f{number}", shell="bash", backend="pty")) for number in range(FLOODS)
    ]
    with signed_in(here, browser) as page, signed_in(here, browser) as other_tab:
        other_tab.wait(f"document.querySelectorAll('.terms > li').length > {FLOODS}")
        page.evaluate(f"location.hash = '#/session/{session}'")
        page.shows("Take over")
        page.press("t")
        page.wait(
            "document.querySelector('.screen')?.terminal && document.activeElement.matches('.xterm-helper-textarea')"
        )
        page.evaluate(WATCH_KEYS)
        found = {"idle": keys(page)}
        running = [one.start(FLOOD) for one in others]
        found["flooded"] = keys(page)
        page.evaluate(WATCH_FIELD)
        floors = {"flooded": keys(page)}
        for one in running:
            one.interrupt()
        floors["idle"] = keys(page)
        for name, samples in found.items():
            floor = sorted(one[1] for one in floors[name])
            for number, what in enumerate(("bytes in the page", "painted")):
                times = [one[number] for one in samples]
                report.row(f"{name}, {what}, median", median(times), "ms", floor=median(floor))
                report.row(f"{name}, {what}, p95", p95(times), "ms", floor=p95(floor), note=f"of {len(times)}")
        return problems_in(page) + problems_in(other_tab)


def p95(times: list[float]) -> float:
    return quantiles(times, n=20)[-1] if len(times) > 1 else max(times)


def keys(page: Page) -> list[list[float]]:
    """Press keys, and return the two times of each, from its press."""
    page.evaluate("samples.length = 0")
    for number in range(KEYS):
        before = page.evaluate("window.pressed = performance.now(), samples.length")
        page.press("abcdefghij"[number % 10])
        page.wait(f"samples.length > {before} || performance.now() - pressed > {MOST_MS}")
        select.select((), (), (), GAP_SECONDS)
    page.press("u", modifiers=2)
    return page.evaluate("samples")


def measure_reconnections(report: Report, directory: Path, here: Console, browser: Browser) -> list[str]:
    """Compare the bytes of a session that the page has after many lost connections."""
    report.title(f"A tab whose connection is lost {TEARS} times while a session prints")
    with ai_session.open("torn", shell="bash", backend="pty") as session, signed_in(here, browser) as page:
        first = session.info().facts["output_bytes"]
        page.evaluate(WATCH_BYTES % (json.dumps(session.id), first))
        page.wait("reading.number")
        running, begun = session.start(f"seq 1 {LINES}"), time.perf_counter()
        for number in range(TEARS):
            page.wait("wire.live && reading.number")
            page.evaluate("wire.socket.close()")
            page.wait(f"wire.losses > {number}")
        running.wait()
        end = session.info().facts["output_bytes"]
        page.wait(f"reading.next >= {end}")
        seconds = time.perf_counter() - begun
        folder = runtime(directory) / "sessions" / session.id
        nonce = json.loads((folder / "spec.json").read_text())["nonce"]
        kept = strip_marks((folder / "log").read_bytes()[first:end], nonce)
        report.row("connections", page.evaluate("wire.losses") + 1, "")
        report.row("gaps", page.evaluate("wire.gaps"), "", most=0)
        same = page.evaluate(DIGEST) == hashlib.sha256(kept).hexdigest()
        report.row("bytes are others than the log's", float(not same), "", most=0)
        report.row("read", len(kept) / 1e6, "MB", note=f"{len(kept) / 1e6 / seconds:.1f} MB/s")
        return problems_in(page)


def measure_list(report: Report, stack: ExitStack, here: Console, browser: Browser) -> list[str]:
    """Measure the list of all sessions, from the click."""
    report.title(f"The page Terminals with {SESSIONS} sessions")
    for number in range(SESSIONS - FLOODS - 1):
        stack.enter_context(ai_session.open(f"l{number}", shell="bash", backend="pty"))
    page = browser.page()
    page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH_LIST % SESSIONS)
    times: list[float] = []
    for number in range(LOADS + 1):
        if number:
            page.ask("Page.reload")
            page.wait("performance.timeOrigin !== window.before")
        else:
            page.goto(here.link())
        page.wait("performance.getEntriesByName('painted').length")
        times.append(page.evaluate("performance.getEntriesByName('painted')[0].startTime"))
        page.evaluate("window.before = performance.timeOrigin")
    report.row("first painted, new browser", times[0], "ms", most=1000)
    report.row("first painted, loaded again, median", median(times[1:]), "ms", most=1000)
    found = problems_in(page)
    page.close()
    return found


def measure_recording(report: Report, directory: Path) -> None:
    """Open a recording and read screens at several positions; it is half build log, half a full-screen program."""
    report.title(f"A recording of {RECORDED_MB} MB")
    path, before = directory / "long.cast", resident_mb()
    with path.open("w") as file:
        file.write(json.dumps({"version": 3, "term": {"cols": 100, "rows": 30}}) + "\n")
        size = number = 0
        while size < RECORDED_MB * 1_000_000:
            lines = "".join(
                f"\x1b[3{line % 8}mline {number} {line}\x1b[0m of what a build prints\r\n" for line in range(20)
            )
            full = "\x1b[H" + "".join(f"\x1b[{line};1H\x1b[4{line % 8}m{number:90}\x1b[0m" for line in range(1, 30))
            event = json.dumps([0.05, "o", full if number % 2 else lines])
            file.write(event + "\n")
            size += len(event)
            number += 1
    begun = time.process_time()
    recording = Recording(path, 0.0)
    report.row("opened, processor", time.process_time() - begun, "s", note="once, in a thread")
    seconds, times = recording.facts()["seconds"], list[float]()
    for step in range(SEEKS):
        begun = time.perf_counter()
        recording.screen(seconds * (step * 37 % SEEKS) / SEEKS)
        times.append(time.perf_counter() - begun)
    report.row("a screen somewhere in it, median", median_ms(times), "ms")
    report.row("a screen somewhere in it, most", max(times) * 1e3, "ms", most=100)
    report.row("memory", max(0.0, resident_mb() - before), "MB", most=64)
    recording.close()


def resident_mb() -> float:
    """Return the peak so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
