"""Limits the size of the step results in a playbook's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ccswarm.models import Json
from ccswarm.plan.references import as_text

TEXT_BYTES = 4096
"""The longest text in a task's result: its beginning and end. Within the task texts are whole."""
STEP_BYTES = 65536
"""The largest result of one step in a task's result. A larger one is replaced by its JSON, cut like a text."""


def bounded(value: Json) -> Json:
    """Return the value with long texts cut in the middle."""
    cut = _cut(value)
    written = as_text(cut)
    return cut if len(written) <= STEP_BYTES else {"status": "cut", "text": _cut(written)}


def _cut(value: Json) -> Json:
    """Cut each text to TEXT_BYTES, with a note in its middle."""
    if isinstance(value, str):
        whole = value.encode(errors="replace")
        if len(whole) <= TEXT_BYTES:
            return value
        half = TEXT_BYTES // 2 - 32
        left_out = len(whole) - 2 * half
        ends = (part.decode(errors="ignore") for part in (whole[:half], whole[-half:]))
        return f"\n… {left_out} bytes left out …\n".join(ends)
    if isinstance(value, Mapping):
        return {key: _cut(item) for key, item in cast("Mapping[str, Json]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in cast("Sequence[Json]", value)]
    return value
