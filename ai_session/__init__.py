"""Real, persistent terminals that AI agents and people share.

    import ai_session

    with ai_session.open("build") as session:
        done = session.run("make", timeout=600)
        print(done.exit_code, done.output)

``ai_session.aio`` has the same names, awaited. Importing the package costs nothing until one of its names is used: the
relay, which every MCP client starts, must answer in milliseconds.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ai_session.api import aio
    from ai_session.api.blocking import Command, Session, list_sessions, open  # noqa: A004
    from ai_session.api.spawn import spawn
    from ai_session.api.values import CommandFailed, CommandResult, NotExpected, Screen, SessionInfo
    from ai_session.errors import AiSessionError, ConsentNeeded, Denied, SessionBusy

__all__ = [
    "AiSessionError",
    "Command",
    "CommandFailed",
    "CommandResult",
    "ConsentNeeded",
    "Denied",
    "NotExpected",
    "Screen",
    "Session",
    "SessionBusy",
    "SessionInfo",
    "aio",
    "list_sessions",
    "open",
    "spawn",
]


def __getattr__(name: str) -> object:
    """Load the API's names when one is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "aio":
        from ai_session.api import aio

        return aio
    if name == "spawn":
        from ai_session.api.spawn import spawn

        return spawn
    from ai_session import errors
    from ai_session.api import blocking, values

    found = next(getattr(module, name) for module in (blocking, values, errors) if hasattr(module, name))
    globals()[name] = found
    return found
