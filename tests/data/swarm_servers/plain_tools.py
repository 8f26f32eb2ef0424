"""The tools of plain.py: each does one thing a client must bear."""

from __future__ import annotations

import json
import os
import threading

from wire import Refused, Server, text, tool

TYPE_CHECKING = False  # which is all that typing would be loaded for
if TYPE_CHECKING:
    from typing import Any

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


class Plain(Server):
    def __init__(self, eras: str = "both") -> None:
        super().__init__(eras)
        self.added: list[str] = []
        self.gates: dict[str, threading.Event] = {}
        self.cancelled: list[str] = []
        self.cancelled_one = threading.Condition()
        self.asked = threading.Event()
        self.answered: dict[str, Any] = {}
        self.meeting = threading.Condition()
        self.running = self.arrived = self.met = self.most = 0

    def list_tools(self, cursor: str | None) -> dict[str, Any]:
        names = [name.removeprefix("do_") for name in dir(self) if name.startswith("do_")]
        described: dict[str, dict[str, Any]] = {
            "echo": {
                "title": "Echo",
                "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "call_key": {}}},
            },
            "misfit": {"outputSchema": COUNT},
        }
        return {"tools": [tool(name, **described.get(name, {})) for name in names + self.added]}

    def call_tool(self, request_id: Any, params: dict[str, Any]) -> dict[str, Any] | None:
        do = getattr(self, f"do_{params['name']}", None)
        if do is None:
            raise Refused(-32602, f"Unknown tool: {params['name']}")
        return do(request_id, params, **params.get("arguments") or {})

    def do_echo(self, _: Any, params: dict[str, Any], **arguments: Any) -> dict[str, Any]:
        return text(arguments.get("text", ""), structuredContent={"params": params}, _meta={"call": 7})

    def do_facts(self, *_: Any) -> dict[str, Any]:
        facts = {
            "environment": dict(os.environ),
            "pid": os.getpid(),
            "group": os.getpgid(0),
            "directory": os.getcwd(),
            "client": self.client,
            "requests": self.requests,
        }
        return text("facts", structuredContent=facts)

    def do_hold(self, request_id: Any, _: Any, name: str) -> dict[str, Any] | None:
        gate = self.gates.setdefault(name, threading.Event())
        cancelled = self.cancels[request_id]
        threading.Thread(target=lambda: (cancelled.wait(), gate.set()), daemon=True).start()
        self.notify_held(request_id)
        gate.wait()
        if not cancelled.is_set():
            return text(name)
        with self.cancelled_one:
            self.cancelled.append(name)
            self.cancelled_one.notify_all()
        return None

    def notify_held(self, request_id: Any) -> None:
        self.notify("notifications/progress", progressToken=request_id, progress=1)

    def do_release(self, _: Any, __: Any, name: str) -> dict[str, Any]:
        self.gates.setdefault(name, threading.Event()).set()
        return text("released")

    def do_meet(self, _: Any, __: Any, together: int) -> dict[str, Any]:
        """Answers when so many such calls are under way."""
        with self.meeting:
            self.running += 1
            self.most = max(self.most, self.running)
            number = self.arrived = self.arrived + 1
            if number % together == 0:
                self.met = number
                self.meeting.notify_all()
            self.meeting.wait_for(lambda: number <= self.met)
            self.running -= 1
            return text(f"at most {self.most}")

    def do_cancelled(self, _: Any, __: Any, name: str) -> dict[str, Any]:
        with self.cancelled_one:
            self.cancelled_one.wait_for(lambda: name in self.cancelled)
        return text(name)

    def do_progress(self, request_id: Any, _: Any, steps: int) -> dict[str, Any]:
        for step in range(steps):
            self.notify(
                "notifications/progress", progressToken=request_id, progress=step, total=steps, message=f"step {step}"
            )
        return text("done")

    def do_die(self, _: Any, __: Any, code: int, words: str = "") -> None:
        os.write(2, words.encode())
        os._exit(code)

    def do_last(self, request_id: Any, _: Any) -> None:
        """An answer after much else, and then the end, at once."""
        progress = {"progressToken": request_id, "progress": 1}
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}).encode() + b"\n"
        self.write_raw(line * 500)
        self.answer(request_id, text("the last answer"))
        os._exit(0)

    def do_spawn(self, _: Any, __: Any) -> dict[str, Any]:
        """The child keeps both pipes open."""
        import subprocess  # others are started in two thirds of the time without it

        child = subprocess.Popen(["sleep", "1000"])
        return text(str(child.pid), structuredContent={"pid": child.pid})

    def do_shut(self, _: Any, __: Any) -> None:
        os.close(1)

    def do_big(self, request_id: Any, _: Any, size: int, id_first: bool = True) -> None:
        result = b'"result":{"content":[{"type":"text","text":"' + b"x" * size + b'"}]'
        result += b',"resultType":"complete"}' if self.modern else b"}"
        identity = b'"id":%d' % request_id
        parts = [b'"jsonrpc":"2.0"', identity, result] if id_first else [result, b'"jsonrpc":"2.0"', identity]
        self.write_raw(b"{" + b",".join(parts) + b"}\n")

    def do_fail(self, _: Any, __: Any) -> dict[str, Any]:
        return text("it did not work", isError=True)

    def do_refuse(self, _: Any, __: Any, code: int) -> None:
        raise Refused(code, "no, thanks")

    def do_change(self, _: Any, __: Any, name: str) -> dict[str, Any]:
        self.added.append(name)
        self.changed()
        return text("changed")

    def do_wants_input(self, request_id: Any, _: Any) -> None:
        ask = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}
        self.answer(request_id, {"resultType": "input_required", "inputRequests": {"sure": ask}})

    def do_elicit(self, *_: Any) -> dict[str, Any]:
        params = {"mode": "form", "message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
        self.write({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": params})
        self.asked.wait()
        return text(json.dumps(self.answered))

    def got_response(self, message: dict[str, Any]) -> None:
        self.answered = message
        self.asked.set()

    def do_pictures(self, *_: Any) -> dict[str, Any]:
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        return {"content": [*text("one")["content"], image, {"type": "hologram"}, *text("two")["content"], 5]}

    def do_misfit(self, *_: Any, count: Any = "many") -> dict[str, Any]:
        return text("misfit", structuredContent={"count": count})

    def do_chatter(self, *_: Any) -> dict[str, Any]:
        self.write_raw(
            b"Listening on stdio!\n\n[1, 2]\n{}\n\xff\xfe\n" + b'{"jsonrpc": "2.0", "id": 9999, "result": {}}\n'
        )
        return text("said")
