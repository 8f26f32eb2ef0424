"""The official SDK's client: a2a-sdk 1.x, in an environment of its own. Arguments: address, version, binding.

It says one JSON document: what it saw."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict


def message(text: str, agent: str) -> Any:
    asked = pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=text)])
    asked.metadata.update({"agent": agent})
    return pb.SendMessageRequest(message=asked)


async def fault(coming: Any) -> str:
    try:
        await coming
    except Exception as error:
        return type(error).__name__
    return ""


async def drive(address: str, version: str, binding: str) -> Any:
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        card = await A2ACardResolver(http, address).get_agent_card()
        found["skills"] = [skill.id for skill in card.skills]
        kept = [one for one in card.supported_interfaces if one.protocol_version == version]
        ways = {"httpx_client": http, "supported_protocol_bindings": [binding]}
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(kept)
        client = ClientFactory(ClientConfig(**ways, streaming=True)).create(card)
        plain = ClientFactory(ClientConfig(**ways, streaming=False)).create(card)
        found["transport"] = type(client._transport).__name__
        found["streamed"] = [MessageToDict(one) async for one in client.send_message(message("count", "ada"))]
        [answer] = [MessageToDict(one) async for one in plain.send_message(message("say", "ada"))]
        found["answered"] = answer["task"]
        number = answer["task"]["id"]
        found["got"] = MessageToDict(await client.get_task(pb.GetTaskRequest(id=number)))
        found["faults"] = [
            await fault(client.get_task(pb.GetTaskRequest(id="nothing"))),
            await fault(client.cancel_task(pb.CancelTaskRequest(id=number))),
            await fault(
                client.create_task_push_notification_config(
                    pb.TaskPushNotificationConfig(task_id=number, url="http://127.0.0.1:9")
                )
            ),
        ]
        polling = ClientFactory(ClientConfig(**ways, streaming=False, polling=True)).create(card)
        [begun] = [MessageToDict(one) async for one in polling.send_message(message("wait", "ann"))]
        number = begun["task"]["id"]
        followed: list[Any] = []
        async for one in client.subscribe(pb.SubscribeToTaskRequest(id=number)):
            followed.append(MessageToDict(one))
            if len(followed) == 1:
                cancelled = await plain.cancel_task(pb.CancelTaskRequest(id=number))
                found["cancelled"] = MessageToDict(cancelled)["status"]["state"]
        found["followed"] = followed
        if version == "1.0":
            listed = MessageToDict(await client.list_tasks(pb.ListTasksRequest(page_size=2)))
            found["listed"] = [task["id"] for task in listed["tasks"]]
    return found


print(json.dumps(asyncio.run(drive(*sys.argv[1:]))))
