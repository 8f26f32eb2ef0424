"""The official SDK's client as it was: a2a-sdk 0.3, in an environment of its own. Arguments: address.

It says one JSON document: what it saw."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import DataPart, Message, Part, Role, TaskIdParams, TaskQueryParams, TextPart

LARGE = {"n": 9007199254740993, "z": 1.0, "a": [None, True]}


def message(agent: str, *parts: Any) -> Any:
    shown = [Part(root=TextPart(text=part) if isinstance(part, str) else DataPart(data=part)) for part in parts]
    return Message(message_id=str(uuid4()), role=Role.user, parts=shown, metadata={"agent": agent} if agent else None)


def plain(value: Any) -> Any:
    return value and value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def fault(coming: Any) -> Any:
    try:
        await coming
    except Exception as error:
        return str(error)
    return ""


async def drive(address: str) -> Any:
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        card = await A2ACardResolver(http, address).get_agent_card()
        found["skills"] = [skill.id for skill in card.skills]
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        blocking = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)
        found["streamed"] = [plain(event) async for _, event in client.send_message(message("ada", "count"))]
        step = {"id": "say", "tool": "small.echo", "args": {"value": LARGE}}
        plan = {"plan": {"tasks": [{"id": "one", "agent": "bob", "steps": [step]}]}}
        [(task, _)] = [one async for one in blocking.send_message(message("", plan))]
        found["answered"] = plain(task)
        found["got"] = plain(await client.get_task(TaskQueryParams(id=task.id)))
        found["faults"] = [
            await fault(client.get_task(TaskQueryParams(id="nothing"))),
            await fault(client.cancel_task(TaskIdParams(id=task.id))),
        ]
        waiting = client.send_message(message("ann", "wait"))
        begun, _ = await anext(waiting)
        await waiting.aclose()
        followed: list[Any] = []
        async for whole, event in client.resubscribe(TaskIdParams(id=begun.id)):
            followed.append(plain(event) or plain(whole))
            if len(followed) == 1:
                found["cancelled"] = plain(await blocking.cancel_task(TaskIdParams(id=begun.id)))["status"]["state"]
        found["followed"] = followed
    return found


print(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
