"""The entry point of `ai-session`: processes that must start fast branch off before anything heavy is imported."""

from __future__ import annotations

import os
import sys

from agentwire.system import interrupts  # nothing more: until main runs, Ctrl-C shows a traceback

DIALECTS = {
    "": ("mcp", ""),
    "--dialect fluxloop": ("fluxloop", ""),
    "--dialect mcp": ("mcp", ',"dialect":"mcp"'),
}
"""The role and the rest of the relay's hello, by the dialect's arguments; without any, the first line decides."""

COMPLETING = "_AI_SESSION_COMPLETE"
"""Set by a shell that asks for completions."""


def main() -> None:
    """Run the command line in ``sys.argv``."""
    interrupts.end_process()
    from agentwire.system import inherited_signals, utf8

    utf8.restart_in_utf8()

    arguments = sys.argv[1:]
    if arguments[:1] == ["sandbox"]:  # it executes another program, like env or nice
        inherited_signals.unblock()
    else:
        inherited_signals.keep_from_programs()
    if arguments[:2] == ["mcp-server", "--stdio"] and " ".join(arguments[2:]) in DIALECTS:
        from ai_session.client import relay

        relay.main(*DIALECTS[" ".join(arguments[2:])])
    elif arguments[:1] == ["mcp-server"] and sorted(arguments[1:]) == ["--no-daemon", "--stdio"]:
        from ai_session.daemon import host

        host.serve_stdio()
    elif arguments[:2] == ["daemon", "run"] and arguments[2:3] in ([], ["--handed"]):
        from ai_session.daemon import host

        host.main(arguments[2:])
    else:
        if COMPLETING not in os.environ:
            from ai_session.cli import quick

            quick.main(arguments)
        from ai_session.cli import main as cli

        cli.main()


if __name__ == "__main__":
    main()
