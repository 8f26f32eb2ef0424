"""Build files: package managers, dependencies, commands for tests, and entry points."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ccswarm.config import parsing
from ccswarm.errors import ConfigInvalid
from ccswarm.servers._json_values import items, table

MOST_NAMES = 400
"""How many names of dependencies are stored."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A build file. ``needs`` are the names of its dependencies, ``develops`` those for developers only; ``unread`` is
    why it could not be read."""

    path: str
    manager: str
    needs: tuple[str, ...] = ()
    develops: tuple[str, ...] = ()
    tests: str = ""
    """The command that runs its tests in its directory, if the file names or implies one."""
    starts: tuple[str, ...] = ()
    licence: str = ""
    unread: str = ""

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]


def manifest_of(path: str, text: str) -> Manifest | None:
    """Read a build file; None for any other file. Never raises, whatever the file contains."""
    name = path.rpartition("/")[2]
    reader = READERS.get(name) or next((read for end, read in BY_ENDING.items() if name.endswith(end)), None)
    if reader is None:
        return None
    try:
        return reader(path, text)
    except (ConfigInvalid, ValueError, RecursionError) as error:
        return Manifest(path, MANAGERS.get(name, ""), unread=str(error).partition(": ")[2][:200] or str(error)[:200])


def _names(found: Iterable[object]) -> tuple[str, ...]:
    """Return the names in requirements, without versions and duplicates."""
    plain = (re.match(r"[A-Za-z0-9@][\w./@-]*", str(one).strip()) for one in found)
    return tuple(dict.fromkeys(one[0].lower() for one in plain if one))[:MOST_NAMES]


def _package_json(path: str, text: str) -> Manifest:
    data = table(json.loads(text))
    scripts = table(data.get("scripts"))
    manager = str(data.get("packageManager") or "npm").partition("@")[0]
    test = str(scripts.get("test") or "")
    binaries = data.get("bin")
    starts = [*map(str, table(binaries))] or ([str(binaries)] if isinstance(binaries, str) else [])
    starts += [f"{manager} run {name}" for name in ("start", "dev") if name in scripts]
    starts += [str(data["main"])] if isinstance(data.get("main"), str) else []
    return Manifest(
        path,
        manager,
        _names(table(data.get("dependencies"))),
        _names(table(data.get("devDependencies"))),
        "" if not test or "no test specified" in test else f"{manager} test",
        tuple(starts),
        str(data.get("license") or "") if isinstance(data.get("license"), str) else "",
    )


def _pyproject(path: str, text: str) -> Manifest:
    data = parsing.parsed(text, path)
    project, tool = table(data.get("project")), table(data.get("tool"))
    poetry = table(tool.get("poetry"))
    needs = [*items(project.get("dependencies")), *(one for one in table(poetry.get("dependencies")))]
    optional = [one for group in table(project.get("optional-dependencies")).values() for one in items(group)]
    groups = [one for group in table(data.get("dependency-groups")).values() for one in items(group)]
    older = [one for group in table(poetry.get("group")).values() for one in table(table(group).get("dependencies"))]
    develops = _names(one for one in (*optional, *groups, *older) if isinstance(one, str))
    names = _names(one for one in needs if str(one) != "python")
    pytest = "pytest" in tool or any(one.startswith("pytest") for one in (*names, *develops))
    licence: object = project.get("license")
    return Manifest(
        path,
        "poetry" if poetry else next((one for one in ("uv", "pdm", "hatch") if one in tool), "pip"),
        names,
        develops,
        "python -m pytest" if pytest else "",
        tuple(map(str, (*table(project.get("scripts")), *table(poetry.get("scripts"))))),
        str(table(licence).get("text", "") if table(licence) else licence or ""),
    )


def _cargo(path: str, text: str) -> Manifest:
    data = parsing.parsed(text, path)
    package = table(data.get("package"))
    shared = table(table(data.get("workspace")).get("dependencies"))
    return Manifest(
        path,
        "cargo",
        _names((*table(data.get("dependencies")), *shared)),
        _names((*table(data.get("dev-dependencies")), *table(data.get("build-dependencies")))),
        "cargo test",
        tuple(str(table(one).get("name")) for one in items(data.get("bin")) if table(one).get("name")),
        str(package.get("license") or "") if isinstance(package.get("license"), str) else "",
    )


def _go(path: str, text: str) -> Manifest:
    block = " ".join(re.findall(r"^require\s*\((.*?)^\)", text, re.MULTILINE | re.DOTALL))
    found = re.findall(r"([\w.-]+\.[\w.-]+/\S+)\s+v\S+(\s*//\s*indirect)?", block)
    found += re.findall(r"^require\s+(\S+)\s+v\S+(\s*//\s*indirect)?", text, re.MULTILINE)
    direct = [name for name, indirect in found if not indirect]
    return Manifest(path, "go", _names(direct), tests="go test ./...")


def _requirements(path: str, text: str) -> Manifest:
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    names = _names(line for line in lines if line and not line.startswith("-"))
    test = "python -m pytest" if any(one.startswith("pytest") for one in names) else ""
    develops = "dev" in path.rpartition("/")[2] or "test" in path.rpartition("/")[2]
    return Manifest(path, "pip", () if develops else names, names if develops else (), test)


def _pipfile(path: str, text: str) -> Manifest:
    data = parsing.parsed(text, path)
    develops = _names(table(data.get("dev-packages")))
    test = "python -m pytest" if "pytest" in develops else ""
    return Manifest(path, "pipenv", _names(table(data.get("packages"))), develops, test)


def _composer(path: str, text: str) -> Manifest:
    data = table(json.loads(text))
    test = "composer test" if "test" in table(data.get("scripts")) else ""
    needs = (one for one in table(data.get("require")) if "/" in one)
    return Manifest(path, "composer", _names(needs), _names(table(data.get("require-dev"))), test)


def _makefile(path: str, text: str) -> Manifest:
    return Manifest(path, "make", tests="make test" if re.search(r"^test\s*:(?!=)", text, re.MULTILINE) else "")


def _matching(manager: str, pattern: str, tests: str = "") -> Callable[[str, str], Manifest]:
    """Return a reader for files that are programs or markup: it finds what looks like a dependency."""
    compiled = re.compile(pattern, re.MULTILINE)

    def read(path: str, text: str) -> Manifest:
        return Manifest(path, manager, _names(compiled.findall(text)), tests=tests)

    return read


_GRADLE = r"^\s*(?:implementation|api|compileOnly|runtimeOnly)[ (]+['\"]([\w.:-]+)"

READERS: dict[str, Callable[[str, str], Manifest]] = {
    "package.json": _package_json,
    "pyproject.toml": _pyproject,
    "Cargo.toml": _cargo,
    "go.mod": _go,
    "requirements.txt": _requirements,
    "Pipfile": _pipfile,
    "setup.py": _matching("pip", r"^\s*['\"]([\w-]+)\s*[<>=~!]"),
    "composer.json": _composer,
    "Makefile": _makefile,
    "Gemfile": _matching("bundler", r"^\s*gem\s+['\"]([\w-]+)"),
    "mix.exs": _matching("mix", r"\{:(\w+),\s*['\"~>]", "mix test"),
    "pom.xml": _matching("maven", r"<dependency>\s*<groupId>[^<]*</groupId>\s*<artifactId>([^<]+)", "mvn test"),
    "build.gradle": _matching("gradle", _GRADLE, "gradle test"),
    "build.gradle.kts": _matching("gradle", _GRADLE, "gradle test"),
    "pubspec.yaml": _matching("pub", r"^  (\w+):\s*[\^\d>]"),
    "Package.swift": _matching("swiftpm", r"\.package\([^)]*url:\s*\"[^\"]*/([\w.-]+?)(?:\.git)?\"", "swift test"),
    "CMakeLists.txt": _matching("cmake", r"find_package\(\s*(\w+)"),
}
"""Readers by the name of the file."""

BY_ENDING: dict[str, Callable[[str, str], Manifest]] = {
    "requirements-dev.txt": _requirements,
    "requirements-test.txt": _requirements,
    ".csproj": _matching("dotnet", r"<PackageReference\s+Include=\"([\w.-]+)", "dotnet test"),
    ".gemspec": _matching("bundler", r"add_(?:runtime_)?dependency[ (]+['\"]([\w-]+)"),
}
MANAGERS = {
    "package.json": "npm",
    "pyproject.toml": "pip",
    "Cargo.toml": "cargo",
    "Pipfile": "pipenv",
    "composer.json": "composer",
}
"""The package managers of files that may be unreadable."""
