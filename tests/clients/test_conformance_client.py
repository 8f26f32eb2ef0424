"""The official conformance suite, with ccswarm's client as what it looks at: all that is required of clients, and of
what is not scored what ccswarm offers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.clients.conformance_run import forks, requirements, suite
from tests.support.bounds import BOUND_SECONDS

COUNTS = {"2025-11-25": 18, "2026-07-28": 32}
MILLISECONDS = str(int(BOUND_SECONDS * 1000))
BESIDES = ["auth/client-credentials-basic", "auth/client-credentials-jwt", "json-schema-2020-12-preservation"]
"""Run and reported by the suite, and not scored."""

NOT_OFFERED = {
    "auth/enterprise-managed-authorization": "no identity provider of an enterprise vouches for agents here",
    "auth/dpop": "tokens are bearer tokens: the SDK has no proof of possession",
    "auth/dpop-nonce": "tokens are bearer tokens: the SDK has no proof of possession",
    "auth/wif-jwt-bearer": "no token of another issuer is exchanged; a key or secret of the client's own is used",
}
"""The others that are not scored, and why ccswarm has nothing for them."""


def listed(revision: str) -> tuple[list[str], list[str]]:
    """What the suite requires of clients, and what it only reports of them."""
    reports = requirements(revision)
    return reports["client"], [one["scenario"] for one in reports["not_scored"] if one["leg"] == "client"]


@pytest.fixture(scope="module")
def command() -> Iterator[str]:
    """What the suite starts for each scenario."""
    with forks(dict(os.environ), "client") as words:
        yield " ".join(words)


class Scenario(NamedTuple):
    """What was looked at, and what our client wrote to standard error meanwhile."""

    checks: list[Any]
    errors: str

    def holds(self, *, must_be_seen: bool = True) -> None:
        """Nothing failed and, unless what is looked for is that nothing happens, something succeeded."""
        assert [check for check in self.checks if check["status"] == "FAILURE"] == [], self.errors
        assert "SUCCESS" in [check["status"] for check in self.checks] or not must_be_seen, self


def scenarios_of(folder: Path) -> dict[str, Scenario]:
    """By name; the results of each stand in a folder called NAME-TIME."""
    files = {file: file.parent.relative_to(folder).as_posix() for file in folder.rglob("checks.json")}
    return {
        re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", name): Scenario(
            json.loads(file.read_text()), file.with_name("stderr.txt").read_text()
        )
        for file, name in files.items()
    }


@pytest.mark.parametrize("revision", COUNTS)
def test_everything_is_required_offered_or_excluded_by_name(revision: str) -> None:
    required, reported = listed(revision)
    assert len(required) == COUNTS[revision]
    assert sorted(reported) == sorted([*BESIDES, *NOT_OFFERED])


@pytest.mark.torture  # test_mcp_client_http.py and test_client_oauth_login.py have calls, headers and signing in
@pytest.mark.parametrize("name", ["tools_call", "http-standard-headers", "auth/scope-step-up"])
def test_of_each_kind_one(name: str, command: str, tmp_path: Path) -> None:
    """Calls, headers and signing in; the next test has all."""
    suite("client", "--scenario", name, "--command", command, "--timeout", MILLISECONDS, "-o", str(tmp_path))
    (found,) = scenarios_of(tmp_path).values()
    found.holds()


@pytest.mark.torture  # one of each kind above, and test_mcp_client*.py and test_client_oauth*.py have them case by case
@pytest.mark.parametrize("revision", COUNTS)
def test_ccswarm_is_a_client_as_the_protocol_has_it(revision: str, command: str, tmp_path: Path) -> None:
    suite("client", "--requirements", revision, "--command", command, "--timeout", MILLISECONDS, "-o", str(tmp_path))
    ran = scenarios_of(tmp_path)
    required, reported = listed(revision)
    assert sorted(ran) == sorted([*required, *reported])
    for name in (*required, *BESIDES):
        ran[name].holds(must_be_seen=name != "json-schema-ref-no-deref")
