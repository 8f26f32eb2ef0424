"""The swarm: its durable functions on an engine, and the operations on runs, tasks and questions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any

from ccswarm.config.settings import Settings
from ccswarm.engines.base import RUNS, Engine, Flow
from ccswarm.errors import AnsweredAlready, PlanInvalid, QuestionNotFound, RunNotFound, UsageInvalid
from ccswarm.models import CallRequest, Execution, Json, Priority, RunStatus, Usage
from ccswarm.plan.origin import Author, Origin
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import PART, SAY, STEPS, STOP, TASK
from ccswarm.swarm.leases import STAYING, DirectoryLeases
from ccswarm.swarm.question import QUESTION, ask, question_of
from ccswarm.swarm.run import RUN, RunFlow
from ccswarm.swarm.task import TaskFlow, TaskWorker, plain
from ccswarm.toolbox import questions
from ccswarm.toolbox.telemetry.base import Telemetry

log = logging.getLogger(__name__)

MOST_RUNS = 10_000
Tidy = Callable[[str, Sequence[str]], object]


def sent_to_workers(plan: Settings) -> dict[str, Any]:
    """Return what a run's payload has of its plan. It leaves out the servers, whose variables may be secrets: a worker
    has its own, and those of the files where the plan was read."""
    return plan.model_dump(mode="json", exclude_defaults=True, exclude={"mcp", "engine", "telemetry", "notify"})


class Swarm:
    """The definitions of runs, tasks and their parts on an engine, for every process that executes or submits."""

    def __init__(
        self,
        engine: Engine,
        task_worker: TaskWorker | None = None,
        telemetry: Telemetry | None = None,
        tidy: Tidy | None = None,
    ) -> None:
        """``tidy`` is called in a thread when a run has ended here, with its id and those of all unfinished runs."""
        self.engine = engine
        self._tidy = tidy
        self._telemetry = telemetry or Telemetry()
        self._task_worker = task_worker
        self._leaving: set[asyncio.Task[None]] = set()
        self._leases = DirectoryLeases(engine, task_worker.release if task_worker else None)
        engine.define(RUN, self._run, queue=RUNS)
        engine.define(TASK, self._task)
        engine.define(PART, self._task, queue=RUNS)
        engine.define(QUESTION, ask, queue=RUNS)

    async def submit(
        self,
        plan: Settings,
        run_id: str,
        workspace: str,
        files: Sequence[str] = (),
        priority: Priority = "medium",
        *,
        origin: Origin = Origin.CLIENT,
        by: str = "",
    ) -> Execution:
        """Queue a run, and return it; repeating it with the same id does nothing. ``files`` are the configuration and
        the plan it was read from, ``origin`` is who wrote its tasks, ``by`` the person who began it. Raises PlanInvalid
        if it has no task, and ConfigInvalid if it has no agent."""
        if not plan.tasks:
            raise PlanInvalid("the plan has no tasks", suggestion="add [[tasks]] with steps, or [[steps]]")
        Team(plan.swarm, plan.agents)
        payload = {
            "run_id": run_id,
            "workspace": workspace,
            "plan": sent_to_workers(plan),
            "files": list(files),
            "author": Author(origin).to_json(),
            **({"begun_by": by} if by else {}),
            "steps": STEPS,
        }
        await self.engine.submit(RUN, run_id, payload, priority=priority)
        return await self.engine.status(run_id)

    async def ask(self, execution_id: str, request: CallRequest) -> str:
        """Ask a person about a call outside any run, and return the question's ID; repeating it with the same execution
        ID does nothing. The execution emits ``approval.asked`` when it can be answered, and ends with the answer as its
        result."""
        question = question_of(request)
        await self.engine.submit(QUESTION, execution_id, question, agent=request.agent)
        return str(question["id"])

    async def call_off(self, run_id: str, why: str) -> None:
        """Stop the tasks of a run, which keep what they have done, and so end it. Raises RunNotFound."""
        await self.engine.send(run_id, STOP, why)

    async def withdraw(self, run_id: str, task: str, why: str, seconds: float) -> None:
        """End a task of a run, or keep it from starting; the run continues without it. A task in progress is asked to
        stop, and cancelled if that takes longer than ``seconds``. Returns when it is over."""
        number = f"{run_id}.{task}"
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                try:
                    await self.engine.send(number, STOP, why)
                except RunNotFound:
                    # From now on an execution with that name exists, so the run cannot start another one.
                    await self.engine.submit(TASK, number, {})
                    if (await self.engine.status(number)).payload:
                        await self.engine.send(number, STOP, why)
                await self.engine.wait(number)
                return
        await self.engine.cancel(number)
        await self.engine.wait(number)

    async def rerun(
        self, run_id: str, new_id: str, plan: Settings | None = None, files: Sequence[str] | None = None
    ) -> None:
        """Queue a new run of what did not succeed in one that is over, with the results of what did. ``plan``, read
        from ``files``, replaces the old plan. Work that could not be merged is merged without being done again. Raises
        RunNotFound, and UsageInvalid if the run is not over or succeeded entirely."""
        found = await self.engine.status(run_id)
        result: dict[str, Any] | None = found.result
        if not found.status.over or not result:
            raise UsageInvalid(f"{run_id} is not over", suggestion=f"ccswarm resume {run_id}")
        if result["status"] == RunStatus.SUCCEEDED:
            raise UsageInvalid(f"{run_id} succeeded: nothing is left to do", suggestion="ccswarm run")
        done = {name: one for name, one in result["tasks"].items() if one["status"] == RunStatus.SUCCEEDED}
        blocked = {name: one for name, one in result["tasks"].items() if one.get("unmerged")}
        unmerged = {name: {**one["unmerged"], "result": one["result"]} for name, one in blocked.items()}
        payload = {
            **found.payload,
            "steps": STEPS,
            "run_id": new_id,
            "continues": run_id,
            "done": done,
            "unmerged": unmerged,
        }
        if plan:
            payload |= {"plan": sent_to_workers(plan)}
        if files is not None:
            payload |= {"files": list(files)}
        await self.engine.submit(RUN, new_id, payload)

    async def say(self, task_id: str, text: str, *, by: str, key: str) -> None:
        """Send a message to the agent of a task, delivered before its next step, once for each ``key``. Raises
        RunNotFound."""
        await self.engine.send(task_id, SAY, {"by": by, "text": text}, key=key)

    async def agree(self, question: Mapping[str, Any], *, by: str, reason: str = "", scope: questions.Scope) -> None:
        """Approve a call of ``approvals``, and with it all further calls that ``scope`` covers. Raises what ``answer``
        raises, and UsageInvalid for a question that cannot be approved more than once."""
        if "digest" not in question:
            raise UsageInvalid(
                f"{question['id']} can be approved once only", suggestion=f"ccswarm approve {question['id']}"
            )
        await self.answer(
            str(question["id"]), approved=True, by=by, reason=reason, task_id=str(question["task_id"]), scope=scope
        )
        await self._remember(question, scope, by, reason)

    async def answer(
        self,
        number: str,
        *,
        approved: bool,
        by: str,
        reason: str = "",
        task_id: str = "",
        again: bool = False,
        scope: str = "",
    ) -> None:
        """Record a person's answer to a question of ``approvals``; ``task_id`` is the task that asks, if known. With
        ``again``, work to be merged is returned with the reason as comment. Raises QuestionNotFound if nothing
        waits, AnsweredAlready if another answer came first, and UsageInvalid for an approval that must be given at a
        server."""
        if not task_id:
            found = [question["task_id"] for question in await self.approvals() if question["id"] == number]
            if not found:
                raise QuestionNotFound(f"no open question {number!r}", suggestion="ccswarm approvals shows what waits")
            task_id = found[0]
        if approved:
            await self._require_own_question(number, task_id)
        more = {"again": True} if again else {"scope": scope} if scope else {}
        answer = {"approved": approved, "by": by, "reason": reason, **more}
        if not await self.engine.send(task_id, questions.topic(number), answer, key=number):
            first = await self.answer_to(number, task_id) or answer
            verdict = "agreed" if first["approved"] else "refused"
            why = f": {first['reason']}" if first["reason"] else ""
            raise AnsweredAlready(
                f"{number} has already been answered: {first['by']} {verdict}{why}", suggestion="ccswarm approvals"
            )

    async def _require_own_question(self, number: str, task_id: str) -> None:
        for one in ((await self.engine.status(task_id)).shown or {}).get("approvals", ()):
            if one["id"] == number and (command := one.get("answer_with")):
                raise UsageInvalid(
                    f"{number} is a question of {str(one['tool']).partition('.')[0]}, which must be answered there",
                    suggestion=f"{command}; the call is then repeated within a minute",
                )

    async def _remember(self, question: Mapping[str, Any], scope: questions.Scope, by: str, reason: str) -> None:
        """Answer all calls of the run that ``scope`` covers as ``question`` was answered: waiting and future ones."""
        run, agent = str(question["task_id"]).partition(".")[0], str(question["agent"])

        def key(tool: str, digest: str) -> str:
            return questions.approval_key(scope, agent, tool, digest)

        same = key(str(question["tool"]), str(question["digest"]))
        await self.engine.send(run, questions.REMEMBERED, question["id"], key=same)
        for one in await self.approvals():
            of_run = str(one["task_id"]).startswith(f"{run}.") and one["agent"] == agent
            if of_run and "digest" in one and key(str(one["tool"]), str(one["digest"])) == same:
                with suppress(AnsweredAlready, RunNotFound):  # answered by somebody else, or the task is over
                    await self.answer(str(one["id"]), approved=True, by=by, reason=reason, task_id=str(one["task_id"]))

    async def answer_to(self, number: str, task_id: str) -> dict[str, Any] | None:
        """Return a person's recorded answer to this question, or None."""
        return await questions.answer_to(self.engine, number, task_id)

    async def approvals(self) -> list[dict[str, Any]]:
        """Return the questions that wait for a person."""
        return await questions.open_questions(self.engine)

    def keep_servers(self, directory: str) -> AbstractAsyncContextManager[None]:
        """Keep the servers that were started for a directory, whichever run ends there in the meantime."""
        return self._leases.task(directory, STAYING)

    async def _run(self, flow: Flow, payload: Json) -> Json:
        if why := _version_mismatch(payload):
            tasks = {task["id"]: {**why, "agent": "", "attempts": 0} for task in payload["plan"]["tasks"]}
            return {"status": RunStatus.FAILED, "tasks": tasks, "usage": plain(Usage())}
        root, whole = payload.get("root", flow.id), "root" not in payload
        if not whole:
            payload = {**payload, "plan": {**payload["plan"], **await _team_settings(flow, payload)}}
        async with self._leases.run(root, whole=whole):
            result = await self._traced(flow.id, root, RunFlow(flow, payload).carry_out())
        if whole and self._tidy:
            self._run_in_background(self._tidy_up(self._tidy, flow.id))
        return result

    async def _task(self, flow: Flow, payload: Json) -> Json:
        assert self._task_worker, "this process can only submit runs"
        if not payload:
            return {"status": RunStatus.CANCELLED, "summary": "withdrawn", "result": None, "usage": {}, "scope": ""}
        if why := _version_mismatch(payload):
            return why
        root, payload = payload["root"], {**payload, **await _team_settings(flow, payload)}
        async with self._leases.task(payload["workspace"], root):
            remembered = partial(questions.remembered_approval, self.engine)
            task = TaskFlow(flow, payload, self._task_worker, self._telemetry, remembered)
            try:
                return await self._traced(flow.id, root, task.carry_out())
            except asyncio.CancelledError:
                lease = self.keep_servers(payload["workspace"])
                # Before the task releases the directory, which would end the server that is needed.
                await lease.__aenter__()
                self._run_in_background(self._leave(flow.id, lease, task))
                raise

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background; ``settled`` waits for it."""
        leaving = asyncio.create_task(work)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _tidy_up(self, tidy: Tidy, ended: str) -> None:
        try:
            unfinished = [run.id for run in await self.engine.list(top=True, unfinished=True, limit=MOST_RUNS)]
            await asyncio.to_thread(tidy, ended, unfinished)
        except Exception as error:  # no caller waits for it, and the end of the next run repeats it
            log.info("leftovers of old runs were not removed: %s", error)

    async def _leave(self, execution_id: str, lease: AbstractAsyncContextManager[None], task: TaskFlow) -> None:
        """End or interrupt what a cancelled or paused task has open; any other may continue elsewhere."""
        try:
            await task.leave((await self.engine.status(execution_id)).status)
        except Exception as error:  # no caller waits for it
            log.warning("terminals left open by %s were not ended: %s", execution_id, error)
        finally:
            await lease.__aexit__(None, None, None)

    async def settled(self) -> None:
        """Return when no cancelled task has anything open here."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    async def _traced(self, execution_id: str, root: str, work: Coroutine[Any, Any, Json]) -> Json:
        logged = _log_execution(execution_id, work)
        return await self._telemetry.execution(execution_id, root, logged, self.engine.status)


async def _team_settings(flow: Flow, payload: Json) -> dict[str, Any]:
    """Return the agents and the settings of the swarm, which are stored with the root run. The workspaces of some
    agents may be replaced (``placed``)."""
    plan: Mapping[str, Any] = (await flow.payload_of(payload["root"]))["plan"]
    placed: Mapping[str, str] = payload.get("placed", {})
    agents = [
        {**one, "workspace": placed[one["name"]]} if one["name"] in placed else one for one in plan.get("agents", ())
    ]
    return {"swarm": plan.get("swarm", {}), "agents": agents}


def _version_mismatch(payload: Json) -> dict[str, Any]:
    """Return how an execution ends that another version of ccswarm began, whose recorded steps do not fit this one.
    Empty for an execution of this version."""
    if payload.get("steps") == STEPS:
        return {}
    why = (
        "it was started by another version of ccswarm, and cannot be continued by this one; ccswarm resume restarts it"
    )
    return {"status": RunStatus.FAILED, "summary": why, "result": None, "usage": {}, "scope": ""}


async def _log_execution(execution_id: str, work: Coroutine[Any, Any, Json]) -> Json:
    """Log at level INFO the id, status and summary of what this process executes."""
    log.info("%s: %s %s", execution_id, RunStatus.RUNNING.value, "")
    result = await work
    log.info("%s: %s %s", execution_id, str(result["status"]), result.get("summary", ""))
    return result
