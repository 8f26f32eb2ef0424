"""The verb eval: agents carry out a suite of small tasks, judged only by its gates; reports are compared."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from agentwire.cli.output import EXIT_ERROR, EXIT_INTERRUPTED, leave, remark, say, show_json, show_rows
from ccswarm import __version__
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, load
from ccswarm.cli.trust import asker
from ccswarm.errors import ConfigInvalid, UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded
    from ccswarm.evaluation.report import Result
    from ccswarm.evaluation.runner import Evaluation, Try
    from ccswarm.evaluation.suite import Entrant, Suite

SUITES = Path("config/suites")
SHIPPED = Path(__file__).parents[1] / "evaluation/suites"
"""The suites that ccswarm ships."""

DELEGATE = "swarm.delegate"
"""The tool with which an agent delegates."""

Agents = Annotated[
    list[str] | None, typer.Option("--agent", metavar="NAME", help="Evaluate this agent of the configuration.")
]
Brains = Annotated[
    list[str] | None, typer.Option("--brain", metavar="NAME", help="Evaluate this brain without settings.")
]
Prove = Annotated[
    bool, typer.Option("--prove", help="Test the gates: they must refuse an untouched repository and a wrong solution.")
]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE", help="Path of the report, instead of the state directory.")
]
Compare = Annotated[
    tuple[Path, Path] | None, typer.Option("--compare", metavar="A B", help="Only compare two reports.")
]


def evaluate(
    suite: Annotated[
        str, typer.Argument(metavar="[SUITE]", help="A file, or the name of one: basics, or your own in config/suites.")
    ] = "",
    agent: Agents = None,
    brain: Brains = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="ID", help="Only this case.")] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=1000, help="Attempts at each case.")] = 1,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=64, help="Cases to run in parallel.")] = 4,
    prove: Prove = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the repositories afterwards.")] = False,
    report: ReportFile = None,
    compare: Compare = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Have agents do a suite of small tasks, each in a git repository of its own, and judge the results by gates.

    Without --agent and --brain the suite's own solutions are carried out. --agent, --brain and --only may be repeated.
    In a pipe each attempt is a line; with --json it is a JSON document, and the last one is the report.

    Exit codes: 0 all passed, 1 some did not (with --compare: some passed less often in B), 2 wrong usage or suite, 5
    the configuration or the suite changed since a person used it and nobody agreed, 130 Ctrl-C: the report has what
    ended before.
    """
    if compare:
        _compare(*compare, as_json)
    from ccswarm.evaluation import runner
    from ccswarm.evaluation import suite as evaluation

    loaded = load(config)
    file = _file(suite, loaded)
    cases = evaluation.load(file, asker(), shipped=file.parent == SHIPPED)
    _require("case", only or (), [case.id for case in cases.cases])
    entrants = _proving_entrants(loaded.settings.swarm.shell) if prove else _entrants(loaded, agent or [], brain or [])
    tries, left_out = runner.tries_of(cases, entrants, repeat, only or ())
    if not tries:
        why = sorted({one["why"] for one in left_out})
        raise UsageInvalid(f"nothing to evaluate: {'; '.join(why)}", suggestion="check --brain, --agent and --only")
    _refuse_unable(tries)
    about = {
        "ccswarm": __version__,
        "suite": cases.suite.name,
        "file": str(file.absolute()),
        "entrants": [{"name": one.name, "brain": one.agent.brain, "model": one.model} for one in entrants],
        "left_out": left_out,
    }
    target = (report or _report_file(cases)).absolute()
    leave(_carry_out(loaded, file, tries, at_once, about, target, keep=keep, as_json=as_json))


def _carry_out(
    loaded: Loaded,
    file: Path,
    tries: Sequence[Try],
    at_once: int,
    about: dict[str, Any],
    target: Path,
    *,
    keep: bool,
    as_json: bool,
) -> int:
    """Carry out the tries and return the exit code. The report of what ended is written in any case."""
    from ccswarm.cli.eval_view import view_of
    from ccswarm.config import config as files
    from ccswarm.evaluation import report as evaluation_report
    from ccswarm.evaluation import runner

    view = view_of(about["suite"], len(tries), as_json=as_json)
    settings = runner.settings_for(loaded.settings)
    complete = False
    with _root(keep) as root:
        evaluation = runner.Evaluation(settings, files.server_environment(), root, file.parent, view.tell, keep=keep)
        about["began"] = round(time.time(), 3)
        try:
            with view.shown():
                complete = asyncio.run(_interruptible(evaluation, tries, at_once))
        finally:
            about["ended"] = round(time.time(), 3)
            document = evaluation_report.document(about, evaluation.results, complete=complete)
            if evaluation.results:
                evaluation_report.write(target, document)
    good = complete and all(one.good for one in evaluation.results)
    code = EXIT_INTERRUPTED if not complete else 0 if good else EXIT_ERROR
    view.end({**document, "path": str(target), "exit_code": code}, evaluation_report.rows(evaluation.results))
    return code


@contextmanager
def _root(keep: bool) -> Generator[Path]:
    """Create a temporary directory, and remove it afterwards unless it is kept."""
    from ccswarm.system.confined_files import remove_tree

    root = Path(tempfile.mkdtemp(prefix="ccswarm-eval-"))
    try:
        yield root
    finally:
        if keep:
            remark(f"kept: {root}")
        else:
            remove_tree(root)


async def _interruptible(evaluation: Evaluation, tries: Sequence[Try], at_once: int) -> bool:
    """Carry out all tries. Report whether they were completed, without an interrupt."""
    from ccswarm.cli.watch import Interrupts

    interrupts = Interrupts()
    with interrupts.caught():
        try:
            await evaluation.carry_out(tries, at_once)
        except asyncio.CancelledError:
            if not interrupts.first.is_set():
                raise
            return False
    return True


def _file(suite: str, loaded: Loaded) -> Path:
    """Return the suite's file: a path, or a name here, next to the configuration, or shipped. Raises UsageInvalid."""
    if not suite:
        raise UsageInvalid("no suite given", suggestion=f"ccswarm eval SUITE; {_available(loaded)}")
    named = [Path(suite), *(folder / f"{suite}.toml" for folder in _folders(loaded))]
    if found := next((path for path in named if path.is_file()), None):
        return found
    raise UsageInvalid(f"there is no suite {suite!r}", suggestion=f"give the path of a suite; {_available(loaded)}")


def _folders(loaded: Loaded) -> list[Path]:
    return list(dict.fromkeys((SUITES, loaded.directory / SUITES, loaded.directory / "suites", SHIPPED)))


def _available(loaded: Loaded) -> str:
    names = sorted({path.stem for folder in _folders(loaded) for path in folder.glob("*.toml")})
    return f"there are: {', '.join(names)}" if names else f"there is none in {SUITES}"


def _require(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise UsageInvalid(f"there is no {what} {unknown[0]!r}", suggestion=f"use one of: {', '.join(known)}")


def _proving_entrants(shell: str) -> list[Entrant]:
    from ccswarm.evaluation.suite import Entrant

    agent = _agent("playbook", shell)
    return [
        Entrant("solution", agent),
        Entrant("nothing", agent, does="nothing", expected=False),
        Entrant("wrong", agent, does="wrong", expected=False),
    ]


def _agent(brain: str, shell: str) -> Any:
    from pydantic import ValidationError

    from ccswarm.config.settings import AgentSettings
    from ccswarm.evaluation.suite import RECORDED

    settings = {"model": RECORDED} if brain == "llm" else {}
    try:
        return AgentSettings(name=brain, brain=brain, grants=(f"{shell}.*",), settings=settings)
    except ValidationError:
        raise UsageInvalid(f"{brain!r} is not a brain", suggestion="use playbook, llm or cli") from None


def _entrants(loaded: Loaded, agents: list[str], brains: list[str]) -> list[Entrant]:
    """Return the entrants. Raises UsageInvalid for unknown agents, and for those that ask a person."""
    from ccswarm.evaluation.suite import Entrant

    configured = {agent.name: agent for agent in loaded.settings.agents}
    _require("agent", agents, list(configured))
    found: list[Entrant] = []
    for name in dict.fromkeys(agents):
        agent = configured[name].model_copy(update={"workspace": "shared"})
        delegates = any(fnmatchcase(DELEGATE, grant) for grant in agent.grants)
        others = tuple(one for one in configured.values() if one.name != name)
        found.append(Entrant(name, agent, others if delegates else ()))
    shell = loaded.settings.swarm.shell
    bare = dict.fromkeys(brains or ([] if agents else ["playbook"]))
    found += [Entrant(brain if brain not in agents else f"brain-{brain}", _agent(brain, shell)) for brain in bare]
    for one in found:
        if asks := [agent.name for agent in (one.agent, *one.others) if agent.approval != "auto"]:
            raise UsageInvalid(
                f"{', '.join(asks)} would ask a person, which an evaluation cannot do",
                suggestion="set approval = 'auto', and grant only what may be done",
            )
    return found


def _refuse_unable(tries: Sequence[Try]) -> None:
    """Raise ConfigInvalid for entrants whose brain cannot work: no package, no key, wrong settings."""
    from ccswarm.config import config as files
    from ccswarm.config import starters

    for one in {one.entrant.name: one for one in tries}.values():
        agent = one.entrant.agent_for(one.case)
        brain = starters.load_brain(agent.brain)
        if problems := brain.problems(agent, files.secret, priced=bool(agent.budget.dollars)):
            raise ConfigInvalid(f"{one.entrant.name}: {'; '.join(problems)}", suggestion="ccswarm doctor")


def _report_file(suite: Suite) -> Path:
    from ccswarm.config import config as files

    when = time.strftime("%Y%m%d-%H%M%S")
    return files.state_directory() / "evaluations" / f"{suite.suite.name}-{when}.json"


def _compare(before: Path, after: Path, as_json: bool) -> NoReturn:
    from ccswarm.evaluation import report as evaluation_report

    results: tuple[list[Result], list[Result]] = (evaluation_report.read(before), evaluation_report.read(after))
    rows = evaluation_report.compare(*results)
    broken = [row for row in rows if row["change"] == "broken"]
    code = EXIT_ERROR if broken else 0
    totals = [
        {"report": str(path), **total}
        for path, one in zip((before, after), results, strict=True)
        for total in evaluation_report.totals(one)
    ]
    if as_json:
        show_json({"cases": rows, "totals": totals, "broken": len(broken), "exit_code": code})
    else:
        used = evaluation_report.COUNTED
        shown = [{**row, **{name: f"{row[name]:+g}" if row.get(name) else "" for name in used}} for row in rows]
        show_rows(shown, ("case", "entrant", "change", "before", "after", *used))
        for total in totals:
            say(f"{total['report']}: {total['entrant']} {total['passed']} of {total['attempts']}")
    leave(code)
