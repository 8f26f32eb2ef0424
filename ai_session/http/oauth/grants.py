"""What people granted to clients, and the codes and tokens issued for it. Call each function inside a transaction.

A grant is the family of everything issued after one consent. A code or a refresh token that is used twice was stolen,
so the whole family ends.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from sqlite3 import Connection, Row
from typing import Any

from ai_session.http.oauth.store import Refused, digest, new_secret, writing

CODE_SECONDS = 60
RETAIN_SECONDS = 86_400
"""How long used or expired ones are stored, so that a second use is still recognized."""
TOUCH_SECONDS = 300
NO_SUCH = "it does not exist, has expired, or belongs to another client"


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """The lifetimes of tokens, in seconds."""

    access_seconds: int
    refresh_seconds: int


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """The contents of a grant to be opened."""

    client_id: str
    client_name: str
    subject: str
    scopes: tuple[str, ...]
    resource: str


@dataclass(frozen=True, slots=True)
class Issued:
    """What a token request gets."""

    access_token: str
    refresh_token: str
    expires_in: int
    scopes: tuple[str, ...]
    grant_id: str
    subject: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The content of a valid access token."""

    client_id: str
    subject: str
    scopes: tuple[str, ...]
    resource: str
    expires_at: float
    grant_id: str
    to_be_touched: bool
    """Whether its use was last recorded long ago; see ``touch``."""


@dataclass(frozen=True, slots=True)
class CodeRedemption:
    """What a client sends to exchange a code for tokens; ``redirect_uri`` may be empty."""

    code: str
    client_id: str
    redirect_uri: str
    verifier: str


def open_grant(db: Connection, now: float, grant_request: GrantRequest) -> str:
    """Open a grant and return its id."""
    grant_id = "g_" + secrets.token_hex(8)
    db.execute(
        "INSERT INTO grants (grant_id, client_id, client_name, subject, scopes, resource, created_at, used_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            grant_id,
            grant_request.client_id,
            grant_request.client_name,
            grant_request.subject,
            " ".join(grant_request.scopes),
            grant_request.resource,
            now,
            now,
        ),
    )
    return grant_id


def issue_code(db: Connection, now: float, grant_id: str, redirect_uri: str, named: bool, challenge: str) -> str:
    """Issue a code, valid for CODE_SECONDS. With ``named``, the client gave the URI and must repeat it."""
    code = new_secret("code")
    db.execute(
        "INSERT INTO codes (hash, grant_id, redirect_uri, redirect_uri_named, challenge, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (digest(code), grant_id, redirect_uri, named, challenge, now + CODE_SECONDS),
    )
    return code


def redeem_code(
    db: Connection, now: float, lifetimes: TokenLifetimes, redemption: CodeRedemption, *, refresh: bool
) -> Issued:
    """Issue tokens for a code. Raises Refused; a code used wrongly or twice ends the grant and all its tokens."""
    writing(db)
    row = _code_row(db, redemption.code)
    if row is None or row["revoked_at"] is not None:
        raise Refused("invalid_grant", f"the code: {NO_SUCH}")
    if row["client_id"] != redemption.client_id:
        raise _end_for_misuse(db, now, row, "the code", "its code was used by another client")
    if row["code_used_at"] is not None:
        raise _end_for_misuse(db, now, row, "the code", "its code was used twice")
    db.execute("UPDATE codes SET used_at = ? WHERE hash = ?", (now, digest(redemption.code)))
    problem = _problem_of(row, redemption, now)
    if problem is not None:
        end_grant(db, now, row["grant_id"], problem.description)
        raise problem
    return _issue(db, now, lifetimes, row, tuple(row["scopes"].split()), refresh=refresh)


def _end_for_misuse(db: Connection, now: float, grant: Row, what: str, why: str) -> Refused:
    end_grant(db, now, grant["grant_id"], why)
    return Refused("invalid_grant", f"{what}: {NO_SUCH}", note=f"grant {grant['grant_id']} ended: {why}")


def _code_row(db: Connection, code: str) -> Row | None:
    return db.execute(
        "SELECT grants.*, codes.redirect_uri, codes.redirect_uri_named, codes.challenge, codes.expires_at,"
        " codes.used_at AS code_used_at FROM codes JOIN grants USING (grant_id) WHERE hash = ?",
        (digest(code),),
    ).fetchone()


def _problem_of(row: Row, redemption: CodeRedemption, now: float) -> Refused | None:
    if row["expires_at"] <= now:
        return Refused("invalid_grant", f"the code: {NO_SUCH}")
    if redemption.redirect_uri != row["redirect_uri"] and (redemption.redirect_uri or row["redirect_uri_named"]):
        return Refused("invalid_grant", "redirect_uri is not the one the code was sent to")
    if not proves(redemption.verifier, row["challenge"]):
        return Refused("invalid_grant", "code_verifier does not match the code_challenge")
    return None


def proves(verifier: str, challenge: str) -> bool:
    """Report whether S256 of the verifier is the challenge."""
    hashed = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("utf-8", "replace")).digest()).rstrip(b"=")
    return hmac.compare_digest(hashed, challenge.encode("utf-8", "replace"))


def refresh(
    db: Connection,
    now: float,
    lifetimes: TokenLifetimes,
    token: str,
    client_id: str,
    resource: str,
    scopes: tuple[str, ...] | None,
) -> Issued:
    """Issue new tokens for a refresh token, which is then used up. ``scopes`` may reduce the access token's scopes."""
    writing(db)
    row = db.execute(
        "SELECT grants.*, tokens.expires_at, tokens.used_at AS token_used_at FROM tokens JOIN grants USING (grant_id)"
        " WHERE hash = ? AND kind = 'refresh'",
        (digest(token),),
    ).fetchone()
    if row is None or (row["client_id"], row["resource"], row["revoked_at"]) != (client_id, resource, None):
        raise Refused("invalid_grant", f"the refresh token: {NO_SUCH}")
    if row["token_used_at"] is not None:
        raise _end_for_misuse(db, now, row, "the refresh token", "its refresh token was used twice")
    if row["expires_at"] <= now:
        raise Refused("invalid_grant", f"the refresh token: {NO_SUCH}")
    granted = tuple(row["scopes"].split())
    if scopes is not None and not set(scopes) <= set(granted):
        raise Refused("invalid_scope", "a refresh cannot add scopes to the grant")
    db.execute("UPDATE tokens SET used_at = ? WHERE hash = ?", (now, digest(token)))
    return _issue(db, now, lifetimes, row, granted if scopes is None else scopes, refresh=True)


def machine_token(db: Connection, now: float, lifetimes: TokenLifetimes, grant_request: GrantRequest) -> Issued:
    """Issue an access token for a machine client; those with the same scopes share one grant."""
    sweep(db, now)
    row = db.execute(
        "SELECT * FROM grants WHERE client_id = ? AND scopes = ? AND resource = ? AND revoked_at IS NULL",
        (grant_request.client_id, " ".join(grant_request.scopes), grant_request.resource),
    ).fetchone()
    if row is None:
        grant_id = open_grant(db, now, grant_request)
        row = db.execute("SELECT * FROM grants WHERE grant_id = ?", (grant_id,)).fetchone()
    return _issue(db, now, lifetimes, row, grant_request.scopes, refresh=False)


def _issue(
    db: Connection, now: float, lifetimes: TokenLifetimes, grant: Row, scopes: tuple[str, ...], *, refresh: bool
) -> Issued:
    access = new_secret("at")
    _insert_token(db, now, access, grant["grant_id"], "access", scopes, lifetimes.access_seconds)
    renewal = new_secret("rt") if refresh else ""
    if renewal:
        _insert_token(db, now, renewal, grant["grant_id"], "refresh", scopes, lifetimes.refresh_seconds)
    db.execute("UPDATE grants SET used_at = ? WHERE grant_id = ?", (now, grant["grant_id"]))
    db.execute("UPDATE clients SET used_at = ? WHERE client_id = ?", (now, grant["client_id"]))
    return Issued(access, renewal, lifetimes.access_seconds, scopes, grant["grant_id"], grant["subject"])


def _insert_token(
    db: Connection, now: float, token: str, grant_id: str, kind: str, scopes: tuple[str, ...], seconds: int
) -> None:
    db.execute(
        "INSERT INTO tokens (hash, grant_id, kind, scopes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
        (digest(token), grant_id, kind, " ".join(scopes), now, now + seconds),
    )


def verify(db: Connection, now: float, token: str) -> Verified | None:
    """Return the content of an access token, or None if it is not valid."""
    row = db.execute(
        "SELECT grants.*, tokens.scopes AS token_scopes, tokens.expires_at FROM tokens JOIN grants USING (grant_id)"
        " WHERE hash = ? AND kind = 'access' AND tokens.expires_at > ? AND revoked_at IS NULL",
        (digest(token), now),
    ).fetchone()
    if row is None:
        return None
    scopes = tuple(row["token_scopes"].split())
    to_be_touched = now - row["used_at"] > TOUCH_SECONDS
    return Verified(
        row["client_id"], row["subject"], scopes, row["resource"], row["expires_at"], row["grant_id"], to_be_touched
    )


def touch(db: Connection, now: float, grant_id: str) -> None:
    """Record that a grant is in use."""
    db.execute("UPDATE grants SET used_at = ? WHERE grant_id = ?", (now, grant_id))


def revoke_token(db: Connection, now: float, token: str, client_id: str) -> str:
    """End the grant of that client's access or refresh token (RFC 7009); return its id, or "" if there is none."""
    writing(db)
    row = db.execute(
        "SELECT grant_id FROM tokens JOIN grants USING (grant_id) WHERE hash = ? AND client_id = ?",
        (digest(token), client_id),
    ).fetchone()
    if row is None:
        return ""
    end_grant(db, now, row["grant_id"], "the client revoked it")
    return str(row["grant_id"])


def end_grant(db: Connection, now: float, grant_id: str, why: str) -> bool:
    """End a grant and everything issued for it. Returns False if it had ended or does not exist."""
    ended = db.execute(
        "UPDATE grants SET revoked_at = ?, revoked_why = ? WHERE grant_id = ? AND revoked_at IS NULL",
        (now, why, grant_id),
    )
    db.execute("DELETE FROM tokens WHERE grant_id = ? AND kind = 'access'", (grant_id,))
    return ended.rowcount > 0


def end_grants(db: Connection, now: float, column: str, value: str, why: str) -> int:
    """End every grant of a ``subject`` or a ``client_id`` and return how many."""
    writing(db)
    statement = {
        "subject": "SELECT grant_id FROM grants WHERE subject = ?",
        "client_id": "SELECT grant_id FROM grants WHERE client_id = ?",
    }[column]
    return sum(end_grant(db, now, row["grant_id"], why) for row in db.execute(statement, (value,)).fetchall())


def listed(db: Connection, now: float) -> list[dict[str, Any]]:
    """List the grants in force, oldest first."""
    rows = db.execute(
        "SELECT grants.*, max(tokens.expires_at) AS expires_at FROM grants JOIN tokens USING (grant_id)"
        " WHERE revoked_at IS NULL AND tokens.expires_at > ? AND tokens.used_at IS NULL"
        " GROUP BY grant_id ORDER BY grants.rowid",
        (now,),
    )
    return [
        {
            "id": row["grant_id"],
            "subject": row["subject"],
            "client": row["client_name"],
            "client_id": row["client_id"],
            "scopes": row["scopes"].split(),
            "resource": row["resource"],
            "created_at": row["created_at"],
            "used_at": row["used_at"],
            "expires_at": row["expires_at"],
        }
        for row in rows
    ]


def sweep(db: Connection, now: float) -> None:
    """Delete what is over: access tokens at once, the rest after a day."""
    writing(db)
    before = now - RETAIN_SECONDS
    db.execute("DELETE FROM tokens WHERE kind = 'access' AND expires_at < ?", (now,))
    db.execute("DELETE FROM tokens WHERE kind = 'refresh' AND expires_at < ?", (before,))
    db.execute("DELETE FROM codes WHERE expires_at < ?", (before,))
    db.execute(
        "DELETE FROM grants WHERE max(created_at, coalesce(revoked_at, 0)) < ?"
        " AND NOT EXISTS (SELECT 1 FROM tokens WHERE tokens.grant_id = grants.grant_id)",
        (before,),
    )
