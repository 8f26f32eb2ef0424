"""The verbs login and logout, for servers at an address."""

from __future__ import annotations

import asyncio
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.output import remark, say, show_facts, show_json
from ccswarm.cli.configured_servers import servers_of
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, load

if TYPE_CHECKING:
    from ccswarm.models import LoginFacts

ServerName = Annotated[str, typer.Argument(metavar="SERVER", help="Name of the server in the configuration.")]


def login(
    server: ServerName,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="Scope to request in addition; may be repeated."),
    ] = None,
    no_browser: Annotated[
        bool,
        typer.Option("--no-browser", help="Only print the address; paste the one the browser ends at."),
    ] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How many seconds to wait for you.")] = 600,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Log in at a server, for all runs of this user. Opens the browser; the grant client_credentials needs no person.

    Exit codes: 0 logged in, 1 not, 2 no such server, or one without logins, 5 the configuration changed since a person
    used it and nobody agreed.
    """
    from agentwire import plugins
    from ccswarm.config import config as files

    (configured,) = servers_of(load(config).settings, [server])
    clients = plugins.load("ccswarm.clients", "mcp")
    scopes = [name for words in scope or () for name in words.split()]
    environ, state = files.server_environment(), files.state_directory()
    user = TerminalUser(browser=not no_browser and _has_screen(environ))
    found = asyncio.run(clients.log_in(configured, environ, state, user, scopes=scopes, seconds=seconds))
    facts = {"server": server, **login_facts(found)}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)


def logout(server: ServerName, config: Config = None, as_json: Json = False) -> None:
    """Forget the login to a server, and revoke its tokens at the issuer.

    Exit codes: 0 it is forgotten, or there was none, 2 no such server, or one without logins, 5 the configuration
    changed since a person used it and nobody agreed.
    """
    from agentwire import plugins
    from ccswarm.config import config as files

    (configured,) = servers_of(load(config).settings, [server])
    clients = plugins.load("ccswarm.clients", "mcp")
    was, revoked = asyncio.run(clients.log_out(configured, files.server_environment(), files.state_directory()))
    if as_json:
        show_json({"server": server, "was_logged_in": was, "revoked": revoked})
    else:
        say("The login is forgotten." if was else "There was no login.")
        if was and not revoked:
            remark("the authorization server could not be informed; its tokens will expire")


def login_facts(login: LoginFacts) -> dict[str, Any]:
    """Return the facts of a login, for people and programs."""
    until = login.expires_at and datetime.fromtimestamp(login.expires_at, UTC).isoformat(timespec="seconds")
    return {
        "issuer": login.issuer,
        "scopes": " ".join(login.scopes),
        "token_until": until,
        "renews_itself": login.renewable,
    }


class TerminalUser:
    """The person at this terminal, with or without a browser that can be opened from here."""

    def __init__(self, *, browser: bool) -> None:
        self._browser = browser

    def go_to(self, url: str) -> None:
        remark(f"log in at:\n{url}\nif the browser ends at a page that cannot be shown, paste its address here:")
        if self._browser:
            _run_aside(lambda: webbrowser.open(url))  # some return only when they are closed

    def show(self, message: str) -> None:
        remark(message)

    async def pasted(self) -> str:
        loop = asyncio.get_running_loop()
        line: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if text := sys.stdin.readline():
                loop.call_soon_threadsafe(lambda: line.done() or line.set_result(text))

        _run_aside(read)
        return await line


def _run_aside(work: Callable[[], object]) -> None:
    """Run ``work`` in a daemon thread: a thread of the event loop's executor would keep the program from ending."""
    threading.Thread(target=work, daemon=True).start()


def _has_screen(environ: Mapping[str, str]) -> bool:
    """Report whether a browser would open in a window of its own, rather than in this terminal."""
    return sys.platform == "darwin" or any(environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
