"""A server of one test after the other, with tools that are compiled once for all of them. Argument: its eras."""

from __future__ import annotations

import sys

from plain_tools import Plain

Plain(*sys.argv[1:]).run()
