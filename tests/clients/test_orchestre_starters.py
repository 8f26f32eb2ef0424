"""The starters of initialize_project run: what npm installs, tests and builds, as their README says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT, files_of

BOUND_SECONDS = 600
BUILT = {
    "cloudflare-hono": "dist/index.js",
    "makerkit-nextjs": ".next/BUILD_ID",
    "react-native-expo": "dist/metadata.json",
}

pytestmark = [pytest.mark.clients, pytest.mark.timeout(4 * BOUND_SECONDS)]


@pytest.mark.parametrize("template", ABOUT)
def test_a_starter_installs_passes_its_tests_and_builds(template: str, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm, "npm is needed"
    for path, text in files_of(template, "my-app", "Sell shoes to people.").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    quiet = {"CI": "1", "NEXT_TELEMETRY_DISABLED": "1", "WRANGLER_SEND_METRICS": "false", "EXPO_NO_TELEMETRY": "1"}
    for words in (("install", "--no-audit", "--no-fund"), ("test",), ("run", "typecheck"), ("run", "build")):
        ran = subprocess.run(
            [npm, *words],
            cwd=tmp_path,
            env={**os.environ, **quiet},
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
        )
        assert ran.returncode == 0, (words, ran.stdout[-3000:], ran.stderr[-3000:])
    assert (tmp_path / BUILT[template]).exists()
