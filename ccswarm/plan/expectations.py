"""Whether a call answered what a plan expects of it, and if not, what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ccswarm.config.settings import Expect
from ccswarm.errors import PlanInvalid
from ccswarm.models import CallOutcome, Json
from ccswarm.plan.references import as_text, follow, path, same

NOTHING = Expect()
SHOWN_CHARACTERS = 300
"""Of what came; the whole is in the journal."""


def record(outcome: CallOutcome) -> dict[str, Json]:
    """What plans see of a call: the fields of its structured answer, or its ``text`` where it has none. ``status`` is
    the answer's own, or how the call ended where it has none."""
    fields: dict[str, Json] = dict(outcome.structured) if outcome.structured is not None else {"text": outcome.text}
    if not outcome.ok:
        fields |= {"status": outcome.status.value, "message": outcome.message or outcome.text}
    return {"status": outcome.status.value, **fields}


def unmet(expect: Expect, outcome: CallOutcome) -> str:
    """``""`` when all that is expected came; else what was expected and what came instead.

    Where nothing is expected, an answer with an exit code other than 0, and one with the status ``running``, will not
    do: neither is work that was done.
    """
    if not outcome.ok:
        why = ": ".join(filter(None, (outcome.code, outcome.message or outcome.text)))
        return f"expected an answer, but the call ended as {outcome.status.value}" + (
            f" ({_shown(why)})" if why else ""
        )
    answer = record(outcome)
    if expect == NOTHING:
        failures = list(_unmentioned(answer))
    else:
        failures = [*_fields(expect, answer), *_text(expect, outcome)]
    if not failures:
        return ""
    text = _shown(outcome.text)
    return "; ".join(failures) + (f"; its answer: {text}" if text else "")


def _unmentioned(answer: Mapping[str, Json]) -> Iterator[str]:
    if answer.get("exit_code") not in (None, 0):
        yield f"expected exit code 0, got {answer['exit_code']}"
    if answer["status"] == "running":
        yield "expected it to end, but it is still running"


def _fields(expect: Expect, answer: Mapping[str, Json]) -> Iterator[str]:
    if expect.exit_code is not None and not same(answer.get("exit_code"), expect.exit_code):
        came = f"got {answer['exit_code']}" if "exit_code" in answer else "got none"
        yield f"expected exit code {expect.exit_code}, {came} (status {as_text(answer['status'])})"
    if expect.status is not None and answer["status"] != expect.status:
        yield f"expected status {expect.status}, got {as_text(answer['status'])}"
    for where, wanted in expect.equals.items():
        try:
            came = follow(answer, path(where), what=where)
        except PlanInvalid as error:
            yield f"expected {where} to be {as_text(wanted)}, but {error.message}"
            continue
        if not same(came, wanted):
            yield f"expected {where} to be {as_text(wanted)}, got {_shown(as_text(came))}"


def _text(expect: Expect, outcome: CallOutcome) -> Iterator[str]:
    text = outcome.text or as_text(outcome.structured)
    if expect.contains is not None and expect.contains not in text:
        yield f"expected {expect.contains!r} in the text"
    if expect.matches is not None and not re.search(expect.matches, text, re.MULTILINE):
        yield f"expected the text to match {expect.matches!r}"


def _shown(text: str) -> str:
    """The end, where programs say what went wrong."""
    text = text.strip()
    return text if len(text) <= SHOWN_CHARACTERS else "…" + text[-SHOWN_CHARACTERS:]
