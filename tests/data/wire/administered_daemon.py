"""A daemon whose administrator's policy is another file than the one in /etc, which no user can choose."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ai_session import administrator, config, daemon
from ai_session.app import App


def make(directory: Path) -> tuple[App, float]:
    laid_down = administrator.read(Path(sys.argv[1]), os.getuid())
    return App(config.load(), directory, laid_down), 0.0


if __name__ == "__main__":
    folder, listener = daemon.listen()
    print("ready", flush=True)
    daemon.run_and_leave(daemon.Daemon(folder, listener, make).run())
