"""The authorization endpoint: a request is checked, a person signs in and consents or declines, and a code is sent.

A cookie binds each request to the browser that made it; every form carries the request's number and a token that
changes with each step. A sign-in lasts for one request only, so that nothing a person sees elsewhere can consent.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ai_session.errors import AiSessionError, RateLimited
from ai_session.http.oauth import grants, pages, users
from ai_session.http.oauth.authority import Authority, address_of, parse_form, single
from ai_session.http.oauth.clients import Client
from ai_session.http.oauth.grants import GrantRequest
from ai_session.http.oauth.scopes import SCOPES, USUAL, known
from ai_session.http.oauth.store import Refused
from ai_session.http.oauth.tries import (
    COOKIE_DAYS,
    DAY_SECONDS,
    Attempter,
    attempter_of_cookie,
    cookie_for,
    name_in,
    source_of,
    trying,
)
from ai_session.http.oauth.users import Credentials, Person

PENDING_SECONDS = 600
MAX_PENDING = 1000
HASHES_AT_ONCE = 2
MAX_STATE_CHARS = 4096
WRONG_TRIES = 5
"""The limit for one request; after it, the person must begin again."""
KNOWN = "ai_session_known"
"""The cookie of a browser in which a person has signed in."""
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


@dataclass(slots=True)
class PendingAuthorization:
    """One request that a person is answering."""

    client: Client
    redirect_uri: str
    redirect_uri_named: bool
    state: str | None
    browser: str
    ends_at: float
    challenge: str = ""
    scopes: tuple[str, ...] = ()
    person: Person | None = None
    is_stranger: bool = True
    wrong: int = 0
    word: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class NotForTheClient(Exception):
    """A request whose client or redirect URI is wrong: the person gets a page, and nothing is sent anywhere."""


class Authorization:
    """``GET`` and ``POST`` of /authorize."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._pending: OrderedDict[str, PendingAuthorization] = OrderedDict()
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)

    async def answer(self, request: Request) -> Response:
        """Answer a request to the endpoint."""
        try:
            if request.method == "POST":
                return await self._post(request)
            attempter = await self._attempter(request)
            self._authority.limits.acquire(attempter.key, "pages")
            return await self._get(request, attempter)
        except (NotForTheClient, Refused) as reason:
            facts = {"endpoint": "authorize", "error": str(reason), "address": address_of(request)}
            self._authority.event("refused", facts)
            return pages.problem(getattr(reason, "description", str(reason)))
        except RateLimited as limited:
            self._authority.event("throttled", {"endpoint": "authorize", "address": address_of(request)})
            page = pages.problem("Too many tries. Wait a minute, then begin again.", status=429)
            page.headers["Retry-After"] = str(int(limited.retry_after_seconds) + 1)
            return page
        except AiSessionError as error:
            facts = {"endpoint": "authorize", "error": error.code, "message": error.message}
            self._authority.event("failed", facts)
            return pages.problem("The server cannot answer now.", status=503)

    async def _get(self, request: Request, attempter: Attempter) -> Response:
        pending = await self._pending_from(request.query_params, self._browser_of(request))
        try:
            self._check(pending, request.query_params)
        except Refused as refused:
            facts = {"endpoint": "authorize", "error": str(refused), "client": pending.client.client_id}
            self._authority.event("refused", facts)
            answer = self._answer(pending, error=refused.error, error_description=refused.description)
            text = f"The program requested something invalid: {refused.description}. Nothing was sent to it."
            return pages.unsent("This request cannot be answered", text, answer, status=400)
        pending.is_stranger = attempter.is_stranger
        number = self._store(pending)
        page = await self._sign_in_page(number, pending)
        self._set_cookie(page, self._cookie(), pending.browser)
        return page

    def _set_cookie(self, page: Response, cookie: str, value: str, seconds: int | None = None) -> None:
        secure = self._authority.issuer.startswith("https:")
        page.set_cookie(cookie, value, seconds, path="/", secure=secure, httponly=True, samesite="lax")

    def _store(self, pending: PendingAuthorization) -> str:
        """Store a request and return its number. If there are too many, a stranger's oldest one is dropped."""
        number = secrets.token_urlsafe(24)
        self._pending[number] = pending
        while len(self._pending) > MAX_PENDING:
            strangers = (each for each, one in self._pending.items() if one.is_stranger)
            self._pending.pop(next(strangers, next(iter(self._pending))))
        return number

    async def _attempter(self, request: Request, name: str = "") -> Attempter:
        """Return the source of a request, with ``name`` if a person gave one."""
        cookie = request.cookies.get(self._cookie(KNOWN), "")
        whose = name_in(cookie)
        if whose and name in ("", whose):
            found = await self._authority.store.run(lambda db: users.find(db, whose))
            known_as = found and attempter_of_cookie(cookie, found.password, self._authority.store.clock())
            if known_as:
                return known_as
        return source_of(request)

    async def _pending_from(self, parameters: ImmutableMultiDict[str, str], browser: str) -> PendingAuthorization:
        """Return the pending request, once its client and redirect URI are known to be valid."""
        values = single(parameters, "resource")
        try:
            client = await self._authority.described(values.get("client_id", ""))
        except Refused as refused:
            raise NotForTheClient(f"The program is not known here: {refused.description}.") from None
        named, registered = values.get("redirect_uri"), client.redirect_uris
        uri = registered[0] if named is None and len(registered) == 1 else named or ""
        if not self._authority.clients.redirects.accepts(registered, uri):
            raise NotForTheClient(
                "The program wants the answer sent to an address that it has not registered (redirect_uri)."
            )
        ends_at = time.monotonic() + PENDING_SECONDS
        return PendingAuthorization(client, uri, named is not None, values.get("state"), browser, ends_at)

    def _check(self, pending: PendingAuthorization, parameters: ImmutableMultiDict[str, str]) -> None:
        values = single(parameters, "resource")
        if values.get("response_type") != "code":
            raise Refused("unsupported_response_type", "response_type must be code")
        if "authorization_code" not in pending.client.grant_types:
            raise Refused("unauthorized_client", "the client may not use codes")
        if values.get("code_challenge_method") != "S256" or not CHALLENGE.match(values.get("code_challenge", "")):
            raise Refused("invalid_request", "PKCE is required: code_challenge_method S256 and a code_challenge")
        if len(pending.state or "") > MAX_STATE_CHARS:
            pending.state = None
            raise Refused("invalid_request", "state is too long")
        if not self._authority.is_resource(parameters.getlist("resource")):
            raise Refused("invalid_target", f"tokens are for {self._authority.resource}")
        asked = values.get("scope", "").split()
        pending.scopes = known(asked) if asked else USUAL
        if not pending.scopes:
            raise Refused("invalid_scope", f"valid scopes: {', '.join(SCOPES)}")
        pending.challenge = values["code_challenge"]

    async def _post(self, request: Request) -> Response:
        if request.headers.get("origin", self._authority.issuer) != self._authority.issuer:
            raise NotForTheClient("The form was not sent from this server's page.")
        form = await parse_form(request)
        values = single(form, "scope")
        number = values.get("pending", "")
        pending = self._pending.get(number)
        if pending is None or pending.ends_at <= time.monotonic():
            self._pending.pop(number, None)
            raise NotForTheClient("This page has expired. Begin again in the program that sent you here.")
        if not (
            _same(pending.browser, request.cookies.get(self._cookie())) and _same(pending.word, values.get("word"))
        ):
            raise NotForTheClient("This form is not the latest one shown to you. Begin again in the program.")
        pending.word = secrets.token_urlsafe(24)
        action = values.get("action")
        if action == "deny":
            self._pending.pop(number)
            facts = {"client": pending.client.client_id, "address": address_of(request)}
            self._authority.event("denied", facts | ({"subject": pending.person.name} if pending.person else {}))
            answer = self._answer(pending, error="access_denied", error_description="the person declined")
            if pending.person is None:
                return pages.unsent("You declined", "This page can be closed.", answer, status=200)
            return self._back(answer)
        if action == "sign-in" and pending.person is None:
            return await self._sign_in(number, pending, values, request)
        if action == "allow" and pending.person is not None:
            return await self._allow(number, pending, pending.person, form)
        raise NotForTheClient("The form is not complete.")

    async def _sign_in(
        self, number: str, pending: PendingAuthorization, values: Mapping[str, str], request: Request
    ) -> Response:
        name, password = values.get("name", "")[:64], values.get("password", "")
        attempter = await self._attempter(request, name)
        with trying(self._authority.limits, attempter, name) as one:
            stored = await self._verified(name, password)
            one.right = stored is not None
        facts = {"client": pending.client.client_id, "address": address_of(request)}
        if stored is None:
            self._authority.event("sign_in_failed", facts)
            pending.wrong += 1
            if pending.wrong >= WRONG_TRIES:
                self._pending.pop(number, None)
                raise NotForTheClient("Too many wrong attempts. Begin again in the program.")
            return await self._sign_in_page(number, pending, "That was not right.")
        pending.person = stored.person
        self._authority.event("signed_in", {**facts, "subject": stored.person.name})
        page = self._consent_page(number, pending, stored.person)
        if stored.password:
            known = cookie_for(stored.person.name, stored.password, self._authority.store.clock())
            self._set_cookie(page, self._cookie(KNOWN), known, COOKIE_DAYS * DAY_SECONDS)
        return page

    async def _verified(self, name: str, password: str) -> Credentials | None:
        """Return the person with that password, or None; an unknown name takes as long as a wrong password. A person
        who used the terminal's code has no password."""
        if not await self._authority.store.run(users.anybody):
            right = self._authority.terminal_code.accepts(password)
            return Credentials(Person(self._authority.owner, tuple(SCOPES)), "") if right else None
        found = await self._authority.store.run(lambda db: users.find(db, name))
        async with self._hashing:
            stored = found.password if found else users.NOBODY
            matches = await asyncio.to_thread(users.matches, password, stored)
        return found if matches else None

    async def _allow(
        self, number: str, pending: PendingAuthorization, person: Person, form: ImmutableMultiDict[str, Any]
    ) -> Response:
        ticked = {str(value) for value in form.getlist("scope")}
        scopes = tuple(s for s in pending.scopes if s in ticked and s in person.scopes)
        if not scopes:
            return self._consent_page(number, pending, person, "Select at least one permission, or deny the request.")
        self._pending.pop(number)
        client, now = pending.client, self._authority.store.clock()
        grant_request = GrantRequest(client.client_id, client.name, person.name, scopes, self._authority.resource)

        def granted(db: Connection) -> tuple[str, str]:
            grants.sweep(db, now)
            grant = grants.open_grant(db, now, grant_request)
            named = pending.redirect_uri_named
            return grant, grants.issue_code(db, now, grant, pending.redirect_uri, named, pending.challenge)

        grant, code = await self._authority.store.run(granted)
        facts = {"grant": grant, "client": client.client_id, "name": client.name, "redirect_uri": pending.redirect_uri}
        self._authority.event("granted", {**facts, "subject": person.name, "scopes": " ".join(scopes)})
        return self._back(self._answer(pending, code=code))

    async def _sign_in_page(self, number: str, pending: PendingAuthorization, wrong: str = "") -> HTMLResponse:
        by_code = not await self._authority.store.run(users.anybody)
        if by_code:
            self._authority.terminal_code.show()
        hidden = pages.hidden_fields(pending=number, word=pending.word)
        return pages.sign_in(hidden, pending.client, pending.redirect_uri, by_code=by_code, wrong=wrong)

    def _consent_page(
        self, number: str, pending: PendingAuthorization, person: Person, wrong: str = ""
    ) -> HTMLResponse:
        hidden = pages.hidden_fields(pending=number, word=pending.word)
        return pages.consent(
            hidden, pending.client, pending.redirect_uri, person.name, pending.scopes, person.scopes, wrong
        )

    def _answer(self, pending: PendingAuthorization, **answer: str) -> str:
        """Return the redirect address with the answer for the client, including the issuer (RFC 9207)."""
        parts = urlsplit(pending.redirect_uri)
        state = {} if pending.state is None else {"state": pending.state}
        added = urlencode(answer | state | {"iss": self._authority.issuer})
        query = f"{parts.query}&{added}" if parts.query else added
        return parts._replace(query=query).geturl()

    def _back(self, answer: str) -> RedirectResponse:
        """Redirect to the client, only after a person has signed in (RFC 9700, 4.11.2)."""
        return RedirectResponse(answer, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})

    def _browser_of(self, request: Request) -> str:
        known_as = request.cookies.get(self._cookie(), "")
        return known_as if re.fullmatch(r"[A-Za-z0-9_-]{32}", known_as) else secrets.token_urlsafe(24)

    def _cookie(self, name: str = "ai_session_browser") -> str:
        """Return a cookie's name. Only over https can a neighbour of this host be prevented from setting it."""
        return f"__Host-{name}" if self._authority.issuer.startswith("https:") else name


def _same(one: str, other: str | None) -> bool:
    return hmac.compare_digest(one.encode(), (other or "").encode("utf-8", "replace"))
