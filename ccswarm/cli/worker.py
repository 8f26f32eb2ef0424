"""The verb worker: carries out queued runs until it is stopped, and reports what it does."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.output import remark
from agentwire.counts import counted
from agentwire.visible import visible
from ccswarm.cli.output import Json, show_json_line
from ccswarm.cli.parameters import Config, load

if TYPE_CHECKING:
    from ccswarm.config.settings import Settings

EXECUTED = "ccswarm.swarm.swarm"
"""The logger of what starts and ends in this process: ID, status, summary."""

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def worker(
    name: Annotated[
        str,
        typer.Option(
            "--id", metavar="NAME", help="Stable name of the worker; default: made from host name and process ID."
        ),
    ] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Carry out what is queued, until SIGTERM or Ctrl-C; then what is unfinished is handed back.

    Reports what it does on standard error, with --json as events on standard output. Exit codes: 0 ended on request, 1
    the store or the journal cannot be used, 2 the configuration is wrong, or a worker of that name runs already, 5 the
    configuration changed since a person used it and nobody agreed, 75 it lost the store for so long that others took
    its work over.
    """
    from ccswarm.runs import app

    settings = load(config, executes=True).settings
    name = name or app.worker_name(settings)
    engine = settings.engine.model_copy(update={"worker_id": name})
    asyncio.run(_work(settings.model_copy(update={"engine": engine}), name, as_json))


async def _work(settings: Settings, name: str, as_json: bool) -> None:
    from ccswarm.config import config
    from ccswarm.runs import app

    def tell(event: str, message: str, **facts: Any) -> None:
        if as_json:
            show_json_line({"event": event, "worker": name, **facts})
        else:
            remark(visible(message))

    def report_swept(count: int) -> None:
        message = f"worker {name} has closed {counted(count, 'terminal')} of finished runs"
        tell("worker.swept", message, terminals=count)

    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, over.set)
    if not settings.mcp.servers:
        remark("warning: no server is configured: agents have no tools here")
    with execution_reports(tell):
        environ = config.server_environment()
        async with app.working(settings, config.state_directory(), environ, on_swept=report_swept) as opened:
            store = (await opened.engine.health())["store"]
            tell("worker.started", f"worker {name} carries out queued runs in {store}; Ctrl-C ends it", store=store)
            await over.wait()
            for number in SIGNALS:
                loop.remove_signal_handler(number)  # a second one ends the process at once
            tell("worker.ending", f"worker {name} is ending: unfinished work is handed back")
        tell("worker.ended", f"worker {name} has ended")


@contextmanager
def execution_reports(tell: Callable[..., None]) -> Generator[None]:
    """Report executions through ``tell``; warnings of this program, and errors of libraries, go to standard error."""

    class ExecutionLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == EXECUTED and record.levelno == logging.INFO:
                execution, status, summary = map(str, record.args or ("", "", ""))
                facts = {"id": execution, "status": status, **({"summary": summary} if summary else {})}
                tell("execution", f"{execution}: {status}{', ' if summary else ''}{summary}", **facts)
            # dbos warns of every cancelled step.
            elif record.name.startswith(("ccswarm", "agentwire")) or record.levelno >= logging.ERROR:
                exception = record.exc_info[1] if record.exc_info else None
                why = f" {type(exception).__name__}: {exception}" if exception else ""
                remark(visible(f"{record.levelname.lower()}: {record.getMessage()}{why}"))

    handler, executed = ExecutionLog(logging.INFO), logging.getLogger(EXECUTED)
    logging.getLogger().addHandler(handler)
    executed.setLevel(logging.INFO)
    try:
        yield
    finally:
        executed.setLevel(logging.NOTSET)
        logging.getLogger().removeHandler(handler)
