"""What is installed is what is here, and each package stands without the other."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first
from tests.support.sources import statements

ROOT = Path(__file__).parent.parent
PACKAGES = tuple(name for name in ("ai_session", "ccswarm") if (ROOT / name).is_dir())
LEAF = "agentwire"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
MANUAL = "ai_session/manual/"


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=BOUND_SECONDS)


def sources(package: str) -> set[str]:
    files = (path for path in (ROOT / package).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(ROOT)) for path in files}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = python("-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    pages = {name for name in names if ".data/data/share/man/man1/" in name}
    manual = {name for name in names if name.startswith(MANUAL)}
    assert {Path(name).name for name in pages} == {path.name for path in (ROOT / "man").iterdir()}
    assert names - pages - manual == {name for package in (LEAF, *PACKAGES) for name in sources(package)}


def test_the_container_is_given_all_that_the_wheel_is_built_from() -> None:
    lines = re.findall(r"^COPY (?!--)(.*) \S+$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    given = {ROOT / name for line in lines for name in line.split()}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in (*wheel["packages"], *wheel["force-include"], *wheel["shared-data"]):
        assert {ROOT / name, *(ROOT / name).parents} & given, f"Containerfile: COPY {name}"


def test_wheel_holds_the_documentation_as_it_is(wheel: Path) -> None:
    """For `faq`, which answers from it, and shows no pictures."""
    archive = zipfile.ZipFile(wheel)
    held = {name.removeprefix(MANUAL): archive.getinfo(name) for name in archive.namelist() if name.startswith(MANUAL)}
    pages = {name for name in sources("docs") if not name.startswith("docs/assets/")}
    assert held.keys() == {"README.md", *pages}
    assert all(archive.read(info) == (ROOT / name).read_bytes() for name, info in held.items())
    assert sum(info.compress_size for info in held.values()) < 800_000


@pytest.mark.torture  # what is in it: above; test_packaging_release.py starts a server from the bundle
def test_unpacked_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for package in (LEAF, *PACKAGES):
        version = python(
            "-P", "-c", f"import sys; sys.path.insert(0, '.'); import {package} as p; print(p.__file__)", cwd=tmp_path
        )
        assert version.stdout.strip() == str(tmp_path / package / "__init__.py")
    if "ai_session" in PACKAGES:
        code = "from ai_session.system.manual import folder; from ai_session.tools.documentation.index import index"
        code += "; print(folder(), len(index().sections) > 300)"
        ran = python("-P", "-c", f"import sys; sys.path.insert(0, '.'); {code}", cwd=tmp_path)
        assert ran.stdout.split() == [str(tmp_path / MANUAL.rstrip("/")), "True"], ran.stderr


@pytest.mark.parametrize("script", [name for name in PROJECT["scripts"] if name.replace("-", "_") in PACKAGES])
@pytest.mark.either("script")
def test_commands_say_version_and_help(script: str) -> None:
    module, _, function = PROJECT["scripts"][script].partition(":")
    assert callable(getattr(import_module(module), function))
    package = import_module(module.partition(".")[0])
    version = python("-m", package.__name__, "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert version.stdout.split()[-1] == package.__version__
    reported = python("-m", package.__name__, "--help")
    assert (reported.returncode, reported.stderr) == (0, "")
    assert script in reported.stdout


def test_constraints_are_names_and_versions_only() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in PINS)
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.]*", version) for version in PINS.values())


def test_every_dependency_is_pinned() -> None:
    wanted = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    names = {re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower() for requirement in wanted}  # type: ignore[index]
    assert names - {name.lower() for name in PINS} == {PROJECT["name"]}, "of the project's own, its extras"


def test_the_pins_admit_the_oldest_python_that_the_project_admits() -> None:
    """Debian 12 has Python 3.11.2, where a pin that demanded 3.11.5 could not be installed."""
    oldest = f"{PROJECT['requires-python'].removeprefix('>=')}.0"
    demanded = {name: metadata.metadata(name)["Requires-Python"] or "" for name in PINS}
    assert {name: versions for name, versions in demanded.items() if oldest not in SpecifierSet(versions)} == {}


@pytest.mark.parametrize("package", [LEAF, *PACKAGES])
def test_importing_a_package_loads_nothing_else(package: str) -> None:
    code = f"import sys; before = set(sys.modules); import {package}; print(sorted(set(sys.modules) - before))"
    assert python("-c", code).stdout.strip() == f"['{package}']"


def hidden(package: str) -> str:
    """Code after which of the two packages no other than this one can be imported."""
    return f"import sys; sys.modules.update(dict.fromkeys({sorted(set(PACKAGES) - {package})!r}))\n"


@pytest.mark.torture  # test_architecture.py: packages do not know each other
@pytest.mark.parametrize("package", first([LEAF, *PACKAGES], LEAF))  # what is imported: test_architecture.py
def test_every_module_imports_without_the_other_package(package: str) -> None:
    modules = [name.removesuffix(".py").replace("/", ".") for name in sources(package) if name.endswith(".py")]
    code = f"{hidden(package)}from importlib import import_module\nfor name in {modules!r}: import_module(name)"
    ran = python("-c", code)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.either("package")
@pytest.mark.parametrize("package", PACKAGES)
def test_tests_of_a_package_import_nothing_of_the_other(package: str) -> None:
    """Nor does what they import of the tests; so they are found and run where only their package is."""
    waiting = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / package).rglob("*.py")} | {"tests/conftest.py"}
    seen: dict[str, set[str]] = {}
    while waiting - seen.keys():
        name = min(waiting - seen.keys())
        seen[name] = imported_at_the_top(ROOT / name)
        files = {module.replace(".", "/") + ".py" for module in seen[name] if module.startswith("tests.")}
        waiting |= {file for file in files if (ROOT / file).exists()}
    others = tuple(name for other in set(PACKAGES) - {package} for name in (other, f"tests.{other}"))
    wrong = {
        name: found
        for name, modules in seen.items()
        if (found := {module for module in modules if f"{module}.".startswith(tuple(f"{one}." for one in others))})
    }
    assert wrong == {}
    assert len(seen) > 30


def imported_at_the_top(path: Path) -> set[str]:
    """Modules named by imports outside of functions; ``from a import b`` names ``a`` and ``a.b``."""
    names: set[str] = set()
    for node in statements(path.read_text(), in_functions=False):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.torture
@pytest.mark.parametrize("package", PACKAGES)
def test_package_stands_with_the_other_deleted(package: str, tmp_path: Path) -> None:
    """Its tests are found and the architecture holds, in a tree without the other package."""
    tree = tmp_path / "tree"
    skip = shutil.ignore_patterns(".*", *(set(PACKAGES) - {package}))
    for name in (LEAF, package, "tests", "config", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=skip)
    for name in ("pyproject.toml", "ARCHITECTURE.md", "README.md"):
        shutil.copy(ROOT / name, tree)
    # The plug-in for pytest that ai_session has is installed still.
    runs = (["tests/test_architecture.py"], ["--collect-only", f"tests/{package}"])
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "anyio,pytest_timeout,_hypothesis_pytestplugin"}
    each = f"for words in {runs!r}:\n  if status := pytest.main(['-q', '-p', 'no:cacheprovider', *words]): break"
    environ = f"import os; os.environ.update({plugins!r})\n"
    ran = python("-c", f"{environ}{hidden(package)}import pytest\n{each}\nsys.exit(status)", cwd=tree)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r" passed .* collected", ran.stdout, re.DOTALL), ran.stdout


def bootstrap(tree: Path, programs: Sequence[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Prepare ``tree`` on a system that has these programs only."""
    (tree / "scripts").mkdir(parents=True)
    (found := tree / "bin").mkdir()
    shutil.copy(ROOT / "scripts" / "bootstrap", tree / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tree)
    for name in programs:
        (found / name).symlink_to(str(shutil.which(name)))
    environ |= {"PATH": str(found)}
    return subprocess.run(["/bin/sh", "scripts/bootstrap"], cwd=tree, env=environ, capture_output=True, text=True)


def test_bootstrap_names_what_is_missing_and_stops(tmp_path: Path) -> None:
    """On a system with neither apt-get nor anything it needs."""
    ran = bootstrap(tmp_path, ("dirname", "cat", "cksum"))
    assert ran.returncode == 1
    assert {"tmux", "python3-venv"} <= set(ran.stderr.split())
    assert not (tmp_path / ".venv").exists()


def test_bootstrap_uses_the_python_that_was_named_and_no_other(tmp_path: Path) -> None:
    (mine := tmp_path / "mine").touch(0o755)
    mine.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.99 ;; esac\n')
    programs = ("dirname", "cat", "cksum", "python3", "tmux", "git", "bwrap", "uname")
    assert "python3.99-venv" in bootstrap(tmp_path / "new", programs, PYTHON=str(mine)).stderr
    mine.write_text("#!/bin/sh\nexit 1\n")
    ran = bootstrap(tmp_path / "old", programs, PYTHON=str(mine))
    assert (ran.returncode, ran.stderr) == (
        1,
        f"bootstrap: Python 3.11 or newer is needed; this one is too old or missing: {mine}\n",
    )
