"""Runs in an environment of its own that has the package ``agentvault``: its client does what a line of the input says,
``{"do": "call" | "cancel" | "again" | "get", …}``, and says on a line what came of it. Argument: the card's address."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from agentvault import AgentVaultClient, KeyManager
from agentvault.exceptions import A2AError
from agentvault.models import AgentCard, DataPart, Message


class Driver:
    def __init__(self, client: Any, card: Any) -> None:
        self.client = client
        self.card = card
        self.keys = KeyManager(use_env_vars=True)

    async def call(self, content: dict[str, Any]) -> dict[str, Any]:
        message = Message(role="user", parts=[DataPart(content=content)])
        task = await self.client.initiate_task(self.card, message, self.keys)
        return {**await self.followed(task), **await self.get(task)}

    async def followed(self, task: str) -> dict[str, Any]:
        events = self.client.receive_messages(self.card, task, self.keys)
        return {"events": [[type(one).__name__, one.model_dump(mode="json", by_alias=True)] async for one in events]}

    async def cancel(self, content: dict[str, Any]) -> dict[str, Any]:
        message = Message(role="user", parts=[DataPart(content=content)])
        task = await self.client.initiate_task(self.card, message, self.keys)
        async for event in self.client.receive_messages(self.card, task, self.keys):
            if event.state == "WORKING":
                break
        return {"cancelled": await self.client.terminate_task(self.card, task, self.keys), **await self.get(task)}

    async def again(self, task: str, content: dict[str, Any]) -> dict[str, Any]:
        message = Message(role="user", parts=[DataPart(content=content)])
        return {"sent": await self.client.send_message(self.card, task, message, self.keys)}

    async def get(self, task: str) -> dict[str, Any]:
        found = await self.client.get_task_status(self.card, task, self.keys)
        return {"task": found.model_dump(mode="json", by_alias=True)}


async def main(url: str) -> None:
    async with httpx.AsyncClient() as http:
        card = AgentCard.model_validate((await http.get(url)).json())
    async with AgentVaultClient() as client:
        driver = Driver(client, card)
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                reported = await getattr(driver, asked.pop("do"))(**asked)
            except A2AError as error:
                reported = {"error": type(error).__name__, "message": str(error)}
            print(json.dumps(reported), flush=True)


asyncio.run(main(sys.argv[1]))
