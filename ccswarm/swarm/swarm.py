"""The swarm: its durable functions on an engine, what is asked of it and answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

from ccswarm.config.settings import Settings
from ccswarm.engines.base import RUNS, Engine, Flow
from ccswarm.errors import AnsweredAlready, PlanInvalid, RunNotFound, UsageInvalid
from ccswarm.models import CallRequest, Json, Priority, RunStatus, Usage
from ccswarm.plan.origin import Author, Origin
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import PART, SAY, STEPS, STOP, TASK
from ccswarm.swarm.leases import STAYING, DirectoryLeases
from ccswarm.swarm.question import QUESTION, ask, question_of
from ccswarm.swarm.run import RUN, RunFlow
from ccswarm.swarm.task import TaskFlow, TaskWorker, plain
from ccswarm.telemetry.base import Telemetry
from ccswarm.toolbox import questions

log = logging.getLogger(__name__)

MOST_RUNS = 10_000
Tidy = Callable[[Sequence[str]], object]


def payload_of(
    plan: Settings,
    run_id: str,
    workspace: str,
    files: Sequence[str] = (),
    origin: Origin = Origin.CLIENT,
    by: str = "",
) -> dict[str, Any]:
    """What a run is submitted with. Servers are not in it, for their variables may be secrets: a worker has its own,
    and those of ``files``, where the plan came from."""
    shown = plan.model_dump(mode="json", exclude_defaults=True, exclude={"mcp", "engine", "telemetry", "notify"})
    author = Author(origin).to_json()
    given = {"run_id": run_id, "workspace": workspace, "plan": shown, "files": list(files), "author": author}
    return {**given, **({"begun_by": by} if by else {}), "steps": STEPS}


class Swarm:
    """Defines runs, tasks and their parts on an engine. Made once in every process that executes or submits."""

    def __init__(
        self,
        engine: Engine,
        task_worker: TaskWorker | None = None,
        telemetry: Telemetry | None = None,
        tidy: Tidy | None = None,
    ) -> None:
        """``tidy`` is called when a run is over here, in a thread, with it and the runs that are not."""
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
    ) -> None:
        """Queue a run; ``files`` are the configuration and the plan it was read from, ``origin`` is who wrote its
        tasks, ``by`` the person who began it. Raises PlanInvalid where it has no task, ConfigInvalid where it has no
        agent."""
        if not plan.tasks:
            raise PlanInvalid("the plan has no tasks", suggestion="add [[tasks]] with steps, or [[steps]]")
        Team(plan.swarm, plan.agents)
        await self.engine.submit(RUN, run_id, payload_of(plan, run_id, workspace, files, origin, by), priority=priority)

    async def ask(self, execution_id: str, request: CallRequest) -> str:
        """Asks a person about a call outside any run, and returns the question's ID; repeating it with the same
        execution ID does nothing. The execution reports ``approval.asked`` when it can be answered, and ends with the
        answer as its result."""
        question = question_of(request)
        await self.engine.submit(QUESTION, execution_id, question, agent=request.agent)
        return str(question["id"])

    async def call_off(self, run_id: str, why: str) -> None:
        """End a run: its tasks are stopped, and what they have done is kept. Raises RunNotFound."""
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
                    # An execution of that name is there from now on, and the run cannot start another one.
                    await self.engine.submit(TASK, number, {})
                    if (await self.engine.status(number)).payload:
                        await self.engine.send(number, STOP, why)
                await self.engine.wait(number)
                return
        await self.engine.cancel(number)
        await self.engine.wait(number)

    async def again(
        self, run_id: str, new_id: str, plan: Settings | None = None, files: Sequence[str] | None = None
    ) -> None:
        """Queue a new run of what did not succeed in one that is over, with the results of what did; ``plan`` instead
        of the one it had, read from ``files``. Work that could not be merged is merged now, and not done again. Raises
        RunNotFound, UsageInvalid where it is not over or all of it succeeded."""
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
            payload |= {"plan": payload_of(plan, new_id, "")["plan"]}
        if files is not None:
            payload |= {"files": list(files)}
        await self.engine.submit(RUN, new_id, payload)

    async def say(self, task_id: str, text: str, *, by: str, key: str) -> None:
        """To the agent of a task, which hears it with its next step; the same ``key`` is heard once. Raises
        RunNotFound."""
        await self.engine.send(task_id, SAY, {"by": by, "text": text}, key=key)

    async def agree(self, question: Mapping[str, Any], *, by: str, reason: str = "", scope: questions.Scope) -> None:
        """A person's yes to what ``approvals`` shows, which counts for more than this call. Raises as ``answer``, and
        UsageInvalid where it is about one thing only."""
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
        """A person's answer to a question in ``approvals``; ``task_id`` is the task that asks, if known. With
        ``again``, work to be merged is returned with the reason as comment. Raises RunNotFound if nothing waits,
        AnsweredAlready if somebody was quicker (only the first answer counts), UsageInvalid for a yes that must be
        given at a server."""
        if not task_id:
            found = [question["task_id"] for question in await self.approvals() if question["id"] == number]
            if not found:
                raise RunNotFound(f"no open question {number!r}", suggestion="ccswarm approvals")
            task_id = found[0]
        if approved:
            await self._require_ours(number, task_id)
        more = {"again": True} if again else {"scope": scope} if scope else {}
        word = {"approved": approved, "by": by, "reason": reason, **more}
        if not await self.engine.send(task_id, questions.topic(number), word, key=number):
            first = await self.answer_to(number, task_id) or word
            came = "agreed" if first["approved"] else "refused"
            why = f": {first['reason']}" if first["reason"] else ""
            raise AnsweredAlready(
                f"{number} has already been answered: {first['by']} {came}{why}", suggestion="ccswarm approvals"
            )

    async def _require_ours(self, number: str, task_id: str) -> None:
        for one in ((await self.engine.status(task_id)).shown or {}).get("approvals", ()):
            if one["id"] == number and (typed := one.get("answer_with")):
                raise UsageInvalid(
                    f"{number} is a question of {str(one['tool']).partition('.')[0]}, which must be answered there",
                    suggestion=f"{typed}; the call is then repeated within a minute",
                )

    async def _remembered(self, request: CallRequest) -> str:
        return await questions.remembered_approval(self.engine, request)

    async def _remember(self, question: Mapping[str, Any], scope: questions.Scope, by: str, reason: str) -> None:
        """What is asked of the same run from now on is answered as ``question`` was, where ``scope`` covers it; what is
        asked already, too."""
        run, agent = str(question["task_id"]).partition(".")[0], str(question["agent"])

        def key(tool: str, digest: str) -> str:
            return questions.approval_key(scope, agent, tool, digest)

        same = key(str(question["tool"]), str(question["digest"]))
        await self.engine.send(run, questions.REMEMBERED, question["id"], key=same)
        for one in await self.approvals():
            of_run = str(one["task_id"]).startswith(f"{run}.") and one["agent"] == agent
            if of_run and "digest" in one and key(str(one["tool"]), str(one["digest"])) == same:
                with suppress(AnsweredAlready, RunNotFound):  # by somebody else, or it is over
                    await self.answer(str(one["id"]), approved=True, by=by, reason=reason, task_id=str(one["task_id"]))

    async def answer_to(self, number: str, task_id: str) -> dict[str, Any] | None:
        """A person's recorded answer to this question, None while there is none."""
        return await questions.answer_to(self.engine, number, task_id)

    async def approvals(self) -> list[dict[str, Any]]:
        """The questions that wait for a person."""
        return await questions.open_questions(self.engine)

    def staying(self, directory: str) -> AbstractAsyncContextManager[None]:
        """Meanwhile the servers that were started for a directory go on, whatever run ends there."""
        return self._leases.task(directory, STAYING)

    async def _run(self, flow: Flow, payload: Json) -> Json:
        if why := _of_another_version(payload):
            tasks = {task["id"]: {**why, "agent": "", "attempts": 0} for task in payload["plan"]["tasks"]}
            return {"status": RunStatus.FAILED, "tasks": tasks, "usage": plain(Usage())}
        root, whole = payload.get("root", flow.id), "root" not in payload
        if not whole:
            payload = {**payload, "plan": {**payload["plan"], **await _team(flow, payload)}}
        async with self._leases.run(root, whole=whole):
            result = await self._traced(flow.id, root, RunFlow(flow, payload).carry_out())
        if whole and self._tidy:
            self._afterwards(self._tidied(self._tidy, flow.id))
        return result

    async def _task(self, flow: Flow, payload: Json) -> Json:
        assert self._task_worker, "this process can only submit runs"
        if not payload:
            return {"status": RunStatus.CANCELLED, "summary": "withdrawn", "result": None, "usage": {}, "scope": ""}
        if why := _of_another_version(payload):
            return why
        root, payload = payload["root"], {**payload, **await _team(flow, payload)}
        async with self._leases.task(payload["workspace"], root):
            task = TaskFlow(flow, payload, self._task_worker, self._telemetry, self._remembered)
            try:
                return await self._traced(flow.id, root, task.carry_out())
            except asyncio.CancelledError:
                staying = self.staying(payload["workspace"])
                await staying.__aenter__()  # before the place is tidied, which would end the server that is needed
                self._afterwards(self._leave(flow.id, staying, task))
                raise

    def _afterwards(self, work: Coroutine[Any, Any, None]) -> None:
        """``settled`` waits for it."""
        leaving = asyncio.create_task(work)
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _tidied(self, tidy: Tidy, ended: str) -> None:
        try:
            unfinished = [run.id for run in await self.engine.list(top=True, unfinished=True, limit=MOST_RUNS)]
            await asyncio.to_thread(tidy, [ended, *unfinished])
        except Exception as error:  # nobody waits for it, and the next run's end does it
            log.info("leftovers of old runs were not removed: %s", error)

    async def _leave(self, execution_id: str, staying: AbstractAsyncContextManager[None], task: TaskFlow) -> None:
        """What a task that was cancelled or paused has open does not continue; another worker may continue with any
        other."""
        try:
            await task.leave((await self.engine.status(execution_id)).status)
        except Exception as error:  # nobody waits for it
            log.warning("terminals left open by %s were not ended: %s", execution_id, error)
        finally:
            await staying.__aexit__(None, None, None)

    async def settled(self) -> None:
        """Returns when what was cancelled here has nothing open any more."""
        while self._leaving:
            await asyncio.wait(list(self._leaving))

    async def _traced(self, execution_id: str, root: str, work: Coroutine[Any, Any, Json]) -> Json:
        logged = _logged(execution_id, work)
        return await self._telemetry.execution(execution_id, root, logged, self.engine.status)


async def _team(flow: Flow, payload: Json) -> dict[str, Any]:
    """The agents and the settings of the swarm, which are kept with the run that all of it belongs to; some may work
    elsewhere (``placed``)."""
    plan: Mapping[str, Any] = (await flow.payload_of(payload["root"]))["plan"]
    placed: Mapping[str, str] = payload.get("placed", {})
    agents = [
        {**one, "workspace": placed[one["name"]]} if one["name"] in placed else one for one in plan.get("agents", ())
    ]
    return {"swarm": plan.get("swarm", {}), "agents": agents}


def _of_another_version(payload: Json) -> dict[str, Any]:
    """How an execution ends that another version of ccswarm began: what is recorded of it would not fit what this one
    does. Empty where that is not so."""
    if payload.get("steps") == STEPS:
        return {}
    why = (
        "it was started by another version of ccswarm, and cannot be continued by this one; ccswarm resume restarts it"
    )
    return {"status": RunStatus.FAILED, "summary": why, "result": None, "usage": {}, "scope": ""}


async def _logged(execution_id: str, work: Coroutine[Any, Any, Json]) -> Json:
    """Logs at level INFO what this process executes: ID, status, summary."""
    log.info("%s: %s %s", execution_id, RunStatus.RUNNING.value, "")
    result = await work
    log.info("%s: %s %s", execution_id, str(result["status"]), result.get("summary", ""))
    return result
