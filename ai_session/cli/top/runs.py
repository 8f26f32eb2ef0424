"""Runs and their questions as text, from the responses of the program that reports runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from agentwire.visible import visible

Facts = Mapping[str, Any]

OVER = frozenset(("succeeded", "failed", "cancelled", "skipped", "budget_exhausted"))
MOST_OVER = 3
"""The number of finished runs that are listed, the newest ones."""

SIGNS = {
    "succeeded": "✓",
    "failed": "×",
    "cancelled": "×",
    "budget_exhausted": "×",
    "running": "●",
    "waiting_approval": "◆",
}
TONES = {
    "failed": "red",
    "budget_exhausted": "red",
    "waiting_approval": "yellow",
    "blocked": "yellow",
    "succeeded": "dim",
}


def to_list(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs in progress, and the newest of the others."""
    over = [one["run"] for one in runs if one["status"] in OVER][:MOST_OVER]
    return [one for one in runs if one["status"] not in OVER or one["run"] in over]


def run_row(run: Facts) -> tuple[Text, ...]:
    """Return the cells of a run in the list."""
    status: str = run["status"]
    return (
        Text(SIGNS.get(status, "○"), TONES.get(status, "")),
        Text(visible(run["name"] or run["run"])),
        Text(visible(status.replace("_", " ")), TONES.get(status, "")),
        Text(visible(run["tasks"])),
    )


def question_row(question: Facts) -> tuple[Text, ...]:
    """Return the cells of a question in the list."""
    about = question.get("question") or " ".join(
        [question["tool"], *(str(one["value"]).partition("\n")[0] for one in question["arguments"][:1])]
    )
    done = "is done" if question["merges"] else "asks you"
    return Text("◆", "bold yellow"), Text(visible(question["agent"])), Text(done, "yellow"), Text(visible(about))


def page(run: Facts) -> Text:
    """Return a run with its tasks and budgets."""
    text = Text()
    for line in (run["error"], *run["notes"]):
        if line:
            text.append(visible(line, lines=True) + "\n", "red" if line == run["error"] else "")
    wide = max((len(one["task"]) for one in run["tasks"]), default=0)
    for one in run["tasks"]:
        status: str = one["status"]
        text.append(f"{SIGNS.get(status, '○')} {visible(one['task']):{wide}}  ")
        text.append(f"{status.replace('_', ' '):18}", TONES.get(status, ""))
        text.append(f"{visible(one['agent'])}  {visible(str(one['summary'] or one['text']).partition(chr(10))[0])}\n")
    for one in run["budgets"]:
        most = f" of {number(one['most'])}" if one["most"] else ""
        text.append(f"{visible(one['name'])}: {number(one['used'])}{most}\n", "dim")
    return text


def number(value: float) -> str:
    """Format with two decimals at most."""
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def question_text(question: Facts) -> str:
    """Return a question about a call in full."""
    return "\n".join([question.get("question") or question["tool"], *_arguments(question)])


def _arguments(question: Facts) -> Iterator[str]:
    for one in question["arguments"]:
        yield f"    {one['name']} = " + str(one["value"]).replace("\n", "\n        ")


def changes(found: Facts) -> tuple[str, bool]:
    """Return what is to be merged, and whether it is complete."""
    parts: list[str] = []
    whole = True
    for task in found["tasks"]:
        files = (f"{one['path']} +{one['added']} -{one['removed']}" for one in task.get("files", ()))
        parts += [f"{task['task']}: {', '.join(files)}", task.get("diff", ""), task.get("error") or ""]
        if task.get("error") or task.get("left_out"):
            whole = False
            parts.append(f"not all of it is here: {task.get('whole', '')}")
    return "\n".join(filter(None, parts)), whole


def choices(question: Facts, *, whole: bool) -> str:
    """Return which keys answer, and how else to answer."""
    if "once" not in question["answers"]:
        return f"Esc later · {question.get('answer_with') or 'answered; its run continues with a worker'}"
    yes = ("y accept · " if whole else "") if question["merges"] else "y once · "
    return f"{yes}n {'refuse' if question['merges'] else 'deny'} · Esc later · otherwise: ccswarm approvals"
