"""A model on the loopback that makes the tests of a page's project pass. Prints where it is; ends with its input."""

from __future__ import annotations

import sys

from tests.ccswarm.model_servers import Asked, Behaviour, ModelServer, Reply, asides, follow

FIXED = {"path": "shop.py", "old": "3 * 4", "new": "3 + 4"}
SESSION = {"session_id": "shop"}
COMMAND = "sed -i 's/3 [*] 4/3 + 4/' shop.py && make test"
FINISHED = {"status": "succeeded", "summary": "shop.py multiplied where it should add; the tests pass."}


def decide(asked: Asked) -> Behaviour:
    """By how often it has answered, with the tools that an agent of ccswarm has, or a program that thinks for one."""
    own = "bash" in asked.tools
    turns = [
        Reply("I run the tests.", [("bash", {"command": "make test"}), ("read", {"path": "shop.py"})])
        if own
        else Reply("I run the tests.", [("ai-session__create_session", {"name": "shop"})]),
        Reply("I mend it.", [("edit", FIXED), ("bash", {"command": "make test"})])
        if own
        else Reply("I mend it.", [("ai-session__execute_command", {**SESSION, "command": COMMAND})]),
        Reply(calls=[("finish", FINISHED)]),
    ]
    done = len(asked.results) // (2 if own else 1)
    return turns[done] if done < len(turns) else Reply("Done.")


with ModelServer(asides(follow(decide))) as server:
    print(server.url, flush=True)
    sys.stdin.read()
