"""Forty rows that an MCP server of late 2026 is measured by, and the tests that show each."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One row. ``proofs`` are ``path::name``; ``differs`` says where we do something else on purpose."""

    number: int
    name: str
    wanted: str
    proofs: list[str]
    differs: str = ""


ROWS = [Row(**row) for row in tomllib.loads(Path(__file__).with_name("rows.toml").read_text())["rows"]]
