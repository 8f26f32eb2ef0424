"""Entry of the ``ccswarm`` command."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line in ``sys.argv``."""
    from ccswarm import cli

    cli.main()


if __name__ == "__main__":
    main()
