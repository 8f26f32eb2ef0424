"""``ccswarm serve --a2a`` in a process of its own, and A2A clients that only use HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx2

from tests.ccswarm.support.runs import QUICK, SERVERS
from tests.ccswarm.support.serve_process import BOUND_SECONDS, Asking, Serving
from tests.ccswarm.support.verbs import agent


def member(name: str, kind: str, tool: str, args: str, more: str = "") -> str:
    """Return an agent with one step for tasks in words."""
    grant = f"{tool.partition('.')[0]}.*"  # a run starts all servers of its agents
    head = f'[[agents]]\nname = "{name}"\ntype = "{kind}"\ngrants = ["{grant}"]\n{more}\n'
    return head + f'[[agents.settings.steps]]\nid = "do"\ntool = "{tool}"\nargs = {{ {args} }}\n'


CREW = (
    member("ada", "researcher", "small.echo", 'text = "${task.text}"', 'capabilities = ["analysis"]')
    + member("ann", "analyst", "pipe.read", 'path = "${workspace}/pipe"')
    + member("eve", "coder", "small.echo", 'text = "${task.text}"', 'approval = "all"')
    + member("flo", "coder", "small.fail", "")
    + agent("bob", "small.*")
)
TEXT = QUICK + SERVERS + CREW


def text_message(text: str, **more: Any) -> dict[str, Any]:
    """Return a message of A2A 1.0."""
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}


def old_message(*parts: Any, **more: Any) -> dict[str, Any]:
    """Return a message of A2A 0.3."""
    shown = [{"kind": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"kind": "message", "messageId": str(uuid4()), "role": "user", "parts": shown, **more}


def plan_message(plan: Any, **more: Any) -> dict[str, Any]:
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"data": {"plan": plan}}], **more}


class Wire(Asking):
    """An A2A client."""

    def __init__(self, port: int, token: str = "", host: str = "127.0.0.1") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = f"http://{host}:{port}"
        self.http = httpx2.Client(base_url=self.url, headers=headers, timeout=BOUND_SECONDS, trust_env=False)
        self._number = 0

    def post(self, content: Any, **headers: str) -> Any:
        """Post any body and return the response."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        answer = self.http.post("/", content=data, headers={"Content-Type": "application/json", **headers})
        return answer.json()

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._number += 1
        return {"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)}

    def whole(self, method: str, /, **params: Any) -> Any:
        """Send a request and return the whole response."""
        request = self._request(method, params)
        answer = self.post(request)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", request["id"])
        return answer

    @contextmanager
    def stream(self, method: str, /, **params: Any) -> Iterator[Iterator[Any]]:
        """Send a request and yield an iterator of the streamed results."""
        request = self._request(method, params)
        with self.http.stream("POST", "/", json=request, headers={"Accept": "text/event-stream"}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
            yield self._events(answer, request["id"])

    def _events(self, answer: httpx2.Response, number: int) -> Iterator[Any]:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert (event["jsonrpc"], event["id"]) == ("2.0", number)
                yield event["result"]
            else:
                assert line == "" or line.startswith(":")

    def done(self, message: Mapping[str, Any], **configuration: Any) -> Any:
        """Send a message of A2A 1.0 and return its completed task."""
        task = self.ask("SendMessage", message=message, configuration=configuration)["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        return task

    def close(self) -> None:
        self.http.close()


class Served(Serving):
    """The A2A server."""

    flag, dialect = "--a2a", "A2A"


served = Served.meanwhile
