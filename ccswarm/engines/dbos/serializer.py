"""The serializer for dbos: it stores only ASCII JSON, even for errors."""

from __future__ import annotations

import builtins
import json
import logging
from collections.abc import Sequence
from typing import Any, cast

from dbos import Serializer
from dbos._error import DBOSAwaitedWorkflowCancelledError, DBOSWorkflowCancelledError
from dbos._serialization import DefaultSerializer

from ccswarm import errors
from ccswarm.engines.dbos.rows import ERROR
from ccswarm.errors import EngineUnavailable, SwarmError
from ccswarm.models import Json


class Recorded(str):
    """JSON text that is stored unchanged."""

    __slots__ = ()


class AsciiJson(Serializer):
    """dbos's portable JSON, but escaped. A lone surrogate, as in broken terminal output, is not valid UTF-8 and could
    not be stored. Exceptions are stored as their class, message and suggestion."""

    def name(self) -> str:
        """Return the name that rows are marked with."""
        return "ccswarm_json"

    def serialize(self, data: Any) -> str:
        """Convert to JSON. Raises TypeError for other values."""
        return str(data) if isinstance(data, Recorded) else json.dumps(data, default=encode_exception)

    def deserialize(self, serialized_data: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Convert from JSON. A stored error becomes an exception."""
        value: Any = json.loads(serialized_data)
        if isinstance(value, dict) and list(cast("dict[str, Any]", value)) == [ERROR]:
            return decode_error(cast("dict[str, Any]", value)[ERROR])
        return cast("Any", value)


def encode_exception(value: object) -> Json:
    """Convert an exception for JSON. Raises TypeError for anything else."""
    if isinstance(value, BaseException):
        return {ERROR: encode_error(value)}
    raise TypeError(f"{type(value).__name__} is not JSON")


def encode_error(error: BaseException) -> list[str]:
    """Return the class, message and suggestion of an exception."""
    message = error.message if isinstance(error, SwarmError) else str(error)
    return [type(error).__name__, message, getattr(error, "suggestion", "")]


def decode_error(words: Sequence[str]) -> Exception:
    """Rebuild an exception from ``encode_error``, if its class is built in or ours; otherwise a RuntimeError."""
    name, message, suggestion = words
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, SwarmError):
        return kind(message, suggestion=suggestion)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError and others need more than a message
            return RuntimeError(f"{name}: {message}")
    return RuntimeError(f"{name}: {message}")


def describe_error(error: object) -> str:
    """Describe a stored error in one line."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return "stored data cannot be read" if error else ""


def harden() -> None:
    """Make dbos safe and quiet. Call it once per process. dbos unpickles rows that claim to be pickled, whatever
    serializer it has. And without a handler on its logger it prints its log to the terminal."""

    def refuse(_: object, serialized_data: str) -> Any:
        raise EngineUnavailable(
            f"the store holds pickled data ({len(serialized_data)} characters)",
            suggestion="another program wrote to it: check who has access",
        )

    DefaultSerializer.deserialize = refuse  # pyright: ignore[reportAttributeAccessIssue]
    for name in ("dbos", "ccswarm.engines"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    logging.getLogger("dbos").addFilter(_worth_logging)


def _worth_logging(record: logging.LogRecord) -> bool:
    """Drop the errors by which dbos reports executions that ended while they were cancelled."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, DBOSAwaitedWorkflowCancelledError | DBOSWorkflowCancelledError)
