"""The ccswarm.toml that is proposed for a project is one that runs, in terminals in boxes."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.ai_session.support.integration_planning import planned
from tests.ai_session.support.integration_projects import apply_plan
from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.conftest import new_home
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torture


def test_the_proposed_plan_is_carried_out(homes: Path) -> None:
    home = new_home(homes, "")
    root = home / "shop"
    root.mkdir()
    commit = "git init -q; git -c user.name=A -c user.email=a@b commit -qm Begin --allow-empty"
    subprocess.run(commit, shell=True, cwd=root, check=True)
    plan = planned(root, "ccswarm")
    apply_plan(root, plan)
    try:
        for check in (*plan["postChecks"], "ccswarm run"):
            command = [sys.executable, "-m", *check.split()]
            ran = subprocess.run(
                command, cwd=root, env=living_in(home), capture_output=True, text=True, timeout=BOUND_SECONDS
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "1 succeeded" in ran.stdout + ran.stderr
    finally:
        stop_daemons(home)
