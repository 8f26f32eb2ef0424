"""What dbos writes to its log: not that a cancelled run is cancelled, which it calls an error."""

from __future__ import annotations

import logging

import pytest
from dbos._error import DBOSAwaitedWorkflowCancelledError, DBOSWorkflowCancelledError

from ccswarm.engines.dbos.serializer import harden

CANCELLED = (DBOSAwaitedWorkflowCancelledError("run_1"), DBOSWorkflowCancelledError("run_1"))


def test_only_failures_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    harden()
    log = logging.getLogger("dbos")
    for error in (*CANCELLED, ValueError("a defect")):
        log.error("Exception encountered", exc_info=error)
    log.error("something else")
    assert [str(record.exc_info[1]) if record.exc_info else "" for record in caplog.records] == ["a defect", ""]
