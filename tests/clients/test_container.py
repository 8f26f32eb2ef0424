"""The container file, built by buildah on Debian's own packages, serves a client without being root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import Client
from tests.clients.installing import ROOT
from tests.support.bounds import BOUND_SECONDS

SECONDS = 900.0
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
BASE = f"""\
FROM scratch
ADD base.tar /
COPY ca-certificates.crt {AUTHORITIES}
COPY pip.conf /etc/pip.conf
"""

pytestmark = [pytest.mark.clients, pytest.mark.timeout(SECONDS)]


@pytest.fixture(scope="module")
def buildah() -> Iterator[list[str]]:
    """The command with a store of its own, in which `ai-session` is built and `one` is a container of it."""
    needed = [name for name in ("buildah", "mmdebstrap") if not shutil.which(name)]
    assert needed == [], "run first: make clients, as root"
    folder = Path(tempfile.mkdtemp(prefix="ais-image-", dir="/tmp"))
    command = ["buildah", "--storage-driver", "vfs", "--root", f"{folder}/store", "--runroot", f"{folder}/run"]

    def run(*words: str) -> None:
        ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]

    run("mmdebstrap", "--variant=minbase", "--include=ca-certificates", "trixie", "base.tar")
    (folder / "Basefile").write_text(BASE)
    (folder / "pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")
    shutil.copy(os.environ.get("SSL_CERT_FILE", AUTHORITIES), folder / "ca-certificates.crt")
    run(*command, "bud", "--isolation", "chroot", "-t", "base", "-f", "Basefile", ".")
    # Without a network namespace of its own a chroot reaches what the build downloads.
    given = ["--build-arg", "BASE=localhost/base", "-t", "ai-session", "-f", str(ROOT / "Containerfile"), str(ROOT)]
    run(*command, "bud", "--isolation", "chroot", *given)
    run(*command, "from", "--name", "one", "localhost/ai-session")
    yield command
    run(*command, "rm", "--all")
    shutil.rmtree(folder)


def inside(buildah: list[str], *words: str) -> list[str]:
    return [*buildah, "run", "--isolation", "chroot", "one", "--", *words]


def test_both_programs_and_their_man_pages_are_there(buildah: list[str]) -> None:
    asked = "ai-session --version; ccswarm --version; ls /opt/ai-session/share/man/man1; id -u; pwd"
    ran = subprocess.run(
        inside(buildah, "sh", "-c", asked), capture_output=True, text=True, timeout=BOUND_SECONDS, check=True
    )
    version, swarm, *pages, user, location = ran.stdout.split("\n")[:-1]
    assert swarm == f"ccswarm {version}"
    assert pages == ["ai-session.1", "ccswarm.1"]
    assert (user, location) == ("1000", "/workspace")


def test_it_serves_a_client_and_its_sessions_are_boxed(buildah: list[str]) -> None:
    """In a chroot the kernel gives no namespaces, so the box is the weakest one; `doctor` says what would give more."""
    # --no-daemon: nothing of it is left when the test fails.
    command = inside(buildah, "tini", "-s", "--", "ai-session", "mcp-server", "--stdio", "--no-daemon")
    with Client(command) as client:
        client.initialize()
        session = client.call("create_session", name="contained")["structuredContent"]
        assert (session["working_directory"], session["shell"], session["backend"]) == ("/workspace", "bash", "tmux")
        assert session["sandbox"].startswith("workspace (")
        result = client.call("execute_command", session_id="contained", command="touch here && touch /home/agent/there")
        assert result["structuredContent"]["exit_code"] == 1
        assert "/home/agent/there" in result["structuredContent"]["output"]
        assert client.end()[0] == 0
