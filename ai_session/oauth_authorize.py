"""The authorization endpoint: a request is judged, a person signs in, consents or declines, and a code goes back.

A request becomes a visit, bound to the browser that made it by a cookie; every form carries the visit and a word that
changes with each step. There is no longer sign-in than one visit, so nothing a person is shown elsewhere can consent.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ai_session import oauth_grants, oauth_pages, oauth_people
from ai_session.errors import AiSessionError, RateLimited
from ai_session.oauth_authority import EVERYBODY, Authority, address_of, form_of, single
from ai_session.oauth_clients import Client
from ai_session.oauth_grants import Wish
from ai_session.oauth_people import Person
from ai_session.oauth_scopes import SCOPES, USUAL, known
from ai_session.oauth_store import Refused

VISIT_SECONDS = 600
MAX_VISITS = 1000
HASHES_AT_ONCE = 2
MAX_STATE_CHARS = 4096
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")


@dataclass(slots=True)
class Visit:
    """One request a person is answering."""

    client: Client
    redirect_uri: str
    redirect_uri_named: bool
    state: str | None
    browser: str
    ends_at: float
    challenge: str = ""
    scopes: tuple[str, ...] = ()
    person: Person | None = None
    word: str = field(default_factory=lambda: secrets.token_urlsafe(24))


class NotForTheClient(Exception):
    """A request whose client or redirect URI is wrong: the person is told, nothing is sent anywhere."""


class Authorization:
    """``GET`` and ``POST`` of /authorize. ``clock`` gives seconds from anywhere."""

    def __init__(self, authority: Authority, clock: Callable[[], float] = time.monotonic) -> None:
        self._authority = authority
        self._clock = clock
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)

    async def answer(self, request: Request) -> Response:
        """The endpoint."""
        try:
            if request.method == "POST":
                return await self._post(request)
            self._authority.limits.acquire(address_of(request), "pages")
            return await self._get(request)
        except (NotForTheClient, Refused) as reason:
            facts = {"endpoint": "authorize", "error": str(reason), "address": address_of(request)}
            self._authority.event("refused", facts)
            return oauth_pages.problem(getattr(reason, "description", str(reason)))
        except RateLimited as limited:
            self._authority.event("throttled", {"endpoint": "authorize", "address": address_of(request)})
            page = oauth_pages.problem("Too many tries. Wait a minute, then begin again.", status=429)
            page.headers["Retry-After"] = str(int(limited.retry_after_seconds) + 1)
            return page
        except AiSessionError as error:
            facts = {"endpoint": "authorize", "error": error.code, "message": error.message}
            self._authority.event("failed", facts)
            return oauth_pages.problem("The server cannot answer now.", status=503)

    async def _get(self, request: Request) -> Response:
        visit = await self._begun(request.query_params, self._browser_of(request))
        try:
            self._judge(visit, request.query_params)
        except Refused as refused:
            facts = {"endpoint": "authorize", "error": str(refused), "client": visit.client.client_id}
            self._authority.event("refused", facts)
            return self._back(visit, error=refused.error, error_description=refused.description)
        number = secrets.token_urlsafe(24)
        self._visits[number] = visit
        while len(self._visits) > MAX_VISITS:
            self._visits.popitem(last=False)
        page = await self._sign_in_page(number, visit)
        secure = self._authority.issuer.startswith("https:")
        page.set_cookie(self._cookie(), visit.browser, path="/", secure=secure, httponly=True, samesite="lax")
        return page

    async def _begun(self, parameters: ImmutableMultiDict[str, str], browser: str) -> Visit:
        """The visit, once its client and redirect URI are known to be right."""
        values = single(parameters, "resource")
        try:
            client = await self._authority.described(values.get("client_id", ""))
        except Refused as refused:
            raise NotForTheClient(f"The program is not known here: {refused.description}.") from None
        named = values.get("redirect_uri")
        if named is None and len(client.redirect_uris) == 1:
            uri = client.redirect_uris[0]
        elif named is not None and client.takes_codes_at(named):
            uri = named
        else:
            raise NotForTheClient(
                "The program wants the answer at an address that it did not make known (redirect_uri)."
            )
        ends_at = self._clock() + VISIT_SECONDS
        return Visit(client, uri, named is not None, values.get("state"), browser, ends_at)

    def _judge(self, visit: Visit, parameters: ImmutableMultiDict[str, str]) -> None:
        values = single(parameters, "resource")
        if values.get("response_type") != "code":
            raise Refused("unsupported_response_type", "response_type is code")
        if "authorization_code" not in visit.client.grant_types:
            raise Refused("unauthorized_client", "the client may not use codes")
        if values.get("code_challenge_method") != "S256" or not CHALLENGE.match(values.get("code_challenge", "")):
            raise Refused("invalid_request", "PKCE is needed: code_challenge_method S256 and a code_challenge")
        if len(visit.state or "") > MAX_STATE_CHARS:
            visit.state = None
            raise Refused("invalid_request", "state is too long")
        if not self._authority.is_resource(parameters.getlist("resource")):
            raise Refused("invalid_target", f"tokens are for {self._authority.resource}")
        asked = values.get("scope", "").split()
        visit.scopes = known(asked) if asked else USUAL
        if not visit.scopes:
            raise Refused("invalid_scope", f"scopes are {', '.join(SCOPES)}")
        visit.challenge = values["code_challenge"]

    async def _post(self, request: Request) -> Response:
        if request.headers.get("origin", self._authority.issuer) != self._authority.issuer:
            raise NotForTheClient("The form was not sent from this server's page.")
        form = await form_of(request)
        values = single(form, "scope")
        number = values.get("visit", "")
        visit = self._visits.get(number)
        if visit is None or visit.ends_at <= self._clock():
            self._visits.pop(number, None)
            raise NotForTheClient("This page is too old. Begin again in the program that sent you here.")
        if not (_same(visit.browser, request.cookies.get(self._cookie())) and _same(visit.word, values.get("word"))):
            raise NotForTheClient("This form is not the one that was shown to you last. Begin again in the program.")
        visit.word = secrets.token_urlsafe(24)
        action = values.get("action")
        if action == "deny":
            self._visits.pop(number)
            facts = {"client": visit.client.client_id, "address": address_of(request)}
            self._authority.event("denied", facts | ({"subject": visit.person.name} if visit.person else {}))
            return self._back(visit, error="access_denied", error_description="the person declined")
        if action == "sign-in" and visit.person is None:
            return await self._sign_in(number, visit, values, address_of(request))
        if action == "allow" and visit.person is not None:
            return await self._allow(number, visit, visit.person, form)
        raise NotForTheClient("The form is not complete.")

    async def _sign_in(self, number: str, visit: Visit, values: Mapping[str, str], address: str) -> Response:
        name, password = values.get("name", "")[:64], values.get("password", "")
        self._authority.limits.acquire(address, "sign_ins")
        self._authority.limits.acquire(name, "sign_ins_of_name")
        self._authority.limits.acquire(EVERYBODY, "sign_ins_of_all")
        visit.person = await self._who(name, password)
        facts = {"client": visit.client.client_id, "address": address}
        if visit.person is None:
            self._authority.event("sign_in_failed", facts)
            return await self._sign_in_page(number, visit, "That was not right.")
        self._authority.event("signed_in", {**facts, "subject": visit.person.name})
        return self._consent_page(number, visit, visit.person)

    async def _who(self, name: str, password: str) -> Person | None:
        """Who has that password. Somebody unknown takes as long as somebody who errs."""
        if not await self._authority.store.run(oauth_people.anybody):
            right = self._authority.terminal_code.takes(password)
            return Person(self._authority.owner, tuple(SCOPES)) if right else None
        found = await self._authority.store.run(lambda db: oauth_people.find(db, name))
        async with self._hashing:
            stored = found.password if found else oauth_people.NOBODY
            fits = await asyncio.to_thread(oauth_people.fits, password, stored)
        return found.person if found and fits else None

    async def _allow(self, number: str, visit: Visit, person: Person, form: ImmutableMultiDict[str, Any]) -> Response:
        ticked = {str(value) for value in form.getlist("scope")}
        scopes = tuple(s for s in visit.scopes if s in ticked and s in person.scopes)
        if not scopes:
            return self._consent_page(number, visit, person, "Tick at least one thing, or deny it all.")
        self._visits.pop(number)
        client, now = visit.client, self._authority.store.clock()
        wish = Wish(client.client_id, client.name, person.name, scopes, self._authority.resource)

        def granted(db: Connection) -> tuple[str, str]:
            oauth_grants.sweep(db, now)
            grant = oauth_grants.open_grant(db, now, wish)
            named = visit.redirect_uri_named
            return grant, oauth_grants.issue_code(db, now, grant, visit.redirect_uri, named, visit.challenge)

        grant, code = await self._authority.store.run(granted)
        facts = {"grant": grant, "client": client.client_id, "name": client.name, "redirect_uri": visit.redirect_uri}
        self._authority.event("granted", {**facts, "subject": person.name, "scopes": " ".join(scopes)})
        return self._back(visit, code=code)

    async def _sign_in_page(self, number: str, visit: Visit, wrong: str = "") -> HTMLResponse:
        by_code = not await self._authority.store.run(oauth_people.anybody)
        if by_code:
            self._authority.terminal_code.show()
        hidden = oauth_pages.hidden_fields(visit=number, word=visit.word)
        return oauth_pages.sign_in(hidden, visit.client, visit.redirect_uri, by_code=by_code, wrong=wrong)

    def _consent_page(self, number: str, visit: Visit, person: Person, wrong: str = "") -> HTMLResponse:
        hidden = oauth_pages.hidden_fields(visit=number, word=visit.word)
        return oauth_pages.consent(
            hidden, visit.client, visit.redirect_uri, person.name, visit.scopes, person.scopes, wrong
        )

    def _back(self, visit: Visit, **answer: str) -> RedirectResponse:
        """To the client, with the issuer that answers (RFC 9207)."""
        parts = urlsplit(visit.redirect_uri)
        state = {} if visit.state is None else {"state": visit.state}
        added = urlencode(answer | state | {"iss": self._authority.issuer})
        query = f"{parts.query}&{added}" if parts.query else added
        headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        return RedirectResponse(parts._replace(query=query).geturl(), 303, headers)

    def _browser_of(self, request: Request) -> str:
        known_as = request.cookies.get(self._cookie(), "")
        return known_as if re.fullmatch(r"[A-Za-z0-9_-]{32}", known_as) else secrets.token_urlsafe(24)

    def _cookie(self) -> str:
        """Only over https can a cookie be kept from being set by a neighbour of this host."""
        return "__Host-ai_session_browser" if self._authority.issuer.startswith("https:") else "ai_session_browser"


def _same(one: str, other: str | None) -> bool:
    return hmac.compare_digest(one.encode(), (other or "").encode("utf-8", "replace"))
