"""The base of every error that is raised on purpose: a code, whose fault it is, and a next step.

CodedError
├── CallerError          the caller can fix it: the message says what, `suggestion` says how
└── OperatorError        the machine or its configuration must change
    └── ConfigInvalid    config_invalid
"""

from __future__ import annotations

from typing import ClassVar, Literal

Fault = Literal["caller", "operator", "internal"]


class CodedError(Exception):
    """The base of the tree. ``code`` is stable; ``suggestion`` names the next step."""

    code: ClassVar[str] = "internal_error"
    fault: ClassVar[Fault] = "internal"

    def __init__(self, message: str, *, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


class CallerError(CodedError):
    """An error that the caller can fix."""

    code = "caller_error"
    fault = "caller"


class OperatorError(CodedError):
    """An error that requires a change of the machine, a server or the configuration."""

    code = "operator_error"
    fault = "operator"


class ConfigInvalid(OperatorError, ValueError):
    """A configuration file or an environment variable is wrong; the message names every problem and its position."""

    code = "config_invalid"
