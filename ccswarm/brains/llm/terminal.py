"""``bash``, ``read`` and ``edit``: what a model does in a terminal of its own, as the calls of tools that this takes.

The terminal is opened when it is first needed, and again when it has gone; the model has no ids to carry. Each tool is
a generator: it yields one call after the other and is sent how each ended, so whoever makes them grants, asks, counts
and records them as any other call.
"""

from __future__ import annotations

import hashlib
import math
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ccswarm.brains.llm.conversation import answer_of
from ccswarm.models import CallOutcome, CallStatus, Json, ToolInfo

BASH = "bash"
READ = "read"
EDIT = "edit"

OPEN = "create_session"
EXECUTE = "execute_command"
WAIT = "read_output"
INTERRUPT = "interrupt_command"
NEEDED = (OPEN, EXECUTE)
"""What an agent has to be granted for it. With the others, long commands are waited for and interrupted."""

GONE = ("session_not_found", "session_exited")
SHELLS = ("bash", "sh")
"""The first that is there: what ``read`` and ``edit`` write is read alike by both."""

MOST_NAMES = 5
CALL_SECONDS = 50.0
"""A server of terminals answers by then, and the command keeps running."""
DEFAULT_SECONDS, MOST_SECONDS = 120.0, 3600.0
MOST_EDIT_BYTES = 100_000
"""Of ``old`` and of ``new``: they are variables of a program, which Linux bounds."""
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
    """The text for the model; ``exit_code`` is its command's, and ``failed`` is set if there was none."""

    text: str
    failed: bool = False
    structured: Mapping[str, Json] | None = None
    exit_code: int | None = None
    images: Sequence[Mapping[str, str]] = ()


Work = Generator[Call, CallOutcome, Done]
Executed = Generator[Call, CallOutcome, CallOutcome]


@dataclass(slots=True)
class Terminal:
    """One terminal of ``server``, ``session`` once it is open. ``tools`` are those of the server that are granted;
    ``output_chars`` is what is asked for of each output."""

    server: str
    tools: Mapping[str, ToolInfo]
    agent: str
    directory: str
    output_chars: int
    execution: str = ""
    """Of which it is the terminal: known when it is opened."""
    session: str = ""
    cwd: str = ""
    touched: dict[str, str] = field(default_factory=dict[str, str])
    """Files that were edited, or else read, by name."""

    def work(self, tool: str, given: Mapping[str, Any]) -> Work:
        """What a call of the model's takes."""
        does: Mapping[str, Callable[[Mapping[str, Any]], Work]] = {BASH: self._bash, READ: self._read, EDIT: self._edit}
        if wrong := _unfit(tool, given):
            return _refused(wrong)
        return does[tool](given)

    def _bash(self, given: Mapping[str, Any]) -> Work:
        seconds = min(float(given.get("timeout_seconds") or DEFAULT_SECONDS), MOST_SECONDS)
        outcome = yield from self._executed(str(given["command"]), str(given.get("stdin") or ""), seconds)
        if not outcome.ok or outcome.structured is None:
            return Done(answer_of(outcome), not outcome.ok, outcome.structured)
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

    def _read(self, given: Mapping[str, Any]) -> Work:
        path, first = str(given["path"]), max(1, int(given.get("from") or 1))
        last = min(int(given.get("to") or first + READ_LINES - 1), first + 5 * READ_LINES - 1)
        self.touched.setdefault(path, READ)
        facts = {"first": first, "last": last, "next": last + 1, "most": LINE_BYTES}
        return (yield from self._files(READING.format(path=shlex.quote(path), **facts)))

    def _edit(self, given: Mapping[str, Any]) -> Work:
        path = str(given["path"])
        words = {name: shlex.quote(str(given[name])) for name in ("path", "old", "new")}
        done = yield from self._files((EDITING if given["old"] else CREATING).format(**words))
        if not done.failed:
            self.touched[path] = EDIT
        return done

    def _files(self, command: str) -> Work:
        outcome = yield from self._executed(command, "", CALL_SECONDS)
        facts = outcome.structured or {}
        if not outcome.ok or facts.get("exit_code") is None:
            return Done(answer_of(outcome), True, outcome.structured)
        text = str(facts.get("output") or "").rstrip("\n") or "(no output)"
        text += f"\n[{facts['note']}]" if facts.get("note") else ""
        return Done(text, facts["exit_code"] != 0, outcome.structured)

    def _executed(self, command: str, stdin: str, seconds: float) -> Executed:
        """The command, to its end or its time; in a new terminal where the one there was has gone."""
        if self.session:
            outcome = yield from self._tried(command, stdin, seconds)
            if outcome.code not in GONE:
                return outcome
            opened = yield from self._open()
            note = f"in a new terminal, in {self.directory}: the one before is gone"
            return _with((yield from self._tried(command, stdin, seconds)), note) if opened.ok else opened
        opened = yield from self._open()
        return (yield from self._tried(command, stdin, seconds)) if opened.ok else opened

    def _tried(self, command: str, stdin: str, seconds: float) -> Executed:
        most = min(seconds, CALL_SECONDS)
        given = {"command": command, "stdin": stdin, "timeout_seconds": most, "max_output_chars": self.output_chars}
        outcome = yield self._call(EXECUTE, session_id=self.session, **given)
        return (yield from self._ended(outcome, seconds - most, seconds))

    def _ended(self, outcome: CallOutcome, left: float, seconds: float) -> Executed:
        """What became of a command that keeps running: waited for, and interrupted when nobody answers it or in the
        end."""
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
                return _with(outcome, f"{why}; it keeps running, and your next command gets a new terminal")
            ended = yield self._call(INTERRUPT, **ids)
            return _with(ended, f"interrupted: {why}")
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
        """With what the tool takes."""
        known: Mapping[str, Any] = self.tools[tool].input_schema.get("properties") or arguments
        return f"{self.server}.{tool}", {name: value for name, value in arguments.items() if name in known}


def terminal_of(
    server: str, tools: Sequence[ToolInfo], agent: str, directory: str, output_chars: int
) -> Terminal | None:
    """For an agent with these tools; None where they do not make one."""
    own = {tool.name: tool for tool in tools if tool.server == server}
    if any(name not in own for name in NEEDED):
        return None
    return Terminal(server, own, agent, directory, output_chars)


def _unfit(tool: str, given: Mapping[str, Any]) -> str:
    """What is wrong with the arguments of a call."""
    texts = {BASH: ("command",), READ: ("path",), EDIT: ("path", "old", "new")}[tool]
    for name in texts:
        value = given.get(name)
        if not isinstance(value, str) or not (value or name in ("old", "new")):
            return f"{name} is missing" if value in (None, "") else f"{name} is not text"
        if tool != BASH and "\0" in value:
            return f"{name} has a NUL character, which no text file has"
    for name in ("from", "to", "timeout_seconds"):
        number = given.get(name)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
            return f"{name} is not a number"
        if isinstance(number, float) and not math.isfinite(number):
            return f"{name} is not a number"
    if given.get("stdin") is not None and not isinstance(given["stdin"], str):
        return "stdin is not text"
    if tool == EDIT:
        if given["old"] == given["new"]:
            return "old and new are the same"
        if any(len(given[name].encode(errors="surrogatepass")) > MOST_EDIT_BYTES for name in ("old", "new")):
            return f"old or new has more than {MOST_EDIT_BYTES} bytes: edit smaller pieces"
    return ""


def _refused(why: str) -> Work:
    return Done(f"{why}. Nothing was called.", True)
    yield  # a generator, though it calls nothing


def _with(outcome: CallOutcome, note: str) -> CallOutcome:
    if outcome.structured is None:
        return outcome
    facts = dict(outcome.structured)
    facts["note"] = "; ".join(filter(None, (note, str(facts.get("note") or ""))))
    return CallOutcome(outcome.status, outcome.text, facts, outcome.code, outcome.message, outcome.suggestion)
