"""Orchestration of agents over MCP servers.

    import ccswarm

    with ccswarm.working():
        run = ccswarm.submit("plan.toml")
        print(run.wait().answer)

``ccswarm.aio`` has the same names for asyncio. Importing the package loads nothing until one of its names is used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ccswarm.api import aio
    from ccswarm.api.blocking import McpClient, Run, check, find_run, list_runs, submit, working
    from ccswarm.api.values import RunEvent, RunInfo, WorkDiff
    from ccswarm.errors import PlanInvalid, SwarmError
    from ccswarm.models import CallOutcome, ToolInfo

__all__ = [
    "CallOutcome",
    "McpClient",
    "PlanInvalid",
    "Run",
    "RunEvent",
    "RunInfo",
    "SwarmError",
    "ToolInfo",
    "WorkDiff",
    "aio",
    "check",
    "find_run",
    "list_runs",
    "submit",
    "working",
]


def __getattr__(name: str) -> object:
    """Load a name of the API when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ccswarm import errors, models

    found = next((vars(module)[name] for module in (errors, models) if name in vars(module)), None)
    if not found:
        from ccswarm.api import aio, blocking, values

        known = {"aio": aio, **vars(values), **vars(blocking)}
        found = known[name]
    globals()[name] = found
    return found
