"""Run the commands in the pages of docs/tutorials and docs/howto, in homes of their own, and fill in the answers.

    scripts/transcripts.py [--check] [PAGE…]

These parts of a page count, in order:

    ```console blocks         commands after "$ ", continued after "> ", each with what it prints on a terminal
    <!-- file NAME -->        the next block is written to that file
    <!-- agent TOOL JSON -->  an agent's call; the next block is the text of its answer
    <!-- sh COMMAND -->       run, but not shown
    <!-- model -->            from here on a model on the loopback replaces Anthropic's, with a key for it
    <!-- home [PROGRAM] -->   from here on another home; skipped if PROGRAM, of `make clients`, is not installed

An existing answer stays if it is equivalent: ids, times and sizes may differ, and "…" matches anything.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pexpect

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs/tutorials", "docs/howto")
AGENT = ROOT / "scripts/transcript_agent.py"
MODEL = ROOT / "scripts/transcript_model.py"
PROGRAMS = ROOT / ".venv/agents/node_modules/.bin"
SHOWN_HOME = "/home/ann"
MODEL_STARTED = f"""coproc {sys.executable} {MODEL}
read -r ANTHROPIC_BASE_URL <&"${{COPROC[0]}}"
export ANTHROPIC_BASE_URL ANTHROPIC_API_KEY=sk-ant-api03-1234"""
"""The model ends with the shell, which holds the other end of its standard input."""
BOUND_SECONDS = 100
SIZE = (40, 140)

PART = re.compile(
    r"^<!-- (?P<kind>file|agent|sh|model|home)(?: (?P<what>(?:(?!-->).)*?))? -->\n"
    r"(?:\n?```(?!console)\w*\n(?P<block>.*?)^```$)?"
    r"|^```console\n(?P<console>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])")
PROMPT = re.compile(r"\b[\w-]+@[\w.-]+:(\S+?)[#$]")
VOLATILE = (
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"\b(ses|cmd|run|ap|ask|app|call|al|m|ais_cs)_[A-Za-z0-9_-]+…?"), r"\1_ID"),
    (re.compile(r"\b[0-9a-f]{12,64}\b"), "HEX"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]{8} \w+ \d{4}\b"), "DATE"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?"), "DATE"),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?(?:\.\d+)?\b"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds?|min|MB|kB|bytes)\b"), "AMOUNT"),
    (re.compile(r"\b(pid|us|uptime seconds) \d+"), r"\1 N"),
    (re.compile(r"(\[REDACTED:\w+:)\w+"), r"\1TAG"),
    (re.compile(r"\b\d+\.\d+\.\d+[\w.+-]*"), "VERSION"),
    (re.compile(r"\b\d+\.\d+\b"), "NUMBER"),
    (re.compile(r"\b[a-z][\w.]*-\d{2,7}\b"), "WORKER"),
    (re.compile(r"[─━]+"), "─"),
)


@dataclass
class Step:
    """A command. Its answer is at ``start`` to ``end`` of the page; both are 0 if none is shown."""

    command: str
    start: int = 0
    end: int = 0

    @property
    def shown(self) -> bool:
        return self.end > 0


@dataclass
class Part:
    """The steps in one home, and the program that they need."""

    program: str
    steps: list[Step]


def parts(text: str) -> list[Part]:
    whole = [Part("", [])]
    for part in PART.finditer(text):
        found = whole[-1].steps
        if part["console"] is not None:
            found += console_steps(part["console"], part.start("console"))
        elif part["kind"] == "home":
            whole.append(Part(part["what"] or "", []))
        elif part["kind"] == "model":
            found.append(Step(MODEL_STARTED))
        elif part["kind"] == "file":
            name = part["what"]
            # Unquoted for bash, so that ~ and variables are expanded in the name.
            found.append(Step(f"mkdir -p $(dirname {name}) && printf %s {shlex.quote(part['block'])} > {name}"))
        elif part["kind"] == "agent":
            tool, _, arguments = part["what"].partition(" ")
            step = Step(f"{sys.executable} {AGENT} {tool} {shlex.quote(arguments or '{}')}")
            if part["block"] is not None:
                step.start, step.end = part.span("block")
            found.append(step)
        else:
            found.append(Step(part["what"]))
    return [part for part in whole if part.steps and (not part.program or (PROGRAMS / part.program).exists())]


def console_steps(block: str, offset: int) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines(keepends=True):
        end = offset + len(line)
        if line.startswith("$ "):
            found.append(Step(line[2:].rstrip("\n"), end, end))
        elif line.startswith("> ") and found and found[-1].start == found[-1].end == offset:
            found[-1] = Step(f"{found[-1].command}\n{line[2:].rstrip()}", end, end)
        else:
            found[-1].end = end
        offset = end
    return found


def answers(part: Part, home: Path) -> list[str]:
    """Return what each step prints, in one shell. The terminal is this program's, and counts as a person's."""
    found = part.steps
    (home / "bin").mkdir()
    if part.program:
        (home / "bin" / part.program).symlink_to(PROGRAMS / part.program)
    mark = secrets.token_hex(8)
    script = "".join(f"echo {mark}; {{ {step.command}\n}}\n" for step in found) + f"echo {mark}\n"
    (home / ".transcript").write_text(script)
    bin_folder = Path(sys.executable).parent
    env = {
        **{name: value for name, value in os.environ.items() if name in ("LANG", "LC_ALL", "PIP_CERT")},
        "HOME": str(home),
        "PATH": f"{home}/bin:{bin_folder}:/usr/local/bin:/usr/bin:/bin",
        "USER": "ann",
        "LOGNAME": "ann",
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
        "AI_SESSION_CONSENT_TERMINALS": json.dumps([os.path.realpath(sys.executable)]),
    }
    person: pexpect.spawn[str] = pexpect.spawn(
        "bash", [str(home / ".transcript")], env=env, cwd=str(home), dimensions=SIZE, encoding="utf-8"
    )
    try:
        person.expect(pexpect.EOF, timeout=BOUND_SECONDS)
    finally:
        person.close(force=True)
    printed = ESCAPES.sub("", str(person.before)).replace("\r\n", "\n").replace(str(home), SHOWN_HOME)
    printed = PROMPT.sub(r"ann@laptop:\1$", printed)
    given = printed.split(f"{mark}\n")[1:-1]
    assert len(given) == len(found), printed
    return ["".join(f"{line.rstrip()}\n" for line in one.splitlines()).strip("\n") for one in given]


def equivalent(shown: str, answer: str) -> bool:
    """Report whether two answers are equivalent; concurrent lines may be in another order."""
    lines = normalized(shown).splitlines()
    pattern = [r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines]
    if re.fullmatch("".join(pattern), normalized(answer)):
        return True
    return sorted(lines) == sorted(normalized(answer).splitlines())


def normalized(text: str) -> str:
    for pattern, replacement in VOLATILE:
        text = pattern.sub(replacement, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def fill_in(page: Path) -> tuple[str, list[str]]:
    """Return the page with its answers filled in, and the differences from the answers that it shows."""
    text = page.read_text()
    done = [(step, answer) for part in parts(text) for step, answer in zip(part.steps, in_new_home(part), strict=True)]
    wrong: list[str] = []
    for step, answer in reversed(done):
        shown = text[step.start : step.end]
        if step.shown and not equivalent(shown, answer):
            wrong.insert(0, f"$ {step.command}\n  shown: {shown!r}\n  is:    {answer!r}")
            text = text[: step.start] + (f"{answer}\n" if answer else "") + text[step.end :]
    return text, wrong


def in_new_home(part: Part) -> list[str]:
    """Return what each step prints, in a new home that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="ais-", dir="/tmp") as folder:
        try:
            return answers(part, Path(folder))
        finally:
            for home in (folder, f"{folder}/.local/state/ccswarm/programs"):
                stop = [sys.executable, "-m", "ai_session", "daemon", "stop", "--yes"]
                env = {"HOME": home, "PATH": os.environ["PATH"]}
                subprocess.run(stop, env=env, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=BOUND_SECONDS, check=True)
            for log in Path(folder).rglob("daemon.log"):
                # Why a daemon failed, should an answer be another one.
                print(log.read_text(), end="", file=sys.stderr)


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--check"]
    pages = [Path(word).resolve() for word in words] or [
        page for folder in FOLDERS for page in sorted((ROOT / folder).glob("*.md"))
    ]
    failed = 0
    for page in pages:
        if not parts(page.read_text()):
            continue
        text, wrong = fill_in(page)
        failed += bool(wrong)
        if wrong:
            print(f"{page}: not what happens", *wrong, sep="\n", file=sys.stderr)
            if "--check" not in sys.argv:
                page.write_text(text)
    return failed if "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
