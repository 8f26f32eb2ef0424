"""``ai-session serve --rpc`` as a process: the tool server behind AgentVault's proxies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import client_environment
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]


@contextmanager
def tool_server(home: Path, workspace: Path) -> Iterator[str]:
    """Yield the address of a running server, without ``/rpc``; its files are below ``workspace``."""
    words = ["serve", "--rpc", "--port", "0", "--workspace", str(workspace), "--json"]
    environment = {**client_environment(home), "PYTHONPATH": str(ROOT)}
    process = forked.piped("ai_session", words, cwd=workspace, env=environment)
    try:
        assert process.stdout
        yield json.loads(process.stdout.readline())["url"].removesuffix("/rpc")
        process.terminate()
        process.communicate(timeout=BOUND_SECONDS)
    finally:
        process.close()
