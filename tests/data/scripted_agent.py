"""A program that drives an agent, without a model: ``scripted_agent.py MCP_CONFIG [--resume ID] ACTION…``. It prints
what claude prints, and does one action after the other: ``say:WORDS``, ``call:TOOL:JSON``, ``calls:TOOL:JSON`` (without
waiting), ``finish:STATUS:SUMMARY``, ``exit:CODE``, ``print:TEXT``, ``complain:TEXT``, ``result:JSON``, ``prompt:FILE``,
``answers:FILE`` (all so far), ``tools``,
``length:VARIABLE``, ``hang``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


class Server:
    """The one MCP server of the configuration; started when it is used."""

    def __init__(self, config: str) -> None:
        with open(config) as file:
            (facts,) = json.load(file)["mcpServers"].values()
        env = {**os.environ, **{name: os.path.expandvars(value) for name, value in facts["env"].items()}}
        words = [facts["command"], *facts["args"]]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.number = 0
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "scripted", "version": "1"}}
        self.ask("initialize", info)
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any], *, wait: bool = True) -> dict[str, Any]:
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        assert self.process.stdout
        while wait and (line := self.process.stdout.readline()):
            message = json.loads(line)
            if message.get("id") == self.number:
                return message.get("result") or message
        return {}


def main(config: str, *actions: str) -> None:
    session = actions[1] if actions[:1] == ("--resume",) else "11111111-2222-3333-4444-555555555555"
    server: Server | None = None
    prompt = sys.stdin.read()
    tell(type="system", subtype="init", session_id=session)
    words, answers = "done", list[object]()
    for number, action in enumerate(actions[2:] if actions[:1] == ("--resume",) else actions):
        kind, _, rest = action.partition(":")
        name, _, given = rest.partition(":")
        if kind in ("call", "calls", "finish", "tools"):
            server = server or Server(config)
        if kind == "say":
            usage = {"input_tokens": 10, "output_tokens": 5}
            text = {"type": "text", "text": rest}
            tell(type="assistant", message={"id": f"m{number}", "content": [text], "usage": usage})
        elif server and kind in ("call", "calls"):
            arguments = json.loads(given or "{}")
            answer = server.ask("tools/call", {"name": name, "arguments": arguments}, wait=kind == "call")
            answers.append(answer)
            tell(type="user", answer=answer)
        elif server and kind == "finish":
            arguments = {"status": name, "summary": given}
            answers.append(server.ask("tools/call", {"name": "finish", "arguments": arguments}))
        elif server and kind == "tools":
            tools = [tool["name"] for tool in server.ask("tools/list", {})["tools"]]
            tell(type="assistant", message={"id": f"m{number}", "content": [{"type": "text", "text": " ".join(tools)}]})
        elif kind == "prompt":
            with open(rest, "a") as file:
                file.write(f"{session}\n{prompt}\n----\n")
        elif kind == "answers":
            with open(rest, "w") as file:
                json.dump(answers, file)
        elif kind == "print":
            print(rest, flush=True)
        elif kind == "complain":
            print(rest, file=sys.stderr, flush=True)
        elif kind == "result":
            tell(type="result", session_id=session, **json.loads(rest))
        elif kind == "length":
            text = {"type": "text", "text": str(len(os.environ[rest]))}
            tell(type="assistant", message={"id": f"m{number}", "content": [text]})
        elif kind == "hang":
            signal.pause()
        elif kind == "exit":
            sys.exit(int(rest))
        words = rest
    if server and server.process.stdin:
        server.process.stdin.close()
        server.process.wait()
    usage = {"input_tokens": 100, "output_tokens": 50}
    tell(
        type="result",
        subtype="success",
        is_error=False,
        result=words,
        session_id=session,
        usage=usage,
        total_cost_usd=0.25,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
