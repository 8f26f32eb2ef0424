"""Start the server as Claude Desktop does, drive it with the official MCP client, and print and check every answer.

Exits with 1 if an answer differs from what a person at that terminal would see.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "config" / "claude_desktop_config.json"
BOUND_SECONDS = 60.0
LOOP = """\
for fruit in apple pear plum; do
    printf '%s has %d letters\\n' "$fruit" "${#fruit}"
done"""
PROGRESS = """for done in $(seq 0 5 100); do printf '\\rDownloading %3d%%' "$done"; done; echo"""
ENDLESS = """tick=0; while :; do echo "tick $((tick += 1))"; sleep 0.1; done"""


@dataclass
class Demo:
    """One conversation, which prints every call with its answer, and counts the expectations that are met."""

    client: Client
    session: str = "demo"
    right: int = 0
    wrong: list[str] = field(default_factory=list[str])

    def expect(self, what: str, seen: object, wanted: object) -> None:
        if seen == wanted:
            self.right += 1
            return
        self.wrong.append(f"{what}: expected {wanted!r}, got {seen!r}")
        print(f"    ✗ {self.wrong[-1]}")

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and print its text; return its structured content with ``is_error`` and ``text``."""
        shown = ", ".join(
            f"{name}={value!r}" for name, value in arguments.items() if value != self.session or name == "name"
        )
        print(f"  {tool}({shown})")
        started = time.perf_counter()
        result = await self.client.call_tool(tool, arguments)
        milliseconds = (time.perf_counter() - started) * 1000
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        print(textwrap.indent(text.rstrip(), "    ") + f"\n    ({milliseconds:.1f} ms)")
        facts: dict[str, Any] = dict(result.structured_content or {})
        return facts | {"is_error": bool(result.is_error), "text": text}

    async def run(self, command: str, *, output: str, exit_code: int = 0, **more: Any) -> dict[str, Any]:
        """Execute ``command``, and expect exactly this output and exit code."""
        facts = await self.call("execute_command", session_id=self.session, command=command, **more)
        self.expect("status", facts.get("status"), "finished")
        self.expect("exit code", facts.get("exit_code"), exit_code)
        self.expect("output", facts.get("output", "").rstrip("\n"), output)
        return facts


def title(text: str) -> None:
    print(f"\n── {text} {'─' * (100 - len(text))}")


async def show_tools(demo: Demo, started: float) -> None:
    client = demo.client
    print(f"  answered in {time.perf_counter() - started:.2f} s, no daemon was running")
    if server := client.server_info:
        print(f"  server {server.name} {server.version}, protocol {client.protocol_version}")
    tools = [tool.name for tool in (await client.list_tools()).tools]
    print(textwrap.fill(f"tools: {', '.join(tools)}", 100, initial_indent="  ", subsequent_indent="    "))
    wanted: set[str] = {
        "create_session",
        "execute_command",
        "get_session_info",
        "read_output",
        "send_input",
        "interrupt_command",
    }
    demo.expect("tools that are missing", wanted - set(tools), set[str]())


async def commands(demo: Demo, folder: Path) -> None:
    title("A session is a real shell")
    facts = await demo.call("create_session", name=demo.session, working_directory=str(folder))
    demo.expect("error", facts["is_error"], False)
    demo.expect("state", facts.get("state"), "ready")
    await demo.run("pwd", output=str(folder))

    title("An exit code is data, and stderr can be separate")
    facts = await demo.run(
        "echo fine; echo 'not fine' >&2; sh -c 'exit 3'", output="fine", exit_code=3, separate_stderr=True
    )
    demo.expect("stderr", facts.get("stderr", "").strip(), "not fine")

    title("A progress bar is its last frame, not every frame")
    await demo.run(PROGRESS, output="Downloading 100%")

    title("Many lines are one command")
    await demo.run(LOOP, output="apple has 5 letters\npear has 4 letters\nplum has 4 letters")

    title("State persists: directory, variables, functions")
    await demo.run('mkdir sub; cd sub; export NAME=Ada; greet() { echo "$NAME is in ${PWD##*/}"; }', output="")
    await demo.run("greet", output="Ada is in sub")


async def long_command(demo: Demo) -> None:
    title("A long command keeps running; read more, then interrupt it")
    facts = await demo.call("execute_command", session_id=demo.session, command=ENDLESS, timeout_seconds=0.5)
    demo.expect("status", facts.get("status"), "running")
    demo.expect("first line", facts.get("output", "").partition("\n")[0], "tick 1")
    read = await demo.call(
        "read_output", session_id=demo.session, offset=facts.get("next_offset", 0), wait_for="output"
    )
    demo.expect("reads more", read.get("output", "").startswith("tick "), True)
    facts = await demo.call("interrupt_command", session_id=demo.session)
    demo.expect("status", facts.get("status"), "interrupted")
    demo.expect("exit code", facts.get("exit_code"), 130)
    await demo.run("greet", output="Ada is in sub")


async def answer_a_question(demo: Demo) -> None:
    title("The server detects when a program waits for input")
    facts = await demo.call(
        "execute_command", session_id=demo.session, command="read -p 'Your name? ' name; echo \"Hello $name\""
    )
    demo.expect("status", facts.get("status"), "running")
    demo.expect("input mode", facts.get("input_mode"), "line")
    await demo.call("send_input", session_id=demo.session, text="Grace", keys=["Enter"])
    facts = await demo.call("read_output", session_id=demo.session, wait_for="finish")
    demo.expect("status", facts.get("status"), "finished")
    demo.expect("last line", facts.get("output", "").splitlines()[-1:], ["Hello Grace"])


async def mistakes(demo: Demo) -> None:
    title("An error says what to do")
    facts = await demo.call("execute_command", session_id="nobody", command="true")
    demo.expect("error", facts["is_error"], True)
    facts = await demo.call("close_session", session_id=demo.session)
    demo.expect("closed", facts.get("closed"), True)


async def converse(server: StdioServerParameters, folder: Path) -> int:
    title("Start, as Claude Desktop does: " + " ".join([server.command, *server.args]))
    started = time.perf_counter()
    async with asyncio.timeout(BOUND_SECONDS), Client(server) as client:
        demo = Demo(client)
        await show_tools(demo, started)
        await commands(demo, folder)
        await long_command(demo)
        await answer_a_question(demo)
        await mistakes(demo)
    print(f"\n{demo.right} expectations met, {len(demo.wrong)} not")
    return 1 if demo.wrong else 0


def main() -> int:
    """Run the demo in a home of its own, apart from the user's sessions, so that the daemon starts cold."""
    entry: dict[str, Any] = json.loads(CONFIG.read_text())["mcpServers"]["ai-session"]
    program: str = entry["command"]
    home = Path(tempfile.mkdtemp(prefix="demo-", dir="/tmp"))
    folder = home / "project"
    folder.mkdir()
    settings = home / ".config/ai-session/config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[sandbox]\nworkspaces = ["project"]\n')
    user = getpass.getuser()
    environment = {
        "HOME": str(home),
        "LOGNAME": user,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "USER": user,
    }
    command = shutil.which(program, path=environment["PATH"])
    if command is None:
        print(f"{program} is not installed next to {sys.executable}", file=sys.stderr)
        return 1
    server = StdioServerParameters(command=program, args=entry["args"], env=environment)
    try:
        outcome = asyncio.run(converse(server, folder))
    finally:
        stop = [command, "daemon", "stop", "--yes"]
        stopped = subprocess.run(stop, env=environment, check=False, capture_output=True, text=True, timeout=30)
        shutil.rmtree(home, ignore_errors=True)
    if stopped.returncode:
        print(f"the daemon did not stop: {stopped.stderr}", file=sys.stderr)
    return outcome or stopped.returncode


if __name__ == "__main__":
    raise SystemExit(main())
