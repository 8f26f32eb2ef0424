"""A question to a person outside any run: may an agent make this one call?"""

from __future__ import annotations

from typing import Any

from ccswarm.engines.base import Flow
from ccswarm.models import CallRequest, Json
from ccswarm.swarm.agent import APPROVAL_SECONDS, approval_id, emit_event, question_facts

QUESTION = "question"
ASKED = "approval.asked"
"""The event after which the question can be answered."""


def question_of(request: CallRequest) -> dict[str, Any]:
    """Return what a person is asked before a call is made; it is the same whenever the same call is asked about."""
    return question_facts(approval_id(request.task_id, request), request)


async def ask(flow: Flow, payload: Json) -> Json:
    """Ask a person, as a durable function. Return the answer, or an empty object if none came in time."""
    await flow.publish({"approvals": [payload]})
    await emit_event(flow, ASKED, **payload)  # the question may be answered as soon as this is emitted
    answer: Json = await flow.receive(f"approval:{payload['id']}", APPROVAL_SECONDS)
    await flow.publish({"approvals": []})
    return answer or {}
