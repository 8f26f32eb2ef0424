"""Creates an empty store of runs: ``python empty_store.py DIRECTORY``."""

from __future__ import annotations

import sys
from pathlib import Path

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.dbos.store import Store

if __name__ == "__main__":
    store = Store(EngineSettings(), Path(sys.argv[1]))
    store.create()
    store.bare.dispose()
