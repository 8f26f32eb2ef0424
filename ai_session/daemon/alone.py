"""The directories of servers with sessions of their own (`--no-daemon`), and the cleanup after killed ones."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

from ai_session.system.temporary_directories import abandoned, new_directory

PARENT = "/tmp"

log = logging.getLogger(__name__)


def new() -> Path:
    """Return a new directory, which is reserved until this process ends."""
    return new_directory(_kind(), PARENT)[0]


async def end_abandoned() -> None:
    """End the sessions of servers that were killed: no other process can reach them."""
    from ai_session.sandbox.boxes import Boxes
    from ai_session.sandbox.sandbox import Sandbox
    from ai_session.sessions.manager import SessionManager
    from ai_session.sessions.spec import SessionDefaults

    left = abandoned(_kind(), PARENT)
    while (directory := await asyncio.to_thread(next, left, None)) is not None:
        try:
            boxes = Boxes(sandbox=Sandbox(runtime_directory=directory))
            sessions = SessionManager(directory, SessionDefaults(), boxes)
            await sessions.end_all_left()
            await boxes.sweep()
            await boxes.aclose()
        except Exception as problem:
            log.warning("not everything that %s had started was ended: %s", directory, problem)


def _kind() -> str:
    """Return the kind of this namespace's directories: a pid has no meaning in another one."""
    namespace = 0
    with contextlib.suppress(OSError):
        namespace = os.stat("/proc/self/ns/pid").st_ino
    return f"alone-{namespace}"
