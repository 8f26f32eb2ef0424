"""What answers of models cost."""

from __future__ import annotations

from typing import Any

from genai_prices import Usage, calc_price

from ccswarm.brains.llm.settings import VENDORS, Model


def cost(model: Model, used: Any, answered_as: str = "") -> float | None:
    """Dollars: by the price that is set, else by the one that is known of the model at that address; None where
    neither is. ``used`` has input_tokens, output_tokens, and of these what was cached."""
    if model.price:
        return (used.input_tokens * model.price.input + used.output_tokens * model.price.output) / 1e6
    for name in filter(None, (answered_as, model.name)):
        try:
            return float(calc_price(used, name, provider_api_url=model.billed_at).total_price)
        except (LookupError, ValueError):
            continue
    return None


def priced(model: Model) -> bool:
    """Whether it is known what it costs. A recorded one costs nothing."""
    return model.kind not in VENDORS or cost(model, Usage(input_tokens=1000, output_tokens=1000)) is not None
