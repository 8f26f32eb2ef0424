"""How long tests wait for what must happen.

A test that passes never waits longer than the machine takes, so the bound is far above what any machine takes: it ends
what hangs, and says nothing about speed. pytest's own, in pyproject.toml, is above this one.
"""

from __future__ import annotations

BOUND_SECONDS = 200.0
