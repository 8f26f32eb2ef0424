"""Every error that ccswarm raises on purpose.

    SwarmError
    ├── CallerError              the caller can fix it: the message says what, `suggestion` says how
    │   ├── UsageInvalid         usage_invalid
    │   ├── PlanInvalid          plan_invalid
    │   ├── InvalidArguments     invalid_arguments
    │   ├── UnknownTool          unknown_tool
    │   ├── NotGranted           not_granted
    │   ├── ApprovalNeeded       approval_needed
    │   ├── Rejected             rejected
    │   ├── AnsweredAlready      answered_already
    │   ├── BudgetExhausted      budget_exhausted
    │   ├── MessageForbidden     message_forbidden
    │   ├── RunNotFound          run_not_found
    │   ├── QuestionNotFound     question_not_found
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

A tool's error and an exit code other than 0 are results, never exceptions.
"""

from __future__ import annotations

from agentwire.errors import CallerError as CallerError
from agentwire.errors import CodedError
from agentwire.errors import ConfigInvalid as ConfigInvalid
from agentwire.errors import OperatorError as OperatorError

SwarmError = CodedError
"""The base of all errors of this package, for callers to catch."""


class UsageInvalid(CallerError, ValueError):
    """A command line or a request is not valid."""

    code = "usage_invalid"


class PlanInvalid(CallerError, ValueError):
    """A plan cannot be carried out as written. The message names every problem."""

    code = "plan_invalid"


class InvalidArguments(CallerError, ValueError):
    """The arguments do not match the tool's schema."""

    code = "invalid_arguments"


class UnknownTool(CallerError, LookupError):
    """No server has a tool of that name."""

    code = "unknown_tool"


class NotGranted(CallerError, PermissionError):
    """The agent has no grant for the tool."""

    code = "not_granted"


class ApprovalNeeded(CallerError, PermissionError):
    """The call needs a person's approval first."""

    code = "approval_needed"


class Rejected(CallerError, PermissionError):
    """A person rejected the call."""

    code = "rejected"


class AnsweredAlready(CallerError):
    """The question was answered before, and the first answer counts."""

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


class QuestionNotFound(CallerError, LookupError):
    """No question with that id waits for an answer."""

    code = "question_not_found"


class Conflict(CallerError):
    """Results cannot be merged without a person."""

    code = "conflict"


class WorkRefused(Conflict):
    """An agent's work cannot be accepted as it is. The message names the file."""

    code = "work_refused"


class ConfigChanged(OperatorError):
    """A configuration file has changed since a person last approved it. ``path`` names the file, ``change`` describes
    the difference, if it is known."""

    code = "config_changed"

    def __init__(self, message: str, *, suggestion: str = "", path: str = "", change: object = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.path = path
        self.change = change


class ServerUnavailable(OperatorError, ConnectionError):
    """An MCP server cannot be started or does not speak the protocol. The message has its last output."""

    code = "server_unavailable"


class LoginNeeded(ServerUnavailable):
    """An MCP server requires a login, or more scopes. Nothing was done; the message names the command to run."""

    code = "login_needed"


class ServerLost(OperatorError, ConnectionError):
    """An MCP server ended during a call. Whether the call had an effect is unknown."""

    code = "server_lost"


class CallTimedOut(OperatorError, TimeoutError):
    """A server did not answer a call in time. Whether the call had an effect is unknown."""

    code = "call_timed_out"


class EngineUnavailable(OperatorError):
    """The store of runs cannot be reached or used."""

    code = "engine_unavailable"


class StorageFull(OperatorError, OSError):
    """The disk is full."""

    code = "storage_full"


class WorkspaceUnusable(OperatorError):
    """An agent's directory cannot be created or used."""

    code = "workspace_unusable"


class JournalBroken(OperatorError):
    """The journal cannot be written, or its records were altered."""

    code = "journal_broken"
