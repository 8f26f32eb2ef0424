"""One request to a daemon by a process of its own, which may be a person's: control_request.py SOCKET METHOD PARAMS."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

BOUND_SECONDS = 200.0


def control(address: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Send a request and return its result or error."""
    with socket.socket(socket.AF_UNIX) as link, link.makefile("rb") as answers:
        link.settimeout(BOUND_SECONDS)
        link.connect(address)
        link.sendall(b'{"ai_session":1,"role":"control"}\n')
        link.sendall(json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n")
        answers.readline()
        message: dict[str, Any] = json.loads(answers.readline())
    return message["result"] if "result" in message else message["error"]


if __name__ == "__main__":
    json.dump(control(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])), sys.stdout)
