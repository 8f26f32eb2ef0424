"""The official conformance suite: everything it asks of servers, over each way in of the product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ai_session.support.mcp_client import stop_daemons
from tests.clients.conformance_run import (
    BRIDGE,
    EXCLUDED,
    RELAY,
    REVISIONS,
    TRANSPORTS,
    run,
    scenario,
    started,
)
from tests.conftest import client_environment
from tests.support.products import first

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}
TASKS = {
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
}
WITHOUT_FIXTURES = {
    "2025-11-25": ("server-initialize", "ping", "tools-list"),
    "2026-07-28": ("caching", "tools-list", "input-required-result-unsupported-methods"),
}
"""What can be asked of the server itself, whose tools are its own."""


CELLS = [f"{transport} {revision}" for transport in TRANSPORTS for revision in REVISIONS]


@pytest.mark.parametrize("cell", first(CELLS, "http 2026-07-28"))  # test_node_sdk.py has each revision over pipes
def test_every_check_passes_that_is_not_excluded_by_name(shared_home: Path, cell: str) -> None:
    transport, revision = cell.split()
    ran = run(transport, revision, client_environment(shared_home))
    failed = [f"{c.scenario}: {c.name}: {c.message}" for c in ran.checks if not c.passed and not c.excluded]
    assert failed == []
    assert len(ran.required) == REQUIRED[revision]
    assert [name for name in ran.required if not ran.scenarios.get(name)] == [], "looked at nothing"
    if revision == REVISIONS[-1]:
        assert ran.scenarios.keys() >= TASKS
    excluded = EXCLUDED[transport].get(revision, {})
    expected = {(name, check) for name, checks in excluded.items() for check in checks}
    assert {(c.scenario, c.name) for c in ran.checks if not c.passed} >= expected, "excluded, and passes"


def test_nothing_is_excluded_over_http_and_nothing_but_what_http_has_over_pipes() -> None:
    assert EXCLUDED["http"] == {}
    for transport in ("relay", "stdio"):
        for scenarios in EXCLUDED[transport].values():
            for name, checks in scenarios.items():
                assert name in {"dns-rebinding-protection", "server-stateless"} or "header" in name
                assert all(checks.values()), name


@pytest.fixture(scope="module")
def real(shared_home: Path) -> Iterator[str]:
    with started(BRIDGE, RELAY, client_environment(shared_home)) as port:
        yield f"http://127.0.0.1:{port}/mcp"
    stop_daemons(shared_home)


@pytest.mark.parametrize(
    ("revision", "name"),
    [(revision, name) for revision, names in WITHOUT_FIXTURES.items() for name in names],
)
@pytest.mark.torture  # the fixtures are asked all of it, and test_node_sdk.py starts the server itself as an SDK does
def test_the_server_itself(real: str, revision: str, name: str) -> None:
    checks = scenario(real, name, revision)
    assert checks
    assert [f"{c.name}: {c.message}" for c in checks if not c.passed] == []
