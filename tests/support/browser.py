"""A real Chromium, driven over a pipe by its own protocol: tests load, read, click and type in pages."""

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
"""Runs in each page before its own scripts and records what a content security policy forbids there."""

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
    """Return the path of a Chromium on this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """A browser process with a profile of its own; ``close`` ends it with its children and removes the profile."""

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
        """Open a tab in a window of its own, which shares nothing with others."""
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
        """Send a command and return its result; it must succeed."""
        answer = self.answer(method, session, **params)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def answer(self, method: str, session: str, **params: Any) -> Facts:
        """Send a command and return the response, which has ``result`` or ``error``."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while (message := self._next()).get("id") != number:
            self._note(message)
        return message

    def _note(self, event: Facts) -> None:
        if page := self.pages.get(event.get("sessionId", "")):
            page.note(event.get("method", ""), event.get("params", {}))

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
        """End the browser with its children."""
        os.close(self._in)
        os.close(self._out)
        with_all = os.getpgid(self._process.pid)
        os.killpg(with_all, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


def _high(*fds: int) -> list[int]:
    """Move descriptors to numbers above those that the browser uses for its pipe."""
    found = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in fds]
    for fd in fds:
        os.close(fd)
    return found


def _location(details: Facts) -> str:
    """Return where a problem occurred: file, line and callers."""
    frames = details.get("stackTrace", {}).get("callFrames", [])
    called = [f"{one['functionName']} {one['url']}:{one['lineNumber'] + 1}:{one['columnNumber'] + 1}" for one in frames]
    return " < ".join(called) or f"{details.get('url', '')}:{details.get('lineNumber', -1) + 1}"


class Page:
    """A tab. ``problems`` are errors of its scripts and its console, ``statuses`` those of its HTTP responses."""

    def __init__(self, browser: Browser, session: str, target: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target
        self._context = context
        self.problems: list[str] = []
        self.statuses: list[tuple[str, int]] = []

    def ask(self, method: str, **params: Any) -> Facts:
        """Send a command about this tab and return its result."""
        return self._browser.ask(method, self._session, **params)

    def note(self, method: str, params: Facts) -> None:
        """Record an event that the browser sends."""
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.problems.append(
                f"{details.get('exception', {}).get('description', details['text'])} {_location(details)}"
            )
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(f"{params['entry']['text']} {_location(params['entry'])}")
        elif method == "Network.responseReceived":
            self.statuses.append((params["response"]["url"], params["response"]["status"]))

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size and the system's colour scheme."""
        mobile = width < 600
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def goto(self, url: str) -> Self:
        """Navigate as if a link was clicked outside of the browser; does not wait for the page."""
        self.ask("Page.navigate", url=url)
        return self

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, or what its promise resolves to."""
        answer = self.ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"], self.problems)
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until an expression is true and return its value. The page may load another document meanwhile."""
        deadline = time.monotonic() + BOUND_SECONDS
        look = f"""new Promise(done => setTimeout(() => {{
            let found; try {{ found = ({expression}) }} catch {{}}
            done(found instanceof Element || found) }}, 15))"""
        while time.monotonic() < deadline:
            answer = self._browser.answer(
                "Runtime.evaluate", self._session, expression=look, awaitPromise=True, returnByValue=True
            ).get("result", {})  # there is none if the page loaded another document meanwhile
            if "exceptionDetails" not in answer and (value := answer.get("result", {}).get("value")):
                return value
        raise AssertionError((expression, self.text()[:2000], self.problems))

    def status(self, url: str) -> int:
        """Wait for a response from an address and return its status."""
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            if found := [status for one, status in self.statuses if one == url]:
                return found[-1]
            self._browser.answer("Browser.getVersion", "")  # pending events arrive before the response
        raise AssertionError((url, self.statuses))

    def text(self) -> str:
        """Return the visible text."""
        return self.evaluate("document.body.innerText")

    def shows(self, text: str) -> str:
        """Wait until the page shows ``text`` and return all its text."""
        return self.wait(f"document.body.innerText.includes({json.dumps(text)}) && document.body.innerText")

    def click(self, selector: str) -> None:
        """Wait for an element and click in its middle."""
        at = self.wait(
            "(e => { if (!e) return; e.scrollIntoView({block: 'nearest'}); const r = e.getBoundingClientRect();"
            " return r.width && [r.x + r.width / 2, r.y + r.height / 2] })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left", clickCount=1)

    def press(self, *keys: str, modifiers: int = 0) -> None:
        """Press keys, given by name or by character. Modifiers: 1 Alt, 2 Ctrl, 8 Shift."""
        for key in keys:
            name, number, text = KEYS.get(key) or (key, ord(key.upper()) if key.isalnum() else 0, key)
            named: Facts = {"key": name, "windowsVirtualKeyCode": number, "modifiers": modifiers}
            self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, unmodifiedText=text, **named)
            self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def write(self, text: str) -> None:
        """Type a text, key by key."""
        self.press(*("Enter" if char == "\n" else char for char in text))

    def picture(self, path: Path) -> None:
        """Write a PNG of the visible part."""
        self.evaluate("document.fonts.ready.then(() => 1)")
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """Close the tab."""
        del self._browser.pages[self._session]
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)
