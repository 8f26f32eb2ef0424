"""What is published with a release: one version everywhere, the registry's entry, the bundle for Claude Desktop."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import ai_session
import ccswarm
from tests.ai_session.support.mcp_client import Client, stop_daemons
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVER = json.loads((ROOT / "server.json").read_text())
CONTAINER = (ROOT / "Containerfile").read_text()
MOST_CHARS = 100
TEXT = {"type": "string", "minLength": 1}


def closed(always: dict[str, Any], /, **optional: Any) -> dict[str, Any]:
    """An object with these members and no others."""
    properties = always | optional
    return {"type": "object", "properties": properties, "required": list(always), "additionalProperties": False}


REGISTRY_RULES = closed(
    {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "maxLength": 200, "pattern": r"^[a-zA-Z0-9.-]+\.[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
        "description": TEXT | {"maxLength": MOST_CHARS},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": closed(
                {
                    "registryType": {"const": "pypi"},
                    "registryBaseUrl": {"const": "https://pypi.org"},
                    "identifier": TEXT,
                    "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                    "transport": closed({"type": {"const": "stdio"}}),
                },
                runtimeHint={"const": "uvx"},
                packageArguments={"type": "array", "items": closed({"type": {"const": "positional"}, "value": TEXT})},
            ),
        },
    },
    title=TEXT | {"maxLength": MOST_CHARS},
)
"""Of the registry's schema of 2025-12-11, what we use of it; its prose asks for a namespace with a dot."""

MANIFEST_RULES = closed(
    {
        "manifest_version": {"const": "0.4"},
        "name": TEXT,
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "description": TEXT,
        "author": closed({"name": TEXT}),
        "server": closed(
            {
                "type": {"const": "uv"},
                "entry_point": TEXT,
                "mcp_config": closed({"command": {"const": "uv"}, "args": {"type": "array", "items": TEXT}}),
            }
        ),
    },
    display_name=TEXT,
    long_description=TEXT,
    icon=TEXT,
    tools={"type": "array", "items": closed({"name": TEXT, "description": TEXT})},
    prompts_generated={"const": True},
    keywords={"type": "array", "items": TEXT},
    license=TEXT,
    compatibility=closed(
        {"platforms": {"type": "array", "items": {"enum": ["darwin", "linux"]}}, "runtimes": closed({"python": TEXT})}
    ),
    user_config={
        "type": "object",
        "additionalProperties": closed(
            {
                "type": {"enum": ["string", "number", "boolean", "directory", "file"]},
                "title": TEXT,
                "description": TEXT,
            },
            required={"type": "boolean"},
            default=TEXT,
        ),
    },
)


def problems(rules: dict[str, Any], document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(rules).iter_errors(document)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as Claude Desktop unpacks it."""
    folder = tmp_path_factory.mktemp("bundle")
    command = [sys.executable, str(ROOT / "scripts/bundle.py"), "--output", str(folder / "made")]
    made = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert made.returncode == 0, made.stderr
    archive = Path(made.stdout.strip())
    assert archive == folder / "made.mcpb"
    zipfile.ZipFile(archive).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def manifest(bundle: Path) -> dict[str, Any]:
    return json.loads((bundle / "manifest.json").read_text())


def test_there_is_one_version(manifest: dict[str, Any], bundle: Path) -> None:
    newest = re.search(r"^## (\S+?)(?:,.*)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    label = re.search(r'org\.opencontainers\.image\.version="([^"]+)"', CONTAINER)
    assert newest
    assert label
    versions = {
        "ai_session": ai_session.__version__,
        "ccswarm": ccswarm.__version__,
        "CHANGELOG.md": newest[1],
        "Containerfile": label[1],
        "manifest.json": manifest["version"],
        "server.json": SERVER["version"],
        "server.json, package": SERVER["packages"][0]["version"],
        "wheel": next(bundle.glob("*.whl")).name.split("-")[1],
    }
    assert versions == dict.fromkeys(versions, ai_session.__version__)


def test_the_registry_s_entry_is_valid() -> None:
    assert problems(REGISTRY_RULES, SERVER) == []
    assert problems(REGISTRY_RULES, SERVER | {"description": "x" * (MOST_CHARS + 1)}) != []
    package = SERVER["packages"][0]
    assert package["identifier"] == PROJECT["name"] == next(iter(PROJECT["scripts"])), "uvx starts the one by the other"
    assert [word["value"] for word in package["packageArguments"]] == ["mcp-server", "--stdio"]


def test_the_package_says_whose_entry_it_is() -> None:
    """The registry looks for this in the page of the package, which is the README."""
    assert PROJECT["readme"] == "README.md"
    marks = re.findall(r"<!-- mcp-name: (\S+) -->", (ROOT / "README.md").read_text())
    label = re.search(r'io\.modelcontextprotocol\.server\.name="([^"]+)"', CONTAINER)
    assert label
    assert [*marks, label[1]] == [SERVER["name"]] * 2


def test_the_bundle_s_manifest_is_valid_and_names_what_is_there(manifest: dict[str, Any], bundle: Path) -> None:
    assert problems(MANIFEST_RULES, manifest) == []
    assert (bundle / manifest["server"]["entry_point"]).exists()
    width, height = struct.unpack(">II", (bundle / manifest["icon"]).read_bytes()[16:24])
    assert (width, height) == (512, 512)
    variables = set(re.findall(r"\$\{([^}]+)\}", json.dumps(manifest)))
    assert variables == {"__dirname", "HOME", *(f"user_config.{name}" for name in manifest["user_config"])}
    assert "--directory" not in manifest["server"]["mcp_config"]["args"], "sessions could write to the bundle"
    assert sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file()) < 3_000_000


def test_the_bundle_pins_what_is_tested(bundle: Path) -> None:
    project = tomllib.loads((bundle / "pyproject.toml").read_text())
    uv = project["tool"]["uv"]
    assert project["project"]["requires-python"] == PROJECT["requires-python"]
    assert uv["constraint-dependencies"] == (ROOT / "constraints.txt").read_text().splitlines()
    assert (bundle / uv["sources"]["ai-session"]["path"]).exists()
    left_out = {rule.partition(";")[0] for rule in uv["override-dependencies"]}
    needed = re.compile(rf"^\s*(?:from|import) ({'|'.join(left_out)})\b", re.MULTILINE)
    assert [path for path in (ROOT / "ai_session").rglob("*.py") if needed.search(path.read_text())] == []


def test_the_same_sources_give_the_same_bundle(bundle: Path, tmp_path: Path) -> None:
    wheel = next(bundle.glob("*.whl"))
    again = [sys.executable, str(ROOT / "scripts/bundle.py"), "--wheel", str(wheel), "--output", str(tmp_path / "made")]
    subprocess.run(again, check=True, capture_output=True, timeout=BOUND_SECONDS)
    assert (tmp_path / "made.mcpb").read_bytes() == (bundle.parent / "made.mcpb").read_bytes()


def started(bundle: Path, home: Path, chosen: str) -> dict[str, Any]:
    """A session's facts, the server started from the bundle's own folder as a careless host does."""
    command = [sys.executable, str(bundle / "src/server.py"), chosen]
    with Client(command, cwd=bundle) as client:
        client.initialize()
        tools = {tool["name"] for tool in client.result("tools/list")["tools"]}
        session = client.call("create_session", name="bundled")["structuredContent"]
        assert client.end()[0] == 0
    stop_daemons(home)
    return session | {"tools": tools}


def test_the_bundle_s_server_works_in_the_chosen_folder(bundle: Path, manifest: dict[str, Any], home: Path) -> None:
    chosen = home / "chosen"
    facts = started(bundle, home, str(chosen))
    assert facts["working_directory"] == str(chosen)
    assert facts["tools"] == {tool["name"] for tool in manifest["tools"]}


@pytest.mark.torture  # a folder that was not chosen; above the server works in one that was
def test_the_bundle_is_no_workspace(bundle: Path, home: Path) -> None:
    facts = started(bundle, home, "${user_config.workspace}")
    assert not Path(facts["working_directory"]).is_relative_to(bundle)
    assert Path(facts["working_directory"]).is_relative_to(home)


def test_the_container_copies_what_exists_and_is_nobody_s_root() -> None:
    copied = [word for line in re.findall(r"^COPY (?!--)(.+) \S+$", CONTAINER, re.MULTILINE) for word in line.split()]
    assert {"agentwire", "ai_session", "ccswarm", "constraints.txt"} <= set(copied)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    users = re.findall(r"^USER (\S+)$", CONTAINER, re.MULTILINE)
    assert users == ["agent"]
    assert CONTAINER.index("USER agent") < CONTAINER.index("ENTRYPOINT")
