"""What is where and who may import whom: the tables of ARCHITECTURE.md, enforced on every import, also in functions."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import takewhile
from pathlib import Path

import pytest

from tests.support.sources import statements

ROOT = Path(__file__).parent.parent
DOCUMENT = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = tuple(name for name in ("agentwire", "ai_session", "ccswarm") if (ROOT / name).is_dir())
LEAF = "agentwire"
"""What every package may import, and which imports none."""
EXTENSION_POINTS = {"backends", "shells", "servers", "tools", "clients", "brains", "engines"}
"""Folders whose files and folders are extensions: from outside only ``base`` is imported, and siblings do not meet."""
PAST_BASE = {
    ("ai_session", "http", "servers.mcp"): "the front speaks the same protocol",
    ("ai_session", "http", "servers.front"): "both ends of one wire",
}
NAME = re.compile(r"(\w+)(?:/|\.py)")
MOST_ENTRIES = 16
ENVIRONMENT_READERS = {"config.config", "config.files", "client", "backends.pty.holder", "cli.table", "__main__"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "expandvars"}
IMPORTERS = ("import_module", "__import__")
STANDARD_LIBRARY_ONLY = {
    "client",
    "backends.pty.holder",
    "backends.pty.channel",
    "backends.pty.child",
    "sandbox.network.listener",
    "sandbox.landlock_exec",
    "sandbox.guard",
    "system.ancestry",
    "config.files",
    "config.trust",
    "config.programs",
    "__main__",
    "errors",
    "visible",
    "cli.lines",
    "cli.options",
    "cli.table",
    "system.inherited_signals",
    "system.utf8",
    "system.interrupts",
    "system.log_tail",
    "system.path_patterns",
    "system.whole_files",
    "system.peers",
    "system.program_path",
    "system.protected_names",
    "system.readable",
    "system.runtime_directory",
}


@dataclass(frozen=True)
class Module:
    """``name`` without its package: ``sessions.session``, ``__init__``."""

    package: str
    name: str
    path: Path

    @property
    def folder(self) -> str:
        """The name its line in the table carries."""
        return self.name.partition(".")[0]

    @property
    def extension(self) -> str:
        """``shells.bash`` of ``shells.bash``, ``servers.mcp`` of ``servers.mcp.caller``."""
        return ".".join(self.name.split(".")[:2])

    def within(self, names: set[str]) -> bool:
        """Whether it is one of ``names``, or lies in one."""
        parts = self.name.split(".")
        return any(".".join(parts[:length]) in names for length in range(1, len(parts) + 1))


def block(name: str) -> list[str]:
    match = re.search(rf"^```{name}\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert match, f"ARCHITECTURE.md has no {name} block"
    return match[1].splitlines()


def import_table() -> dict[str, dict[str, set[str]]]:
    """Package → folder or file → what it may import."""
    table: dict[str, dict[str, set[str]]] = {}
    package = ""
    for line in re.sub(r"\n +→", " →", "\n".join(block("folders"))).splitlines():
        described, _, allowed = line.partition("→")
        names = list(takewhile(NAME.fullmatch, described.split()))
        assert names, f"ARCHITECTURE.md names nothing in {line!r}"
        if not line.startswith(" "):
            package = names[0].removesuffix("/")
            table[package] = {}
            continue
        there = [name for name in names if (ROOT / package / name).exists() == (ROOT / package).exists()]
        assert there == names, f"ARCHITECTURE.md names what is not there in {line!r}"
        for name in names:
            table[package][NAME.sub(r"\1", name)] = {*allowed.split(), "errors", "models"}
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


def last_name(node: ast.expr) -> str:
    """``b`` of ``a.b`` and of ``b``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@cache
def imports(module: Module) -> tuple[str, ...]:
    """Dotted names of all it imports; ``from a import b`` is a.b where that is a module, else a. A name computed at
    run time is ``?``."""
    source = module.path.read_text()
    names: list[str] = []
    for node in statements(source):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}: relative import"
            base = node.module or ""
            names += [f"{base}.{a.name}" if f"{base}.{a.name}" in modules() else base for a in node.names]
    if any(name in source for name in IMPORTERS):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and last_name(node.func) in IMPORTERS:
                name = node.args[0]
                names.append(str(name.value) if isinstance(name, ast.Constant) else "?")
    return tuple(names)


def may_import(importer: Module, target: Module) -> bool:
    if target.name == "__init__" or (importer.package != LEAF and target.package == LEAF):
        return True
    base = target.name == f"{target.folder}.base" or target.extension.startswith(f"{target.folder}._")
    if importer.folder == target.folder:
        return target.folder not in EXTENSION_POINTS or base or importer.extension == target.extension
    if target.folder not in TABLE[importer.package].get(importer.folder, set()):
        return False
    exception = (importer.package, importer.folder, target.extension) in PAST_BASE
    return target.folder not in EXTENSION_POINTS or base or exception


def test_every_folder_stands_in_the_table() -> None:
    folders = {package: {m.folder for m in modules().values() if m.package == package} for package in PACKAGES}
    assert folders == {package: set(TABLE[package]) for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_first_look_shows_few_things(package: str) -> None:
    folders = {module.folder for module in modules().values() if module.package == package and "." in module.name}
    assert len(folders) <= MOST_ENTRIES


def test_every_folder_says_what_it_is_for() -> None:
    silent = [
        str(folder)
        for package in PACKAGES
        for folder in {path.parent for path in (ROOT / package).rglob("*.py")}
        if not ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    ]
    assert silent == []


def test_imports_are_in_the_table() -> None:
    forbidden = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        for name in imports(module)
        if (target := modules().get(name))
        and target.package in (module.package, LEAF)
        and not may_import(module, target)
    }
    assert forbidden == set()


def test_packages_do_not_know_each_other() -> None:
    """Nor does the one that both may import know either of them."""
    ours = {LEAF, "ai_session", "ccswarm"}
    crossing = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        for name in imports(module)
        if name.partition(".")[0] in (ours - {module.package, LEAF} if module.package != LEAF else ours - {LEAF})
    }
    assert crossing == set()


def test_libraries_have_one_owner() -> None:
    strangers = {
        f"{dotted} → {library}"
        for dotted, module in modules().items()
        for library in {name.partition(".")[0] for name in imports(module)} & set(OWNERS)
        if not module.within(OWNERS[library])
    }
    assert strangers == set()


def test_only_the_standard_library_where_a_start_must_be_quick() -> None:
    heavy = {
        f"{dotted} → {name}"
        for dotted, module in modules().items()
        if module.within(STANDARD_LIBRARY_ONLY)
        for name in imports(module)
        if (library := name.partition(".")[0]) not in (*sys.stdlib_module_names, module.package)
        and not (library == LEAF and modules()[name].within(STANDARD_LIBRARY_ONLY))
        and not module.within(OWNERS.get(library, set()))
    }
    assert heavy == set()


def test_environment_is_read_by_its_owners() -> None:
    environment = re.compile(rf"\b(?:{'|'.join(ENVIRONMENT)})\b")
    readers = {
        f"{dotted}:{node.lineno}"
        for dotted, module in modules().items()
        if not module.within(ENVIRONMENT_READERS)
        if environment.search(source := module.path.read_text())
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & ENVIRONMENT)
    }
    assert readers == set()


def test_only_the_plugin_loaders_import_by_computed_name() -> None:
    assert {dotted for dotted, module in modules().items() if "?" in imports(module)} <= {"agentwire.plugins"}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circles(package: str) -> None:
    graph = {
        dotted: {name for name in imports(module) if name in modules() and name not in (dotted, package)}
        for dotted, module in modules().items()
        if module.package == package
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_line_may_import_only_what_stands_above_it(package: str) -> None:
    above: set[str] = set()
    for folder, allowed in TABLE[package].items():
        assert allowed <= above | {"errors", "models"}, folder
        above.add(folder)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_word_of_the_table_is_needed(package: str) -> None:
    used = {
        (module.folder, target.folder)
        for module in modules().values()
        for name in imports(module)
        if module.package == package
        and (target := modules().get(name))
        and target.package == package
        and target.folder != module.folder
    }
    listed = {(folder, word) for folder, allowed in TABLE[package].items() for word in allowed - {"errors", "models"}}
    assert listed - used == set()


def test_the_table_refuses_what_it_should() -> None:
    """The gate cannot be gone round, no extension is named, siblings do not meet."""

    def module(name: str) -> Module:
        return Module("ai_session", name, Path())

    refused = [
        ("servers.mcp.plugin", "tools.base"),
        ("servers.mcp.plugin", "audit.log"),
        ("cli.sessions", "tools.base"),
        ("sessions.session", "backends.tmux.plugin"),
        ("shells.bash", "shells.zsh"),
        ("terminal.marks", "sessions.session"),
        ("client.relay", "config.settings"),
        ("tools.sessions", "tools.output"),
        ("sessions.manager", "gate.gate"),
    ]
    allowed = [
        ("servers.mcp.plugin", "servers.mcp.caller"),
        ("cli.sessions", "cli.output"),
        ("sessions.session", "backends.base"),
    ]
    assert [pair for pair in refused if may_import(*map(module, pair))] == []
    assert [pair for pair in allowed if not may_import(*map(module, pair))] == []
