"""A person with a clean home who installs what was built here, with pip, pipx or uv from the package registry."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import client_environment

ROOT = Path(__file__).parents[2]
TOOLS = ("pipx==1.18.4", "uv==0.13.9")
SECONDS = 280.0

TRUST = {name: value for name, value in os.environ.items() if "CERT" in name or name.endswith("CA_BUNDLE")}
"""Whom this machine trusts on the network: of the environment of the run, before tests have another."""


@dataclass(frozen=True)
class Installer:
    """``folder`` has the tools, ``home`` what they install."""

    folder: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(
            [str(self.home / ".local/bin"), str(self.folder / "bin"), "/usr/local/bin:/usr/bin:/bin"]
        )
        return client_environment(self.home) | TRUST | {"PATH": path}

    def run(self, *command: str) -> str:
        """Standard output of a command that succeeds, in the home."""
        ran = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        return ran.stdout


def new_environment(folder: Path, *packages: str, home: Path) -> Path:
    """A virtual environment with these packages, in the versions that are tested; its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=SECONDS)
    pip = [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
    ran = subprocess.run(
        pip, env=client_environment(home) | TRUST, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return folder / "bin"


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source archive of these sources."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=SECONDS)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive
