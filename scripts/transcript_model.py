"""A model on the loopback that fixes the project of a page. Prints its URL; ends at end of input."""

from __future__ import annotations

import sys

from tests.ccswarm.support.model_servers import Asked, Behaviour, ModelServer, Reply, asides, follow

FIXED = {"path": "shop.py", "old": "3 * 4", "new": "3 + 4"}
SESSION = {"session_id": "shop"}
COMMAND = "sed -i 's/3 [*] 4/3 + 4/' shop.py && make test"
FINISHED = {"status": "succeeded", "summary": "shop.py multiplied where it should add; the tests pass."}


def decide(asked: Asked) -> Behaviour:
    """Return the reply of this turn, to an agent of ccswarm, or, without the tool bash, to another program."""
    has_bash = "bash" in asked.tools
    turns = [
        Reply("I run the tests.", [("bash", {"command": "make test"}), ("read", {"path": "shop.py"})])
        if has_bash
        else Reply("I run the tests.", [("ai-session__create_session", {"name": "shop"})]),
        Reply("I fix it.", [("edit", FIXED), ("bash", {"command": "make test"})])
        if has_bash
        else Reply("I fix it.", [("ai-session__execute_command", {**SESSION, "command": COMMAND})]),
        Reply(calls=[("finish", FINISHED)]),
    ]
    done = len(asked.results) // (2 if has_bash else 1)
    return turns[done] if done < len(turns) else Reply("Done.")


with ModelServer(asides(follow(decide))) as server:
    print(server.url, flush=True)
    sys.stdin.read()
