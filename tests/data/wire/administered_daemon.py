"""A daemon whose administrator's policy is another file than the one in /etc, which no user can choose."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ai_session.config import config
from ai_session.daemon import host
from ai_session.daemon.app import App
from ai_session.gate.policy import administrator


def make(directory: Path) -> tuple[App, float]:
    laid_down = administrator.read(Path(sys.argv[1]), os.getuid())
    return App(config.load(), directory, laid_down), 0.0


if __name__ == "__main__":
    folder, listener = host.listen()
    print("ready", flush=True)
    host.run_and_leave(host.Daemon(folder, listener, make).run())
