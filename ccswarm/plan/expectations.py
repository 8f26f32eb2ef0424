"""Compares the result of a call with what a plan expects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ccswarm.config.settings import Expect
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, Json
from ccswarm.plan.references import as_text, follow, json_equal, path

NOTHING = Expect()
SHOWN_CHARACTERS = 300
"""The longest text of a result in a message. The journal has the whole."""


def record(outcome: CallOutcome) -> dict[str, Json]:
    """Return what plans see of a call: the fields of its structured result, or else its ``text``. ``status`` is that of
    the result, or else how the call ended."""
    fields: dict[str, Json] = dict(outcome.structured) if outcome.structured is not None else {"text": outcome.text}
    if not outcome.ok:
        fields |= {"status": outcome.status.value, "message": outcome.message or outcome.text}
    return {"status": outcome.status.value, **fields}


def unmet(expect: Expect, outcome: CallOutcome) -> str:
    """Return ``""`` if the result is as expected, else what was expected and what was found. If nothing is specified,
    an exit code other than 0 and the status ``running`` are failures."""
    if not outcome.ok:
        why = ": ".join(filter(None, (outcome.code, outcome.message or outcome.text)))
        return f"expected an answer, but the call ended as {outcome.status.value}" + (
            f" ({_shorten(why)})" if why else ""
        )
    answer = record(outcome)
    if expect == NOTHING:
        failures = list(_default_failures(answer))
    else:
        failures = [*_field_failures(expect, answer), *_text_failures(expect, outcome)]
    if not failures:
        return ""
    text = _shorten(outcome.text)
    return "; ".join(failures) + (f"; its answer: {text}" if text else "")


def _default_failures(answer: Mapping[str, Json]) -> Iterator[str]:
    if answer.get("exit_code") not in (None, 0):
        yield f"expected exit code 0, got {answer['exit_code']}"
    if answer["status"] == "running":
        yield "expected it to end, but it is still running"


def _field_failures(expect: Expect, answer: Mapping[str, Json]) -> Iterator[str]:
    if expect.exit_code is not None and not json_equal(answer.get("exit_code"), expect.exit_code):
        actual = f"got {answer['exit_code']}" if "exit_code" in answer else "got none"
        yield f"expected exit code {expect.exit_code}, {actual} (status {as_text(answer['status'])})"
    if expect.status is not None and answer["status"] != expect.status:
        yield f"expected status {expect.status}, got {as_text(answer['status'])}"
    for where, wanted in expect.equals.items():
        try:
            actual = follow(answer, path(where), what=where)
        except PlanInvalid as error:
            yield f"expected {where} to be {as_text(wanted)}, but {error.message}"
            continue
        if not json_equal(actual, wanted):
            yield f"expected {where} to be {as_text(wanted)}, got {_shorten(as_text(actual))}"


def _text_failures(expect: Expect, outcome: CallOutcome) -> Iterator[str]:
    text = outcome.text or as_text(outcome.structured)
    if expect.contains is not None and expect.contains not in text:
        yield f"expected {expect.contains!r} in the text"
    if expect.matches is not None and not re.search(expect.matches, text, re.MULTILINE):
        yield f"expected the text to match {expect.matches!r}"


def _shorten(text: str) -> str:
    """Shorten a text to its end, where programs report errors."""
    text = text.strip()
    return text if len(text) <= SHOWN_CHARACTERS else "…" + text[-SHOWN_CHARACTERS:]
