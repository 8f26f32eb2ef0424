"""Entry of the ``ccswarm`` command, which so far only says what it is."""

from __future__ import annotations

import argparse

from ccswarm import __version__


def main() -> int:
    """Answers ``--version`` and ``--help``; any other argument is a usage error with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="ccswarm",
        description="Will orchestrate agents over MCP servers. This version has no commands yet: it reserves the "
        "name and the package; the working part of this distribution is ai-session.",
    )
    parser.add_argument("--version", action="version", version=f"ccswarm {__version__}")
    parser.parse_args()
    parser.print_help()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
