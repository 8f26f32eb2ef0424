"""The verb feed: runs for a program that shows them to a person, such as the console of ai-session. Messages are lines
of JSON: requests on standard input, responses and changes on standard output (docs/reference/runs-provider.md)."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from ccswarm import __version__
from ccswarm.cli import approvals, begin, diff, runs, stop, transcript
from ccswarm.cli.output import show_json_line
from ccswarm.cli.parameters import Config
from ccswarm.cli.reading import read_store
from ccswarm.config import files
from ccswarm.errors import SwarmError, UsageInvalid
from ccswarm.journal.files import directory_of
from ccswarm.runs.detail import cut, detail
from ccswarm.runs.events import task_of
from ccswarm.runs.status import run_id_of, short
from ccswarm.runs.store import StoreView
from ccswarm.system.folder_changes import FolderChanges
from ccswarm.toolbox import questions

PROTOCOL = 1
OTHERS_SECONDS = 2.0
"""The interval of change notifications for a store that is not a file."""

CALM_SECONDS = 0.15
"""The shortest interval of change notifications, so that changes written together are reported once."""

AT_ONCE = 4
MOST_LINE_BYTES = 1 << 20
MOST_RUNS = 50
MOST_DIFF_CHARS = 400_000
BEGIN = 'ccswarm run "list the files"'
WIDER: tuple[questions.Scope, ...] = ("command", "tool", "run")

Params = Mapping[str, Any]
Handler = Callable[[Params, Path | None], dict[str, Any]]


def feed(config: Config = None) -> None:
    """Report runs to a program: answer its requests, one line of JSON each, and announce changes.

    Ends at the end of standard input.
    """
    asyncio.run(_Feed(config).serve())


class _Feed:
    """The connection to the program at the other end of the standard streams."""

    def __init__(self, config: Path | None) -> None:
        self._config = config
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._deciding = asyncio.Lock()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

    async def serve(self) -> None:
        state = files.state_directory()
        journal = directory_of(state)
        journal.mkdir(mode=0o700, parents=True, exist_ok=True)
        in_files = await asyncio.to_thread(read_store, self._config, _in_files)
        changes = FolderChanges((state, journal), ignored=("-shm",))
        show_json_line({"runs": PROTOCOL, "program": "ccswarm", "version": __version__, "directory": str(Path.cwd())})
        notified = in_files and changes.fd >= 0
        lines = _lines(asyncio.get_running_loop())
        announcing = asyncio.create_task(self._announce_changes(None if notified else OTHERS_SECONDS))
        if notified:
            handle = partial(self._handle_changes, changes)
            asyncio.get_running_loop().add_reader(changes.fd, handle)
        answering: set[asyncio.Task[None]] = set()
        try:
            while line := await lines.get():
                one = asyncio.create_task(self._answer(line))
                answering.add(one)
                one.add_done_callback(answering.discard)
        finally:
            self._over.set()
            announcing.cancel()
            await asyncio.gather(announcing, *answering, return_exceptions=True)
            if notified:
                asyncio.get_running_loop().remove_reader(changes.fd)
            changes.close()

    def _handle_changes(self, changes: FolderChanges) -> None:
        if changes.changed():
            self._changed.set()

    async def _announce_changes(self, every: float | None) -> None:
        while not self._over.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), every)
            self._changed.clear()
            show_json_line({"event": "changed"})
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), CALM_SECONDS)

    async def _answer(self, line: bytes) -> None:
        number: Any = None
        try:
            request: Any = json.loads(line)
            number = request["id"]
            method = request["method"]
            params = request.get("params", {})
            known = DECISIONS.get(method) or QUERIES[method]
            async with self._deciding if method in DECISIONS else self._at_once:
                result = await asyncio.to_thread(known, params, self._config)
            reply: dict[str, Any] = {"result": result}
        except SwarmError as error:
            reply = {"error": {"code": error.code, "message": error.message, "suggestion": error.suggestion}}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reply = {"error": {"code": "usage_invalid", "message": f"no such request: {error!r}", "suggestion": ""}}
        show_json_line({"id": number, **reply})


def _lines(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[bytes]:
    """Return a queue with the lines of standard input, of any kind; an empty line is its end."""
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        held = b""
        while len(held) < MOST_LINE_BYTES and (data := os.read(0, 1 << 16)):
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                if line.strip():
                    loop.call_soon_threadsafe(queue.put_nowait, line)
        loop.call_soon_threadsafe(queue.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    return queue


async def _in_files(view: StoreView) -> bool:
    return view.in_files


def _text(params: Params, name: str, default: str | None = None) -> str:
    found = params.get(name, default)
    if not isinstance(found, str):
        raise UsageInvalid(f"{name} should be a string", suggestion="ai-session docs runs-provider")
    return found


def _list(params: Params, config: Path | None) -> dict[str, Any]:
    limit = params.get("limit", MOST_RUNS)
    if not isinstance(limit, int) or limit < 1:
        raise UsageInvalid("limit should be a number, at least 1", suggestion=f"use a number up to {MOST_RUNS}")
    return read_store(config, partial(_list_runs, limit))


async def _list_runs(limit: int, view: StoreView) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for row in await runs.list_rows(limit, view):
        payload: dict[str, Any] = (await view.store.status(row["run"])).payload or {}
        name = payload.get("plan", {}).get("swarm", {}).get("name", "swarm")
        shown = {name: row[name] for name in ("run", "status", "begun_at", "seconds", "tasks")}
        rows.append({**shown, "name": name, "workspace": payload.get("workspace", "")})
    workers: Mapping[str, float] = (await view.store.health())["workers"]
    heard = [{"worker": name, "heard_seconds_ago": round(age, 1)} for name, age in workers.items()]
    return {"runs": rows, "workers": heard, "begin": BEGIN}


def _questions(params: Params, config: Path | None) -> dict[str, Any]:
    return {"questions": read_store(config, open_questions)}


async def open_questions(view: StoreView) -> list[dict[str, Any]]:
    """Return the questions to people, in the order in which they were asked, with run, task, time, and possible
    answers: ``once``; ``command``, ``tool`` and ``run`` for approvals that cover more; ``return`` for work. There are
    none if the tool's server takes the answer."""
    found: list[dict[str, Any]] = []
    for one in await questions.open_questions(view.store):
        execution = str(one["task_id"])
        run, at = execution.partition(".")[0], 0.0
        async for event in view.store.events(execution, follow=False):
            if event.get("event") == "approval.asked" and event.get("id") == one["id"]:
                at = float(event.get("at") or 0)
        merges = one["tool"] == questions.MERGE
        more = ["return"] if merges else [*WIDER] if "digest" in one else []
        given = [{"name": name, "value": str(value)} for name, value in one["arguments"].items()]
        shown = {
            name: one[name] for name in ("id", "agent", "tool", "question", "answer_with", "answer") if name in one
        }
        about = {"run": run, "task": task_of(run, execution), "execution": execution, "asked_at": at, "merges": merges}
        answers = [] if one.get("answer_with") or one.get("answer") else ["once", *more]
        found.append({**shown, **about, "arguments": given, "answers": answers})
    return sorted(found, key=lambda one: one["asked_at"])


def _run(params: Params, config: Path | None) -> dict[str, Any]:
    name = _text(params, "run")

    async def read_detail(view: StoreView) -> dict[str, Any]:
        return await detail(view.store, await run_id_of(view.store, name, view.project))

    return read_store(config, read_detail)


def _transcript(params: Params, config: Path | None) -> dict[str, Any]:
    facts = transcript.transcript_facts(_text(params, "run"), _text(params, "task", ""), config)
    for attempt in facts["attempts"]:
        for entry in attempt["entries"]:
            said = entry.get("answer", "")
            entry["answer"] = cut(said if isinstance(said, str) else json.dumps(said, ensure_ascii=False))
    return facts


def _diff(params: Params, config: Path | None) -> dict[str, Any]:
    """Return the document of ``diff --json``; very long texts are cut, with the number of characters left out."""
    facts = diff.facts_of_diff(*diff.compared_work(_text(params, "run"), _text(params, "task", ""), config))
    room = 0
    for task in facts["tasks"]:
        whole = str(task.get("diff", ""))
        shown = whole[: max(0, MOST_DIFF_CHARS - room)]
        room += len(shown)
        task |= {
            "diff": shown,
            "left_out": len(whole) - len(shown),
            "whole": f"ccswarm diff {facts['run']} {task['task']}",
        }
    return facts


def _compare(params: Params, config: Path | None) -> dict[str, Any]:
    return runs.compare(_text(params, "one"), _text(params, "other"), config)


def _answer(params: Params, config: Path | None) -> dict[str, Any]:
    """Approve or reject a question, and return what was recorded. Raises SwarmError."""
    scope = _text(params, "scope", "once")
    reason = _text(params, "reason", "")
    approved = params["approved"] is True
    wider: questions.Scope | None = next((one for one in WIDER if one == scope), None)
    if scope != "once" and not (wider and approved):
        raise UsageInvalid(f"no such scope: {scope!r}", suggestion=f"use once, {', '.join(WIDER)}")
    answer = approvals.Answer("Agreed to" if approved else "Refused", reason, approved=approved, scope=wider)
    question = _text(params, "question")
    return _decision(*approvals.give_answer(lambda app: approvals.find(question, app), answer, config))


def _accept(params: Params, config: Path | None) -> dict[str, Any]:
    name = _task_name(params)
    answer = approvals.Answer("Agreed to", _text(params, "reason", ""), approved=True)
    return _decision(*approvals.give_answer(lambda app: approvals.find_merge_question(name, app), answer, config))


def _return(params: Params, config: Path | None) -> dict[str, Any]:
    name, answer = _task_name(params), approvals.return_answer(_text(params, "comment"))
    return _decision(*approvals.give_answer(lambda app: approvals.find_merge_question(name, app), answer, config))


def _task_name(params: Params) -> str:
    return f"{_text(params, 'run')}.{_text(params, 'task')}"


def _decision(question: Mapping[str, Any], workers: list[str]) -> dict[str, Any]:
    run = short(str(question["task_id"]).partition(".")[0])
    return {"question": question["id"], "next": "" if workers else f"ccswarm resume {run}, or ccswarm worker"}


def _stop(how: str, params: Params, config: Path | None) -> dict[str, Any]:
    return {"run": asyncio.run(stop.stop(_text(params, "run"), config, how)).run.id}


QUERIES: Mapping[str, Handler] = {
    "list": _list,
    "questions": _questions,
    "run": _run,
    "transcript": _transcript,
    "diff": _diff,
    "compare": _compare,
    "beginnings": begin.beginnings,
    "check": begin.check,
}
DECISIONS: Mapping[str, Handler] = {
    "answer": _answer,
    "accept": _accept,
    "return": _return,
    "pause": partial(_stop, "pause"),
    "cancel": partial(_stop, "cancel"),
    "start": begin.start,
    "resume": begin.resume,
}
"""Decisions of a person, which are carried out one after the other."""
