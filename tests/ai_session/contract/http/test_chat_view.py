"""The view of a call in a chat: in a real browser, in a client that shows views as MCP Apps (2026-01-26) have it."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentwire.visible import visible
from ai_session.servers.mcp import apps
from tests.ai_session.support import asking
from tests.ai_session.support.mcp_client import Client, living_in, stop_daemons
from tests.conftest import UNBOXED, new_home
from tests.support import forked
from tests.support.browser import Browser, Page

pytestmark = pytest.mark.browser

SHOWS = {"extensions": {apps.EXTENSION: {"mimeTypes": [apps.MIME_TYPE]}}}

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "media-src 'self' data:; connect-src 'none'"
)
"""What a client is to set for a view that declares no domains."""

CHAT = """
window.heard = []; window.asked = []; window.ready = false;
window.show = (html, sandbox, context) => {
  window.frame = document.body.appendChild(document.createElement('iframe'));
  frame.sandbox = sandbox; frame.width = 600; frame.height = 500; frame.srcdoc = html;
  window.context = context;
};
window.send = message => frame.contentWindow.postMessage({ jsonrpc: '2.0', ...message }, '*');
addEventListener('message', ({ source, data }) => {
  if (source !== window.frame?.contentWindow) return;
  heard.push(data);
  if (data.method === 'ui/initialize') send({ id: data.id, result: { protocolVersion: data.params.protocolVersion,
    hostInfo: { name: 'chat', version: '1' }, hostCapabilities: { serverTools: {} }, hostContext: context } });
  else if (data.method === 'ui/notifications/initialized') ready = true;
  else if ('id' in data && 'method' in data) asked.push(data);
});
"""
SHOWN = "frame.contentDocument.body.innerText"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def client(homes: Path) -> Iterator[Client]:
    home = new_home(homes, UNBOXED + asking.ABOUT_DEPLOYS)
    forked.daemon(living_in(home))
    with asking.client(home) as peer:
        asking.greet(peer, SHOWS)
        peer.call("create_session", name="main", shell="bash", backend="pty", rows=24, cols=80)
        yield peer
    stop_daemons(home)


class Chat:
    """A client's chat with one view in it. What the view asks is done when a test says ``pass_on``."""

    def __init__(self, page: Page, client: Client) -> None:
        self.page = page
        self._client = client

    def tell(self, method: str, **params: Any) -> None:
        self.page.evaluate(f"send({json.dumps({'method': f'ui/notifications/{method}', 'params': params})})")

    def called(self, tool: str, **arguments: Any) -> Any:
        """A call of the model, which the view is told of."""
        self.tell("tool-input", arguments=arguments)
        result = self._client.call(tool, **arguments)
        self.tell("tool-result", **result)
        return result

    def pass_on(self) -> str:
        """The name of the tool that the view asks for next; it gets its answer."""
        self.page.wait("asked.length > 0")
        asked = self.page.evaluate("asked.shift()")
        answer = self._client.ask(asked["method"], asked["params"])
        self.page.evaluate(f"send({json.dumps(answer | {'id': asked['id']})})")
        return asked["params"]["name"]

    def shows(self, *texts: str) -> None:
        for text in texts:
            self.page.wait(f"{SHOWN}.includes({json.dumps(text)})")


@contextmanager
def chat(browser: Browser, client: Client, sandbox: str = "allow-scripts allow-same-origin") -> Iterator[Chat]:
    """One whose frame has the policy that it must have; nothing may be forbidden by it in the end."""
    (content,) = client.result("resources/read", {"uri": apps.URI})["contents"]
    assert "csp" not in content["_meta"]["ui"]
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    html = content["text"].replace('<meta charset="utf-8">', head)
    assert head in html
    page = browser.page(800, 700)
    try:
        page.evaluate(CHAT)
        page.evaluate(f"show({json.dumps(html)}, {json.dumps(sandbox)}, {{ theme: 'dark' }})")
        page.wait("ready")
        yield Chat(page, client)
        if "same-origin" in sandbox:
            assert page.evaluate("frame.contentWindow.violations") == []
            assert page.evaluate("frame.contentWindow.pwned === undefined")
            assert page.evaluate("frame.contentDocument.querySelectorAll('img, a, iframe, link').length") == 0
        assert page.evaluate("window.pwned === undefined")
        assert page.problems == []
        methods = page.evaluate("[...new Set(heard.map(one => one.method).filter(Boolean))]")
        assert set(methods) <= {
            "ui/initialize",
            "ui/notifications/initialized",
            "ui/notifications/size-changed",
            "tools/call",
        }
    finally:
        page.close()


HOSTILE = (
    r"printf '\e]0;<img src=x onerror=parent.pwned=1>\a\e]8;;javascript:parent.pwned=2\a LINK \e]8;;\a\n'; "
    r"printf '<script>parent.pwned=3</script><img src=x onerror=pwned=4> \xe2\x80\xaegnp.exe\n'"
)


def test_a_command_is_shown_from_its_beginning_to_its_end(browser: Browser, client: Client, tmp_path: Path) -> None:
    with chat(browser, client) as view:
        assert view.page.evaluate("frame.contentDocument.documentElement.dataset.theme") == "dark"
        view.called("execute_command", session_id="main", command=HOSTILE)
        view.shows(
            "exit 0", "main", "LINK", r"<script>parent.pwned=3</script><img src=x onerror=pwned=4> \u202egnp.exe"
        )
        assert view.page.evaluate("asked.length") == 0, "what has ended is not looked at"
    with chat(browser, client) as view:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        command = f"echo begun; read answer < {gate}; (exit 3)"
        view.called("execute_command", session_id="main", command=command, timeout_seconds=1)
        view.shows("running")
        assert view.pass_on() == "read_screen"
        view.shows("begun")
        gate.write_text("go on\n")
        assert not client.call("read_output", session_id="main", wait_for="finish")["isError"]
        while view.pass_on() == "read_screen":
            pass  # one that was asked for before it ended
        view.shows("exit 3", "begun")
        view.page.evaluate("send({ id: 77, method: 'ui/resource-teardown', params: {} })")
        view.page.wait("heard.some(one => one.id === 77 && one.result)")


def test_a_question_is_shown_and_answered_elsewhere(browser: Browser, client: Client) -> None:
    hidden = "deploy now # \u202egnp.exe\x1b[2K <img src=x onerror=pwned=1>"
    with chat(browser, client) as view:
        result = view.called("execute_command", session_id="main", command=hidden)
        question = result["_meta"]["ai-session/error"]["message"].rpartition(" ")[2]
        view.shows("waits for a person", r"deploy now # \u202egnp.exe\x1b[2K <img src=x onerror=pwned=1>")
        view.shows("A person has to allow this first.", f"ai-session approve {question}")
        assert (
            view.page.evaluate("frame.contentDocument.querySelectorAll('button, input, form, [onclick]').length") == 0
        )
        press = "frame.contentDocument.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }))"
        view.page.evaluate(f"[...'ysapfn'].forEach(key => {press})")
        view.page.evaluate("frame.contentDocument.querySelectorAll('*').forEach(one => one.click?.())")
        assert view.page.evaluate("asked.length") == 0
        assert (
            asking.error_of(client.call("execute_command", session_id="main", command=hidden))["code"]
            == "consent_needed"
        )


def test_what_is_not_from_its_client_is_not_heard(browser: Browser, client: Client) -> None:
    with chat(browser, client, "allow-scripts") as view:
        view.tell("tool-input", arguments={"session_id": "main", "command": "sleep 1"})
        view.page.wait("asked.length > 0")
    with chat(browser, client) as view:
        forged = {
            "jsonrpc": "2.0",
            "method": "ui/notifications/tool-input",
            "params": {"arguments": {"command": "forged"}},
        }
        view.page.evaluate(
            "frame.contentWindow.dispatchEvent(new frame.contentWindow.MessageEvent('message', "
            f"{{ data: {json.dumps(forged)}, source: frame.contentWindow }}))"
        )
        for nonsense in (
            "null",
            "'text'",
            "{ jsonrpc: '2.0' }",
            "{ jsonrpc: '2.0', method: '__proto__', params: 1 }",
            "{ jsonrpc: '2.0', method: 'constructor', id: 5 }",
            "{ jsonrpc: '2.0', id: 99, result: 1 }",
            "{ jsonrpc: '2.0', method: 'ui/notifications/tool-result' }",
        ):
            view.page.evaluate(f"frame.contentWindow.postMessage({nonsense}, '*')")
        view.page.wait("heard.some(one => one.id === 5 && one.error.code === -32601)")
        view.tell(
            "tool-input", arguments={"command": {"not": ["a", "text"]}, "session_id": 7, "keys": [None, "\u202e"]}
        )
        view.tell("tool-result", isError=True, content=[{"type": "text", "text": "<b>bad</b>\u202e"}])
        view.shows("refused", r"<b>bad</b>\u202e")
        assert "forged" not in view.page.evaluate(SHOWN)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.torture)])
def test_texts_are_escaped_as_on_a_terminal(browser: Browser, step: int) -> None:
    texts = [
        chr(code)
        for code in (*range(0x500), *range(0x500, 0x3100, step))
        if unicodedata.category(chr(code)) not in ("Cn", "Cs")
    ]
    texts += [
        chr(code) for code in (0x3164, 0xFFA0, 0xFFFC, 0xFEFF, 0xE0041, 0x1D159, 0x1F600, 0x20000, 0x10FFFD, 0xE000)
    ]
    texts += [
        "e\u0301",
        "a\u0489b",
        "x\u0336y",
        "\u0e01\u0e31\u0e49",
        "q\u0301",
        "क्षि",
        "e" + "\u0301" * 6,
        "\u0301",
        "👩‍👩‍👧 ✔️",
        "שלום",
        "a\r\nb\x85",
    ]
    source = (Path(apps.__file__).parents[2] / "http/console/web/visible.js").read_text()
    page = browser.page()
    module = f"'data:text/javascript,' + encodeURIComponent({json.dumps(source)})"
    page.evaluate(f"import({module}).then(one => {{ window.shown = one; }})")
    for lines in (False, True):
        found = page.evaluate(f"{json.dumps(texts)}.map(text => shown.visible(text, {json.dumps(lines)}))")
        wrong = [
            (one, shown, visible(one, lines=lines))
            for one, shown in zip(texts, found, strict=True)
            if shown != visible(one, lines=lines)
        ]
        assert wrong == []
    assert page.evaluate("shown.printed('a\\tb\\n\\tc')") == "a       b\n        c"
    page.close()
