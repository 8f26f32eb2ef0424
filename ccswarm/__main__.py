"""The entry point of the ``ccswarm`` command."""

from __future__ import annotations

import os
import sys

from agentwire.system import interrupts  # nothing else: until main begins, Ctrl-C shows a traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMPLETING = "_CCSWARM_COMPLETE"
"""The variable that a shell sets to ask for completions."""


def main() -> NoReturn:
    """Run the command line in ``sys.argv``. Verbs that a task's programs start run before anything else is loaded."""
    interrupts.end_process()
    from agentwire.system import inherited_signals, utf8

    utf8.restart_in_utf8()

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
