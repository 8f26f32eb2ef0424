"""Questions about ai-session and ccswarm, answered from their own documentation; not listed as a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ai_session.errors import OperatorError
from ai_session.models import Effect, ToolResult
from ai_session.tools.base import Arguments, Context, Tool, output

NOTHING = "No relevant information available."
FIRST_QUOTES, MORE_QUOTES = 3, 1
"""The number of sentences from the best section, and from each other one."""

MAX_HINT_CHARS = 500


class Question(Arguments):
    query: Annotated[str, Field(min_length=1, max_length=2000)]
    topK: Annotated[int, Field(ge=1, le=20)] = 5  # noqa: N815 (as its clients write it)
    context: dict[str, Any] | str = ""


async def faq(context: Context, arguments: Question) -> ToolResult:
    """Answer a question with sentences from the documentation, and cite their sections."""
    facts = await asyncio.to_thread(answer, arguments.query, arguments.topK, hints(arguments.context))
    return ToolResult(facts["answer"], facts)


def answer(query: str, count: int, more: str) -> dict[str, Any]:
    """Return ``answer``, ``citations`` in the order of their quotes and the best ``score``. Raises OperatorError."""
    from ai_session.tools.documentation.index import Hit, index  # takes 4 ms, and few daemons are ever asked

    pages = index()
    if not pages.sections:
        raise OperatorError("the documentation is not installed", suggestion="install ai-session again, from its wheel")
    hits = pages.search(query, count, more)
    quotes: dict[str, None] = {}
    if hits and (defined := pages.definition(query)):
        section, sentence = defined
        quotes[sentence] = None
        score = next((hit.score for hit in hits if hit.section is section), hits[0].score)
        hits = [Hit(section, score), *(hit for hit in hits if hit.section is not section)][:count]
    for number, hit in enumerate(hits):
        found = pages.quotes(query, hit.section, MORE_QUOTES if number else FIRST_QUOTES)
        quotes |= dict.fromkeys(found)
    if not quotes:
        return {"answer": NOTHING, "citations": []}
    cited = [{"path": hit.section.path, "section": hit.section.heading, "score": hit.score} for hit in hits]
    return {
        "answer": "\n".join(f"- {quote}" for quote in quotes),
        "citations": cited,
        "score": max(hit.score for hit in hits),
    }


def hints(given: Mapping[str, Any] | str) -> str:
    """Return the texts of a ``context``, such as {"detected_framework": "fastapi"}."""
    texts = [given] if isinstance(given, str) else [value for value in given.values() if isinstance(value, str)]
    return " ".join(texts)[:MAX_HINT_CHARS]


PLUGIN = (
    Tool(
        name="faq",
        title="Questions about ai-session",
        description=faq.__doc__ or "",
        effect=Effect.READ,
        arguments=Question,
        run=faq,
        output_schema=output("answer", citations="array", score="number?"),
        read_only=True,
        idempotent=True,
        listed=False,
    ),
)
