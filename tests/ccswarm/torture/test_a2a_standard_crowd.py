"""A crowd at A2A's address: every client's task ends as its own client asked, and the server ends with nothing left."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import TEXT, Wire, old_message, served, text_message
from tests.ccswarm.support.runs import RunVerbs

pytestmark = pytest.mark.torture
CLIENTS = 60
WAIT: dict[str, Any] = {"metadata": {"agent": "ann"}}


def test_many_clients_at_once(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    os.mkfifo(verbs.pipe)

    def client(number: int) -> tuple[str, str]:
        """What it did, and how its task ended."""
        with Wire(server.port) as wire:
            match number % 4:
                case 0:
                    task = wire.ask("SendMessage", message=text_message(f"say {number}"))["task"]
                    said = task["artifacts"][0]["parts"][1]["data"]["steps"]["do"]["params"]["arguments"]["text"]
                    assert said == f"say {number}"
                    return "send", task["status"]["state"]
                case 1:
                    with wire.stream("message/stream", message=old_message(f"say {number}")) as events:
                        *_, last = events
                    return "stream", last["status"]["state"]
                case 2:
                    configuration = {"returnImmediately": True}
                    asked = text_message(f"wait {number}", **WAIT)
                    task = wire.ask("SendMessage", message=asked, configuration=configuration)["task"]
                    return "cancel", wire.ask("CancelTask", id=task["id"])["status"]["state"]
                case _:
                    asked = text_message(f"wait {number}", **WAIT)
                    with wire.stream("SendStreamingMessage", message=asked) as events:
                        number = next(events)["task"]["id"]
                    assert wire.post(b"{")["error"]["code"] == -32700
                    return "leave", wire.ask("CancelTask", id=number)["status"]["state"]

    with served(verbs, "--connections", "200") as server, ThreadPoolExecutor(CLIENTS) as clients:
        found = list(clients.map(client, range(CLIENTS)))
        with Wire(server.port) as wire:
            listed = wire.ask("ListTasks", pageSize=100)
    assert sorted(set(found)) == [
        ("cancel", "TASK_STATE_CANCELED"),
        ("leave", "TASK_STATE_CANCELED"),
        ("send", "TASK_STATE_COMPLETED"),
        ("stream", "completed"),
    ]
    assert listed["totalSize"] == CLIENTS
    assert not any("Traceback" in line for line in server.said)
