"""Sends one notice to an address, as a process of its own that can be ended whatever it waits for.

Reads ``{"url", "body", "headers", "token_file"}`` from standard input; exit code 0 where it was taken, else what was
wrong goes to standard error. Redirects are not followed. Standard library only.
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


class Refuse(HTTPRedirectHandler):
    """Nothing is sent elsewhere than to where the person said."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        """None: the answer counts as it is."""
        return None


def main() -> int:
    """Whether it was taken: 0 or 1."""
    asked: dict[str, Any] = json.load(sys.stdin)
    headers: dict[str, str] = asked["headers"]
    try:
        if asked["token_file"]:
            headers["Authorization"] = f"Bearer {Path(asked['token_file']).read_text().strip()}"
        request = Request(asked["url"], asked["body"].encode(), headers, method="POST")  # noqa: S310
        with build_opener(Refuse).open(request, timeout=SECONDS):
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
