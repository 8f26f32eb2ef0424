"""The pages that people see: plain HTML without scripts, pictures or anything from other hosts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse

from ai_session.http.oauth.clients import Client
from ai_session.http.oauth.redirects import LOOPBACK_HOSTS, is_on_this_machine
from ai_session.http.oauth.scopes import SCOPES

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem;color:#1b1b1b;background:#fff}
h1{font-size:1.4rem}label{display:block;margin:.6rem 0}input[type=text],input[type=password]{font:inherit;width:100%;
box-sizing:border-box;padding:.4rem}button{font:inherit;padding:.4rem 1.2rem;margin:.8rem .6rem 0 0}
code{overflow-wrap:anywhere}.wrong{color:#a00000}.small{font-size:.85rem;color:#555}
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}.small{color:#aaa}.wrong{color:#ff8080}}
"""
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


def page(title: str, body: str, *, status: int = 200, redirect_uri: str = "") -> HTMLResponse:
    """Return a whole page. ``redirect_uri`` is where its form may redirect to, which browsers check by the policy."""
    policy = [
        *("default-src 'none'", f"style-src 'sha256-{STYLE_HASH}'", "base-uri 'none'", "frame-ancestors 'none'"),
        f"form-action 'self'{_form_targets(redirect_uri)}",
    ]
    html = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    headers = {
        "Content-Security-Policy": "; ".join(policy),
        "Cache-Control": "no-store",
        # no-referrer would make browsers send the form with "Origin: null".
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    return HTMLResponse(html, status, headers)


def _form_targets(redirect_uri: str) -> str:
    """Return the form's targets. A callback may redirect to a page of the client's maker, so https is allowed too."""
    if not redirect_uri:
        return ""
    parts = urlsplit(redirect_uri)
    if parts.scheme == "https":
        return " https:"
    if parts.scheme != "http":
        return f" https: {parts.scheme}:"
    # A policy cannot name an IPv6 address.
    return " https: http:" if parts.hostname == "::1" else f" https: http://{parts.netloc}"


def problem(text: str, *, status: int = 400) -> HTMLResponse:
    """Return the page for a person if nothing may be sent to the client."""
    return page("This request cannot be answered", f"<p>{escape(text)}</p>", status=status)


def unsent(title: str, text: str, answer: str, *, status: int) -> HTMLResponse:
    """Return the page for a person who has not signed in. Anybody may have registered the client, so the browser is not
    redirected to it automatically. ``answer`` is the redirect address; it is offered as a link if it leads to the
    person's own computer."""
    link = ""
    if is_on_this_machine(answer):
        link = f'<p><a href="{escape(answer)}" rel="noreferrer">Notify the program</a>, which may be waiting.</p>'
    return page(title, f"<p>{escape(text)}</p>{link}", status=status)


def sign_in(hidden: str, client: Client, redirect_uri: str, *, by_code: bool, wrong: str = "") -> HTMLResponse:
    """Return the page on which a person signs in."""
    if by_code:
        fields = (
            "<p>Type the sign-in code that the server shows on its terminal.</p>"
            '<label>Code <input type="text" name="password" autocomplete="one-time-code" autofocus required></label>'
        )
    else:
        fields = (
            '<label>Name <input type="text" name="name" autocomplete="username" autofocus required></label>'
            '<label>Password <input type="password" name="password" autocomplete="current-password" required></label>'
        )
    notice = f'<p class="wrong">{escape(wrong)}</p>' if wrong else ""
    body = (
        f"<p>{_shown_name(client)} wants to use terminals on this server.</p>{notice}"
        f'<form method="post" action="/authorize">{hidden}{fields}'
        '<button name="action" value="sign-in">Sign in</button>'
        '<button name="action" value="deny" formnovalidate>Cancel</button></form>'
    )
    return page("Sign in to ai-session", body, status=403 if wrong else 200, redirect_uri=redirect_uri)


def consent(
    hidden: str,
    client: Client,
    redirect_uri: str,
    person: str,
    asked: Iterable[str],
    can: Iterable[str],
    wrong: str = "",
) -> HTMLResponse:
    """Return the page that asks what the client may do. ``asked`` are the scopes it requests, ``can`` those the person
    may grant."""
    able = set(can)
    boxes = "".join(_box(scope, scope in able) for scope in asked)
    notice = f'<p class="wrong">{escape(wrong)}</p>' if wrong else ""
    body = (
        f"<p>Signed in as <strong>{escape(person)}</strong>.</p><p>{_shown_name(client)} wants to:</p>{notice}"
        f'<form method="post" action="/authorize">{hidden}{boxes}<p>{_where(redirect_uri)}</p>'
        '<p class="small">The program chose its own name; nobody has checked it. Deselect what you do not want it'
        " to do. <code>ai-session http tokens</code> lists and revokes what was allowed.</p>"
        '<button name="action" value="allow">Allow</button><button name="action" value="deny">Deny</button></form>'
    )
    return page("Allow access to your terminals?", body, status=400 if wrong else 200, redirect_uri=redirect_uri)


def _box(scope: str, can: bool) -> str:
    """Return a scope's checkbox; one that affects others is for the person to select."""
    state = "disabled" if not can else "" if scope == "admin" else "checked"
    note = "" if can else ' <span class="small">(you cannot grant this)</span>'
    return (
        f'<label><input type="checkbox" name="scope" value="{escape(scope)}" {state}>'
        f" {escape(SCOPES[scope])} <code>{escape(scope)}</code>{note}</label>"
    )


def _shown_name(client: Client) -> str:
    name = escape(client.name or "A program without a name")
    if client.kind != "document":
        return f"<strong>{name}</strong>"
    return f"<strong>{name}</strong>, described at <code>{escape(urlsplit(client.client_id).netloc)}</code>,"


def _where(redirect_uri: str) -> str:
    parts = urlsplit(redirect_uri)
    if parts.scheme not in ("http", "https"):
        return f"The answer goes to the program that opens <code>{escape(parts.scheme)}:</code> links on your computer."
    if parts.hostname in LOOPBACK_HOSTS:
        return (
            f"The answer goes to a program on your computer, at <code>{escape(parts.netloc)}</code>."
            " Allow it only if you started one just now."
        )
    return f"The answer goes to <code>{escape(parts.netloc)}</code>."


def hidden_fields(**values: str) -> str:
    """Return hidden fields of a form."""
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in values.items()
    )
