"""The verb console: the page in the browser on which a person watches and controls sessions."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentwire.cli.options import Json
from ai_session.cli.output import remark, write_text

if TYPE_CHECKING:
    from ai_session.http.console.logins import Tab
    from ai_session.http.console.runs import Runs

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def console(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one. Default: 8768, or any free one."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Only print the link.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Read-only: nothing can be typed and no question answered.")
    ] = False,
    link_seconds: Annotated[int, typer.Option(min=1, max=3600, help="How long a link is valid; it works once.")] = 60,
    as_json: Json = False,
) -> None:
    """Open the console in the browser: terminals, commands, runs, what waits for you, the audit log.

    It serves this machine and this user only, until ended; sessions keep running. Each tab signs in by a link of its
    own, which works once and for a minute by default; Enter makes another.

    Exit codes: 0 ended on request, 1 the port cannot be used, 2 wrong usage.
    """
    import asyncio  # not needed for the help of all verbs

    from ai_session.http.console import server

    listener = server.listen(port)

    def ready(link: Callable[[], str]) -> None:
        def offer() -> None:
            url = link()
            write_text(json.dumps({"url": url}) + "\n" if as_json else f"{url}\n")
            if not no_open:
                show(url)

        if not as_json:
            remark(f"The console. Each link signs in one tab, within {link_seconds} seconds; Enter makes another.")
            remark("Ctrl-C ends the console; sessions keep running.")
        offer()
        if sys.stdin.isatty():
            asyncio.get_running_loop().add_reader(0, on_line, offer)

    def on_sign_in(tab: Tab) -> None:
        if not as_json:
            remark(f"Tab {tab.number} has signed in: {tab.browser}.")

    asyncio.run(
        server.serve(
            listener, read_only=read_only, link_seconds=link_seconds, runs=runs(), ready=ready, on_sign_in=on_sign_in
        )
    )


def runs() -> Runs:
    """Return the program that reports runs, from the settings: a path, or a name, which is searched for next to this
    program, then where no agent writes."""
    from ai_session.config import config
    from ai_session.http.console.runs import Runs

    name, *given = config.load().console.runs or ("",)
    if not name:
        return Runs(())
    sibling = Path(sys.executable).parent / name  # an absolute path stays what it is
    path = str(sibling) if sibling.is_file() or "/" in name else shutil.which(name, path=config.outside_path())
    return Runs((path, *given)) if path else Runs((), f"{name} is not installed here")


def on_line(offer: Callable[[], None]) -> None:
    """Handle Enter, or the end of the terminal."""
    import asyncio

    if os.read(0, 4096):
        offer()
    else:
        asyncio.get_running_loop().remove_reader(0)


def show(url: str) -> None:
    """Open the link in the browser if there is a screen."""
    import webbrowser

    from ai_session.config import config

    if sys.platform == "darwin" or any(config.environment().get(name) for name in SCREENS):
        webbrowser.open(url)
