"""Whether answers are what a server says they are. It is only said, so that no answer is lost for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsonschema
import jsonschema.validators
import referencing
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

MAX_NODES = 20_000
"""Of an answer that is checked: 40 ms. Larger ones are let be."""

MAX_MESSAGE = 500

# jsonschema says little of its types.
_extend: Any = jsonschema.validators.extend  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
# A pattern of a server on a text of the same server may take for ever.
_Validator = _extend(jsonschema.Draft202012Validator, {"pattern": None, "patternProperties": None})
_nothing: Any = referencing.Registry  # what is referred to is not fetched


class OutputSchemas:
    """The schemas of one server's answers, each compiled once."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[Mapping[str, Any], Any]] = {}

    def problem(self, tool: str, schema: Mapping[str, Any], structured: Any) -> str:
        """What about an answer does not fit; ``""`` when it does, or was not looked at."""
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
            known = self._compiled[tool] = (schema, _Validator(schema, registry=_nothing()))
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
