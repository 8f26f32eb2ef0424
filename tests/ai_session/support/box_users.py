"""Whose boxes are tried: root's and those of somebody who is not."""

from __future__ import annotations

import os

import pytest

from tests.ai_session.support.boxes import ORDINARY

USERS = [pytest.param(0, id="root"), ORDINARY] if os.geteuid() == 0 else [os.geteuid()]
MOSTLY_ORDINARY = [pytest.param(0, id="root", marks=pytest.mark.torture), USERS[-1]][-len(USERS) :]
"""For what keeps nothing from root that it does not keep from everybody."""
