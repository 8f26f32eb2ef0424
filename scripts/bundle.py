"""Build the bundle for Claude Desktop: a wheel, the versions it is tested with, and how uv starts it.

    scripts/bundle.py [--wheel FILE] [--output FOLDER]

FOLDER (build/bundle) is the unpacked bundle, FOLDER.mcpb the file that Claude Desktop opens.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "ai-session"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive: the same sources give the same bundle."""

PROJECT_FILE = """\
# What uv installs in addition to the wheel, in the versions it is tested with.
[project]
name = "ai-session-bundle"
version = "{version}"
requires-python = "{python}"
dependencies = ["ai-session"]

[tool.uv]
package = false
# Only ccswarm needs these, a third of the installation's size.
override-dependencies = ["dbos; python_version < '3'", "sqlalchemy; python_version < '3'"]
constraint-dependencies = [
{pins}]

[tool.uv.sources]
ai-session = {{ path = "{wheel}" }}
"""

ENTRY = '''\
"""Start the server in the chosen directory, in which its sessions may write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

BUNDLE = Path(__file__).resolve().parent.parent


def workspace(chosen: str) -> Path:
    """Return ``chosen``, created if missing; never the bundle, whose programs a session could then change."""
    if chosen and not chosen.startswith("${"):
        path = Path(chosen).expanduser()
        path.mkdir(exist_ok=True)
        return path
    here = Path.cwd()
    return Path.home() if here.is_relative_to(BUNDLE) else here


os.chdir(workspace(*sys.argv[1:2] or [""]))
sys.argv[1:] = ["mcp-server", "--stdio"]

from ai_session.__main__ import main  # noqa: E402

main()
'''

LONG_DESCRIPTION = """\
Gives Claude real terminals on this computer: shells that stay alive between calls, with exact output and exit codes, \
interactive programs, and commands that continue while you talk. Each session runs in a sandbox of the operating \
system: it can write only to the workspace you choose, and reaches no network that you did not name.

You can watch and type along, see a record of every call, and change what is allowed: install the command line with \
`uv tool install .` in a clone of its repository, then `ai-session ls`, `ai-session attach`, `ai-session audit tail`.
"""


def manifest(version: str) -> dict[str, Any]:
    """Return the manifest that Claude Desktop reads."""
    answers: dict[str, Any] = json.loads((ROOT / "ai_session/servers/mcp/first_answers.json").read_text())["handshake"]
    project = project_facts()
    return {
        "manifest_version": "0.4",
        "name": NAME,
        "display_name": "AI Session",
        "version": version,
        "description": project["description"].partition(";")[0],
        "long_description": LONG_DESCRIPTION.strip(),
        "author": {"name": "The ai-session authors"},
        "icon": "icon.png",
        "server": {
            "type": "uv",
            "entry_point": "src/server.py",
            "mcp_config": {
                "command": "uv",
                # --project, not --directory: the server must not start in the bundle.
                "args": ["run", "--project", "${__dirname}", "${__dirname}/src/server.py", "${user_config.workspace}"],
            },
        },
        "tools": [
            {"name": tool["name"], "description": " ".join(tool["description"].split()).partition(". ")[0]}
            for tool in answers["tools/list"]["tools"]
        ],
        **({"prompts_generated": True} if "prompts/list" in answers else {}),
        "keywords": project["keywords"],
        "license": project["license"],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": project["requires-python"]}},
        "user_config": {
            "workspace": {
                "type": "directory",
                "title": "Workspace",
                "description": "Where sessions start and may write. For any other directory you are asked.",
                "required": False,
                "default": "${HOME}/ai-session-workspace",
            }
        },
    }


def project_facts() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def build_wheel(folder: Path) -> Path:
    """Build a wheel of these sources in ``folder``, and return its path. Raises CalledProcessError."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def write_bundle(wheel: Path, folder: Path) -> Path:
    """Write the bundle to ``folder``, whose contents it replaces, and return its archive next to it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    version = wheel.name.split("-")[1]
    pins = "".join(f'    "{pin}",\n' for pin in (ROOT / "constraints.txt").read_text().splitlines())
    texts = {
        "manifest.json": json.dumps(manifest(version), indent=2, ensure_ascii=False) + "\n",
        "pyproject.toml": PROJECT_FILE.format(
            version=version, python=project_facts()["requires-python"], pins=pins, wheel=wheel.name
        ),
        "src/server.py": ENTRY,
        ".mcpbignore": ".venv/\n__pycache__/\nuv.lock\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    shutil.copy(wheel, folder)
    shutil.copy(ROOT / "docs/assets/icon.png", folder)
    shutil.copy(ROOT / "LICENSE", folder)
    archive = folder.with_suffix(".mcpb")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(folder)), EARLIEST)
            packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return archive


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the bundle for Claude Desktop.")
    parser.add_argument("--wheel", type=Path, help="default: built from these sources")
    parser.add_argument("--output", type=Path, default=ROOT / "build/bundle")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        archive = write_bundle(given.wheel or build_wheel(Path(folder)), given.output)
    print(archive)


if __name__ == "__main__":
    main()
