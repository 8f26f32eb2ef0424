"""A real Chromium, driven over a pipe by its own protocol: pages are loaded, looked at, clicked and typed in."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.support.bounds import BOUND_SECONDS

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe", "--disable-gpu", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-extensions"),
    *("--disable-renderer-backgrounding", "--disable-features=Translate,MediaRouter,OptimizationHints"),
    *("--force-color-profile=srgb", "--font-render-hinting=none", "--hide-scrollbars", "--no-proxy-server"),
)
WATCH = """
window.violations = [];
addEventListener('securitypolicyviolation', e => violations.push(
  `${e.violatedDirective} ${e.blockedURI} ${e.sample} ${e.sourceFile}:${e.lineNumber}:${e.columnNumber}`));
"""
"""In each page before its own scripts: what a content security policy forbade there."""

LOOK_SECONDS = 1.0
"""For so long a page looks by itself for what it is to show, before it is asked again: each question costs three
processes as much as loading a small file."""
PAUSE_SECONDS = 0.02
"""Between two looks."""
KEYS = {
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "F6": ("F6", 117, ""),
    "Tab": ("Tab", 9, ""),
    "End": ("End", 35, ""),
    "Home": ("Home", 36, ""),
}
Facts = dict[str, Any]


def program() -> str | None:
    """A Chromium of this machine."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One process with a profile of its own; ``close`` ends it and all that belongs to it."""

    def __init__(self, *flags: str) -> None:
        found = program()
        assert found, "no Chromium here"
        self._profile = tempfile.mkdtemp(prefix="ais-web-", dir="/tmp")
        theirs_in, ours_out = _high(*os.pipe())
        ours_in, theirs_out = _high(*os.pipe())
        command = ("bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-', "browser")
        self._process = subprocess.Popen(
            [*command, found, *FLAGS, *flags, f"--user-data-dir={self._profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs_in, theirs_out),
            env={"PATH": os.environ["PATH"], "HOME": self._profile},
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in = ours_in
        self._out = ours_out
        self._held = b""
        self._ids = itertools.count(1)
        self.pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def page(self, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        """A new tab in a window of its own, which shares nothing with others."""
        context = self.ask("Target.createBrowserContext", disposeOnDetach=True)["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        return self._attached(target, context, width, height, dark)

    def _attached(self, target: str, context: str, width: int, height: int, dark: bool) -> Page:
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.ask("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.ask("Emulation.setFocusEmulationEnabled", enabled=True)
        page.size(width, height, dark=dark)
        return page

    def ask(self, method: str, session: str = "", **params: Any) -> Facts:
        """One command's result."""
        told = self.answer(method, session, **params)
        assert "error" not in told, (method, told)
        return told["result"]

    def answer(self, method: str, session: str, **params: Any) -> Facts:
        """The answer to one command, with ``result`` or ``error``."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while (told := self._next()).get("id") != number:
            self._note(told)
        return told

    def _note(self, told: Facts) -> None:
        if page := self.pages.get(told.get("sessionId", "")):
            page.note(told.get("method", ""), told.get("params", {}))

    def _next(self) -> Facts:
        deadline = time.monotonic() + BOUND_SECONDS
        while b"\0" not in self._held:
            assert select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0], "the browser is silent"
            chunk = os.read(self._in, 1 << 16)
            assert chunk, "the browser has gone"
            self._held += chunk
        message, _, self._held = self._held.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        """End it."""
        os.close(self._in)
        os.close(self._out)
        with_all = os.getpgid(self._process.pid)
        os.killpg(with_all, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


def _high(*fds: int) -> list[int]:
    """The same ends with numbers that are not those of the browser's own two."""
    found = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in fds]
    for fd in fds:
        os.close(fd)
    return found


def _place(told: Facts) -> str:
    """Where it happened: file, line, and who called."""
    frames = told.get("stackTrace", {}).get("callFrames", [])
    called = [f"{one['functionName']} {one['url']}:{one['lineNumber'] + 1}:{one['columnNumber'] + 1}" for one in frames]
    return " < ".join(called) or f"{told.get('url', '')}:{told.get('lineNumber', -1) + 1}"


class Page:
    """One tab. ``problems`` are errors of its scripts and of its console, ``statuses`` those of its responses."""

    def __init__(self, browser: Browser, session: str, target: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self._context = context
        self.problems: list[str] = []
        self.statuses: list[tuple[str, int]] = []

    def ask(self, method: str, **params: Any) -> Facts:
        """One command's result, of this tab."""
        return self._browser.ask(method, self._session, **params)

    def note(self, method: str, params: Facts) -> None:
        """What the browser tells by itself."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(
                f"{details.get('exception', {}).get('description', details['text'])} {_place(details)}"
            )
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {_place(params['entry'])}")
        elif method == "Network.responseReceived":
            self.statuses.append((params["response"]["url"], params["response"]["status"]))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """The window's, and which colours its system has."""
        mobile = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def goto(self, url: str) -> Self:
        """Load it, as a link that was clicked outside of the browser is."""
        self.ask("Page.navigate", url=url)
        return self

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        told = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in told, (expression, told["exceptionDetails"], self.problems)
        return told["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The first value of an expression that counts as true; the page may load another document meanwhile."""
        deadline = time.monotonic() + BOUND_SECONDS
        look = f"""new Promise(done => {{
            const end = performance.now() + {1000 * LOOK_SECONDS};
            const look = () => {{
                let found; try {{ found = ({expression}) }} catch {{}}
                if (found || performance.now() > end) done(found instanceof Element || found);
                else setTimeout(look, {1000 * PAUSE_SECONDS}) }};
            setTimeout(look) }})"""
        while time.monotonic() < deadline:
            told = self._browser.answer(
                "Runtime.evaluate", self._session, expression=look, awaitPromise=True, returnByValue=True
            ).get("result", {})  # none where the page that was asked is another by now
            if "exceptionDetails" not in told and (value := told.get("result", {}).get("value")):
                return value
        raise AssertionError((expression, self.text()[:2000], self.problems))

    def status(self, url: str) -> int:
        """Of the response for that address, once it came."""
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            if found := [status for one, status in self.statuses if one == url]:
                return found[-1]
            self._browser.answer("Browser.getVersion", "")  # what it tells by itself comes before the answer
        raise AssertionError((url, self.statuses))

    def text(self) -> str:
        """All that is to be read."""
        return self.evaluate("document.body.innerText")

    def shows(self, text: str) -> str:
        """Waits until that is to be read somewhere."""
        return self.wait(f"document.body.innerText.includes({json.dumps(text)}) && document.body.innerText")

    def click(self, selector: str) -> None:
        """In its middle, once it is there."""
        at = self.wait(
            "(e => { if (!e) return; e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            " return r.width && [r.x + r.width / 2, r.y + r.height / 2] })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Keys by name, or the characters that they write. Modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        for key in keys:
            name, number, text = KEYS.get(key) or (key, ord(key.upper()) if key.isalnum() else 0, key)
            named: Facts = {"key": name, "windowsVirtualKeyCode": number, "modifiers": modifiers}
            self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, unmodifiedText=text, **named)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def write(self, text: str) -> None:
        """As one types."""
        self.press(*("Enter" if char == "\n" else char for char in text))

    def picture(self, path: Path) -> None:
        """A PNG of what is in view."""
        self.evaluate("document.fonts.ready.then(() => 1)")
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Close it."""
        del self._browser.pages[self._session]
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)
