"""Verbs about what waits for a person: approvals, approve, reject; accept and return, of work that is to be merged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Option
from agentwire.cli.output import remark, say, show_json
from ccswarm.cli.output import Json, printable, show_line
from ccswarm.cli.parameters import Config, check_person, looking, person
from ccswarm.cli.reading import looked
from ccswarm.errors import RunNotFound, UsageInvalid
from ccswarm.runs.events import task_of
from ccswarm.runs.status import facts_of, run_id_of, short
from ccswarm.toolbox import questions

if TYPE_CHECKING:
    from ccswarm.runs.app import App

MARK = "ap_"
"""How ids of questions begin; it may be left out."""

QuestionId = Annotated[str, Argument(metavar="ID", help="The ID that approvals shows, or the beginning of it.")]
TaskName = Annotated[
    str,
    Argument(metavar="[RUN.]TASK", help="A run and one of its tasks; or a task that waits in only one run."),
]
REMEMBERED = {
    "command": "until the run is over nobody is asked about the same call by {agent} again",
    "tool": "until the run is over nobody is asked about {tool} by {agent} again",
    "run": "until the run is over nobody is asked about what {agent} calls again",
}
"""How far an answer reaches, in words."""
Find = Callable[["App"], Awaitable[dict[str, Any]]]
"""The question that is meant. Raises what says that there is none."""


def approvals(config: Config = None, as_json: Json = False) -> None:
    """Show what waits for a person's approval: who wants to call what in which task.

    Exit code: 0, also when nothing waits.
    """

    found = looked(config, lambda view: questions.open_questions(view.store))
    if as_json:
        show_json({"approvals": found})
        return
    for question in found:
        if "question" in question:
            show_line(f"{question['id']}  {question['question']} ({question['agent']} did it in {question['task_id']})")
        else:
            what = f"{question['agent']} wants to call {question['tool']} in {question['task_id']}"
            show_line(f"{question['id']}  {what}")
        if typed := question.get("answer_with"):
            show_line(f"    its server waits for it: {typed}")
        for name, value in question["arguments"].items():
            first, *rest = str(value).split("\n")
            show_line(f"    {name} = {first}")
            for line in rest:
                show_line(f"        {line}")
        if answered := questions.unheard_answer(question):
            show_line(f"    {answered}")
    if any("answer" not in question for question in found):
        say("ccswarm approve ID, or ccswarm reject ID --reason WHY.")
    if not found:
        remark("Nothing waits for an answer. Progress of runs: ccswarm status")


def approve(
    question: QuestionId,
    command: Annotated[bool, Option("--command", help="The same call again in this run, too.")] = False,
    tool: Annotated[bool, Option("--tool", help="Every call of the tool by this agent in this run, too.")] = False,
    run: Annotated[bool, Option("--run", help="Every call by this agent in this run, too.")] = False,
    reason: Annotated[str, Option("--reason", help="Recorded.", show_default=False)] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Agree to one call, or to one merge: it is made as soon as a worker executes the run.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one, or its
    server accepts the answer itself: the command to type is shown.
    """
    reaches: dict[questions.Scope, bool] = {"command": command, "tool": tool, "run": run}
    wider: list[questions.Scope] = [scope for scope, wanted in reaches.items() if wanted]
    if len(wider) > 1:
        raise UsageInvalid("use only one of --command, --tool and --run", suggestion="give one")
    word = Word("Agreed to", reason, approved=True, scope=wider[0] if wider else None)
    _answer(lambda app: asked(question, app), word, config, as_json)


def reject(
    question: QuestionId,
    reason: Annotated[str, Option("--reason", help="Reason, which the agent receives; recorded.", show_default=False)],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Refuse one call: the agent learns why, and continues without it. Work that is not to be merged has failed.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one.
    """
    _answer(lambda app: asked(question, app), Word("Refused", reason), config, as_json)


def accept(
    task: TaskName,
    reason: Annotated[str, Option("--reason", help="Recorded.", show_default=False)] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Agree to merging the work of a task, where swarm.merge is ask.

    Exit codes: 0 answered, 1 somebody else answered first, 2 no merge of that task waits: what to do is shown.
    """
    _answer(lambda app: merge(task, app), Word("Agreed to", reason, approved=True), config, as_json)


def give_back(
    task: TaskName,
    comment: Annotated[str, Argument(metavar="COMMENT", help="What is wrong with the work; sent to the agent.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Give the work of a task back instead of merging it: its agent continues in the same clone, with your comment.

    Exit codes: 0 answered, 1 somebody else answered first, 2 no merge of that task waits: what to do is shown.
    """
    _answer(lambda app: merge(task, app), given_back(comment), config, as_json)


@dataclass(frozen=True, slots=True)
class Word:
    """A person's answer; ``done`` is how the verb reports it."""

    done: str
    reason: str
    approved: bool = False
    again: bool = False
    scope: questions.Scope | None = None


def given_back(comment: str) -> Word:
    """Work is done again, with the comment. Raises UsageInvalid for an empty one."""
    if not comment.strip():
        raise UsageInvalid("the comment is empty", suggestion="give a comment that says what is wrong with the work")
    return Word("Gave back", comment, again=True)


def answered(find: Find, word: Word, config: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Gives a person's word; what was asked, and the workers that are alive. Raises ApprovalNeeded where nobody can
    agree for a person."""
    import asyncio

    if word.approved:
        check_person()
    return asyncio.run(_sent(find, word, config))


def _answer(find: Find, word: Word, config: Path | None, as_json: bool) -> None:
    done, workers = answered(find, word, config)
    if as_json:
        more = {"again": True} if word.again else {"scope": word.scope} if word.scope else {}
        show_json({**done, "approved": word.approved, **more, "workers": workers})
        return
    remark(printable(f"{word.done} {done['tool']} for {done['agent']} in {done['task_id']}"))
    if word.scope:
        remark(printable(REMEMBERED[word.scope].format(**done)))
    if not workers:
        run = str(done["task_id"]).partition(".")[0]
        remark(printable(f"next: no worker is carrying it out: ccswarm resume {run}, or ccswarm worker"))


async def _sent(find: Find, word: Word, config: Path | None) -> tuple[dict[str, Any], list[str]]:
    """What was asked, and the workers that are alive."""
    async with looking(config) as app:
        asked = await find(app)
        whose = {"by": person(), "reason": word.reason}
        if word.scope:
            await app.swarm.agree(asked, **whose, scope=word.scope)
        else:
            about = {**whose, "task_id": str(asked["task_id"])}
            await app.swarm.answer(str(asked["id"]), approved=word.approved, again=word.again, **about)
        return asked, await _alive(app)


async def _alive(app: App) -> list[str]:
    beats = (await app.engine.health())["workers"]
    return [worker for worker, age in beats.items() if age < app.settings.engine.lost_after_seconds]


async def merge(text: str, app: App) -> dict[str, Any]:
    """The question whether the work of RUN.TASK is merged, or of the one TASK of that name in the runs of this project.
    Raises RunNotFound; UsageInvalid, with what else there is to do, where that is not asked."""
    asked = [(*_asking_task(one), one) for one in await app.swarm.approvals() if one["tool"] == questions.MERGE]
    here = [(run, task) for run, task, one in asked if "answer" not in one and await _is_here(app, run)]
    named = [run for run, task in here if task == text]
    if len(named) > 1:
        which = " or ".join(f"{short(run)}.{text}" for run in named)
        raise UsageInvalid(f"{text} waits to be merged in {len(named)} runs", suggestion=f"write {which}")
    run, _, task = text.partition(".")
    if not task and not named:
        waits = " or ".join(f"{short(run)}.{name}" for run, name in here)
        raise UsageInvalid(
            f"no task {text!r} waits to be merged in a run of this project",
            suggestion=f"write {waits}" if waits else "ccswarm approvals shows what waits",
        )
    run_id, task = (named[0], text) if named else (await run_id_of(app.engine, run, app.project), task)
    for where, name, one in asked:
        if (where, name) == (run_id, task):
            return one
    why, then = await _no_merge(app, run_id, task)
    raise UsageInvalid(f"{short(run_id)}.{task} does not wait to be merged: {why}", suggestion=then)


def _asking_task(question: dict[str, Any]) -> tuple[str, str]:
    """The run, and the task in it, that asks."""
    number = str(question["task_id"])
    run_id = number.partition(".")[0]
    return run_id, task_of(run_id, number)


async def _is_here(app: App, run_id: str) -> bool:
    return not app.project or app.project.has(await app.engine.status(run_id))


async def _no_merge(app: App, run_id: str, task: str) -> tuple[str, str]:
    """Why not, and what to do instead."""
    from ccswarm.runs.work import works

    facts = await facts_of(app.engine, run_id)
    if task not in facts["tasks"]:
        return "there is no such task", f"ccswarm status {short(run_id)}"
    found = [one for one in await works(app.engine, run_id, task) if one.task == task]
    see = f"ccswarm diff {short(run_id)} {task}"
    match found[0].state if found else "":
        case "merged":
            return "it is merged", f"{see}; ccswarm run starts another run"
        case "on a branch":
            return "it is on a branch", f"git merge {found[0].place}, or leave it; {see}"
        case "kept, not merged":
            return (
                f"it is {facts['tasks'][task]['status']}",
                f"{see}; git merge {found[0].place} merges it all the same",
            )
        case "blocked, not merged":
            return "it is blocked", f"fix what blocks it, then ccswarm resume {short(run_id)}; {see}"
        case _:
            status = str(facts["tasks"][task]["status"]).replace("_", " ")
            return f"it is {status}", f"{see}; ccswarm approvals shows what waits"


async def asked(text: str, app: App) -> dict[str, Any]:
    """The one question whose id begins so. Raises RunNotFound, UsageInvalid."""
    waiting = await app.swarm.approvals()
    beginning = text if text.startswith(MARK) else MARK + text
    found = {str(one["id"]): one for one in waiting if str(one["id"]).startswith(beginning)}
    if not found:
        raise RunNotFound(f"no open question {text!r}", suggestion="ccswarm approvals shows what waits")
    if len(found) > 1 and beginning not in found:
        raise UsageInvalid(
            f"{text!r} is the beginning of {', '.join(list(found)[:5])}", suggestion="give a longer beginning"
        )
    return found.get(beginning) or next(iter(found.values()))
