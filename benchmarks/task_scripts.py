"""Reference solutions of tasks for agents, which must have the same results in sessions as in bash.

``BENCHMARK_TASKS`` names a folder of tasks in the form of Harbor (``NAME/solution/solve.sh``) or Terminal-Bench
(``NAME/solution.sh``), which are not part of this repository; without it three tasks of that kind are used. To fetch a
set, for example::

    git clone --depth 1 https://github.com/laude-institute/terminal-bench
    BENCHMARK_TASKS=terminal-bench/original-tasks python -m benchmarks task_scripts

Exit codes, output and files are compared, on each backend, in a box and without one. Their working directory, /app, is
replaced by one of the benchmark's own. Solutions whose text suggests that they change the machine are left out; this is
only a guess, so run an unknown set where it cannot do harm. Also left out are those that bash cannot run to the end
here, or that have another result in a second run.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED, Client

TASKS = "BENCHMARK_TASKS"
SOLUTIONS = ("*/solution/solve.sh", "*/solution.sh")
MACHINE = re.compile(
    r"\b(apt|apt-get|pip3?|uv|npm|curl|wget|git clone|systemctl|service|sudo|su|p?kill|killall|mount|reboot|useradd)\b"
    r"|(?<![\w.])/(etc|usr|var|root|home|tests|opt|boot|sys|work|data|srv|mnt|run|dev/(?!null))|\bexit\b"
)
ON_A_TERMINAL = re.compile(r"\bnohup\b")
"""A command that prints more if its input is a terminal, as in a session."""
COMPLETES = "\t"
"""A character that a line editor does not insert into the line."""
SHEBANG = re.compile(r"\A#!.*")
APP = re.compile(r"(?<![\w.])/app(?![\w.])")
PATCHED = re.compile(r"^--- a/(.+)\n\+\+\+ .+\n((?:@@ .*\n(?:[-+ \\].*\n|\n(?!\w))*)+)", re.MULTILINE)
"""A patch: the file of the task that the solution changes, and the changes."""
HUNK = re.compile(r"^@@ -(\d+).*\n((?:[^@].*\n|\n)*)", re.MULTILINE)
SECONDS, MOST = sized((45, None), (20, 1))
BACKENDS = sized(("pty", "tmux"), ("pty",))
MOST_CHARS = 200_000
"""The limit of the output of one command."""
ENDED = "shell has ended"
"""The note on a command that ended its shell, as under ``set -e``; the rest is not run."""
COUNT = r"""set -u
mkdir -p /app/out
cat > /app/count.py <<'EOF'
import collections
for word, number in sorted(collections.Counter("a b a".split()).items()):
    print(f"{word} {number}")
EOF
python3 /app/count.py > /app/out/counts
cat /app/out/counts
"""
STATE = r"""cd /app
export GREETING="hello there"
greet() {
    printf '%s, %s\n' "$GREETING" "$1"
}
for name in ann bob; do
    greet "$name" >> greetings
done
wc -l < greetings
grep -c nobody greetings
"""
DATA = r"""cd /app && python3 - <<'PY'
import json
json.dump({"sum": sum(range(10))}, open("sum.json", "w"))
PY
python3 -c 'import json; print(json.load(open("sum.json"))["sum"])' | tee -a log
(cd /tmp && pwd) > /dev/null
"""
OWN = {"count": COUNT, "state": STATE, "data": DATA}


@dataclass(frozen=True)
class Outcome:
    """The result of a solution. ``files`` are the names and digests of the files in the working directory."""

    exit_code: int
    output: str | None
    files: tuple[tuple[str, str], ...]

    def matches(self, other: Outcome) -> bool:
        """Report whether the results are the same; an unknown output is not compared."""
        same = (self.exit_code, self.files) == (other.exit_code, other.files)
        return same and (other.output is None or self.output == other.output)


Way = Callable[[Client, str, str], tuple[int, str | None]]


async def run(report: Report, directory: Path) -> None:
    """Run each solution in every way; the rows count those with another result than in bash."""
    found = {path.relative_to(root).parts[0]: path.read_text() for root, path in _given()} or OWN
    harmless = {name: text for name, text in list(found.items())[:MOST] if _may_be_run(SHEBANG.sub("", text))}
    os.environ["PATH"] = os.defpath  # boxes hide the home
    report.title(f"Reference solutions of tasks ({len(harmless)} of {len(found)} leave the machine alone)")
    ways: dict[str, Way] = {"whole": _whole, "by statement": _by_statement, "typed": _typed}
    plain = {name: [_plain(_new(directory, name, text), text) for _ in range(2)] for name, text in harmless.items()}
    known = {name: once for name, (once, again) in plain.items() if once is not None and once == again}
    report.row("run to their end by bash, twice with the same outcome", len(known), "")
    for box, profile in (("unboxed", "trusted"), ("boxed", "workspace")):
        (home := directory / box).mkdir()
        os.environ.update(UNLIMITED, HOME=str(home), AI_SESSION_POLICY_MODE="trusted")
        os.environ["AI_SESSION_SANDBOX_PROFILE"] = profile
        client = Client(directory=directory)
        try:
            for backend, (way, take) in itertools.product(BACKENDS, ways.items()):
                names = [name for name in known if take is not _typed or COMPLETES not in harmless[name]]
                tried = ((name, _outcome(client, backend, directory, name, harmless[name], take)) for name in names)
                others = [name for name, outcome in tried if not known[name].matches(outcome)]
                what = f"{way}, {box}, {backend}: another outcome than bash's"
                report.row(what, len(others), "", most=0, note=" ".join([f"of {len(names)}", *others]))
        finally:
            client.stop_daemon()


def _may_be_run(text: str) -> bool:
    return not MACHINE.search(text) and not ON_A_TERMINAL.search(text)


def _given() -> Iterator[tuple[Path, Path]]:
    if folder := os.environ.get(TASKS):
        for form in SOLUTIONS:
            yield from ((Path(folder), path) for path in sorted(Path(folder).glob(form)))


def _new(directory: Path, name: str, text: str) -> Path:
    """Return a working directory, at the same path for each way, with only the files that the solution patches."""
    app = directory / "tasks" / name / "app"
    subprocess.run(["rm", "-rf", app], check=True)
    app.mkdir(parents=True)
    for path, changes in PATCHED.findall(text):
        lines: list[str] = []
        for first, hunk in HUNK.findall(changes):
            lines += [""] * (int(first) - 1 - len(lines))
            lines += [line[1:] for line in hunk.splitlines() if line[:1] not in ("+", "\\")]
        (app / path).parent.mkdir(parents=True, exist_ok=True)
        (app / path).write_text("\n".join([*lines, ""]))
    return app


def _with_directory(text: str, app: Path) -> str:
    return APP.sub(str(app), text)


def _outcome(client: Client, backend: str, directory: Path, name: str, text: str, take: Way) -> Outcome:
    """Run a solution in a session of its own, and return the result after closing it."""
    app = _new(directory, name, text)
    wanted = {"name": "task", "backend": backend, "working_directory": str(app)}
    session = client.call_tool("create_session", wanted)["session_id"]
    code, output = take(client, session, _with_directory(text, app))
    client.call_tool("close_session", {"session_id": session})
    return Outcome(code, output, _files(app))


def _plain(app: Path, text: str) -> Outcome | None:
    """Run a solution in bash alone. Return None if it needs something that is missing, or more time."""
    argv = ["bash", "-c", _with_directory(text, app)]
    try:
        done = subprocess.run(
            argv,
            cwd=app,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return None
    missing = "No such file" in done.stdout or "command not found" in done.stdout or "ModuleNotFound" in done.stdout
    return None if missing else Outcome(done.returncode, done.stdout.rstrip("\n"), _files(app))


def _files(app: Path) -> tuple[tuple[str, str], ...]:
    paths = sorted(path for path in app.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple((str(path.relative_to(app)), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths)


def _whole(client: Client, session: str, text: str) -> tuple[int, str | None]:
    done = _executed(client, session, text)
    return done["exit_code"], done["output"].rstrip("\n")


def _by_statement(client: Client, session: str, text: str) -> tuple[int, str | None]:
    done: list[dict[str, Any]] = []
    for statement in _statements(text):
        done.append(_executed(client, session, statement))
        if ENDED in done[-1].get("note", ""):
            break
    return done[-1]["exit_code"], "".join(one["output"] for one in done).rstrip("\n")


def _typed(client: Client, session: str, text: str) -> tuple[int, str | None]:
    """Type each statement. The output is unknown, because the terminal also shows the echo."""
    code = 0
    for statement in _statements(text):
        typed = {"session_id": session, "text": statement.rstrip("\n"), "keys": ["Enter"]}
        wait = {"command_id": client.call_tool("send_input", typed)["command_id"], "timeout_seconds": SECONDS}
        done = client.call_tool("read_output", {"session_id": session, "wait_for": "finish", **wait})
        code = done.get("exit_code", -1)
        if ENDED in done.get("note", ""):
            break
    return code, None


def _executed(client: Client, session: str, command: str) -> dict[str, Any]:
    given = {"session_id": session, "command": command, "timeout_seconds": SECONDS, "max_output_chars": MOST_CHARS}
    return {"exit_code": -1, "output": "", **client.call_tool("execute_command", given)}


@cache
def _statements(text: str) -> Sequence[str]:
    """Return statements, each of as many lines as bash needs for a complete one."""
    found: list[str] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        lines.append(line)
        checked = subprocess.run(["bash", "-n"], input="".join(lines), capture_output=True, text=True, check=False)
        if not checked.returncode and not checked.stderr and not line.endswith("\\\n"):
            found.append("".join(lines))
            lines = []
    return [statement for statement in found if not re.fullmatch(r"(\s*(#.*)?\n?)*", statement)]
