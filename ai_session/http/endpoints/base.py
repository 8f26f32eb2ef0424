"""Extension point: what a front serves at its paths, each behind the front's checks of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from starlette.middleware import Middleware
from starlette.types import ASGIApp

if TYPE_CHECKING:
    from ai_session.config.settings import HttpSettings
    from ai_session.http.gate_client import RemoteGate
    from ai_session.http.oauth.access import Access


@dataclass(frozen=True, slots=True)
class Front:
    """A front that listens on ``host`` and is reached at ``base_url``. Without ``access``, no sign-in is required."""

    settings: HttpSettings
    host: str
    base_url: str
    gate: RemoteGate
    access: Access | None


@dataclass(frozen=True, slots=True)
class ServedPath:
    """An application at a path, for these methods; none: for all."""

    path: str
    app: ASGIApp
    methods: tuple[str, ...] = ()


class Endpoint(Protocol):
    """What a front serves. ``advice`` is the message for a client that did not sign in; ``middleware`` handles requests
    before their tokens are verified."""

    @property
    def advice(self) -> str: ...
    @property
    def paths(self) -> Sequence[ServedPath]: ...
    @property
    def middleware(self) -> Sequence[Middleware]: ...

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return a context to be entered once, in which it serves."""
        ...

    def leave(self) -> None:
        """End the streams to which clients listen, because the front shuts down."""
        ...


MakeEndpoint = Callable[[Front], Endpoint]
