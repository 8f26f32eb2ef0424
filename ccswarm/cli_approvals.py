"""Verbs about what waits for a person: approvals, approve, reject."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ccswarm import questions
from ccswarm.cli_app import Config, looking, person
from ccswarm.cli_options import Argument, Option
from ccswarm.cli_output import Json, printable, remark, say, show_json, show_line
from ccswarm.cli_reading import looked
from ccswarm.errors import RunNotFound, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.app import App

MARK = "ap_"
"""How ids of questions begin; it may be left out."""

QuestionId = Annotated[str, Argument(metavar="ID", help="As approvals shows it, or the beginning of it.")]


def approvals(config: Config = None, as_json: Json = False) -> None:
    """Show what waits for a person's word: who wants to call what in which task.

    Exit code: 0, also when nothing waits.
    """

    found = looked(config, lambda sight: questions.waiting(sight.store))
    if as_json:
        show_json({"approvals": found})
        return
    for question in found:
        show_line(f"{question['id']}  {question['agent']} wants to call {question['tool']} in {question['task_id']}")
        for name, value in question["arguments"].items():
            first, *rest = str(value).split("\n")
            show_line(f"    {name} = {first}")
            for line in rest:
                show_line(f"        {line}")
        if answer := question.get("answer"):
            word = "agreed" if answer["approved"] else "refused"
            show_line(f"    answered: {answer['by']} {word}; a worker, or ccswarm resume, continues with it")
    say("ccswarm approve ID, or ccswarm reject ID --reason WHY." if found else "Nothing waits for an answer.")


def approve(
    question: QuestionId,
    reason: Annotated[str, Option("--reason", help="Recorded.", show_default=False)] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Agree to one call: it is made as soon as a worker executes the run.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one.
    """
    _answer(question, approved=True, reason=reason, config=config, as_json=as_json)


def reject(
    question: QuestionId,
    reason: Annotated[str, Option("--reason", help="Told to the agent, and recorded.", show_default=False)],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Refuse one call: the agent learns why, and continues without it.

    Exit codes: 0 answered, 1 somebody else answered first, 2 nothing waits under that id, or more than one.
    """
    _answer(question, approved=False, reason=reason, config=config, as_json=as_json)


def _answer(question: str, *, approved: bool, reason: str, config: Path | None, as_json: bool) -> None:
    import asyncio

    done, workers = asyncio.run(_sent(question, approved=approved, reason=reason, config=config))
    if as_json:
        show_json({**done, "approved": approved, "workers": workers})
        return
    word = "Agreed to" if approved else "Refused"
    remark(printable(f"{word} {done['tool']} for {done['agent']} in {done['task_id']}"))
    if not workers:
        run = str(done["task_id"]).partition(".")[0]
        remark(printable(f"next: nothing executes it now: ccswarm resume {run}, or ccswarm worker"))


async def _sent(question: str, *, approved: bool, reason: str, config: Path | None) -> tuple[dict[str, Any], list[str]]:
    """What was asked, and the workers that are alive."""
    async with looking(config) as app:
        asked = _asked(question, await app.swarm.approvals())
        whose = {"by": person(), "reason": reason, "task_id": str(asked["task_id"])}
        await app.swarm.answer(str(asked["id"]), approved=approved, **whose)
        return asked, await _alive(app)


async def _alive(app: App) -> list[str]:
    beats = (await app.engine.health())["workers"]
    return [worker for worker, age in beats.items() if age < app.settings.engine.lost_after_seconds]


def _asked(text: str, waiting: list[dict[str, Any]]) -> dict[str, Any]:
    """The one question whose id begins so. Raises RunNotFound, UsageInvalid."""
    beginning = text if text.startswith(MARK) else MARK + text
    found = {str(one["id"]): one for one in waiting if str(one["id"]).startswith(beginning)}
    if not found:
        raise RunNotFound(
            f"nothing waits for approval {text!r}, or not any longer", suggestion="ccswarm approvals shows what waits"
        )
    if len(found) > 1 and beginning not in found:
        raise UsageInvalid(f"{text!r} is the beginning of {', '.join(list(found)[:5])}", suggestion="give more of it")
    return found.get(beginning) or next(iter(found.values()))
