"""Does a task given as text without a model: its words select a playbook, or it is a command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import Field, ValidationError

from agentwire.validation import requirements
from ccswarm.brains.base import Assignment, CallTool, Finish, Step
from ccswarm.brains.playbook.results import bounded
from ccswarm.config.settings import Name, Section
from ccswarm.engines.base import Flow
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, Json
from ccswarm.plan.expectations import record

WAIT_SECONDS = 50.0
"""The longest that one call waits for a command, which keeps running. The task's own limit ends it."""
MOST_SOUGHT = 6


class WordPlaybook(Section):
    """A command for tasks whose text has certain words. Its standard input is the text."""

    name: Name
    words: tuple[str, ...] = Field(min_length=1)
    command: str = Field(min_length=1)


class WordSettings(Section):
    """How an agent with a playbook does a task given as text. ``steps`` are its steps for all such tasks."""

    steps: tuple[dict[str, Any], ...] = ()
    words: Literal["", "playbooks", "commands"] = ""
    playbooks: tuple[WordPlaybook, ...] = ()


FILES = """
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard
else
    find . -mindepth 1 -name '.*' -prune -o -type f -print | sort
fi | awk 'NR <= 200 { print } END { if (NR > 200) print "… " NR - 200 " more"; print NR " file" (NR == 1 ? "" : "s") }'
"""
SIZE = r"""
find . -mindepth 1 \( -name '.*' -o -name node_modules \) -prune -o -type f -print | awk '
    { kind = match($0, /\.[A-Za-z0-9]+$/) ? substr($0, RSTART + 1) : "other"; files[kind]++; all++ }
    END { for (kind in files) printf "%7d files: %s\n", files[kind], kind; printf "%7d files in all\n", all }
' | sort -rn | head -n 12
du -sh . 2>/dev/null
"""
CHANGES = """
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1; then echo "not a git repository"; exit 1; fi
git status --short --branch
git --no-pager log --oneline -n 10 2>/dev/null || echo "no commits yet"
"""
TESTS = """
if [ -f Makefile ] && grep -q '^test:' Makefile; then set -- make test
elif [ -f package.json ] && grep -q '"test"' package.json; then set -- npm test
elif [ -f Cargo.toml ]; then set -- cargo test
elif [ -f go.mod ]; then set -- go test ./...
elif [ -f pyproject.toml ] || [ -f setup.py ] || ls test_*.py tests/test_*.py >/dev/null 2>&1; then
    if python3 -c 'import pytest' 2>/dev/null; then set -- python3 -m pytest -q; else set -- python3 -m unittest; fi
else
    echo "no tests were found: no Makefile with a target test, package.json, Cargo.toml, go.mod or test_*.py"; exit 1
fi
echo "+ $*"
"$@" </dev/null
"""
TODO = """
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then git grep -nIw -e TODO -e FIXME
else grep -rnIw -e TODO -e FIXME .
fi | cut -c 1-160 | awk 'NR <= 50 { print } END { print NR + 0 " places" }'
"""
SEARCH = r"""
echo "No model is asked, and no playbook is about this. Files that contain its words:"
looked= found=
while IFS= read -r word; do
    [ -n "$word" ] || continue
    looked=1
    if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then git grep -nIiF -e "$word"
    else grep -rnIiF -e "$word" .
    fi </dev/null | cut -c 1-160 | awk -v word="$word" '
        NR <= 5 { lines = lines "  " $0 "\n" } END { printf "%s: %d places\n%s", word, NR, lines; exit !NR }' && found=1
done
[ -n "$looked" ] || echo "none was looked for: no word of it has three letters and says what is meant"
[ -n "$found" ] && exit
echo "Nothing was done. ccswarm init --with claude, or another, adds an agent that thinks."
exit 1
"""
SEARCHED = "search"
"""The command if no playbook has one of the words."""
LIBRARY = (
    WordPlaybook(name="tests", words=("test", "check", "pass", "verify", "ci"), command=TESTS),
    WordPlaybook(name="files", words=("file", "directory", "folder", "list", "ls", "tree"), command=FILES),
    WordPlaybook(name="changes", words=("change", "changed", "diff", "git", "commit", "history"), command=CHANGES),
    WordPlaybook(name="todo", words=("todo", "fixme", "left"), command=TODO),
    WordPlaybook(name="size", words=("size", "large", "largest", "count", "many", "line", "language"), command=SIZE),
)
STOP_WORDS = set(
    re.findall(
        r"\w+",
        """about after all also and any are before but can could does each every find for from give has have here how
        into its just look make please show some tell that the their them then there these they this those through use
        using want was what when where which while who why will with would you your""",
    )
)
"""Words without a meaning of their own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The selected command. ``because`` are the words that selected it; ``arguments`` is its standard input."""

    name: str
    command: str
    because: tuple[str, ...]
    stdin: str


def parse_settings(settings: Mapping[str, Any]) -> WordSettings:
    """Parse the settings of an agent with a playbook. Raises PlanInvalid, naming every problem."""
    try:
        return WordSettings.model_validate({name: value for name, value in settings.items() if name in _NAMES})
    except ValidationError as error:
        problems = requirements({**one, "loc": ("settings", *one["loc"])} for one in error.errors()[:5])
        raise PlanInvalid(problems, suggestion="ai-session docs playbooks") from None


_NAMES = frozenset(WordSettings.model_fields)


def choose(text: str, own: Sequence[WordPlaybook] = ()) -> Choice:
    """Return the playbook with most of the words, the agent's own before the library's, or a search for the words."""
    words = list(dict.fromkeys(re.findall(r"[^\W_]+", text.lower())))
    best = Choice(SEARCHED, SEARCH, (), "\n".join(_search_words(text)) + "\n")
    for playbook in (*own, *LIBRARY):
        known = {_stem(word.lower()) for word in playbook.words}
        because = tuple(word for word in words if _stem(word) in known)
        if len(because) > len(best.because):
            best = Choice(playbook.name, playbook.command, because, text + "\n")
    return best


def _stem(word: str) -> str:
    return word[:-3] + "y" if word.endswith("ies") else word.removesuffix("s") if len(word) > 3 else word


def _search_words(text: str) -> list[str]:
    found = [word for word in re.findall(r"\w+", text) if len(word) > 2 and word.lower() not in STOP_WORDS]
    return list(dict.fromkeys(found))[:MOST_SOUGHT]


class Words:
    """The execution of a command in a terminal until its end. Implements ``SupportsPartialResult``."""

    def __init__(self, assignment: Assignment, settings: WordSettings) -> None:
        text = str(assignment.task.get("text", ""))
        round_number = assignment.settings.get("round", 1)
        attempt = assignment.settings.get("attempt", 1)
        self._shell = assignment.shell
        self._workspace = assignment.workspace
        self._session = f"{assignment.run_id}-{assignment.task_id}-{attempt}-{round_number}"
        self._suffix = f"@{round_number}" if round_number != 1 else ""
        self._chosen = choose(text, settings.playbooks) if settings.words == "playbooks" else None
        self._command = self._chosen.command if self._chosen else text
        self._results: dict[str, Json] = {}
        self._waits = 0

    async def decide(self, flow: Flow, ended: Mapping[str, CallOutcome]) -> Sequence[Step]:
        """Return the next call; only one is in progress."""
        if not ended:
            where = {"name": self._session, "working_directory": self._workspace}
            # The library is written for sh; a command line runs in the person's shell.
            return [self._call("open", "create_session", {**where, **({"shell": "sh"} if self._chosen else {})})]
        ((name, outcome),) = ended.items()
        if name.startswith("open"):
            self._results["open"] = bounded(record(outcome))
            if not outcome.ok:
                return [self._finish(outcome)]
            arguments: dict[str, Json] = {"session_id": self._session, "command": self._command}
            arguments |= {"stdin": self._chosen.stdin} if self._chosen else {}
            return [self._call("run", "execute_command", {**arguments, "timeout_seconds": WAIT_SECONDS})]
        self._results["run"] = bounded(record(outcome))
        if outcome.ok and record(outcome)["status"] == "running":
            self._waits += 1
            waited: dict[str, Json] = {"session_id": self._session, "wait_for": "finish"}
            waits = self._call(f"wait{self._waits}", "read_output", {**waited, "timeout_seconds": WAIT_SECONDS})
            return [replace(waits, repeatable=True)]
        return [self._finish(outcome)]

    def so_far(self) -> Json:
        return {"steps": dict(self._results)}

    def _call(self, name: str, tool: str, arguments: Mapping[str, Json]) -> CallTool:
        return CallTool(f"{name}{self._suffix}", f"{self._shell}.{tool}", arguments)

    def _finish(self, outcome: CallOutcome) -> Finish:
        answer = record(outcome)
        if not outcome.ok:
            return Finish("failed", ": ".join(filter(None, (outcome.code, str(answer["message"])))), self.so_far())
        because = f", chosen by: {', '.join(self._chosen.because)}" if self._chosen and self._chosen.because else ""
        what = f"playbook {self._chosen.name}{because}" if self._chosen else "the command line"
        done = answer.get("exit_code") == 0
        return Finish(
            "succeeded" if done else "failed", f"{what}; exit code {answer.get('exit_code', 'unknown')}", self.so_far()
        )
