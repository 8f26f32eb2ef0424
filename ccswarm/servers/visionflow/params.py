"""The parameters of methods: checked one by one, and described as a JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ccswarm.servers.visionflow.errors import INVALID_PARAMS, Fault

MOST_CHARS = 20_000
MOST_ITEMS = 100
TYPES: Mapping[str, tuple[type, str]] = {
    "string": (str, "Must be a string"),
    "integer": (int, "Must be an integer"),
    "boolean": (bool, "Must be a boolean"),
    "array": (list, "Must be an array of strings"),
    "object": (dict, "Must be an object"),
}


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter; ``null`` counts as absent."""

    kind: str
    about: str = ""
    required: bool = False
    default: Any = None
    choices: Sequence[str] = ()
    least: int = 1
    most: int = MOST_CHARS

    def schema(self) -> dict[str, Any]:
        """Return the parameter's JSON Schema."""
        facts: dict[str, Any] = {"type": self.kind, "description": self.about}
        facts |= {"enum": list(self.choices)} if self.choices else {}
        facts |= {"items": {"type": "string"}} if self.kind == "array" else {}
        facts |= {"minimum": self.least} if self.kind == "integer" else {}
        return facts if self.default is None else {**facts, "default": self.default}

    def problem(self, value: Any) -> str:
        """Return what is wrong with ``value``; empty if nothing is."""
        expected, problem = TYPES[self.kind]
        if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
            return problem
        if self.choices and value not in self.choices:
            return f"Must be one of: {', '.join(self.choices)}"
        if self.kind == "integer" and value < self.least:
            return f"Must be at least {self.least}"
        if self.kind == "array":
            items = cast("list[object]", value)
            fit = len(items) <= MOST_ITEMS and all(isinstance(item, str) and len(item) <= MOST_CHARS for item in items)
            return "" if fit else f"{problem}, at most {MOST_ITEMS}"
        if self.kind != "string":
            return ""
        if self.required and not str(value).strip():
            return "Must not be empty"
        return f"Must have at most {self.most} characters" if len(str(value)) > self.most else ""


Params = Mapping[str, Param]


def schema_of(params: Params) -> dict[str, Any]:
    """Return the ``inputSchema`` of the parameters."""
    properties = {name: param.schema() for name, param in params.items()}
    required = [name for name, param in params.items() if param.required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def checked(params: Params, given: Mapping[str, Any], more: Callable[[str], Sequence[str]]) -> dict[str, Any]:
    """Return the values of all parameters, with defaults and without unknown ones. ``more`` returns further choices of
    a parameter, and is called for a value that is not among its own. Raises Fault."""
    found: dict[str, Any] = {}
    for name, param in params.items():
        value = given.get(name)
        if value is None:
            if param.required:
                raise Fault(INVALID_PARAMS, name, "Required")
            found[name] = param.default
            continue
        if param.problem(value) and isinstance(value, str) and param.choices and (others := more(name)):
            param = Param(param.kind, choices=others)
        if problem := param.problem(value):
            raise Fault(INVALID_PARAMS, name, problem)
        found[name] = value
    return found
