"""The official conformance suite, with ccswarm's client as what it looks at: all that is required of clients, and of
what is not scored what ccswarm offers."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conformance_run import ROOT, suite

pytestmark = pytest.mark.clients

COUNTS = {"2025-11-25": 18, "2026-07-28": 32}
AT_ONCE = 2
MILLISECONDS = "60000"
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
    told = suite("list", "--requirements", revision)
    required, _, reported = told.partition("Client scenarios")[2].partition("Run and reported")
    return (
        [line.strip()[2:] for line in required.splitlines() if line.startswith("  - ")],
        [line.strip()[2:].removesuffix(" [client]") for line in reported.splitlines() if "[client]" in line],
    )


def failures(scenario: str, revision: str, folder: Path) -> list[Any]:
    """What failed of one scenario; the suite must have looked at something."""
    folder = folder / scenario.replace("/", "-")
    program = Path(__file__).with_name("conformance_client.py")
    command = f"env PYTHONPATH={ROOT} {sys.executable} {program}"
    words = ["--command", command, "--scenario", scenario]
    words += [] if scenario in BESIDES else ["--spec-version", revision]  # extensions belong to none
    suite("client", *words, "--timeout", MILLISECONDS, "-o", str(folder))
    (file,) = folder.rglob("checks.json")
    checks = json.loads(file.read_text())
    assert any(check["status"] == "SUCCESS" for check in checks) or scenario == "json-schema-ref-no-deref", checks
    return [(scenario, check) for check in checks if check["status"] == "FAILURE"]


@pytest.mark.parametrize("revision", COUNTS)
def test_everything_is_required_offered_or_excluded_by_name(revision: str) -> None:
    required, reported = listed(revision)
    assert len(required) == COUNTS[revision]
    assert sorted(reported) == sorted([*BESIDES, *NOT_OFFERED])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("revision", COUNTS)
def test_ccswarm_is_a_client_as_the_protocol_has_it(revision: str, tmp_path: Path) -> None:
    scenarios = [*listed(revision)[0], *BESIDES]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(lambda name: failures(name, revision, tmp_path), scenarios)
        assert [failure for each in found for failure in each] == []
