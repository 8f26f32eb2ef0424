"""Finds and parses ``${…}`` in the values of a plan, and inserts their values. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ccswarm.errors import PlanInvalid
from ccswarm.models import Json
from ccswarm.plan.shell_text import quote

TOKEN = re.compile(r"(\$\$\{)|\$\{[^{}]*\}?")
PART = re.compile(r"\.([^.\[\]{}]+)|\[(\d+)\]")
CONDITION = re.compile(r"\s*(\$\{[^{}]*\})\s*(?:(==|!=)(?!=)\s*(.*?)\s*)?", re.DOTALL)
FIELDS: Mapping[str, str] = {"steps": "steps.ID…", "needs": "needs.TASK…", "item": "item", "run": "run.id"} | {
    "task": "task.id}, ${task.attempt} or ${task.text",
    "agent": "agent.name",
    "workspace": "workspace",
}
"""The scopes of references, each with its form."""
WHOLE = {"run.id", "task.id", "task.attempt", "task.text", "agent.name", "workspace"}
"""The references without parts. Their values are texts."""
QUOTED = "${q:"
SHOWN_CHARACTERS = 80

Part = str | int


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference. Of ``${steps.list.files[0]}``, ``scope`` is ``steps``, and ``parts`` are ``list``, ``files`` and
    0. If ``quoted``, it is written ``${q:…}`` and stands for the value as one word of a shell."""

    text: str
    scope: str
    parts: tuple[Part, ...]
    quoted: bool = False

    @property
    def name(self) -> str:
        """The step or task it refers to; ``""`` in other scopes."""
        return str(self.parts[0]) if self.scope in ("steps", "needs") else ""


def tokens(value: Json) -> Iterator[str]:
    """Yield every ``${…}`` in a JSON value as written, without literals (``$${``). Keys are not searched."""
    if isinstance(value, str):
        yield from (found[0] for found in TOKEN.finditer(value) if not found[1])
    elif isinstance(value, Mapping):
        for item in cast("Mapping[str, Json]", value).values():
            yield from tokens(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[Json]", value):
            yield from tokens(item)


def parse(token: str) -> Reference:
    """Parse one ``${…}``. Raises PlanInvalid if it is not closed or not a known reference."""
    quoted = token.startswith(QUOTED)
    inner = token[len(QUOTED) if quoted else 2 : -1]
    scope = re.split(r"[.\[]", inner, maxsplit=1)[0]
    parts = _parts(inner[len(scope) :]) if token.endswith("}") else None
    known = parts is not None and scope in FIELDS
    if known and scope in ("steps", "needs"):
        known = bool(parts) and isinstance(parts[0], str)
    elif known and scope != "item":
        known = inner in WHOLE
    if parts is None or not known:
        forms = ", ".join(f"${{{form}}}" for form in FIELDS.values())
        raise PlanInvalid(
            f"{token[:SHOWN_CHARACTERS]} is not a reference",
            suggestion=f"valid: {forms}; write $${{ for a literal ${{",
        )
    return Reference(token, scope, parts, quoted)


def path(text: str) -> tuple[Part, ...]:
    """Parse the path of a value in a result: ``a.b[0]`` → a, b, 0. Raises PlanInvalid."""
    parts = _parts(text if text.startswith("[") else f".{text}")
    if parts is None:
        raise PlanInvalid(f"{text!r} is not a path", suggestion="write it as name.name[0]")
    return parts


def follow(value: Json, parts: Sequence[Part], *, what: str) -> Json:
    """Return the value at ``parts`` of ``value``. Raises PlanInvalid, naming ``what`` and the missing part."""
    for count, part in enumerate(parts):
        if isinstance(part, str) and isinstance(value, Mapping) and part in value:
            value = cast("Mapping[str, Json]", value)[part]
        elif isinstance(part, int) and isinstance(value, (list, tuple)) and part < len(cast("Sequence[Json]", value)):
            value = cast("Sequence[Json]", value)[part]
        else:
            missing = f"[{part}]" if isinstance(part, int) else part
            before = _format_path(parts[:count])
            raise PlanInvalid(
                f"{what} has no value: there is no {missing}" + (f" in {before}" if before else ""),
                suggestion=f"there is {_describe_contents(value)}",
            )
    return value


def resolve(value: Json, known: Mapping[str, Json]) -> Json:
    """Replace every reference in ``value`` by its value in ``known`` (scope → value).

    A text that is only a reference becomes that value, whatever its type; within a longer text the value is inserted as
    text. A quoted reference becomes one word of a shell, ``$${`` becomes ``${``. Raises PlanInvalid for a missing value
    or one that cannot be a word.
    """
    if isinstance(value, str):
        whole = TOKEN.fullmatch(value)
        if whole and not whole[1]:
            return _lookup(value, known)
        return TOKEN.sub(lambda found: "${" if found[1] else as_text(_lookup(found[0], known)), value)
    if isinstance(value, Mapping):
        return {key: resolve(item, known) for key, item in cast("Mapping[str, Json]", value).items()}
    if isinstance(value, (list, tuple)):
        return [resolve(item, known) for item in cast("Sequence[Json]", value)]
    return value


def literal(value: Json, unknown: Any, text: Any, known: Mapping[str, Json]) -> Any:
    """Return ``value`` as ``resolve`` would, as far as that is known.

    ``unknown`` is in place of each reference whose value may be of any type, and ``text`` in place of each other text
    that has references that are not known. Raises PlanInvalid as ``resolve``.
    """
    if isinstance(value, str):
        found = list(tokens(value))
        if not found or are_known(value, known):
            return resolve(value, known)
        return text if found != [value] or value.startswith(QUOTED) or value[2:-1] in WHOLE else unknown
    if isinstance(value, Mapping):
        return {key: literal(item, unknown, text, known) for key, item in cast("Mapping[str, Json]", value).items()}
    if isinstance(value, (list, tuple)):
        return [literal(item, unknown, text, known) for item in cast("Sequence[Json]", value)]
    return value


def are_known(value: str, known: Mapping[str, Json]) -> bool:
    """Report whether ``known``, which may lack scopes and fields of the task, decides every reference in ``value``."""
    if not known:
        return False
    found = map(parse, tokens(value))
    return all(one.scope in known and (one.scope != "task" or one.parts[0] in known["task"]) for one in found)


def items_of(value: Json) -> list[Json]:
    """Return the items of a for_each: a list, or the non-empty lines of a text. Raises PlanInvalid."""
    if isinstance(value, str):
        return [line for line in value.splitlines() if line.strip()]
    if isinstance(value, (list, tuple)):
        return list(cast("Sequence[Json]", value))
    raise PlanInvalid(f"for_each needs a list or a text, not {as_text(value)[:60]}")


def is_per_item(when: str) -> bool:
    """Report whether the condition is evaluated for each item of a for_each, not once for the step."""
    return any(parse(token).scope == "item" for token in tokens(when))


def as_text(value: Json) -> str:
    """Return text unchanged, and other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def json_equal(left: Json, right: Json) -> bool:
    """Report whether two JSON values are equal. 1 equals 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        ours, theirs = cast("Mapping[str, Json]", left), cast("Mapping[str, Json]", right)
        return ours.keys() == theirs.keys() and all(json_equal(ours[key], theirs[key]) for key in ours)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        first, second = cast("Sequence[Json]", left), cast("Sequence[Json]", right)
        return len(first) == len(second) and all(map(json_equal, first, second))
    return left == right


def condition(text: str) -> tuple[str, str, str]:
    """Parse ``${…}``, ``${…} == value`` or ``${…} != value``. Raises PlanInvalid. Returns the reference, the operator
    (or ``""``), and the value as written."""
    found = CONDITION.fullmatch(text)
    if not found:
        raise PlanInvalid(f"{text!r} is not a condition", suggestion="write ${…}, ${…} == value or ${…} != value")
    return found[1], found[2] or "", found[3] or ""


def holds(text: str, known: Mapping[str, Json]) -> bool:
    """Report whether a condition is true. Raises PlanInvalid for missing values. Without an operator, a value is true
    unless it is false, null, 0 or empty. White space around texts is ignored."""
    token, operator, written = condition(text)
    left = _lookup(token, known)
    if not operator:
        return bool(left.strip() if isinstance(left, str) else left)
    right = _literal(resolve(written, known))
    equal = json_equal(left, right) or as_text(left).strip() == as_text(right).strip()
    return equal is (operator == "==")


def _literal(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1]
    try:
        return json.loads(value)
    except ValueError:
        return value


def _lookup(token: str, known: Mapping[str, Json]) -> Json:
    reference = parse(token)
    if reference.scope not in known:
        raise PlanInvalid(f"{token} has no value here", suggestion=f"known here: {', '.join(known)}")
    value = follow(known[reference.scope], reference.parts, what=token)
    return _quote(value, token) if reference.quoted else value


def _quote(value: Json, token: str) -> str:
    try:
        return quote(as_text(value))
    except PlanInvalid as error:
        raise PlanInvalid(f"{token}: {error.message}", suggestion=error.suggestion) from None


def _parts(text: str) -> tuple[Part, ...] | None:
    found: list[Part] = []
    end = 0
    for match in PART.finditer(text):
        if match.start() != end:
            return None
        end = match.end()
        found.append(match[1] if match[1] is not None else int(match[2]))
    return tuple(found) if end == len(text) else None


def _format_path(parts: Sequence[Part]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _describe_contents(value: Any) -> str:
    if isinstance(value, Mapping):
        names = sorted(map(str, cast("Mapping[str, Json]", value)))
        return ", ".join(names[:20]) + (" …" if len(names) > 20 else "") if names else "nothing"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(cast('Sequence[Json]', value))}"
    return "nothing" if value is None else f"a plain value, {as_text(value)[:60]!r}"
