"""Every error ai_session raises on purpose.

    AiSessionError
    ├── CallerError                 the caller can fix it: the message says what, `suggestion` says how
    │   ├── InvalidArguments        invalid_arguments
    │   ├── UnknownTool             unknown_tool
    │   ├── SessionNotFound         session_not_found
    │   ├── SessionExists           session_exists
    │   ├── SessionExited           session_exited
    │   ├── SessionBusy             session_busy
    │   │   └── SessionTakenOver    session_taken_over
    │   ├── NothingRunning          nothing_running
    │   ├── CommandNotFound         command_not_found
    │   ├── QuestionNotFound        question_not_found
    │   ├── OutputExpired           output_expired
    │   ├── CursorExpired           cursor_expired
    │   ├── DirectoryUnusable       directory_unusable
    │   ├── FileUnusable            file_unusable
    │   ├── ShellUnavailable        shell_unavailable
    │   ├── CallKeyConflict         call_key_conflict
    │   ├── CallInterrupted         call_interrupted
    │   ├── LimitReached            limit_reached
    │   ├── Denied                  denied
    │   │   ├── InsufficientScope   insufficient_scope
    │   │   ├── SignatureNeeded     signature_needed
    │   │   └── SignatureRefused    signature_refused
    │   ├── ConsentNeeded           consent_needed
    │   └── RateLimited             rate_limited
    └── OperatorError               the machine or its configuration must change
        ├── ConfigInvalid           config_invalid
        ├── BackendUnavailable      backend_unavailable
        ├── TerminalsExhausted      terminals_exhausted
        ├── StorageFull             storage_full
        ├── RuntimeDirectoryUnsafe  runtime_directory_unsafe
        ├── SandboxUnavailable      sandbox_unavailable
        ├── SandboxRefused          sandbox_refused
        ├── HookFailed              hook_failed
        ├── AuditBroken             audit_broken
        ├── IntegrationLost         integration_lost
        ├── DaemonUnavailable       daemon_unavailable
        └── Incompatible            incompatible

An exit code is data, never an error; a timeout is a result with ``status="running"``.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentwire.errors import CallerError as CallerError
from agentwire.errors import CodedError
from agentwire.errors import ConfigInvalid as ConfigInvalid
from agentwire.errors import OperatorError as OperatorError

AiSessionError = CodedError
"""The base class for callers of this package to catch."""


class InvalidArguments(CallerError, ValueError):
    """One or more arguments do not fit the tool's schema. ``fields`` maps each of them to what is wrong with it."""

    code = "invalid_arguments"

    def __init__(self, message: str, *, suggestion: str = "", fields: Mapping[str, str] | None = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.fields = dict(fields or {})


class UnknownTool(CallerError, LookupError):
    """No tool has that name."""

    code = "unknown_tool"


class SessionNotFound(CallerError, LookupError):
    """No open session has that id or name."""

    code = "session_not_found"


class SessionExists(CallerError):
    """A session already has that name: a live one, or one with another box, shell or backend."""

    code = "session_exists"


class SessionExited(CallerError):
    """The session's shell has ended."""

    code = "session_exited"


class SessionBusy(CallerError):
    """The session already runs a command."""

    code = "session_busy"


class SessionTakenOver(SessionBusy):
    """A person has taken over the session and is the only one to type in it."""

    code = "session_taken_over"


class NothingRunning(CallerError):
    """There is no running command to act on."""

    code = "nothing_running"


class CommandNotFound(CallerError, LookupError):
    """The session ran no command with that id."""

    code = "command_not_found"


class QuestionNotFound(CallerError, LookupError):
    """No question with that id waits for an answer."""

    code = "question_not_found"


class OutputExpired(CallerError, LookupError):
    """The requested bytes are older than the retention limit."""

    code = "output_expired"


class CursorExpired(CallerError, LookupError):
    """The changes since the cursor are no longer known."""

    code = "cursor_expired"


class DirectoryUnusable(CallerError, OSError):
    """The working directory does not exist or cannot be entered."""

    code = "directory_unusable"


class FileUnusable(CallerError, OSError):
    """There is no such file in the workspace, or it cannot be read or written."""

    code = "file_unusable"


class ShellUnavailable(CallerError, LookupError):
    """The requested shell is not installed or not supported."""

    code = "shell_unavailable"


class CallKeyConflict(CallerError):
    """The call key was used before with other arguments, or for another session of that name."""

    code = "call_key_conflict"


class CallInterrupted(CallerError):
    """A call with this key was started, but its result was never recorded."""

    code = "call_interrupted"


class LimitReached(CallerError):
    """A configured limit is reached."""

    code = "limit_reached"


class Denied(CallerError, PermissionError):
    """The policy or a person refused the call."""

    code = "denied"


class InsufficientScope(Denied):
    """The caller's token does not have ``required_scope``."""

    code = "insufficient_scope"

    def __init__(self, message: str, required_scope: str = "", *, suggestion: str = "") -> None:
        super().__init__(message, suggestion=suggestion or f"ask for a token with {required_scope}")
        self.required_scope = required_scope


class SignatureNeeded(Denied):
    """Nothing proves that a person agrees; a signature would."""

    code = "signature_needed"


class SignatureRefused(Denied):
    """The signature is not that of the enrolled key over exactly this action, or was used before."""

    code = "signature_refused"


class ConsentNeeded(CallerError, PermissionError):
    """A person has to agree first, and could not be asked through this client."""

    code = "consent_needed"


class RateLimited(CallerError):
    """Too many calls; the same call is accepted after ``retry_after_seconds``."""

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_seconds: float = 0.0, suggestion: str = "") -> None:
        super().__init__(message, suggestion=suggestion)
        self.retry_after_seconds = retry_after_seconds


class BackendUnavailable(OperatorError):
    """The terminal backend cannot be used on this machine, or has stopped."""

    code = "backend_unavailable"


class TerminalsExhausted(OperatorError, OSError):
    """The system is out of pseudo-terminals, file descriptors or processes."""

    code = "terminals_exhausted"


class StorageFull(OperatorError, OSError):
    """The disk that holds the session directory is full."""

    code = "storage_full"


class RuntimeDirectoryUnsafe(OperatorError):
    """The runtime directory belongs to another user, is open to others, cannot be entered, or has foreign files."""

    code = "runtime_directory_unsafe"


class SandboxUnavailable(OperatorError):
    """This machine cannot contain a shell as strongly as required."""

    code = "sandbox_unavailable"


class SandboxRefused(OperatorError):
    """The workspace cannot be protected as it is, for example because a protected path is a symbolic link."""

    code = "sandbox_refused"


class HookFailed(OperatorError):
    """The program that is asked before calls run did not answer, so nothing was run."""

    code = "hook_failed"


class AuditBroken(OperatorError):
    """The audit log does not verify."""

    code = "audit_broken"


class IntegrationLost(OperatorError):
    """The shell no longer reports its marks."""

    code = "integration_lost"


class DaemonUnavailable(OperatorError, ConnectionError):
    """The daemon does not answer and could not be started."""

    code = "daemon_unavailable"


class Incompatible(OperatorError):
    """The versions of client and daemon have no protocol in common."""

    code = "incompatible"
