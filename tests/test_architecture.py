"""Who may import whom: the tables of ARCHITECTURE.md, enforced on every import, those inside functions too."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = tuple(name for name in ("ai_session", "ccswarm") if (ROOT / name).is_dir())
PLUGIN_FOLDERS = {"backends", "shells", "servers", "tools", "clients", "brains", "engines"}
ENVIRONMENT_READERS = {"config", "config_files", "relay*", "holder", "cli_table", "__main__"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "expandvars"}
STANDARD_LIBRARY_ONLY = {
    "relay*",
    "holder",
    "network_listener",
    "landlock_exec",
    "channel",
    "pty_child",
    "inherited_signals",
    "log_tail",
    "control_client",
    "ancestry",
    "config_files",
    "config_trust",
    "__main__",
}
JOINED = {"servers.orchestre": "servers.mcp"}
"""Tools of a way in that have files of their own name."""
SHORT = {"E": ("errors", "models")}


@dataclass(frozen=True)
class Module:
    """``name`` without its package: ``session``, ``shells.bash``, ``__init__``."""

    package: str
    name: str
    path: Path

    @property
    def row(self) -> str:
        """The name its line in the table carries: the folder of a plug-in, ``cli*`` for cli.py and cli_*.py."""
        head = self.name.partition(".")[0]
        rows = TABLE[self.package]
        return head if head in rows else next((row for row in rows if is_family(row, head)), head)

    @property
    def family(self) -> str:
        """Files ``mcp.py`` and ``mcp_stream.py`` of one folder are one plug-in."""
        name = self.name.partition("_")[0]
        return JOINED.get(name, name)


def is_family(row: str, name: str) -> bool:
    """Whether ``name`` is covered by a row such as ``cli*``."""
    return row.endswith("*") and (name == row[:-1] or name.startswith(f"{row[:-1]}_"))


def block(name: str) -> list[str]:
    match = re.search(rf"^```{name}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match, f"ARCHITECTURE.md has no {name} block"
    return match[1].splitlines()


def import_table() -> dict[str, dict[str, set[str]]]:
    table: dict[str, dict[str, set[str]]] = {}
    for line in block("imports"):
        if not line.startswith(" "):
            rows = table.setdefault(line.strip(), {})
            continue
        left, _, right = line.partition("→")
        for row in left.split():
            rows.setdefault(row, set()).update(name for word in right.split() for name in SHORT.get(word, (word,)))
    return table


TABLE = import_table()
OWNERS = {
    library: set(owners.split())
    for libraries, _, owners in (line.partition("→") for line in block("owners"))
    for library in libraries.split()
}


@cache
def modules() -> dict[str, Module]:
    """Dotted name → module, of both packages."""
    found: dict[str, Module] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            name = ".".join(parts[1:])
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = Module(package, name.removesuffix(".__init__"), path)
    return found


@cache
def imports(module: Module) -> tuple[str, ...]:
    """Dotted names of all it imports; ``from a import b`` is a.b where that is a module, else a. A name computed at
    run time is ``?``."""
    names: list[str] = []
    for node in ast.walk(ast.parse(module.path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}: relative import"
            base = node.module or ""
            names += [f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            name = node.args[0]
            names.append(str(name.value) if isinstance(name, ast.Constant) else "?")
    return tuple(names)


def may_import(importer: Module, target: Module) -> bool:
    if target.name == "__init__":
        return True
    if importer.row == target.row:
        same_folder = importer.row not in PLUGIN_FOLDERS
        return same_folder or target.name == f"{target.row}.base" or importer.family == target.family
    table = TABLE[importer.package]
    allowed = table.get(importer.row, set()) | table.get(importer.name, set())
    if target.row in PLUGIN_FOLDERS:
        return target.name.endswith(".base") and bool({target.row, target.name} & allowed)
    return target.row in allowed


def test_every_module_stands_in_the_table() -> None:
    assert [dotted for dotted, module in modules().items() if module.row not in TABLE[module.package]] == []


def test_imports_are_in_the_table() -> None:
    forbidden = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        for name in imports(module)
        if (target := modules().get(name)) and (target.package != module.package or not may_import(module, target))
    }
    assert forbidden == set()


def test_packages_do_not_know_each_other() -> None:
    both = {"ai_session", "ccswarm"}
    crossing = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        for name in imports(module)
        if name.partition(".")[0] in both - {module.package}
    }
    assert crossing == set()


def test_libraries_have_one_owner() -> None:
    strangers = {
        f"{dotted} → {library}"
        for dotted, module in modules().items()
        for library in {name.partition(".")[0] for name in imports(module)} & set(OWNERS)
        if not OWNERS[library] & {module.row, module.name, module.family}
    }
    assert strangers == set()


def test_only_the_standard_library_where_a_start_must_be_quick() -> None:
    heavy = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        if module.row in STANDARD_LIBRARY_ONLY
        for name in {name.partition(".")[0] for name in imports(module)}
        if name not in sys.stdlib_module_names and name != module.package and module.row not in OWNERS.get(name, set())
    }
    assert heavy == set()


def test_environment_is_read_by_its_owners() -> None:
    readers = {
        f"{dotted}:{node.lineno}"
        for dotted, module in modules().items()
        if module.row not in ENVIRONMENT_READERS
        for node in ast.walk(ast.parse(module.path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & ENVIRONMENT)
    }
    assert readers == set()


def test_only_the_plugin_loaders_import_by_computed_name() -> None:
    assert {dotted for dotted, module in modules().items() if "?" in imports(module)} <= {
        f"{package}.plugins" for package in PACKAGES
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circles(package: str) -> None:
    graph = {
        dotted: {name for name in imports(module) if name in modules() and name not in (dotted, package)}
        for dotted, module in modules().items()
        if module.package == package
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("package", PACKAGES)
def test_table_has_no_circles(package: str) -> None:
    rows: dict[str, set[str]] = {}
    for row, allowed in TABLE[package].items():
        heads = {name.partition(".")[0] for name in allowed}
        rows.setdefault(row.partition(".")[0], set()).update(heads - {row})
    TopologicalSorter(rows).prepare()
    assert {name for allowed in rows.values() for name in allowed} <= set(rows)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_line_has_a_module(package: str) -> None:
    rows = {row for module in modules().values() if module.package == package for row in (module.row, module.name)}
    assert set(TABLE[package]) - rows == set()


def test_the_table_refuses_what_it_should() -> None:
    """The gate cannot be gone round, no plug-in is named, siblings do not meet."""

    def module(name: str) -> Module:
        return Module("ai_session", name, Path())

    refused = [
        ("servers.mcp", "session"),
        ("servers.mcp", "tools.base"),
        ("cli_sessions", "gate"),
        ("session", "backends.tmux"),
        ("shells.bash", "shells.zsh"),
        ("marks", "screen"),
        ("relay*", "errors"),
        ("tools.sessions", "tools.output"),
        ("backends.pty", "tmux_control"),
    ]
    allowed = [("servers.mcp", "servers.mcp_stream"), ("cli_sessions", "cli"), ("session", "backends.base")]
    assert [pair for pair in refused if may_import(*map(module, pair))] == []
    assert [pair for pair in allowed if not may_import(*map(module, pair))] == []
