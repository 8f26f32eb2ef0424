"""A tool server of AgentVault's kind on a port of its own: a method for each tool, files below one directory."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LISTED = [
    {
        "name": "filesystem.readFile",
        "description": "Reads a file.",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    }
]
STATUS = {-32601: 404, -32700: 400, -32600: 400, -32602: 400}


class ToolError(Exception):
    """The failure of a tool, with its text."""


class RpcFault(Exception):
    """A JSON-RPC error object."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class RpcServer:
    """A tool server. With ``lists`` it lists its tools.

    ``held`` is set when a call of ``hold`` begins, ``gone`` when the client of one has disconnected.
    """

    def __init__(self, root: Path, *, lists: bool) -> None:
        self.root = root
        self.lists = lists
        self.asked: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.held = threading.Event()
        self.gone = threading.Event()
        self._released, self._release = os.pipe()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                server.serve(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def release(self) -> None:
        """Let the calls of ``hold`` return."""
        os.write(self._release, b"x")

    def close(self) -> None:
        self.release()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        os.close(self._released)
        os.close(self._release)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve one request."""
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        if handler.path != "/rpc":
            self.say(handler, 404, b"<h1>Not Found</h1>")
            return
        request = json.loads(body)
        self.asked.append(request)
        self.headers.append(dict(handler.headers))
        if request["method"] == "raw":
            self.say(handler, request["params"]["status"], request["params"]["body"].encode())
            return
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        status = 200
        try:
            answer["result"] = self.result(request["method"], request["params"], handler)
        except ToolError as error:
            answer["result"] = {"isError": True, "content": [{"type": "text", "text": str(error)}]}
        except RpcFault as fault:
            answer["error"], status = fault.error, STATUS.get(fault.error["code"], 500)
        if not self.gone.is_set():
            self.say(handler, status, json.dumps(answer).encode())

    def say(self, handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def result(self, method: str, given: dict[str, Any], handler: BaseHTTPRequestHandler) -> Any:
        match method:
            case "tools/list" if self.lists:
                return {"tools": LISTED}
            case "filesystem.readFile":
                return {"content": [{"type": "text", "text": self._file(given).read_text()}]}
            case "filesystem.writeFile":
                self._file(given).write_text(given["content"])
                return {"content": [{"type": "text", "text": "written"}]}
            case "code.runPython":
                return {"content": [{"type": "code_output", "stdout": "3\n", "stderr": "careful\n"}], "exit_code": 0}
            case "echo":
                return {"content": [{"type": "text", "text": json.dumps(given)}], "given": given}
            case "fault":
                raise RpcFault(given["code"], given["message"], given.get("data"))
            case "any":
                return given["result"]
            case "hold":
                self.held.set()
                ready = select.select([handler.connection, self._released], [], [])[0]
                if handler.connection in ready:
                    handler.close_connection = True
                    self.gone.set()
                return {"content": [{"type": "text", "text": "released"}]}
            case _:
                raise RpcFault(-32601, f"Method not found: {method}")

    def _file(self, given: Mapping[str, Any]) -> Path:
        if not isinstance(given.get("path"), str):
            raise RpcFault(-32602, "Invalid params: path is missing")
        file = (self.root / given["path"].lstrip("/")).resolve()
        if not file.is_relative_to(self.root.resolve()):
            raise ToolError("Error: Path is outside of the allowed directory.")
        if "content" not in given and not file.is_file():
            raise ToolError("Error: File not found at specified path.")
        return file


@contextmanager
def rpc_server(root: Path, *, lists: bool = False) -> Iterator[RpcServer]:
    """Yield a running server."""
    server = RpcServer(root, lists=lists)
    try:
        yield server
    finally:
        server.close()
