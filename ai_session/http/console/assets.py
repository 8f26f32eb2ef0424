"""The files that a browser loads: the page, its modules, fonts and styles, with headers that restrict them."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

WEB = Path(__file__).with_name("web")
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}
MODULES = {
    "preact": "preact",
    "preact/hooks": "preact-hooks",
    "htm": "htm",
    "@preact/signals-core": "signals-core",
    "@preact/signals": "signals",
}
IMPORT_MAP = json.dumps({"imports": {name: f"/vendor/{file}.mjs" for name, file in MODULES.items()}})
MAP_HASH = base64.b64encode(hashlib.sha256(IMPORT_MAP.encode()).digest()).decode()
HEADERS = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=()",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file; ``tag`` is its ETag."""

    body: bytes
    type: str
    tag: str


class Assets:
    """All files, read once."""

    def __init__(self) -> None:
        self._page = (WEB / "index.html").read_text()
        self._files = {f"/{path.relative_to(WEB)}": _asset(path) for path in WEB.rglob("*") if path.suffix in TYPES}

    async def page(self, request: Request) -> Response:
        """Return the page, with a new nonce for the style elements of the terminal."""
        nonce = secrets.token_urlsafe(16)
        text = self._page.replace("$NONCE", nonce).replace("$IMPORT_MAP", IMPORT_MAP)
        return secured(Response(text, media_type="text/html"), nonce)

    async def file(self, request: Request) -> Response:
        """Return a file of the page; the browser revalidates it each time."""
        found = self._files.get(request.url.path)
        if found is None:
            return secured(Response(status_code=404))
        same = request.headers.get("if-none-match") == found.tag
        response = Response(status_code=304) if same else Response(found.body, media_type=found.type)
        secured(response).headers.update({"ETag": found.tag, "Cache-Control": "private, no-cache"})
        return response


def secured(response: Response, nonce: str = "") -> Response:
    """Add headers to the response that restrict what the browser allows it, and return it."""
    style = f" 'nonce-{nonce}'" if nonce else ""
    policy = (
        f"default-src 'none'; script-src 'self' 'sha256-{MAP_HASH}'; style-src 'self'{style}; connect-src 'self'; "
        "img-src 'self' data:; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    response.headers.update({**HEADERS, "Content-Security-Policy": policy, "Cache-Control": "no-store"})
    return response


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(body, TYPES[path.suffix], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
