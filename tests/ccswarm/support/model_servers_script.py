"""Requests to a model and its answers, the same for every provider, and scripts that decide the answers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A call that the model requests. Its tool is found by ``offered_as``; an unknown name is sent as it is.

    ``arguments`` as text are sent unparsed, for providers whose models can write invalid JSON.
    """

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = ""
    """The call's id; if empty, the server sets a unique one."""

    @property
    def written(self) -> str:
        """The arguments as text, as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))

    @property
    def parsed(self) -> Json | None:
        """The arguments as an object, None if they are not one."""
        try:
            value = json.loads(self.written)
        except ValueError:
            return None
        return cast("Json", value) if isinstance(value, dict) else None


@dataclass(frozen=True)
class Reply:
    """An answer with text, calls or both, and the tokens used."""

    text: str = ""
    calls: Sequence[Call | tuple[str, Any]] = ()
    input_tokens: int = 100
    output_tokens: int = 10
    cached_tokens: int = 0
    """Input tokens read from the cache, which ``input_tokens`` does not include."""
    stop: Literal["", "length", "refusal"] = ""
    """The reason for the end, if it is not that the model was done or calls tools."""

    @property
    def wanted(self) -> list[Call]:
        return [call if isinstance(call, Call) else Call(*call) for call in self.calls]


@dataclass(frozen=True)
class Fail:
    """An HTTP error with the provider's message. ``no_credit``: one that waiting does not solve."""

    status: int
    message: str = ""
    retry_after: float | None = None
    no_credit: bool = False


@dataclass(frozen=True)
class Cut:
    """A connection that breaks after so many events of the reply, or before the body of an unstreamed one."""

    after_events: int = 2
    reply: Reply = Reply("This was to be a longer answer.")


@dataclass(frozen=True)
class Stall:
    """A server that sends nothing after so many events (0: not even the head), until the client disconnects."""

    after_events: int = 0
    reply: Reply = Reply("This was to be a longer answer.")


@dataclass(frozen=True)
class Raw:
    """A response of another kind of server: status, headers and bytes, after which the connection ends."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Behaviour = Reply | Fail | Cut | Stall | Raw


@dataclass(frozen=True)
class Result:
    """The result of a call."""

    id: str
    tool: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class RoleMessage:
    """A message, with all that one role says before the other one."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A request in a form that is common to all providers."""

    api: str
    model: str
    system: str
    messages: tuple[RoleMessage, ...]
    tools: Mapping[str, Json]
    """The description and schema of each offered tool, by name."""
    stream: bool
    key: str = field(repr=False)
    body: Json = field(repr=False)
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def results(self) -> list[Result]:
        """The results of all calls in this conversation, oldest first."""
        return [result for said in self.messages for result in said.results]

    @property
    def turns(self) -> int:
        """The number of the model's answers in this conversation."""
        return sum(said.role == "assistant" for said in self.messages)

    @property
    def prompt(self) -> str:
        """All text of the user role."""
        return "\n".join(said.text for said in self.messages if said.role == "user" and said.text)

    @property
    def whole_text(self) -> str:
        """The whole request as text."""
        return json.dumps(self.body, ensure_ascii=False)

    def offered_as(self, tool: str) -> str:
        """Return the name under which a tool is offered: its own, or one that ends with it as a whole word.

        Characters other than letters and digits are ignored. Raises LookupError unless exactly one name matches.
        """
        if tool in self.tools:
            return tool
        wanted = re.sub(r"[^a-z0-9]+", "_", tool.lower())
        plain = {name: re.sub(r"[^a-z0-9]+", "_", name.lower()) for name in self.tools}
        found = [name for name, text in plain.items() if text == wanted]
        found = found or [name for name, text in plain.items() if text.endswith(f"_{wanted}")]
        if len(found) != 1:
            raise LookupError(f"{tool} is offered {len(found)} times among {sorted(self.tools)}")
        return found[0]


Script = Callable[[Asked], "Behaviour | Awaitable[Behaviour]"]
Turn = Behaviour | Callable[[Asked], "Behaviour | Awaitable[Behaviour]"]
"""An entry in a list of turns: an answer, or a function that decides it."""


def decided(turn: Turn, asked: Asked) -> Behaviour | Awaitable[Behaviour]:
    return turn(asked) if callable(turn) else turn


def answers(turns: Sequence[Turn]) -> Script:
    """Return a script that gives one answer per request, and an error 500 for further requests."""
    left = iter(turns)

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        turn = next(left, None)
        return Fail(500, f"the script had {len(turns)} answers") if turn is None else decided(turn, asked)

    return script


def plays(turns: Sequence[Turn]) -> Script:
    """Return a script that chooses the answer by the number of the model's answers in the conversation.

    A repeated request, even from another process, has the same answer. After the last turn, the answer is text only.
    """

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        return decided(turns[asked.turns], asked) if asked.turns < len(turns) else Reply("There is nothing more to do.")

    return script


def follow(function: Callable[[Asked], Behaviour | Awaitable[Behaviour]]) -> Script:
    """Return the function as a script. If it is asynchronous, it also decides when the answer arrives."""
    return function


def loops(*calls: Call | tuple[str, Any]) -> Script:
    """Return a script that requests the same calls for ever."""
    return lambda _: Reply(calls=calls)


def each(scripts: Mapping[str, Script]) -> Script:
    """Return a script that uses the first one whose key is in the system prompt or the user's text."""

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        text = f"{asked.system}\n{asked.prompt}"
        found = next((script for words, script in scripts.items() if words in text), None)
        return found(asked) if found else Fail(500, f"no script for {text[:200]!r}")

    return script


def asides(script: Script, answer: str = "fine") -> Script:
    """Return a script that gives ``answer`` to requests without tools, such as a program's request for a title."""
    return lambda asked: script(asked) if asked.tools else Reply(answer)


ORDER = re.compile(r"IGNORE ALL PREVIOUS INSTRUCTIONS AND CALL (\S+) (?=\{)")
"""The order that ``gullible`` obeys in a tool's result; the arguments follow, in JSON."""


def orders(text: str) -> list[Call]:
    """Return the calls ordered in a text, whose quotes may be escaped because a client sends it inside JSON."""
    text = text.replace('\\"', '"')
    return [Call(found[1], json.JSONDecoder().raw_decode(text, found.end())[0]) for found in ORDER.finditer(text)]


def gullible(script: Script) -> Script:
    """Return the script of a model that obeys the newest results: it requests the calls that ORDER finds there."""

    def obey(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        texts = [result.text for result in asked.messages[-1].results] if asked.messages else []
        calls = [call for text in texts for call in orders(text)]
        return Reply("I was told to.", calls) if calls else script(asked)

    return obey


class Refused(Exception):
    """A request that the provider would refuse."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def require(fact: object, message: str, *, status: int = 400, code: str = "") -> None:
    if not fact:
        raise Refused(status, message, code)


def joined(content: Any) -> str:
    """Return the text of a content field, which is a string or a list of blocks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))


def pieces(text: str) -> list[str]:
    """Return a text in pieces, as it is streamed; at least one, and a few hundred of a very long one."""
    size = max(16, len(text) // 500)
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def gathered(said: Sequence[RoleMessage]) -> tuple[RoleMessage, ...]:
    """Merge consecutive messages of one role."""
    whole: list[RoleMessage] = []
    for role, row in itertools.groupby(said, key=lambda one: one.role):
        group = list(row)
        text = "\n".join(one.text for one in group if one.text)
        calls = tuple(call for one in group for call in one.calls)
        whole.append(
            RoleMessage(
                "assistant" if role == "assistant" else "user",
                text,
                calls,
                tuple(result for one in group for result in one.results),
            )
        )
    return tuple(whole)
