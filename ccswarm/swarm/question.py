"""A question to a person that belongs to no run: may an agent make this one call?"""

from __future__ import annotations

from typing import Any

from ccswarm.engines.base import Flow
from ccswarm.models import CallRequest, Json
from ccswarm.swarm.agent import APPROVAL_SECONDS, approval_id, asked_about, tell

QUESTION = "question"
ASKED = "approval.asked"
"""The event after which the question can be answered."""


def question_of(request: CallRequest) -> dict[str, Any]:
    """What is asked of a person before a call is made; always the same of the same call."""
    return asked_about(approval_id(request.task_id, request), request)


async def ask(flow: Flow, payload: Json) -> Json:
    """A durable function: what the person answered, or nothing where nobody did in time."""
    await flow.publish({"approvals": [payload]})
    await tell(flow, ASKED, **payload)  # who hears it may answer at once
    answer: Json = await flow.receive(f"approval:{payload['id']}", APPROVAL_SECONDS)
    await flow.publish({"approvals": []})
    return answer or {}
