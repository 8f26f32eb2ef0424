"""Verbs about who may sign in to the HTTP server; they use its store and need neither server nor daemon."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from agentwire.cli.options import Argument, Group, Json, Option
from agentwire.cli.output import EXIT_INTERRUPTED, confirm, leave, remark, say, show_facts, show_json, show_rows, when
from ai_session.cli.output import EXIT_NOT_FOUND, report
from ai_session.errors import AiSessionError, InvalidArguments

if TYPE_CHECKING:
    from sqlite3 import Connection

app = Group(
    "Access to the HTTP server: people, programs, and what was granted to them.",
    epilog="Exit codes: 0 done, 1 error, 2 wrong usage, 3 no such user, client or token.",
)
user = Group("Add a person who may sign in.")
users = Group("List or remove people who may sign in.")
client = Group("Add a program that has a secret.")
clients = Group("List or remove programs that may ask for tokens.")
tokens = Group("List or revoke what people granted to programs.")
for name, group in {"user": user, "client": client, "users": users, "clients": clients, "tokens": tokens}.items():
    app.verbs[name] = group

Scopes = Annotated[
    list[str] | None,
    Option("--scope", help="sessions:read, sessions:write, sessions:execute or admin; may be repeated."),
]
T = TypeVar("T")


@user.command("add")
def add_user(
    name: Annotated[str, Argument(help="a-z, 0-9, dot, dash and underscore.")],
    scope: Scopes = None,
    as_json: Json = False,
) -> None:
    """Let a person sign in. Asks for the password, or reads it as a line from standard input.

    Without --scope they may grant everything except admin.
    """
    from ai_session.http.oauth import users as oauth_people

    scopes = _scopes(scope)
    oauth_people.checked_name(name)
    hashed = oauth_people.hashed(_password())
    _with_store(lambda db: oauth_people.add(db, time.time(), name, hashed, scopes))
    if as_json:
        show_json({"name": name, "scopes": scopes})
    else:
        say(f"{name} may sign in and grant {', '.join(scopes)}.")


@client.command("add")
def add_client(
    name: Annotated[str, Argument(help="Its name, here and in the audit log.")],
    scope: Scopes = None,
    as_json: Json = False,
) -> None:
    """Create an id and a secret for a program that acts for itself. The secret is shown only this once."""
    from ai_session.http.oauth import clients as oauth_clients

    scopes = _scopes(scope)
    added, secret = _with_store(lambda db: oauth_clients.add_machine(db, time.time(), name, scopes))
    facts = {"client_id": added.client_id, "client_secret": secret, "scopes": scopes}
    if as_json:
        show_json({"name": name, **facts})
    else:
        show_facts({**facts, "scopes": " ".join(scopes)})


@users.command("list")
def list_users(as_json: Json = False) -> None:
    """Show who may sign in."""
    from ai_session.http.oauth import users as oauth_people

    _show(
        _with_store(oauth_people.listed),
        ("name", "scopes", "created_at"),
        as_json,
        "Nobody: ai-session http user add NAME",
    )


@users.command("revoke")
def revoke_user(name: str, as_json: Json = False) -> None:
    """Remove a person, and end all that they granted."""
    from ai_session.http.oauth import users as oauth_people

    _ask(f"Remove {name} and revoke all they granted?")
    found = _with_store(lambda db: oauth_people.remove(db, time.time(), name))
    _ended(found, f"no user {name!r}, and nothing granted by one", "ai-session http users list", as_json)


@clients.command("list")
def list_clients(as_json: Json = False) -> None:
    """Show the programs that registered or were added. Those named by a URL are not stored; see tokens."""
    from ai_session.http.oauth import clients as oauth_clients

    columns = ("client_id", "name", "kind", "scopes", "created_at", "used_at")
    _show(_with_store(oauth_clients.listed), columns, as_json, "None: clients register when they first sign in.")


@clients.command("revoke")
def revoke_client(
    name: Annotated[str, Argument(metavar="CLIENT", help="Its id (or URL), or the name it was added with.")],
    as_json: Json = False,
) -> None:
    """Forget a program, and end all that was granted to it."""
    from ai_session.http.oauth import clients as oauth_clients

    _ask(f"Remove {name} and revoke all that was granted to it?")
    found = _with_store(lambda db: oauth_clients.remove(db, time.time(), name))
    _ended(bool(found), f"no client {name!r}", "ai-session http clients list", as_json)


@tokens.command("list")
def list_tokens(as_json: Json = False) -> None:
    """Show what was granted, to whom, by whom, and until when."""
    from ai_session.http.oauth import grants

    columns = ("id", "subject", "client", "scopes", "created_at", "used_at", "expires_at")
    _show(_with_store(lambda db: grants.listed(db, time.time())), columns, as_json, "None: no person has signed in.")


@tokens.command("revoke")
def revoke_tokens(
    grant: Annotated[str | None, Argument(metavar="ID", help="As list shows it.")] = None,
    everything: Annotated[bool, Option("--all", help="All grants of all users.")] = False,
    as_json: Json = False,
) -> None:
    """End a grant: its tokens are invalid from now on."""
    from ai_session.http.oauth import grants

    if (grant is None) == (not everything):
        raise InvalidArguments("name one grant, or pass --all", suggestion="ai-session http tokens list")
    _ask("Revoke all grants?" if everything else f"End {grant}?")

    def end(db: Connection) -> bool:
        now = time.time()
        chosen = [row["id"] for row in grants.listed(db, now)] if everything else [str(grant)]
        return sum(grants.end_grant(db, now, each, "a person ended it") for each in chosen) > 0

    found = _with_store(end)
    _ended(found or everything, f"no grant {grant!r} in force", "ai-session http tokens list", as_json)


def _with_store(work: Callable[[Connection], T]) -> T:
    from ai_session.config import config
    from ai_session.http.oauth.store import FILE, Store

    directory = config.runtime_directory(config.home_directory(), os.getuid())
    with Store(directory / FILE) as store:
        return store.do(work)


def _scopes(wanted: list[str] | None) -> tuple[str, ...]:
    from ai_session.http.oauth.scopes import SCOPES, USUAL, known

    if not wanted:
        return USUAL
    words = [word for each in wanted for word in each.replace(",", " ").split()]
    unknown = [word for word in words if word not in SCOPES]
    if unknown or not words:
        raise InvalidArguments(f"{' '.join(unknown)!r} is not a scope", suggestion=f"use: {', '.join(SCOPES)}")
    return known(words)


def _password() -> str:
    if sys.stdin.isatty():
        import typer

        try:
            return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
        except typer.Abort:
            raise KeyboardInterrupt from None
    return sys.stdin.readline().rstrip("\r\n")


def _ask(question: str) -> None:
    if not confirm(question):
        leave(EXIT_INTERRUPTED)


def _ended(found: bool, message: str, suggestion: str, as_json: bool) -> None:
    if not found:
        error = AiSessionError(message, suggestion=suggestion)
        leave(report(error, as_json=as_json, exit_code=EXIT_NOT_FOUND))
    if as_json:
        show_json({"ended": True})
    else:
        say("Done.")


def _show(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool, empty: str) -> None:
    if as_json:
        show_json(rows)
        return
    show_rows([{name: _format(name, row.get(name)) for name in columns} for row in rows], columns)
    if not rows:
        remark(empty)


def _format(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return when(value or 0)
    return " ".join(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
