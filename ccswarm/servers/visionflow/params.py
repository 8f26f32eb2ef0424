"""The parameters of methods: checked one by one, and described as a schema."""

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
    """One parameter; ``null`` is as good as nothing. ``choices`` may be asked for each time."""

    kind: str
    about: str = ""
    required: bool = False
    default: Any = None
    choices: Sequence[str] = ()
    least: int = 1
    most: int = MOST_CHARS

    def schema(self) -> dict[str, Any]:
        """The parameter's JSON Schema."""
        facts: dict[str, Any] = {"type": self.kind, "description": self.about}
        facts |= {"enum": list(self.choices)} if self.choices else {}
        facts |= {"items": {"type": "string"}} if self.kind == "array" else {}
        facts |= {"minimum": self.least} if self.kind == "integer" else {}
        return facts if self.default is None else {**facts, "default": self.default}

    def problem(self, value: Any) -> str:
        """What is wrong with it; empty where it fits."""
        wanted, problem = TYPES[self.kind]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
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
    """Of all of them, as ``inputSchema``."""
    properties = {name: param.schema() for name, param in params.items()}
    required = [name for name, param in params.items() if param.required]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def checked(params: Params, given: Mapping[str, Any], more: Callable[[str], Sequence[str]]) -> dict[str, Any]:
    """Those there are, with defaults; what nobody knows is left out. ``more`` are further choices of a parameter, asked
    for where a value is none of its own. Raises Fault."""
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
