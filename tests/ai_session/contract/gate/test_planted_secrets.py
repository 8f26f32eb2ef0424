"""A client whose environment and commands are full of secrets: none is told by results, logs, recordings, the audit,
questions, errors, what is kept for repeated calls, or the processes around a session.

A session's own folder (its output as it was, its commands and variables) holds what it holds, for its owner only; so
does the terminal of a person who watches.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import Client, Message, living_in, runtime, stop_daemons
from tests.ai_session.support.planted_secrets import (
    GIVEN,
    PLACED,
    PLAIN,
    SHAPED,
    VARIABLES,
    SeenOutput,
    drawn,
    lines,
    one_line,
)
from tests.conftest import new_home

RULES = """
[[policy.rules]]
id = "asks"
decision = "ask"
commands = ["wget"]
clients = ["asker"]

[[policy.rules]]
id = "never"
decision = "deny"
commands = ["shutdown"]
clients = ["asker"]
"""
UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
OWN = ("log", "times", "history.jsonl", "spec.json", "shell", "state", "stdin", "box")
"""Of a session's folder: what is its own."""


class PlantedHome:
    """A home, a daemon, a client with secrets, and everything anybody got to see."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir()
        self.places = SeenOutput()
        (self.work / "all.txt").write_text("\n".join(lines()) + "\n")
        (self.work / "pages.txt").write_text("".join(f"{'.' * n} {line}\n" for n, line in enumerate(one_line() * 3)))
        self.env = {**living_in(home), **VARIABLES}
        self.client = self.connect()

    def connect(self, name: str = "wire", **capabilities: Message) -> Client:
        client = Client(env=self.env, cwd=self.work)
        info = {"name": name, "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        client.result("initialize", params)
        client.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client

    def call(self, tool: str, **arguments: Any) -> Message:
        result = self.client.call(tool, **arguments)
        assert not result.get("isError"), result
        return result["structuredContent"]

    def refused(self, tool: str, **arguments: Any) -> None:
        result = self.client.call(tool, **arguments)
        assert result["isError"], result

    def run(self, command: str, session: str = "s", **more: Any) -> Message:
        return self.call("execute_command", session_id=session, command=command, **more)

    def verb(self, *words: str) -> None:
        done = CommandLine(self.home, HOME=str(self.home), **VARIABLES).run(*words)
        self.places.add(" ".join(words), done.stdout + done.stderr)

    def files(self) -> Iterator[Path]:
        yield from (path for path in runtime(self.home).rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def how(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Box, and backend."""
    return request.param


@pytest.fixture(scope="module")
def planted(homes: Path, how: tuple[str, str]) -> Iterator[PlantedHome]:
    box, backend = how
    made = PlantedHome(new_home(homes, ("" if box == "boxed" else UNBOXED) + RULES))
    try:
        made.call("create_session", name="s", backend=backend)
        made.call("create_session", name="given", env=GIVEN, backend=backend)
        yield made
    finally:
        with suppress(TimeoutError):
            stop_daemons(made.home)
        made.client.__exit__()


def like(box: str, backend: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("how", [(box, backend)], ids=[f"{box}-{backend}"], indirect=True)


torture = pytest.mark.torture


@pytest.mark.parametrize(
    ("how", "step"),
    [
        (("boxed", "pty"), 4),
        *[pytest.param(how, 1, marks=torture) for how in (("unboxed", "tmux"), ("boxed", "tmux"), ("unboxed", "pty"))],
    ],
    ids=["boxed-pty", "unboxed-tmux", "boxed-tmux", "unboxed-pty"],
    indirect=["how"],
)
def test_no_output_contains_a_secret(planted: PlantedHome, how: tuple[str, str], step: int) -> None:
    """One in ``step`` of the repetitions is made, and every secret is in some place of each kind."""
    print_them(planted)
    read_them_in_pieces(planted, step)
    type_them(planted, step)
    name_things_after_them(planted, how[1])
    err_with_them(planted, step)
    ask_about_them(planted, step)
    for words in (
        ("approvals",),
        ("audit", "show", "40"),
        ("audit", "tail", "-n", "500"),
        ("audit", "export"),
        ("audit", "export", "--format", "ocsf"),
        ("audit", "export", "--format", "otel"),
    ):
        planted.verb(*words)
    look_everywhere(planted, how[1])


@like("unboxed", "tmux")
def test_a_client_with_more_secrets_than_can_be_masked_runs_nothing_and_no_other_is_disturbed(
    planted: PlantedHome,
) -> None:
    many = {f"N{number}_TOKEN": f"-value-{number}-" * 3 for number in range(600)}
    secret = many["N7_TOKEN"]
    with Client(env={**planted.env, **many}, cwd=planted.work) as absurd:
        absurd.initialize()
        refused = absurd.call("execute_command", session_id="s", command=f"echo {secret}")
        assert refused["isError"], refused
        assert "limit_reached" in json.dumps(refused)
        assert "redaction.environment" in json.dumps(refused)
        assert absurd.call("list_sessions")["isError"]
        assert planted.run("echo still here")["output"] == "still here\n"
    assert "exceed the maximum that can be masked" in (runtime(planted.home) / "daemon.log").read_text()
    planted.verb("audit", "export")
    kept = planted.places.seen["audit export"]
    assert b'"limit_reached"' in kept
    assert secret.encode() not in kept


@like("unboxed", "tmux")
def test_what_a_session_was_given_is_known_to_the_next_daemon(planted: PlantedHome) -> None:
    """Also before anybody calls for that session."""
    planted.call("create_session", name="kept", env=GIVEN, backend="pty")
    planted.run("echo $SESSION_PASSWORD", session="kept")
    planted.client.__exit__()
    person = CommandLine(planted.home)
    person.run("daemon", "stop", "--keep-sessions")
    cast = person.out("record", "export", "kept")
    assert GIVEN["SESSION_PASSWORD"] not in cast
    assert "[REDACTED:SESSION_PASSWORD:" in cast
    planted.client = planted.connect()


def look_everywhere(planted: PlantedHome, backend: str) -> None:
    """At what a session shows to people, at processes, results and files."""
    assert planted.run("true")["exit_code"] == 0
    for words in (("logs", "s"), ("screen", "s"), ("ls",), ("info", "s"), ("record", "export", "s"), ("replay", "s")):
        planted.verb(*words)
    look_at_processes(planted, backend)
    for line in planted.client.lines:
        planted.places.add("results", line)
    look_at_files(planted)
    reported = planted.places.revealed()
    assert not reported, "\n".join(reported)
    assert planted.places.seen["results"].count(b"[REDACTED:") > 3 * len(lines())


@pytest.mark.parametrize("how", [("unboxed", "pty")], indirect=True)
def test_what_only_its_context_reveals_is_masked_where_it_stands_alone(planted: PlantedHome) -> None:
    shown, exported = list[Message](), planted.work / "alone.cast"
    netrc = {"netrc": ("machine example.com login ann password {}", "S3cr3tPw1")}
    for kind, (text, secret) in (PLACED | netrc).items():
        shown.append(planted.run(f": {shlex.quote(text.format(secret))}; echo {shlex.quote(secret)}"))
        assert shown[-1]["output"].startswith("[REDACTED:"), kind
    planted.run("read -r line; echo $line", timeout_seconds=0)
    typed = drawn(20)
    planted.call("send_input", session_id="s", text=f"export MY_TOKEN={typed};\n")
    planted.call("read_output", session_id="s", wait_for="finish")
    shown.append(planted.run(f"echo {typed}"))
    planted.verb("record", "export", "s", "-o", str(exported))
    secrets = [secret for _, secret in (PLACED | netrc).values()] + [typed]
    kept = [path for path in planted.files() if path.relative_to(runtime(planted.home)).parts[0] != "sessions"]
    everywhere = json.dumps(shown) + exported.read_text() + "".join(path.read_text(errors="replace") for path in kept)
    assert [secret for secret in secrets if secret in everywhere] == []


def print_them(planted: PlantedHome) -> None:
    """By commands: from a file, as words, through stderr, stdin, and in base64."""
    planted.run("cat all.txt", max_output_chars=200_000)
    words = " ".join(map(shlex.quote, one_line()))
    planted.run(f"printf '%s\\n' {words}", max_output_chars=200_000)
    planted.run("cat all.txt >&2", separate_stderr=True, max_output_chars=200_000)
    planted.run("cat all.txt >&2", separate_stderr=True, max_output_chars=1000)
    planted.run("cat", stdin="\n".join(lines()) + "\n", max_output_chars=200_000)
    for value in PLAIN.values():
        planted.run(f"printf %s {shlex.quote(value)} | base64 -w0")
    planted.run("grep --color=always -n '_' all.txt")
    planted.run("cat all.txt", call_key="a-key", max_output_chars=200_000)
    planted.run("cat all.txt", call_key="a-key", max_output_chars=200_000)
    planted.run("env; cat /proc/self/environ | tr '\\0' '\\n'", max_output_chars=200_000)


def read_them_in_pieces(planted: PlantedHome, step: int) -> None:
    """Pages of every border, last lines, matches, head and tail."""
    whole = planted.run(f"head -n {3 * len(one_line()) // step} pages.txt", max_output_chars=400)
    for size in (333 * step, 1999):
        offset, end = 0, 1
        while offset < end:
            page = planted.call("read_output", session_id="s", offset=offset, max_output_chars=size)
            offset, end = page["next_offset"], page["end_offset"]
    for offset in range(whole["next_offset"], whole["next_offset"] + 400, 23 * step):
        planted.call("read_output", session_id="s", offset=offset, max_output_chars=200)
    for chars in range(200, 400, 19 * step):
        planted.call("read_output", session_id="s", tail_lines=4, max_output_chars=chars)
    secret = SHAPED["github"]
    for pattern in (".", secret[:12], secret[:-1] + ".", f"({secret})", "AKIA", "BEGIN"):
        planted.call("read_output", session_id="s", pattern=pattern)


def type_them(planted: PlantedHome, step: int = 1) -> None:
    """At a prompt, into a program, at a screen's right edge, and in a full-screen program."""
    planted.run("cat > /dev/null", timeout_seconds=0)
    for line in ("\n".join(lines()), *one_line()[:: 9 * step]):
        planted.call("send_input", session_id="s", text=line + "\n")
    planted.call("send_input", session_id="s", keys=["C-d"])
    planted.call("read_output", session_id="s", wait_for="finish", max_output_chars=200_000)
    planted.run("less all.txt" if os.access("/usr/bin/less", os.X_OK) else "more all.txt", timeout_seconds=0.1)
    planted.call("read_output", session_id="s", wait_for="input")
    for _ in range(3):
        planted.call("read_screen", session_id="s")
        planted.call("send_input", session_id="s", text=" ")
    planted.call("send_input", session_id="s", text="q")
    planted.call("read_output", session_id="s", wait_for="finish")
    for secret in (SHAPED["github"], PLAIN["COMPANY_TOKEN"], SHAPED["anthropic"]):
        for gap in (190, 180, 150)[::step]:
            planted.run(f": {'x' * gap} {secret}; printf '%*s%s\\n' {gap} '' {secret}")
            planted.call("read_screen", session_id="s")
    planted.call("create_session", name="narrow", rows=24, cols=60)
    for secret in (PLAIN["COMPANY_TOKEN"], SHAPED["gitlab"])[::step]:
        sent = planted.call("send_input", session_id="narrow", text=f"echo {'y' * 30} {secret}")
        begin = sent["next_offset"]
        planted.call("read_output", session_id="narrow", command_id="all", wait_for="output", offset=begin)
        planted.call("read_output", session_id="narrow", command_id="all", tail_lines=3)
        planted.call("read_screen", session_id="narrow")
        planted.call("send_input", session_id="narrow", keys=["Enter"])
    planted.call("read_output", session_id="narrow", command_id="all", tail_lines=100, max_output_chars=200_000)
    planted.call("read_output", session_id="s", command_id="all", tail_lines=100, max_output_chars=200_000)
    planted.call("resize_session", session_id="s", rows=24, cols=60)
    planted.call("read_screen", session_id="s")
    planted.call("resize_session", session_id="s", rows=50, cols=200)


def name_things_after_them(planted: PlantedHome, backend: str) -> None:
    """Sessions, directories, variables, titles."""
    secret = SHAPED["github"]
    (planted.work / secret).mkdir(exist_ok=True)
    name = SHAPED["huggingface"] if "huggingface" in SHAPED else SHAPED["hugging-face"]
    planted.call("create_session", name=name, working_directory=str(planted.work / secret), backend=backend)
    planted.run("pwd; cd .", session=name)
    planted.call("list_sessions")
    planted.verb("ls")
    planted.verb("record", "export", name)
    planted.run("echo $SESSION_PASSWORD", session="given")
    planted.run(f"printf '\\033]0;%s\\007' {secret}", session="given")
    planted.call("read_screen", session_id="given")
    planted.call("close_session", session_id=name)


def err_with_them(planted: PlantedHome, step: int) -> None:
    """Refusals repeat what they refuse, and cut it: each secret in one of them, and some in all."""
    ways: list[Callable[[str], object]] = [
        lambda secret: planted.refused("get_session_info", session_id=secret),
        lambda secret: planted.refused("get_session_info", session_id="." * 60 + secret),
        lambda secret: planted.refused("read_output", session_id="s", command_id=secret),
        lambda secret: planted.refused("read_output", session_id="s", pattern="(" + secret),
        lambda secret: planted.refused("create_session", name="n", shell=secret),
        lambda secret: planted.refused("create_session", name="n", backend=secret),
        lambda secret: planted.refused("create_session", name="n", working_directory="/" + secret),
        lambda secret: planted.refused("create_session", name="n", env={"=" + secret: "v"}),
        lambda secret: planted.call("list_sessions", **{secret: 1}),
        lambda secret: planted.refused("resize_session", session_id="s", rows=secret, cols=[secret]),
        lambda secret: planted.refused("interrupt_command", session_id="s", call_key=secret),
        lambda secret: planted.client.ask("tools/call", {"name": secret, "arguments": {}}),
        lambda secret: planted.client.ask("tools/call", {"name": 1, "arguments": secret}),
        lambda secret: planted.client.ask("tools/cal", {"name": "list_sessions", "arguments": {"x": secret}}),
    ]
    for number, secret in enumerate((*SHAPED.values(), *PLAIN.values())):
        ways[number % len(ways)](secret)
    for secret in one_line()[:: 16 * step]:
        for way in ways:
            way(secret)
    secret = SHAPED["github"]
    planted.run("true", call_key=secret)
    planted.refused("execute_command", session_id="s", command="false", call_key=secret)
    planted.run(f"sleep 1000; : {'z' * 50} {secret}", timeout_seconds=0)
    planted.refused("execute_command", session_id="s", command="true")
    planted.call("list_sessions")
    planted.verb("ls")
    planted.call("interrupt_command", session_id="s")


def ask_about_them(planted: PlantedHome, step: int) -> None:
    """Questions on disk, at a client's form and at the command line; denials."""
    with planted.connect("asker") as far, planted.connect("asker", elicitation={}) as near:
        for secret in one_line()[:: 2 * step]:
            for program in ("wget --header", "shutdown"):
                assert far.call("execute_command", session_id="s", command=f"{program} {shlex.quote(secret)}")[
                    "isError"
                ]
        planted.verb("approvals")
        for secret in one_line()[1 :: 5 * step]:
            wanted = {"session_id": "s", "command": f"wget {shlex.quote(secret)}"}
            asked = near.request("tools/call", {"name": "execute_command", "arguments": wanted})
            while (message := near.read()).get("id") != asked or "method" in message:
                if message.get("method") == "elicitation/create":
                    answer = {"action": "accept", "content": {"decision": "deny"}}
                    near.write({"jsonrpc": "2.0", "id": message["id"], "result": answer})
        for line in far.lines + near.lines:
            planted.places.add("questions", line)


def look_at_processes(planted: PlantedHome, backend: str) -> None:
    """What the kernel shows of the processes around the shell, and of the shell itself."""
    shell = planted.call("get_session_info", session_id="s")["pid"]
    needle = os.fsencode(planted.home)
    client = planted.client.process.pid
    watched = b""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            argv, environ = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            if int(folder.name) == client:
                planted.places.add("relay's argv", argv)  # its environment is the client's own
            elif int(folder.name) == shell or (needle in argv and (b"python" in argv or b"tmux" in argv)):
                watched += argv
                planted.places.add(f"argv of {argv[:40]!r}", argv)
                planted.places.add(f"environ of {argv[:40]!r}", environ)
    assert all(word in watched for word in (b"daemon", b"tmux" if backend == "tmux" else b"holder")), watched


def look_at_files(planted: PlantedHome) -> None:
    """All that the daemon keeps, but for what is a session's own; nobody else may read any of it."""
    assert stat.S_IMODE(runtime(planted.home).stat().st_mode) == 0o700
    for path in planted.files():
        inside = path.relative_to(runtime(planted.home)).parts
        own = inside[0] == "sessions" and inside[2] in OWN
        if own or inside[0] in ("audit", "calls", "approvals"):
            private = path.parents[len(inside) - 3] if own else path
            assert not stat.S_IMODE(private.stat().st_mode) & 0o077, private
        if not own:
            planted.places.add("/".join(inside), path.read_bytes())
            planted.places.add("names of files", "/".join(inside))
    assert {"daemon.log", "names of files"} <= planted.places.seen.keys()
    assert json.dumps([where for where in planted.places.seen if where.startswith("calls/")]) != "[]"
