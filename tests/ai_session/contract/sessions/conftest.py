"""Each backend in turn."""

from __future__ import annotations

import pytest

from agentwire import plugins


@pytest.fixture(params=plugins.names("ai_session.backends"))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param
