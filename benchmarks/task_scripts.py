"""Reference solutions of tasks for agents: in sessions they have the same results as in bash.

``BENCHMARK_TASKS`` names a folder of tasks in the form of Harbor (``NAME/solution/solve.sh``) or Terminal-Bench
(``NAME/solution.sh``), which are not part of this repository; without it three tasks of that kind are used. Exit codes,
output and files are compared. Their working directory, /app, is replaced by one of the benchmark's own; tasks that
would change the machine are left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED, Client

TASKS = "BENCHMARK_TASKS"
SOLUTIONS = ("*/solution/solve.sh", "*/solution.sh")
MACHINE = re.compile(
    r"\b(apt|apt-get|pip3?|uv|npm|curl|wget|git clone|systemctl|service|sudo|su|p?kill|killall|mount|reboot|useradd)\b"
    r"|(?<![\w.])/(etc|usr|var|root|home|tests|opt|boot|sys|dev/(?!null))|\bexit\b"
)
SHEBANG = re.compile(r"\A#!.*")
SECONDS, MOST = sized((45, 200), (20, 1))
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
    """Run each solution in every way; the rows count those with another result."""
    found = {path.relative_to(root).parts[0]: path.read_text() for root, path in _given()} or OWN
    harmless = {name: text for name, text in list(found.items())[:MOST] if not MACHINE.search(SHEBANG.sub("", text))}
    os.environ["PATH"] = os.defpath  # boxes hide what lies in the home
    report.title(f"Reference solutions of tasks ({len(harmless)} of {len(found)} leave the machine alone)")
    ways: dict[str, Way] = {"whole": _whole, "by statement": _by_statement, "typed": _typed}
    plain = {name: _plain(_new(directory, name), text) for name, text in harmless.items()}
    known = {name: outcome for name, outcome in plain.items() if outcome is not None}
    report.row("run to their end by bash", len(known), "")
    for box, profile in (("unboxed", "trusted"), ("boxed", "workspace")):
        (home := directory / box).mkdir()
        os.environ.update(UNLIMITED, HOME=str(home), AI_SESSION_POLICY_MODE="trusted")
        os.environ["AI_SESSION_SANDBOX_PROFILE"] = profile
        client = Client(directory=directory)
        try:
            for way, take in ways.items():
                others = [
                    name
                    for name, wanted in known.items()
                    if not wanted.matches(_outcome(client, directory, name, harmless[name], take))
                ]
                what = f"{way}, {box}: another outcome than bash's"
                report.row(what, len(others), "", most=0, note=" ".join(others))
        finally:
            client.stop_daemon()


def _given() -> Iterator[tuple[Path, Path]]:
    if folder := os.environ.get(TASKS):
        for form in SOLUTIONS:
            yield from ((Path(folder), path) for path in sorted(Path(folder).glob(form)))


def _new(directory: Path, name: str) -> Path:
    """Return the empty working directory, at the same path for each way."""
    app = directory / "tasks" / name / "app"
    subprocess.run(["rm", "-rf", app], check=True)
    app.mkdir(parents=True)
    return app


def _outcome(client: Client, directory: Path, name: str, text: str, take: Way) -> Outcome:
    """Run the solution in a session of its own, and return the result after closing it."""
    app = _new(directory, name)
    session = client.call_tool("create_session", {"name": "task", "working_directory": str(app)})["session_id"]
    code, output = take(client, session, text.replace("/app", str(app)))
    client.call_tool("close_session", {"session_id": session})
    return Outcome(code, output, _files(app))


def _plain(app: Path, text: str) -> Outcome | None:
    """Run it in bash alone. Return None if it needs more than there is, such as a file of the task or more time."""
    argv = ["bash", "-c", text.replace("/app", str(app))]
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
    done = [_executed(client, session, statement) for statement in _statements(text)]
    return done[-1]["exit_code"], "".join(one["output"] for one in done).rstrip("\n")


def _typed(client: Client, session: str, text: str) -> tuple[int, str | None]:
    """Type each statement. The terminal also has the echo, so the output is unknown."""
    code = 0
    for statement in _statements(text):
        typed = {"session_id": session, "text": statement.rstrip("\n"), "keys": ["Enter"]}
        wait = {"command_id": client.call_tool("send_input", typed)["command_id"], "timeout_seconds": SECONDS}
        done = client.call_tool("read_output", {"session_id": session, "wait_for": "finish", **wait})
        code = done.get("exit_code", -1)
    return code, None


def _executed(client: Client, session: str, command: str) -> dict[str, Any]:
    given = {"session_id": session, "command": command, "timeout_seconds": SECONDS}
    return {"exit_code": -1, "output": "", **client.call_tool("execute_command", given)}


def _statements(text: str) -> list[str]:
    """Return statements of as many lines as bash needs for a complete one."""
    found: list[str] = []
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        lines.append(line)
        checked = subprocess.run(["bash", "-n"], input="".join(lines), capture_output=True, text=True, check=False)
        if not checked.returncode and not checked.stderr:
            found.append("".join(lines))
            lines = []
    return [statement for statement in found if not re.fullmatch(r"(\s*(#.*)?\n?)*", statement)]
