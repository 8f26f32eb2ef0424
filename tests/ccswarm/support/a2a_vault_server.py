"""Clients of AgentVault's profile that only use HTTP, and a configuration for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.ccswarm.support.runs import QUICK, SERVERS
from tests.ccswarm.support.serve_process import BOUND_SECONDS, Asking
from tests.ccswarm.support.verbs import agent

IDS = re.compile(r"mcp-proxy-[0-9a-f]{32}\Z")
JSON = {"Content-Type": "application/json"}
OVER = ("COMPLETED", "FAILED", "CANCELED")
PROXY = agent("proxy", "small.*", "pipe.*", "filesystem.filesystem.*", "filesystem.*", "code.*", "nowhere.*")
TEXT = QUICK + SERVERS + '[a2a]\nagent = "proxy"\n' + PROXY + agent("other", "small.echo")


def wanted(target: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of tasks/send."""
    content = {"target_mcp_server_id": target, "tool_name": tool, "arguments": arguments}
    part = {"type": "data", "content": content, "mediaType": "application/json"}
    return {"message": {"role": "user", "parts": [part]}}


class Vault(Asking):
    """An AgentVault client."""

    def __init__(self, port: int, path: str = "/a2a", **headers: str) -> None:
        self.http = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=BOUND_SECONDS, trust_env=False
        )
        self.path = path
        self._number = 0

    def post(self, content: Any) -> Any:
        """Post any body and return the response, whose status must be 200."""
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        answer = self.http.post(self.path, content=data, headers=JSON)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        return answer.json()

    def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._number += 1
        return {"jsonrpc": "2.0", "method": method, "id": f"req-{self._number}", "params": dict(params)}

    def whole(self, method: str, /, **params: Any) -> Any:
        request = self.request(method, params)
        answer = self.post(request)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", request["id"])
        return answer

    def send(self, target: str, tool: str, /, **arguments: Any) -> str:
        """Begin a task and return its id."""
        answer = self.ask("tasks/send", **wanted(target, tool, **arguments))
        assert set(answer) == {"id"}
        return answer["id"]

    @contextmanager
    def stream(self, task: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """Yield an iterator of a task's events, as names and data."""
        request = self.request("tasks/sendSubscribe", {"id": task})
        headers = {"Accept": "text/event-stream"}
        with self.http.stream("POST", self.path, json=request, headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream"), answer.read()
            yield _events(answer)

    def events(self, task: str) -> list[tuple[str, Any]]:
        """Return a task's events until its end."""
        with self.stream(task) as events:
            return list(events)

    def over(self, task: str) -> Any:
        """Wait for the end of a task and return it."""
        assert self.events(task)[-1][1]["state"] in OVER
        return self.ask("tasks/get", id=task)

    def said(self, target: str, tool: str, /, **arguments: Any) -> Any:
        """Carry out a task of one call and return the content of its last message."""
        task = self.over(self.send(target, tool, **arguments))
        message = task["messages"][-1]
        (part,) = message["parts"]
        assert (message["role"], part["type"], part["mediaType"]) == ("assistant", "data", "application/json")
        assert task["state"] == ("COMPLETED" if part["content"]["success"] else "FAILED")
        return part["content"]

    def error(self, target: str, tool: str, /, **arguments: Any) -> tuple[str, str]:
        """Carry out a task that must fail and return the source and the code of its error."""
        content = self.said(target, tool, **arguments)
        assert set(content) == {"success", "error"}
        assert {"source", "code", "message"} <= set(content["error"]) <= {"source", "code", "message", "details"}
        return content["error"]["source"], content["error"]["code"]

    def close(self) -> None:
        self.http.close()


def _events(answer: httpx2.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
