"""What dbos stores: JSON in ASCII and nothing else, errors included."""

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
    """JSON text that is stored as it is."""

    __slots__ = ()


class AsciiJson(Serializer):
    """Portable JSON of dbos, but escaped: a lone surrogate, as broken output of a terminal has them, is no valid
    UTF-8 and would not be stored. Exceptions become their class, message and suggestion."""

    def name(self) -> str:
        """What rows are marked with."""
        return "ccswarm_json"

    def serialize(self, data: Any) -> str:
        """Raises TypeError for what is no JSON."""
        return str(data) if isinstance(data, Recorded) else json.dumps(data, default=plain)

    def deserialize(self, serialized_data: str) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An error comes back as an exception."""
        value: Any = json.loads(serialized_data)
        if isinstance(value, dict) and list(cast("dict[str, Any]", value)) == [ERROR]:
            return error_of(cast("dict[str, Any]", value)[ERROR])
        return cast("Any", value)


def plain(value: object) -> Json:
    """An exception as JSON; TypeError for everything else."""
    if isinstance(value, BaseException):
        return {ERROR: words_of(value)}
    raise TypeError(f"{type(value).__name__} is not JSON")


def words_of(error: BaseException) -> list[str]:
    """Class, message and suggestion."""
    message = error.message if isinstance(error, SwarmError) else str(error)
    return [type(error).__name__, message, getattr(error, "suggestion", "")]


def error_of(words: Sequence[str]) -> Exception:
    """The exception ``words_of`` was given, where its class is ours or built in; otherwise a RuntimeError."""
    name, message, suggestion = words
    kind = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, SwarmError):
        return kind(message, suggestion=suggestion)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError and its like take more than a message
            return RuntimeError(f"{name}: {message}")
    return RuntimeError(f"{name}: {message}")


def text_of(error: object) -> str:
    """One line about a stored error."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return "stored data cannot be read" if error else ""


def harden() -> None:
    """Once per process. dbos unpickles what a row claims to be pickled, whatever serializer it was given; and it prints
    its log unless its logger has a handler already, as Python does with warnings nobody handles."""

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
    """What ended in the moment in which it was cancelled is cancelled, and dbos calls that an error."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, DBOSAwaitedWorkflowCancelledError | DBOSWorkflowCancelledError)
