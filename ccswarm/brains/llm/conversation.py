"""The conversation between a model and its agent: stored whole, shown within limits.

Plain JSON; independent of providers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ccswarm.models import CallOutcome, CallStatus, Json

KEPT_TURNS = 2
"""The newest turns, which are never shortened or left out."""

KEPT_SHARE = 0.15
"""The share of the limit for the newest turns that are shown after notes."""

SHORTENED_TO = 0.6
"""The share of the limit that shortening aims at. The beginning, which providers cache, should seldom change."""

WORTH = 0.5
"""The share of the text after old outputs that must be saved before they become references by age: all of it is then no
longer cached by the provider."""

REFERENCE_CHARS = 250
"""The approximate longest reference."""

SHORT_CHARS = 200
"""The longest output that is shown whole as long as its turn is shown."""

IMAGE_CHARS = 6000
"""The approximate size that an image counts as."""

UNKNOWN = (CallStatus.LOST, CallStatus.TIMEOUT)


@dataclass(slots=True)
class ModelCall:
    """One call of the model's. ``number`` counts all in the conversation, from 1; ``answer`` is the whole result."""

    number: int
    call_id: str
    name: str
    tool: str
    arguments: Mapping[str, Any] | None
    """None: the model's text is not a JSON object."""
    answer: str = ""
    failed: bool = False
    structured: Json = None
    ended: bool = False
    shortened: bool = False
    images: Sequence[Mapping[str, str]] = ()
    exit_code: int | None = None
    """The exit code of a command that ran and failed."""


@dataclass(slots=True)
class Turn:
    """An answer of the model, the results of its calls, and the note added to them."""

    response: Json
    text: str
    calls: list[ModelCall]
    note: str = ""
    chars: int = 0
    decoded: Any = None
    """The response in its library's form, once it was needed."""


@dataclass(frozen=True, slots=True)
class Message:
    """One part of what a model is shown. ``turn`` is set for its own answers."""

    kind: Literal["system", "user", "answer", "returned"]
    text: str = ""
    turn: Turn | None = None
    call: ModelCall | None = None

    @property
    def images(self) -> Sequence[Mapping[str, str]]:
        """The images of a result that is shown whole, each with its media ``type`` and its ``data`` in base64."""
        return self.call.images if self.call and not self.call.shortened else ()


@dataclass(slots=True)
class Conversation:
    """The conversation of one task. ``answer_chars`` limits what is shown of one output, ``context_chars`` the whole.
    The outputs of at least the newest ``keep_outputs`` turns stay whole while there is room; 0: those of all turns."""

    system: str
    task: str
    answer_chars: int
    context_chars: int
    keep_outputs: int = 0
    turns: list[Turn] = field(default_factory=list[Turn])
    aged: int = 0
    """The number of turns at the beginning whose outputs became references by age."""
    left_out: int = 0
    """The number of turns at the beginning that are no longer shown."""
    notes: str = ""
    """The text shown instead of them."""
    question: str = ""
    """The last question, in addition to the task."""

    def add(self, response: Json, text: str, calls: Sequence[Mapping[str, Any]]) -> Turn:
        """Add the model's next answer. Each of ``calls`` has id, name, tool, and arguments or None."""
        number = sum(len(turn.calls) for turn in self.turns)
        made = [
            ModelCall(number + at, call["id"], call["name"], call["tool"], call["arguments"])
            for at, call in enumerate(calls, 1)
        ]
        turn = Turn(response, text, made, chars=len(json.dumps(response, ensure_ascii=False)))
        self.turns.append(turn)
        return turn

    def call(self, number: int) -> ModelCall | None:
        """Return the call of that number."""
        return next((call for turn in self.turns for call in turn.calls if call.number == number), None)

    @property
    def chars(self) -> int:
        """The approximate size of the conversation as it is shown."""
        fixed = len(self.system) + len(self.task) + len(self.notes)
        return fixed + sum(map(self._chars, self.turns[self.left_out :]))

    @property
    def settled(self) -> ModelCall | None:
        """The last call whose output became a reference by age: nothing before it changes while there is room."""
        return next((call for turn in reversed(self.turns[: self.aged]) for call in reversed(turn.calls)), None)

    def asking(self, question: str) -> Conversation:
        """Return a copy with a question at its end."""
        return replace(self, question=question)

    def sum_up(self, notes: str) -> None:
        """Show ``notes`` instead of all but the newest turns."""
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
        """Replace outputs of old turns by references. This is done for several turns at once, and only if it saves
        enough, so that the beginning cached by the provider seldom changes."""
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
        """Shorten old parts until the conversation is within its limit: outputs, then turns. The first request
        stays."""
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
            turn.response = turn.decoded = None  # of hidden turns only outputs can be recalled
            self.left_out += 1

    def tighten(self) -> None:
        """Halve the limits, because the model accepts less than expected."""
        self.context_chars = max(2000, int(min(self.chars, self.context_chars) * 0.5))
        self.answer_chars = max(500, self.answer_chars // 2)

    def messages(self) -> Iterator[Message]:
        """Yield what the model is shown, in order. Deterministic."""
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

    def shown(self, call: ModelCall) -> str:
        """Return the shown form of an output: whole, its beginning and end, or a reference; its number first."""
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

    def recall(self, number: int, offset: int) -> str | None:
        """Return a part of an earlier output and where the next one begins, or None if there is no such output."""
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

    def _shown_chars(self, call: ModelCall, *, shortened: bool = False) -> int:
        if shortened:
            return min(len(call.answer), REFERENCE_CHARS)
        return min(len(call.answer), self.answer_chars + 120) + len(call.images) * IMAGE_CHARS


def describe_outcome(outcome: CallOutcome) -> str:
    """Return the text for the model about a call's outcome."""
    body = outcome.text or (json.dumps(dict(outcome.structured), ensure_ascii=False) if outcome.structured else "")
    if outcome.ok:
        note = f"({outcome.message})\n" if outcome.message else ""
        return note + (body or "(no output)")
    why = f"{outcome.status.value}" + (f" ({outcome.code})" if outcome.code not in ("", outcome.status.value) else "")
    lines = [f"{why}: {outcome.message}" if outcome.message and outcome.message not in body else why]
    if outcome.status in UNKNOWN:
        lines.append("Nobody knows whether this call had its effect. Look at what came of it before you make it again.")
    lines += [outcome.suggestion] if outcome.suggestion and outcome.suggestion not in body else []
    lines += [body] if body else []
    return "\n".join(lines)
