"""The address of a database: what is none is told without repeating it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.dbos.store import connect
from ccswarm.errors import ConfigInvalid


@pytest.mark.parametrize(
    "address", ["nonsense:s3cret", "mysql://me:s3cret@host/db", "postgresql://me:s3cret@host:x/db"]
)
def test_what_is_no_address_is_refused_without_its_password(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigInvalid, match=r"engine\.database_url") as refused:
        connect(EngineSettings(database_url=address), tmp_path)
    assert "s3cret" not in str(refused.value) + refused.value.suggestion
