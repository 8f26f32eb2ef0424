"""Agrees to what waits for a person, or does not: ``python swarm_answer.py CONFIG STATE yes|no NAME``. Prints what was
asked."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from ccswarm.config import config
from ccswarm.runs.app import submitting


async def main(file: str, state: str, word: str, name: str) -> None:
    settings = config.peek(Path(file)).settings
    async with submitting(settings, Path(state)) as app:
        for question in await app.swarm.approvals():
            await app.swarm.answer(question["id"], approved=word == "yes", by=name, reason=f"{name} said {word}")
            print(json.dumps(question))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
