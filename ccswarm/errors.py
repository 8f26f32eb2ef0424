"""Every error ccswarm raises on purpose.

    SwarmError
    ├── CallerError              the caller can fix it: the message says what, `suggestion` says how
    │   ├── UsageInvalid         usage_invalid
    │   ├── PlanInvalid          plan_invalid
    │   ├── InvalidArguments     invalid_arguments
    │   ├── UnknownTool          unknown_tool
    │   ├── NotGranted           not_granted
    │   ├── ApprovalNeeded       approval_needed
    │   ├── Rejected             rejected
    │   ├── BudgetExhausted      budget_exhausted
    │   ├── MessageForbidden     message_forbidden
    │   ├── RunNotFound          run_not_found
    │   └── Conflict             conflict
    │       └── WorkRefused      work_refused
    └── OperatorError            the machine, a server or the configuration must change
        ├── ConfigInvalid        config_invalid
        ├── ConfigChanged        config_changed
        ├── ServerUnavailable    server_unavailable
        │   └── LoginNeeded      login_needed
        ├── ServerLost           server_lost
        ├── CallTimedOut         call_timed_out
        ├── EngineUnavailable    engine_unavailable
        ├── StorageFull          storage_full
        ├── WorkspaceUnusable    workspace_unusable
        └── JournalBroken        journal_broken

A tool that answers with an error, and an exit code other than 0, are results, never exceptions.
"""

from __future__ import annotations

from agentwire.errors import CallerError as CallerError
from agentwire.errors import CodedError
from agentwire.errors import ConfigInvalid as ConfigInvalid
from agentwire.errors import OperatorError as OperatorError

SwarmError = CodedError
"""What a caller of this package catches."""


class UsageInvalid(CallerError, ValueError):
    """A command line or a request makes no sense as it is."""

    code = "usage_invalid"


class PlanInvalid(CallerError, ValueError):
    """A plan cannot be carried out as it is written; the message names every problem."""

    code = "plan_invalid"


class InvalidArguments(CallerError, ValueError):
    """Arguments do not fit the tool's schema."""

    code = "invalid_arguments"


class UnknownTool(CallerError, LookupError):
    """No server has a tool of that name."""

    code = "unknown_tool"


class NotGranted(CallerError, PermissionError):
    """The agent may not use the tool."""

    code = "not_granted"


class ApprovalNeeded(CallerError, PermissionError):
    """A person has to agree first."""

    code = "approval_needed"


class Rejected(CallerError, PermissionError):
    """A person said no."""

    code = "rejected"


class AnsweredAlready(CallerError):
    """Somebody else's answer to the question counts."""

    code = "answered_already"


class BudgetExhausted(CallerError):
    """A budget of the agent, the task or the run is used up."""

    code = "budget_exhausted"


class MessageForbidden(CallerError, PermissionError):
    """The topology does not let this agent write to that one."""

    code = "message_forbidden"


class RunNotFound(CallerError, LookupError):
    """No run has that id."""

    code = "run_not_found"


class Conflict(CallerError):
    """Results cannot be brought together without a person."""

    code = "conflict"


class WorkRefused(Conflict):
    """What an agent left cannot be taken over as it is; the message names the file."""

    code = "work_refused"


class ConfigChanged(OperatorError):
    """A configuration is not what a person used last, and no person has agreed to it. ``path`` is the file's,
    ``change`` what has become of it, where that is known."""

    code = "config_changed"

    def __init__(self, message: str, *, suggestion: str = "", path: str = "", change: object = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.path = path
        self.change = change


class ServerUnavailable(OperatorError, ConnectionError):
    """An MCP server could not be started or does not speak the protocol; the message has its last words."""

    code = "server_unavailable"


class LoginNeeded(ServerUnavailable):
    """An MCP server wants a login, or one that may do more; the message names the command. Nothing was done."""

    code = "login_needed"


class ServerLost(OperatorError, ConnectionError):
    """An MCP server ended while a call was under way: whether it had an effect is not known."""

    code = "server_lost"


class CallTimedOut(OperatorError, TimeoutError):
    """A server did not answer a call in time: whether it had an effect is not known."""

    code = "call_timed_out"


class EngineUnavailable(OperatorError):
    """The store of the runs cannot be reached or used."""

    code = "engine_unavailable"


class StorageFull(OperatorError, OSError):
    """The disk is full."""

    code = "storage_full"


class WorkspaceUnusable(OperatorError):
    """An agent's directory cannot be made or used."""

    code = "workspace_unusable"


class JournalBroken(OperatorError):
    """The journal cannot be written, or is not what was written."""

    code = "journal_broken"
