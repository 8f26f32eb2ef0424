"""What was said between a model and its agent: kept whole, shown within bounds. Plain JSON; knows no provider."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ccswarm.models import CallOutcome, CallStatus, Json

KEPT_TURNS = 2
"""The newest are neither shortened nor left out."""

KEPT_SHARE = 0.15
"""Of the bound, which the newest turns may have that are shown beside notes."""

SHORTENED_TO = 0.6
"""Of the bound: providers keep the beginning of a conversation that is sent again, so it seldom changes."""

WORTH = 0.5
"""Of what follows them, which old outputs have to save before they become references by their age: all of that is new
to a provider then."""

REFERENCE_CHARS = 250
"""What a reference comes to at most, about."""

SHORT_CHARS = 200
"""An output of no more is shown whole for as long as its turn is shown."""

IMAGE_CHARS = 6000
"""What an image counts as, about."""

UNKNOWN = (CallStatus.LOST, CallStatus.TIMEOUT)


@dataclass(slots=True)
class Made:
    """One call of the model's. ``number`` counts all of the conversation, from 1; ``answer`` is what came, whole."""

    number: int
    call_id: str
    name: str
    tool: str
    arguments: Mapping[str, Any] | None
    """None: what the model wrote is no JSON object."""
    answer: str = ""
    failed: bool = False
    structured: Json = None
    ended: bool = False
    shortened: bool = False
    images: Sequence[Mapping[str, str]] = ()
    exit_code: int | None = None
    """Of a command that did not end well, though it was run."""


@dataclass(slots=True)
class Turn:
    """An answer of the model, what came of its calls, and what was said to it then."""

    response: Json
    text: str
    calls: list[Made]
    note: str = ""
    chars: int = 0
    decoded: Any = None
    """The response as its library has it, once it was needed."""


@dataclass(frozen=True, slots=True)
class Message:
    """One part of what a model is shown: ``turn`` for its own answers."""

    kind: Literal["system", "user", "answer", "returned"]
    text: str = ""
    turn: Turn | None = None
    call: Made | None = None

    @property
    def images(self) -> Sequence[Mapping[str, str]]:
        """Of what came back, as long as it is shown whole: each has its media ``type`` and its ``data`` in base64."""
        return self.call.images if self.call and not self.call.shortened else ()


@dataclass(slots=True)
class Conversation:
    """``answer_chars`` is what is shown of one output, ``context_chars`` what all of it may come to. The outputs of the
    newest ``keep_outputs`` turns at least stay whole as long as there is room; 0: those of all."""

    system: str
    task: str
    answer_chars: int
    context_chars: int
    keep_outputs: int = 0
    turns: list[Turn] = field(default_factory=list[Turn])
    aged: int = 0
    """Turns at the beginning whose outputs became references by their age."""
    left_out: int = 0
    """Turns at the beginning that are not shown any more."""
    notes: str = ""
    """What is shown in their place."""
    question: str = ""
    """What it is asked last, beside its task."""

    def add(self, response: Json, text: str, calls: Sequence[Mapping[str, Any]]) -> Turn:
        """The model's next answer; each of ``calls`` has id, name, tool, and arguments or None."""
        number = sum(len(turn.calls) for turn in self.turns)
        made = [
            Made(number + at, call["id"], call["name"], call["tool"], call["arguments"])
            for at, call in enumerate(calls, 1)
        ]
        turn = Turn(response, text, made, chars=len(json.dumps(response, ensure_ascii=False)))
        self.turns.append(turn)
        return turn

    def call(self, number: int) -> Made | None:
        """The call of that number."""
        return next((call for turn in self.turns for call in turn.calls if call.number == number), None)

    @property
    def chars(self) -> int:
        """About what the conversation comes to as it is shown."""
        fixed = len(self.system) + len(self.task) + len(self.notes)
        return fixed + sum(map(self._chars, self.turns[self.left_out :]))

    @property
    def settled(self) -> Made | None:
        """The last call whose output became a reference by its age: nothing up to it changes while there is room."""
        return next((call for turn in reversed(self.turns[: self.aged]) for call in reversed(turn.calls)), None)

    def asking(self, question: str) -> Conversation:
        """The same with a question at its end, which is not kept."""
        return replace(self, question=question)

    def sum_up(self, notes: str) -> None:
        """Show these in place of all but the newest turns."""
        left, kept = self.context_chars * KEPT_SHARE, 0
        for turn in reversed(self.turns[self.left_out :]):
            left -= self._chars(turn)
            if kept >= KEPT_TURNS and left < 0:
                break
            kept += 1
        for turn in self.turns[self.left_out : len(self.turns) - kept]:
            turn.response = turn.decoded = None
        self.left_out = len(self.turns) - kept
        self.notes = notes

    def age(self) -> None:
        """Outputs of all but the newest turns become references: those of several turns at once, and only where that
        saves enough, so that the beginning which a provider keeps seldom changes."""
        newest = max(self.aged, len(self.turns) - self.keep_outputs)
        old = [call for turn in self.turns[self.aged : newest] for call in turn.calls if not call.shortened]
        if not self.keep_outputs or newest - self.aged <= self.keep_outputs:
            return
        saved = sum(self._shown_chars(call) - self._shown_chars(call, shortened=True) for call in old)
        if saved < WORTH * sum(map(self._chars, self.turns[newest:])):
            return
        for call in old:
            call.shortened = True
        self.aged = newest

    def fit(self) -> None:
        """Shortens what is old until the conversation is within its bound: outputs to references, the oldest first,
        then whole turns. What was asked first stays."""
        chars = self.chars
        if chars <= self.context_chars:
            return
        goal = self.context_chars * SHORTENED_TO
        for turn in self.turns[self.left_out : -KEPT_TURNS]:
            before = self._chars(turn)
            for call in turn.calls:
                call.shortened = True
            chars += self._chars(turn) - before
            if chars <= goal:
                return
        if chars <= self.context_chars:
            return
        while chars > goal and self.left_out < len(self.turns) - KEPT_TURNS:
            turn = self.turns[self.left_out]
            chars -= self._chars(turn)
            turn.response = turn.decoded = None  # of what is not shown again only outputs are recalled
            self.left_out += 1

    def tighten(self) -> None:
        """The model takes less than was thought."""
        self.context_chars = max(2000, int(min(self.chars, self.context_chars) * 0.5))
        self.answer_chars = max(500, self.answer_chars // 2)

    def messages(self) -> Iterator[Message]:
        """What the model is shown, in order. Deterministic."""
        yield Message("system", self.system)
        yield Message("user", self.task)
        if self.left_out:
            last = max((call.number for turn in self.turns[: self.left_out] for call in turn.calls), default=0)
            again = f" recall shows the outputs 1 to {last} again." if last else ""
            yield Message("user", f"(Your first {self.left_out} answers are left out here.{again}){self.notes}")
        for turn in self.turns[self.left_out :]:
            yield Message("answer", turn=turn)
            for call in turn.calls:
                yield Message("returned", self.shown(call), call=call)
            if turn.note:
                yield Message("user", turn.note)
        if self.question:
            yield Message("user", self.question)

    def shown(self, call: Made) -> str:
        """What is shown of an output: all of it, its beginning and its end, or a reference. Its number comes first."""
        head = f"[{call.number}]"
        text = call.answer
        if call.shortened and (len(text) > SHORT_CHARS or call.images):
            first = text.partition("\n")[0][:80]
            return f"{head} {first} … ({len(text)} characters, shortened; recall(id={call.number}) shows them again)"
        if len(text) <= self.answer_chars:
            return f"{head} {text}"
        half = self.answer_chars // 2
        left = len(text) - 2 * half
        note = f"… {left} characters left out here; recall(id={call.number}, offset={half}) shows them …"
        return f"{head} {text[:half]}\n{note}\n{text[-half:]}"

    def recalled(self, number: int, offset: int) -> str | None:
        """A piece of an earlier output, and where the next one begins; None where there is no such output."""
        call = self.call(number)
        if call is None or not call.ended:
            return None
        piece = call.answer[offset : offset + self.answer_chars - 200]
        end = offset + len(piece)
        more = f"; recall(id={number}, offset={end}) continues" if end < len(call.answer) else "; that is its end"
        return f"characters {offset} to {end} of the {len(call.answer)} of output {number}{more}:\n{piece}"

    def _chars(self, turn: Turn) -> int:
        shown = (self._shown_chars(call, shortened=call.shortened) for call in turn.calls)
        return turn.chars + len(turn.note) + sum(shown)

    def _shown_chars(self, call: Made, *, shortened: bool = False) -> int:
        if shortened:
            return min(len(call.answer), REFERENCE_CHARS)
        return min(len(call.answer), self.answer_chars + 120) + len(call.images) * IMAGE_CHARS


def answer_of(outcome: CallOutcome) -> str:
    """The model's text about how its call ended."""
    body = outcome.text or (json.dumps(dict(outcome.structured), ensure_ascii=False) if outcome.structured else "")
    if outcome.ok:
        note = f"({outcome.message})\n" if outcome.message else ""
        return note + (body or "(no output)")
    why = f"{outcome.status.value}" + (f" ({outcome.code})" if outcome.code not in ("", outcome.status.value) else "")
    said = [f"{why}: {outcome.message}" if outcome.message and outcome.message not in body else why]
    if outcome.status in UNKNOWN:
        said.append("Nobody knows whether this call had its effect. Look at what came of it before you make it again.")
    said += [outcome.suggestion] if outcome.suggestion and outcome.suggestion not in body else []
    said += [body] if body else []
    return "\n".join(said)
