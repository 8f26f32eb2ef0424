"""The cost of models' answers."""

from __future__ import annotations

from itertools import product
from typing import Any

from genai_prices import Usage, calc_price

from ccswarm.brains.llm.settings import VENDORS, Model


def cost(model: Model, used: Any, answered_as: str = "") -> float | None:
    """Return the cost in dollars by the configured price, else by the known one at that address, else None. ``used``
    has input_tokens and output_tokens, and the cached part of these."""
    if model.price:
        return (used.input_tokens * model.price.input + used.output_tokens * model.price.output) / 1e6
    plain = Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens)
    # Other counts may contradict each other; then they are ignored, for what has no price is in no budget.
    for name, counted in product(filter(None, (answered_as, model.name)), (used, plain)):
        try:
            return float(calc_price(counted, name, provider_api_url=model.billed_at).total_price)
        except (LookupError, ValueError):
            continue
    return None


def priced(model: Model) -> bool:
    """Report whether the price is known. A recorded model costs nothing."""
    return model.kind not in VENDORS or cost(model, Usage(input_tokens=1000, output_tokens=1000)) is not None
