"""Entry of the ``ccswarm`` command."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from agentwire.system import inherited_signals

COMPLETING = "_CCSWARM_COMPLETE"
"""What a shell that completes a line asks with."""


def main() -> NoReturn:
    """Run the command line in ``sys.argv``; what programs of a task start is found before anything else is loaded."""
    inherited_signals.keep_from_programs()
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    if verb == "mcp-server" and "CCSWARM_GUEST" in os.environ:
        from ccswarm.bridge import relay

        relay.main(os.environ)
    if verb == "guest-program":
        from ccswarm.bridge import keeper

        keeper.main(os.environ)
    if COMPLETING not in os.environ:
        from ccswarm.cli import quick

        quick.main(sys.argv[1:])
    from ccswarm.cli import main as cli

    cli.main()


if __name__ == "__main__":
    main()
