"""The users whose boxes are tested: root and an ordinary one."""

from __future__ import annotations

import os

import pytest

from tests.ai_session.support.boxes import ORDINARY

USERS = [pytest.param(0, id="root"), ORDINARY] if os.geteuid() == 0 else [os.geteuid()]
MOSTLY_ORDINARY = [pytest.param(0, id="root", marks=pytest.mark.torture), USERS[-1]][-len(USERS) :]
"""For restrictions that apply to root as to every user."""
MOSTLY_ROOT = [USERS[0], *[pytest.param(uid, marks=pytest.mark.torture) for uid in USERS[1:]]]
"""For what only root could do if nothing forbade it."""
