"""``bash``, ``read`` and ``edit``: a model's actions in its own terminal, as calls of the terminal server's tools.

The terminal is opened on first use, and again if it has ended, so the model needs no ids. Each tool is a generator that
yields one call after the other and is sent their outcomes. So the agent grants, asks about, counts and records them as
any other call.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccswarm.brains.llm.conversation import describe_outcome
from ccswarm.models import CallOutcome, CallStatus, Json, ToolInfo

BASH = "bash"
READ = "read"
EDIT = "edit"

OPEN = "create_session"
EXECUTE = "execute_command"
WAIT = "read_output"
INTERRUPT = "interrupt_command"
NEEDED = (OPEN, EXECUTE)
"""The tools that an agent must be granted. The others allow to wait for long commands and to interrupt them."""

GONE = ("session_not_found", "session_exited")
SHELLS = ("bash", "sh")
"""The shells by preference. Both read the commands of ``read`` and ``edit`` alike."""

MOST_NAMES = 5
CALL_SECONDS = 50.0
"""The longest wait of one call; the command keeps running after that."""
DEFAULT_SECONDS, MOST_SECONDS = 120.0, 3600.0
MOST_EDIT_BYTES = 100_000
"""The largest ``old`` and ``new``. They are passed as variables, whose size Linux limits."""
READ_LINES, LINE_BYTES = 400, 2000

READING = """( p={path}
if [ -d "$p" ]; then command ls -A "$p"; exit; fi
LC_ALL=C command awk '
NR >= {first} && NR <= {last} {{ printf "%6d\\t%s\\n", NR, (length($0) > {most} ? substr($0, 1, {most}) "…" : $0) }}
END {{ if (!NR) print "(the file is empty)"
  else if (NR < {first}) print "(it has " NR " lines)"
  else if (NR > {last}) print "(" NR " lines in all: from {next} on they are not shown)" }}' < "$p" )"""

EDITING = """# put what is in NEW in the one place of what is in OLD
( p={path}
fail() {{ printf '%s\\n' "$1"; rm -f "$t"; exit 1; }}
[ -f "$p" ] || fail "there is no file $p: for a new one leave old empty"
[ "$(tr -d '\\000' < "$p" | wc -c)" -eq "$(wc -c < "$p")" ] || fail "$p is not text: it has NUL bytes"
t=$(mktemp) || exit 1
export OLD NEW ENDS; OLD={old} NEW={new} ENDS=$(tail -c 1 < "$p" | wc -l)
LC_ALL=C command awk 'BEGIN {{ ORS = ""; old = ENVIRON["OLD"] }}
{{ part = part (NR > 1 ? "\\n" : "") $0; if (length(part) > 65536) {{ text = text part; part = "" }} }}
END {{ text = text part (ENVIRON["ENDS"] + 0 ? "\\n" : "")
  for (left = text; at = index(left, old); left = substr(left, at + 1)) {{
    if (!found++) begin = at
    before = substr(left, 1, at - 1); line += gsub(/\\n/, "", before)
    if (found <= 5) lines = lines (found > 1 ? ", " : "") line + 1
    if (substr(left, at, 1) == "\\n") line++
  }}
  if (found > 1) print "old is there " found " times (line " lines "): add lines around it until it is there once"
  if (!found) print "old is not there" (index(text, "\\r\\n") ? "; the lines of this file end in CR LF" : "") ": " \\
    "read the file again, blanks and line ends count"
  if (found != 1) exit 1
  print substr(text, 1, begin - 1); print ENVIRON["NEW"]; print substr(text, begin + length(old))
}}' < "$p" >| "$t" || fail "$(cat "$t")"
command cat "$t" >| "$p" || {{ echo "it could not be written; what it should have become is in $t"; exit 1; }}
command rm -f "$t"; printf '%s\\n' "edited $p" )"""

CREATING = """# a new file
( p={path}
[ ! -s "$p" ] || {{ printf '%s\\n' "$p is there and not empty: name in old what NEW shall replace"; exit 1; }}
command mkdir -p -- "$(dirname -- "$p")" && printf %s {new} >| "$p" && printf '%s\\n' "created $p" )"""

Call = tuple[str, Mapping[str, Json]]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an action, with text for the model. ``failed`` is set if no command ran."""

    text: str
    failed: bool = False
    structured: Mapping[str, Json] | None = None
    exit_code: int | None = None
    images: Sequence[Mapping[str, str]] = ()


Work = Generator[Call, CallOutcome, Done]
Executed = Generator[Call, CallOutcome, CallOutcome]


@dataclass(slots=True)
class Terminal:
    """A terminal of ``server``; ``session`` is its id once it is open. ``tools`` are the granted ones of the server.
    ``output_chars`` limits each output."""

    server: str
    tools: Mapping[str, ToolInfo]
    agent: str
    directory: str
    output_chars: int
    execution: str = ""
    """The id of the execution it belongs to, set before it is opened."""
    session: str = ""
    cwd: str = ""
    touched: dict[str, str] = field(default_factory=dict[str, str])
    """The files that were read or edited, by name, with the last action."""

    def work(self, tool: str, arguments: Mapping[str, Any]) -> Work:
        """Return the generator of a tool's calls."""
        does: Mapping[str, Callable[[Mapping[str, Any]], Work]] = {BASH: self._bash, READ: self._read, EDIT: self._edit}
        if wrong := _argument_problem(tool, arguments):
            return _refuse(wrong)
        return does[tool](arguments)

    def _bash(self, arguments: Mapping[str, Any]) -> Work:
        seconds = min(float(arguments.get("timeout_seconds") or DEFAULT_SECONDS), MOST_SECONDS)
        outcome = yield from self._execute(str(arguments["command"]), str(arguments.get("stdin") or ""), seconds)
        if not outcome.ok or outcome.structured is None:
            return Done(describe_outcome(outcome), not outcome.ok, outcome.structured)
        facts = outcome.structured
        parts = [f"[before this, of the background]\n{facts['late_output']}"] if facts.get("late_output") else []
        parts += [str(facts.get("output") or "").rstrip("\n")]
        parts += [str(facts["stderr"]).rstrip("\n")] if facts.get("stderr") else []
        code, cwd = facts.get("exit_code"), str(facts.get("cwd") or "")
        notes = [f"exit code {code}"] if code else []
        notes += [str(facts["note"])] if facts.get("note") else []
        notes += [outcome.text.partition("\n")[0].strip("[]")] if facts.get("notices") else []
        if cwd and self.cwd and cwd != self.cwd:
            notes.append(f"you are in {cwd} now")
        self.cwd = cwd or self.cwd
        parts += [f"[{'; '.join(notes)}]"] if notes else []
        return Done("\n".join(filter(None, parts)) or "(no output)", False, facts, code or None)

    def _read(self, arguments: Mapping[str, Any]) -> Work:
        path, first = str(arguments["path"]), max(1, int(arguments.get("from") or 1))
        last = min(int(arguments.get("to") or first + READ_LINES - 1), first + 5 * READ_LINES - 1)
        self.touched.setdefault(path, READ)
        facts = {"first": first, "last": last, "next": last + 1, "most": LINE_BYTES}
        return (yield from self._files(READING.format(path=shlex.quote(path), **facts)))

    def _edit(self, arguments: Mapping[str, Any]) -> Work:
        path = str(arguments["path"])
        words = {name: shlex.quote(str(arguments[name])) for name in ("path", "old", "new")}
        done = yield from self._files((EDITING if arguments["old"] else CREATING).format(**words))
        if not done.failed:
            self.touched[path] = EDIT
        return done

    def _files(self, command: str) -> Work:
        outcome = yield from self._execute(command, "", CALL_SECONDS)
        facts = outcome.structured or {}
        if not outcome.ok or facts.get("exit_code") is None:
            return Done(describe_outcome(outcome), True, outcome.structured)
        text = str(facts.get("output") or "").rstrip("\n") or "(no output)"
        text += f"\n[{facts['note']}]" if facts.get("note") else ""
        return Done(text, facts["exit_code"] != 0, outcome.structured)

    def _execute(self, command: str, stdin: str, seconds: float) -> Executed:
        """Execute a command until its end or time limit, in a new terminal if the current one has ended."""
        if self.session:
            outcome = yield from self._try_command(command, stdin, seconds)
            if outcome.code not in GONE:
                return outcome
            opened = yield from self._open()
            note = f"in a new terminal, in {self.directory}: the one before is gone"
            return _with_note((yield from self._try_command(command, stdin, seconds)), note) if opened.ok else opened
        opened = yield from self._open()
        return (yield from self._try_command(command, stdin, seconds)) if opened.ok else opened

    def _try_command(self, command: str, stdin: str, seconds: float) -> Executed:
        most = min(seconds, CALL_SECONDS)
        arguments = {"command": command, "stdin": stdin, "timeout_seconds": most, "max_output_chars": self.output_chars}
        outcome = yield self._call(EXECUTE, session_id=self.session, **arguments)
        return (yield from self._wait_for_end(outcome, seconds - most, seconds))

    def _wait_for_end(self, outcome: CallOutcome, left: float, seconds: float) -> Executed:
        """Wait for a command that keeps running, and interrupt it at its time limit or if it waits for input."""
        facts: Mapping[str, Json] = outcome.structured or {}
        ids = {"session_id": self.session, "command_id": facts.get("command_id")}
        while outcome.ok and facts.get("status") == "running":
            if left > 0 and not facts.get("input_mode") and WAIT in self.tools:
                most = min(left, CALL_SECONDS)
                left -= most
                chars = {"max_output_chars": self.output_chars}
                outcome = yield self._call(WAIT, **ids, wait_for="finish", timeout_seconds=most, **chars)
                facts = outcome.structured or {}
                continue
            asked = "it waits for input, which only stdin can be" if facts.get("input_mode") else ""
            why = asked or f"it was not over after {seconds:g} s, and timeout_seconds may be up to {MOST_SECONDS:g}"
            if INTERRUPT not in self.tools:
                self.session = self.cwd = ""
                return _with_note(outcome, f"{why}; it keeps running, and your next command gets a new terminal")
            ended = yield self._call(INTERRUPT, **ids)
            return _with_note(ended, f"interrupted: {why}")
        return outcome

    def _open(self) -> Executed:
        shells, number = list(SHELLS), 1
        while True:
            digest = hashlib.sha256(self.execution.encode()).hexdigest()[:8]
            name = f"{self.agent[:24]}-{digest}" + (f"-{number}" if number > 1 else "")
            outcome = yield self._call(OPEN, name=name, working_directory=self.directory, shell=shells[0])
            facts = outcome.structured or {}
            if outcome.ok and facts.get("session_id"):
                self.session = str(facts["session_id"])
                self.cwd = str(facts.get("working_directory") or "")
                return outcome
            if outcome.ok:
                return CallOutcome(CallStatus.TOOL_ERROR, outcome.text, code="no_session", message="no id was answered")
            if outcome.code == "shell_unavailable" and shells[1:]:
                shells.pop(0)
            elif outcome.code == "session_exists" and number < MOST_NAMES:
                number += 1
            else:
                return outcome

    def _call(self, tool: str, **arguments: Json) -> Call:
        """Return a call with the arguments that the tool accepts."""
        known: Mapping[str, Any] = self.tools[tool].input_schema.get("properties") or arguments
        return f"{self.server}.{tool}", {name: value for name, value in arguments.items() if name in known}


def make_terminal(
    server: str, tools: Sequence[ToolInfo], agent: str, directory: str, output_chars: int
) -> Terminal | None:
    """Return a terminal for an agent with these tools, or None if they are not sufficient."""
    own = {tool.name: tool for tool in tools if tool.server == server}
    if any(name not in own for name in NEEDED):
        return None
    return Terminal(server, own, agent, directory, output_chars)


def _argument_problem(tool: str, arguments: Mapping[str, Any]) -> str:
    texts = {BASH: ("command",), READ: ("path",), EDIT: ("path", "old", "new")}[tool]
    for name in texts:
        value = arguments.get(name)
        if not isinstance(value, str) or not (value or name in ("old", "new")):
            return f"{name} is missing" if value in (None, "") else f"{name} is not text"
        if tool != BASH and "\0" in value:
            return f"{name} has a NUL character, which no text file has"
    for name in ("from", "to", "timeout_seconds"):
        number = arguments.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
            return f"{name} is not a number"
        if isinstance(number, float) and not math.isfinite(number):
            return f"{name} is not a number"
    if arguments.get("stdin") is not None and not isinstance(arguments["stdin"], str):
        return "stdin is not text"
    if tool == EDIT:
        if arguments["old"] == arguments["new"]:
            return "old and new are the same"
        if any(len(arguments[name].encode(errors="surrogatepass")) > MOST_EDIT_BYTES for name in ("old", "new")):
            return f"old or new has more than {MOST_EDIT_BYTES} bytes: edit smaller pieces"
    return ""


def _refuse(why: str) -> Work:
    return Done(f"{why}. Nothing was called.", True)
    yield  # makes this a generator


def _with_note(outcome: CallOutcome, note: str) -> CallOutcome:
    if outcome.structured is None:
        return outcome
    facts = dict(outcome.structured)
    facts["note"] = "; ".join(filter(None, (note, str(facts.get("note") or ""))))
    return CallOutcome(outcome.status, outcome.text, facts, outcome.code, outcome.message, outcome.suggestion)
