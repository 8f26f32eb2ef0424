"""Tokens of requests as the SDK verifies them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from starlette.types import Scope

from ai_session.models import Principal

if TYPE_CHECKING:
    from ai_session.http.oauth.access import Access


def authentication(access: Access) -> BearerAuthBackend:
    """Return what verifies bearer tokens; those with a resource must have been issued for this server."""
    auth = access.auth
    resource = auth.resource_server_url if auth.validate_token_resource else None
    return BearerAuthBackend(access.verifier, resource_server_url=resource)


def token_of(scope: Scope) -> AccessToken | None:
    """Return the verified token of a request, or None."""
    user = scope.get("user")
    return user.access_token if isinstance(user, AuthenticatedUser) else None


def subject_of(scope: Scope) -> str:
    """Return the user whose request it is; empty means the user of this machine."""
    return principal_of(scope, "").subject


def principal_of(scope: Scope, client: str) -> Principal:
    """Return the principal for whom the request's token was issued; without one, the user of this machine."""
    token = token_of(scope)
    if token is None:
        return Principal("mcp", os.getuid(), os.getpid(), client)
    subject = token.subject or token.client_id
    return Principal("mcp", os.getuid(), os.getpid(), client, subject=subject, scopes=frozenset(token.scopes))
