"""Entry of `ai-session`: what must start at once goes its own way before anything heavy is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line in ``sys.argv``."""
    arguments = sys.argv[1:]
    if arguments in (["mcp-server", "--stdio"], ["mcp-server", "--stdio", "--dialect", "fluxloop"]):
        from ai_session import relay

        relay.main(*arguments[3:])
    elif arguments[:1] == ["mcp-server"] and sorted(arguments[1:]) == ["--no-daemon", "--stdio"]:
        from ai_session import daemon

        daemon.serve_stdio()
    elif arguments[:2] == ["daemon", "run"]:
        from ai_session import daemon

        daemon.main(arguments[2:])
    else:
        from ai_session import cli

        cli.main()


if __name__ == "__main__":
    main()
