"""What a model is asked and what it answers, the same for every provider; and scripts that decide between the two."""

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
    """A tool the model wants used. The name is looked up among those offered (`offered_as`); one that is not there is
    sent as it is. ``arguments`` as text is sent unparsed, where a provider lets a model write what is no JSON."""

    tool: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    id: str = ""
    """Empty: the server gives it one that no other call has."""

    @property
    def written(self) -> str:
        """The arguments as the model writes them."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(dict(self.arguments))

    @property
    def parsed(self) -> Json | None:
        """The arguments as an object; None where they are none."""
        try:
            value = json.loads(self.written)
        except ValueError:
            return None
        return cast("Json", value) if isinstance(value, dict) else None


@dataclass(frozen=True)
class Reply:
    """An answer: words, calls, or both, and what it cost."""

    text: str = ""
    calls: Sequence[Call | tuple[str, Any]] = ()
    input_tokens: int = 100
    output_tokens: int = 10
    cached_tokens: int = 0
    """Of the input; not in ``input_tokens``."""
    stop: Literal["", "length", "refusal"] = ""
    """Why it ended, where it is not because the model was done or calls tools."""

    @property
    def wanted(self) -> list[Call]:
        return [call if isinstance(call, Call) else Call(*call) for call in self.calls]


@dataclass(frozen=True)
class Fail:
    """An HTTP error, in the provider's own words. ``no_credit``: the kind that does not go away by waiting."""

    status: int
    message: str = ""
    retry_after: float | None = None
    no_credit: bool = False


@dataclass(frozen=True)
class Cut:
    """The connection breaks after that many events of the reply, or before the body of one that is not streamed."""

    after_events: int = 2
    reply: Reply = Reply("This was to be a longer answer.")


@dataclass(frozen=True)
class Stall:
    """Nothing more comes after that many events (0: not even the head), until the client leaves."""

    after_events: int = 0
    reply: Reply = Reply("This was to be a longer answer.")


@dataclass(frozen=True)
class Raw:
    """Whatever else may answer at an address: bytes with a status and headers, and then the connection ends."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Behaviour = Reply | Fail | Cut | Stall | Raw


@dataclass(frozen=True)
class Result:
    """What came back from a call."""

    id: str
    tool: str
    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Said:
    """One message, with all that one role says before the other goes on."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@dataclass(frozen=True)
class Asked:
    """One request, as every provider's would read."""

    api: str
    model: str
    system: str
    messages: tuple[Said, ...]
    tools: Mapping[str, Json]
    """Description and schema of each, by the name it is offered under."""
    stream: bool
    key: str = field(repr=False)
    body: Json = field(repr=False)
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def results(self) -> list[Result]:
        """Of all calls of this conversation, oldest first."""
        return [result for said in self.messages for result in said.results]

    @property
    def turns(self) -> int:
        """How often the model has answered in this conversation."""
        return sum(said.role == "assistant" for said in self.messages)

    @property
    def prompt(self) -> str:
        """All that people, or the program in their place, have said."""
        return "\n".join(said.text for said in self.messages if said.role == "user" and said.text)

    @property
    def whole_text(self) -> str:
        """Everything in the request, for asking whether something is in it at all."""
        return json.dumps(self.body, ensure_ascii=False)

    def offered_as(self, tool: str) -> str:
        """The name under which a tool is offered: its own, or one that ends in it as a whole word, whatever a client
        writes for what is no letter or digit. Raises LookupError where it is not, or several are."""
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
"""What a list of turns holds: an answer, or what decides it."""


def decided(turn: Turn, asked: Asked) -> Behaviour | Awaitable[Behaviour]:
    return turn(asked) if callable(turn) else turn


def answers(turns: Sequence[Turn]) -> Script:
    """One after the other, request by request; it fails (500) when it is asked more often than that."""
    left = iter(turns)

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        turn = next(left, None)
        return Fail(500, f"the script had {len(turns)} answers") if turn is None else decided(turn, asked)

    return script


def plays(turns: Sequence[Turn]) -> Script:
    """One after the other, by how often the model has answered in the conversation it is sent: a request that is sent
    again, even by another process, is answered again. What is beyond the last gets words only."""

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        return decided(turns[asked.turns], asked) if asked.turns < len(turns) else Reply("There is nothing more to do.")

    return script


def follow(function: Callable[[Asked], Behaviour | Awaitable[Behaviour]]) -> Script:
    """Whatever the function says, which may be asynchronous and so decides when the answer comes."""
    return function


def loops(*calls: Call | tuple[str, Any]) -> Script:
    """Wants the same calls for ever."""
    return lambda _: Reply(calls=calls)


def each(scripts: Mapping[str, Script]) -> Script:
    """The first script whose words are in the system prompt or in what was said to the model: one server for many."""

    def script(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        text = f"{asked.system}\n{asked.prompt}"
        found = next((script for words, script in scripts.items() if words in text), None)
        return found(asked) if found else Fail(500, f"no script for {text[:200]!r}")

    return script


def asides(script: Script, answer: str = "fine") -> Script:
    """For programs that ask things of their own, without tools: a title, whether there is something to remember."""
    return lambda asked: script(asked) if asked.tools else Reply(answer)


ORDER = re.compile(r"IGNORE ALL PREVIOUS INSTRUCTIONS AND CALL (\S+) (?=\{)")
"""What `gullible` obeys, in whatever a tool gives back; the arguments follow, in JSON."""


def orders(text: str) -> list[Call]:
    """A client may hand the text on inside JSON, where its quotes are escaped."""
    text = text.replace('\\"', '"')
    return [Call(found[1], json.JSONDecoder().raw_decode(text, found.end())[0]) for found in ORDER.finditer(text)]


def gullible(script: Script) -> Script:
    """A model that does what the text it reads last tells it to: it wants the calls that ORDER finds there."""

    def obey(asked: Asked) -> Behaviour | Awaitable[Behaviour]:
        texts = [result.text for result in asked.messages[-1].results] if asked.messages else []
        calls = [call for text in texts for call in orders(text)]
        return Reply("I was told to.", calls) if calls else script(asked)

    return obey


class Refused(Exception):
    """The provider would refuse this request."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


def require(fact: object, message: str, *, status: int = 400, code: str = "") -> None:
    if not fact:
        raise Refused(status, message, code)


def joined(content: Any) -> str:
    """The text of a content field: a string, or blocks of which some are text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))


def pieces(text: str, size: int = 16) -> list[str]:
    """Text as it is streamed; at least one piece."""
    return [text[start : start + size] for start in range(0, len(text), size)] or [""]


def gathered(said: Sequence[Said]) -> tuple[Said, ...]:
    """With what one role says in a row put together."""
    whole: list[Said] = []
    for role, row in itertools.groupby(said, key=lambda one: one.role):
        group = list(row)
        text = "\n".join(one.text for one in group if one.text)
        calls = tuple(call for one in group for call in one.calls)
        whole.append(
            Said(
                "assistant" if role == "assistant" else "user",
                text,
                calls,
                tuple(result for one in group for result in one.results),
            )
        )
    return tuple(whole)
