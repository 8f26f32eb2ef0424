"""The wheel and the source archive install with pip, pipx, uv and uvx in a clean home, and what is installed works."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import ai_session
from tests.ai_session.support.mcp_client import Client, stop_daemons
from tests.clients.installing import ROOT, SECONDS, TOOLS, Installer, build, new_environment

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2 * SECONDS)]

CONSTRAINTS = ["-c", str(ROOT / "constraints.txt")]
VERSION = ai_session.__version__


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, homes: Path) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    new_environment(folder, *TOOLS, home=homes)
    return folder


@pytest.fixture
def installer(tools: Path, home: Path) -> Installer:
    return Installer(tools, home)


def works(installer: Installer, folder: Path) -> None:
    """Both programs of ``folder`` answer, and the server runs a command for a client that knows only its path."""
    program = str(folder / "ai-session")
    assert installer.run(program, "--version").split() == [VERSION]
    assert installer.run(str(folder / "ccswarm"), "--version").split() == ["ccswarm", VERSION]
    assert "Traceback" not in installer.run(str(folder / "ccswarm"), "init")
    environment = installer.environment | {"PATH": "/usr/bin:/bin"}
    with Client([program, "mcp-server", "--stdio"], env=environment, cwd=installer.home) as client:
        assert client.initialize()["serverInfo"]["version"] == VERSION
        client.call("create_session", name="installed")
        result = client.call("execute_command", session_id="installed", command="echo $((6 * 7))")
        assert (result["structuredContent"]["output"], result["structuredContent"]["exit_code"]) == ("42\n", 0)
        assert client.end()[0] == 0
    stop_daemons(installer.home)


def man_pages(folder: Path) -> set[str]:
    return {path.name for path in (folder / "share/man/man1").glob("*.1")}


@pytest.mark.parametrize("kind", ["wheel", "archive"])
def test_pip(built: tuple[Path, Path], installer: Installer, tmp_path: Path, kind: str) -> None:
    package = built[0] if kind == "wheel" else built[1]
    programs = new_environment(tmp_path / "venv", *CONSTRAINTS, str(package), home=installer.home)
    works(installer, programs)
    assert man_pages(tmp_path / "venv") == {"ai-session.1", "ccswarm.1"}


def test_pip_with_what_is_newest_today(built: tuple[Path, Path], installer: Installer, tmp_path: Path) -> None:
    works(installer, new_environment(tmp_path / "venv", str(built[0]), home=installer.home))


def test_extras(built: tuple[Path, Path], installer: Installer, tmp_path: Path) -> None:
    programs = new_environment(tmp_path / "venv", *CONSTRAINTS, f"{built[0]}[docs,llm,otel]", home=installer.home)
    code = "import mkdocs, material, pydantic_ai, opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http"
    installer.run(str(programs / "python"), "-c", code)
    works(installer, programs)


def test_pipx(built: tuple[Path, Path], installer: Installer) -> None:
    installer.run("pipx", "install", "--pip-args", " ".join(CONSTRAINTS), str(built[0]))
    works(installer, installer.home / ".local/bin")
    assert man_pages(installer.home / ".local") == {"ai-session.1", "ccswarm.1"}
    installer.run("pipx", "uninstall", "ai-session")
    assert not (installer.home / ".local/bin/ai-session").exists()


def test_uv_tool(built: tuple[Path, Path], installer: Installer) -> None:
    installer.run("uv", "tool", "install", "--quiet", *CONSTRAINTS, str(built[0]))
    works(installer, installer.home / ".local/bin")


def test_uvx(built: tuple[Path, Path], installer: Installer) -> None:
    """As the registry's entry has clients start it, and the other program by its name."""
    source = ["uvx", "--quiet", *CONSTRAINTS, "--from", str(built[0])]
    assert installer.run(*source, "ai-session", "--version").split() == [VERSION]
    assert installer.run(*source, "ccswarm", "--version").split() == ["ccswarm", VERSION]
    with Client(
        [*source, "ai-session", "mcp-server", "--stdio"], env=installer.environment, cwd=installer.home
    ) as client:
        assert client.initialize()["serverInfo"]["name"] == "ai-session"
        assert client.end()[0] == 0
    stop_daemons(installer.home)


def test_the_archive_builds_the_site_and_the_bundle(
    built: tuple[Path, Path], installer: Installer, tmp_path: Path
) -> None:
    subprocess.run(["tar", "-xf", built[1], "-C", tmp_path], check=True)
    (source,) = tmp_path.glob("ai_session-*")
    needed = [*CONSTRAINTS, "hatchling", f"{source}[docs]"]
    python = str(new_environment(tmp_path / "venv", *needed, home=installer.home) / "python")
    installer.run(python, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(source / "mkdocs.yml"))
    assert (source / "build/site/index.html").exists()
    installer.run(python, str(source / "scripts/reference.py"), "--check")
    installer.run(python, str(source / "scripts/bundle.py"))
    assert (source / "build/bundle.mcpb").exists()
