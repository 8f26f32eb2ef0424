"""What a job of thirty questions costs in tokens, and that what is kept of them by providers stays of use."""

from __future__ import annotations

import pytest
from genai_prices import Usage
from pydantic_ai.usage import RequestUsage

from ccswarm.brains.llm.prices import cost
from ccswarm.brains.llm.settings import Model
from ccswarm.brains.llm.wire import make_usage
from tests.ccswarm.support.llm_job import job

pytestmark = pytest.mark.anyio


async def test_a_job_sends_less_than_what_was_said() -> None:
    whole, aged = await job(11, keep_outputs=0), await job(11)
    assert len(whole.sent) == len(aged.sent) == 12
    assert sum(aged.sent) < 0.8 * sum(whole.sent)
    assert max(aged.sent) < 5_000
    assert sum(new > 1_000 for new in aged.new[1:]) <= 2


@pytest.mark.torture
async def test_a_job_of_thirty_questions_sends_less_than_half_of_what_was_said() -> None:
    whole, aged = await job(keep_outputs=0), await job()
    assert len(whole.sent) == len(aged.sent) == 30
    assert sum(whole.sent) > 270_000
    assert sum(aged.sent) < 140_000
    assert max(aged.sent) < 7_000
    assert sum(new > 1_000 for new in aged.new[1:]) <= 7, (
        "what is sent again begins as it did, but for every fourth time"
    )
    assert sum(aged.new) < 1.6 * sum(whole.new)


async def test_what_was_just_answered_is_whole_and_older_outputs_name_how_to_see_them_again() -> None:
    done = await job(21, each=3)
    for asked in done.asked:
        whole = [result for result in asked.results if len(result.text) > 1900]
        assert asked.results[-9:] == whole[-9:], "of three answers at least"
        assert len(whole) <= 18, "and of six at most"
    (*_, last) = done.asked
    assert last.results[0].text == "[1] output 1 … (1909 characters, shortened; recall(id=1) shows them again)"


@pytest.mark.parametrize(
    ("cache", "points"),
    [("5m", 1), *(pytest.param(*one, marks=pytest.mark.torture) for one in (("1h", 1), ("off", 0)))],
)
async def test_anthropic_is_told_to_keep_what_became_references(cache: str, points: int) -> None:
    """It looks for what it kept at most 20 parts before a mark, and an answer takes three."""
    done = await job(9, kind="anthropic", cache=cache)
    marked = [
        [(part["tool_use_id"], part["content"]) for message in asked.body["messages"] for part in blocks(message)]
        for asked in done.asked
    ]
    assert [len(one) for one in marked] == [0] * 7 + [points] * 3
    if points:
        assert "[4] output 4 … (" in str(marked[-1])


def blocks(message: object) -> list[dict[str, object]]:
    """The marked results of calls in a message."""
    content = message["content"] if isinstance(message, dict) else []
    return [one for one in content if isinstance(one, dict) and one["type"] == "tool_result" and "cache_control" in one]


@pytest.mark.parametrize("kind", [RequestUsage, Usage])
@pytest.mark.parametrize("model", ["openai:gpt-4o-mini", "anthropic:claude-haiku-4-5", "gemini:gemini-2.5-flash"])
def test_what_was_cached_is_counted_and_paid_for_even_if_it_is_not_in_the_input(
    model: str, kind: type[RequestUsage | Usage]
) -> None:
    chosen = Model(model=model)
    less = make_usage(chosen, kind(input_tokens=510, output_tokens=20, cache_read_tokens=500), "")
    apart = make_usage(chosen, kind(input_tokens=10, output_tokens=20, cache_read_tokens=500), "")
    assert apart == less
    assert apart["tokens"] == 530
    assert 0 < number(apart["dollars"]) < number(cost(chosen, kind(input_tokens=510, output_tokens=20)))


def test_counts_that_contradict_each_other_are_paid_for() -> None:
    model, impossible = (
        Model(model="gemini:gemini-2.5-flash"),
        Usage(input_tokens=9, output_tokens=9, input_audio_tokens=99),
    )
    assert cost(model, impossible) == cost(model, Usage(input_tokens=9, output_tokens=9))


def number(value: object) -> float:
    assert isinstance(value, float)
    return value
