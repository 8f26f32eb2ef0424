"""The verbs approvals, approve and reject for questions to a person, and accept and return for work to be merged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument, Option
from agentwire.cli.output import remark, say, show_json
from agentwire.system.user import user_name
from agentwire.visible import visible
from ccswarm.cli.output import Json, show_line
from ccswarm.cli.parameters import Config, check_person, open_app
from ccswarm.cli.reading import read_store
from ccswarm.errors import QuestionNotFound, UsageInvalid
from ccswarm.runs.events import task_of
from ccswarm.runs.status import facts_of, run_id_of, short
from ccswarm.toolbox import questions

if TYPE_CHECKING:
    from ccswarm.runs.app import App

MARK = "ap_"
"""The prefix of the ids of questions, which may be omitted."""

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
"""What an approval of more than one call covers, in words."""
Find = Callable[["App"], Awaitable[dict[str, Any]]]
"""Returns the question to answer. Raises an error that says why there is none."""


def approvals(config: Config = None, as_json: Json = False) -> None:
    """Show what waits for a person's approval: which agent wants to call what, in which task.

    Exit code: 0, also when nothing waits.
    """

    found = read_store(config, lambda view: questions.open_questions(view.store))
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
        if note := questions.unheard_answer(question):
            show_line(f"    {note}")
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
    """Approve one call or one merge, which is then made as soon as a worker executes the run.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one, or its
    server accepts the answer itself: the command to type is shown.
    """
    scopes: dict[questions.Scope, bool] = {"command": command, "tool": tool, "run": run}
    wider: list[questions.Scope] = [scope for scope, wanted in scopes.items() if wanted]
    if len(wider) > 1:
        raise UsageInvalid("use only one of --command, --tool and --run", suggestion="leave the others out")
    answer = Answer("Agreed to", reason, approved=True, scope=wider[0] if wider else None)
    _answer(lambda app: find(question, app), answer, config, as_json)


def reject(
    question: QuestionId,
    reason: Annotated[str, Option("--reason", help="Reason, which the agent receives; recorded.", show_default=False)],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Reject one call: the agent receives the reason and continues without it. A task whose work is not to be merged
    fails.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one.
    """
    _answer(lambda app: find(question, app), Answer("Refused", reason), config, as_json)


def accept(
    task: TaskName,
    reason: Annotated[str, Option("--reason", help="Recorded.", show_default=False)] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Approve the merge of a task's work, if swarm.merge is ask.

    Exit codes: 0 answered, 1 somebody else answered first, 2 no merge of that task waits: what to do is shown.
    """
    _answer(lambda app: find_merge_question(task, app), Answer("Agreed to", reason, approved=True), config, as_json)


def give_back(
    task: TaskName,
    comment: Annotated[str, Argument(metavar="COMMENT", help="What is wrong with the work; sent to the agent.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Return the work of a task instead of merging it: its agent continues in the same clone, with your comment.

    Exit codes: 0 answered, 1 somebody else answered first, 2 no merge of that task waits: what to do is shown.
    """
    _answer(lambda app: find_merge_question(task, app), return_answer(comment), config, as_json)


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer; ``done`` is how the verb reports it."""

    done: str
    reason: str
    approved: bool = False
    again: bool = False
    scope: questions.Scope | None = None


def return_answer(comment: str) -> Answer:
    """Return the answer that gives work back with a comment. Raises UsageInvalid for an empty comment."""
    if not comment.strip():
        raise UsageInvalid("the comment is empty", suggestion="give a comment that says what is wrong with the work")
    return Answer("Returned", comment, again=True)


def give_answer(find: Find, answer: Answer, config: Path | None) -> tuple[dict[str, Any], list[str]]:
    """Give a person's answer. Return the question and the live workers. Raises ApprovalNeeded for an agent."""
    import asyncio

    if answer.approved or answer.again:  # a comment directs the agent as a message of a person does
        check_person()
    return asyncio.run(_send(find, answer, config))


def _answer(find: Find, answer: Answer, config: Path | None, as_json: bool) -> None:
    done, workers = give_answer(find, answer, config)
    if as_json:
        more = {"again": True} if answer.again else {"scope": answer.scope} if answer.scope else {}
        show_json({**done, "approved": answer.approved, **more, "workers": workers})
        return
    remark(visible(f"{answer.done} {done['tool']} for {done['agent']} in {done['task_id']}"))
    if answer.scope:
        remark(visible(REMEMBERED[answer.scope].format(**done)))
    if not workers:
        run = str(done["task_id"]).partition(".")[0]
        remark(visible(f"next: no worker is carrying it out: ccswarm resume {run}, or ccswarm worker"))


async def _send(find: Find, answer: Answer, config: Path | None) -> tuple[dict[str, Any], list[str]]:
    async with open_app(config) as app:
        question = await find(app)
        author = {"by": user_name(), "reason": answer.reason}
        if answer.scope:
            await app.swarm.agree(question, **author, scope=answer.scope)
        else:
            about = {**author, "task_id": str(question["task_id"])}
            await app.swarm.answer(str(question["id"]), approved=answer.approved, again=answer.again, **about)
        return question, await _alive(app)


async def _alive(app: App) -> list[str]:
    beats = (await app.engine.health())["workers"]
    return [worker for worker, age in beats.items() if age < app.settings.engine.lost_after_seconds]


async def find_merge_question(text: str, app: App) -> dict[str, Any]:
    """Return the question whether the work of RUN.TASK is merged, or of the single TASK with that name in this
    project's runs. Raises QuestionNotFound; UsageInvalid, with what to do instead, if nothing asks it."""
    asking = [(*_asking_task(one), one) for one in await app.swarm.approvals() if one["tool"] == questions.MERGE]
    here = [(run, task) for run, task, one in asking if "answer" not in one and await _is_of_project(app, run)]
    named = [run for run, task in here if task == text]
    if len(named) > 1:
        which = " or ".join(f"{short(run)}.{text}" for run in named)
        raise UsageInvalid(f"{text} is waiting to be merged in {len(named)} runs", suggestion=f"write {which}")
    run, _, task = text.partition(".")
    if not task and not named:
        waits = " or ".join(f"{short(run)}.{name}" for run, name in here)
        raise UsageInvalid(
            f"no task {text!r} is waiting to be merged in a run of this project",
            suggestion=f"write {waits}" if waits else "ccswarm approvals shows what waits",
        )
    run_id, task = (named[0], text) if named else (await run_id_of(app.engine, run, app.project), task)
    for where, name, one in asking:
        if (where, name) == (run_id, task):
            return one
    why, then = await _no_merge(app, run_id, task)
    raise UsageInvalid(f"{short(run_id)}.{task} is not waiting to be merged: {why}", suggestion=then)


def _asking_task(question: dict[str, Any]) -> tuple[str, str]:
    """Return the run that asks, and its task."""
    number = str(question["task_id"])
    run_id = number.partition(".")[0]
    return run_id, task_of(run_id, number)


async def _is_of_project(app: App, run_id: str) -> bool:
    return not app.project or app.project.has(await app.engine.status(run_id))


async def _no_merge(app: App, run_id: str, task: str) -> tuple[str, str]:
    """Return why nothing asks for a merge, and what to do instead."""
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
            return "it is on a branch", f"git merge {found[0].ref}, or leave it; {see}"
        case "kept, not merged":
            return (
                f"it is {facts['tasks'][task]['status']}",
                f"{see}; git merge {found[0].ref} merges it anyway",
            )
        case "blocked, not merged":
            return "it is blocked", f"fix what blocks it, then ccswarm resume {short(run_id)}; {see}"
        case _:
            status = str(facts["tasks"][task]["status"]).replace("_", " ")
            return f"it is {status}", f"{see}; ccswarm approvals shows what waits"


async def find(text: str, app: App) -> dict[str, Any]:
    """Return the question whose id begins with ``text``. Raises QuestionNotFound and UsageInvalid."""
    waiting = await app.swarm.approvals()
    beginning = text if text.startswith(MARK) else MARK + text
    found = {str(one["id"]): one for one in waiting if str(one["id"]).startswith(beginning)}
    if not found:
        raise QuestionNotFound(f"no open question {text!r}", suggestion="ccswarm approvals shows what waits")
    if len(found) > 1 and beginning not in found:
        raise UsageInvalid(f"{text!r} is ambiguous: {', '.join(list(found)[:5])}", suggestion="give a longer prefix")
    return found.get(beginning) or next(iter(found.values()))
