"""Sends one notice to a URL, as a process of its own that can be killed whatever it waits for.

Reads ``{"url", "body", "headers", "token_file"}`` from standard input. Exits with 0 if the notice was accepted; if not,
the reason is on standard error. Redirects are not followed. Standard library only.
"""

from __future__ import annotations

import json
import sys
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

SECONDS = 30.0


class NoRedirects(HTTPRedirectHandler):
    """Sends nothing to any URL but the configured one."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        """Return None, so that the redirect counts as the response."""
        return None


def main() -> int:
    """Return the exit code: 0 if the notice was accepted, else 1."""
    notice: dict[str, Any] = json.load(sys.stdin)
    headers: dict[str, str] = notice["headers"]
    try:
        if notice["token_file"]:
            headers["Authorization"] = f"Bearer {Path(notice['token_file']).read_text().strip()}"
        request = Request(notice["url"], notice["body"].encode(), headers, method="POST")  # noqa: S310
        with build_opener(NoRedirects).open(request, timeout=SECONDS):
            return 0
    except HTTPError as error:
        print(f"it answered {error.code} {error.reason}", file=sys.stderr)  # noqa: T201
    except URLError as error:
        print(f"it cannot be reached: {error.reason}", file=sys.stderr)  # noqa: T201
    except (OSError, ValueError, HTTPException) as error:
        print(f"it could not be sent: {error}", file=sys.stderr)  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(main())
