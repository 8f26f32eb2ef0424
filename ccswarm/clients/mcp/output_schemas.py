"""Checks whether answers match their tools' output schemas. A mismatch is only reported, so no answer is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsonschema
import jsonschema.validators
import referencing
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

MAX_NODES = 20_000
"""The largest answer that is checked, which takes 40 ms."""

MAX_MESSAGE = 500

# jsonschema says little of its types.
_extend: Any = jsonschema.validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
# Matching a server's pattern with the server's own text may take forever.
_Validator = _extend(jsonschema.Draft202012Validator, {"pattern": None, "patternProperties": None})
_empty_registry: Any = referencing.Registry  # references are not fetched


class OutputSchemas:
    """The output schemas of one server's tools, each compiled once."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[Mapping[str, Any], Any]] = {}

    def problem(self, tool: str, schema: Mapping[str, Any], structured: Any) -> str:
        """Return the mismatch of an answer; ``""`` if it matches or was not checked."""
        if structured is None:
            return "structuredContent is missing"
        if not _is_small(structured):
            return ""
        try:
            error = next(self._validator(tool, schema).iter_errors(structured), None)
        except (SchemaError, Unresolvable, RecursionError) as broken:
            return f"the schema itself cannot be used: {broken!s:.{MAX_MESSAGE}}"
        if error is None:
            return ""
        path = ".".join(str(part) for part in error.absolute_path)
        return f"{path or 'structuredContent'}: {error.message:.{MAX_MESSAGE}}"

    def _validator(self, tool: str, schema: Mapping[str, Any]) -> Any:
        known = self._compiled.get(tool)
        if known is None or known[0] is not schema:
            _Validator.check_schema(schema)
            known = self._compiled[tool] = (schema, _Validator(schema, registry=_empty_registry()))
        return known[1]


def _is_small(value: Any) -> bool:
    waiting = [value]
    for _ in range(MAX_NODES):
        if not waiting:
            return True
        node = waiting.pop()
        if isinstance(node, dict):
            waiting += cast("dict[str, Any]", node).values()
        elif isinstance(node, list):
            waiting += cast("list[Any]", node)
    return False
