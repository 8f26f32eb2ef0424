"""An agent's tools for a client that starts ``ccswarm mcp-server --agent NAME --stdio``: a person's, or the program of
a task. Every call is a step of a run: granted, approved, counted and recorded like any agent's."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

from ccswarm.bridge import bridge
from ccswarm.bridge import relay as guest_relay
from ccswarm.errors import ServerUnavailable, SwarmError, UsageInvalid
from ccswarm.plan.origin import Origin
from ccswarm.servers.base import ServerOptions

if TYPE_CHECKING:
    from ccswarm.bridge.bridge import ToolBridge
    from ccswarm.config.settings import Settings
    from ccswarm.runs.app import App

TASK = "guest"
LONGEST_SECONDS = 365 * 86400.0
OPENED = "tools.opened"
ENDING_SECONDS = 10.0


class GuestServer:
    """The server of one agent's tools."""

    name = "guest"

    async def converse(
        self, tool_bridge: ToolBridge, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve MCP to one connection at a bridge, until it ends. ``name`` identifies the connection."""
        from ccswarm.servers.guest import mcp as guest_mcp

        await guest_mcp.converse(tool_bridge, name, reader, writer)

    def main(self, options: ServerOptions) -> int:
        """Act as the agent for the client on standard input and output, in a run that is executed here and ends when
        the client disconnects. With CCSWARM_GUEST set, ``ccswarm.__main__`` has relayed already."""
        # Imported before there is an event loop that this could block.
        from ccswarm.config import config
        from ccswarm.runs import app

        loaded = config.load(options.config, workspace=options.workspace)
        plan = _plan(options.agent, loaded.settings)
        directory = str(options.workspace or (loaded.directory / loaded.settings.swarm.workspace).resolve())
        files = loaded.sources

        async def serve() -> None:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, task.cancel)
            async with app.working(loaded.settings, config.state_directory(), config.server_environment()) as opened:
                run_id = app.new_run_id()
                await opened.swarm.submit(plan, run_id, directory, files, origin=Origin.CLIENT)
                try:
                    await _serve(opened, run_id)
                finally:
                    if not (await opened.engine.status(run_id)).status.over:
                        await opened.engine.cancel(run_id)

        try:
            asyncio.run(serve())
        except asyncio.CancelledError:
            pass
        except SwarmError as error:
            # The relaying thread may wait for the client forever, so a raised error would never be seen.
            os.write(2, f"ccswarm: {error.message}; {error.suggestion}\n".encode(errors="replace"))
            os._exit(1)
        os._exit(0)


async def _serve(opened: App, run_id: str) -> None:
    guest = await _wait_for_bridge(opened, f"{run_id}.{TASK}", run_id)
    await _relay(guest)
    async with asyncio.timeout(ENDING_SECONDS):
        await opened.engine.wait(run_id)


def _plan(agent: str, settings: Settings) -> Settings:
    """Return a plan with one task, of that agent with the brain ``guest``; the others only receive messages."""
    from ccswarm.config.settings import Settings, TaskSettings

    names = [one.name for one in settings.agents]
    if agent not in names:
        raise UsageInvalid(f"there is no agent {agent!r}", suggestion=f"known: {', '.join(names) or 'none'}")
    doer = next(one for one in settings.agents if one.name == agent)
    others = [one for one in settings.agents if one.name != agent]
    doer = doer.model_copy(update={"brain": "guest", "settings": {}})
    task = TaskSettings(id=TASK, text=f"Calls of a client as {agent}", agent=agent, timeout_seconds=LONGEST_SECONDS)
    return Settings(swarm=settings.swarm, engine=settings.engine, agents=(doer, *others), tasks=(task,))


async def _wait_for_bridge(opened: App, execution: str, run_id: str) -> str:
    """Return the value of CCSWARM_GUEST once the task's bridge is open. Raises ServerUnavailable if the run ends."""
    async for event in opened.engine.events(run_id):
        if event.get("event") == "task.started":
            break
    async for event in opened.engine.events(execution):
        if event.get("event") == OPENED:
            return bridge.bridge_directory(opened.state_directory, execution).guest("")
    ended = await opened.engine.wait(run_id)
    raise ServerUnavailable(f"the run {run_id} ended before it began: {ended.error}", suggestion="ccswarm doctor")


async def _relay(guest: str) -> None:
    """Relay until the client or the task ends, in a thread that cancellation does not wait for."""
    loop, finished = asyncio.get_running_loop(), asyncio.Event()
    problems: list[str] = []

    def relay() -> None:
        try:
            guest_relay.Relay(guest, 0, 1).run()
        except guest_relay.TaskOver as error:
            problems.append(str(error))
        loop.call_soon_threadsafe(finished.set)

    threading.Thread(target=relay, daemon=True).start()
    await finished.wait()
    if problems:
        raise ServerUnavailable(problems[0], suggestion="ccswarm runs shows its result; start the server again")


PLUGIN = GuestServer()
