"""The isolation that conftest gives each test, and that it fails a test that leaves something behind."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS
from tests.support.products import corners

HERE = Path(__file__).parent
LEAVER = """
import subprocess, sys
CODE = "import os, signal; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); signal.pause()"
def test_leaves():
    with open("pid", "w") as file:
        subprocess.run([sys.executable, "-c", CODE], stdout=file, check=True)
def test_is_clean():
    subprocess.run([sys.executable, "-c", "pass"], check=True)
"""


def test_six_variables_and_a_short_home(home: Path) -> None:
    names = {name for name in os.environ if not name.startswith("PYTEST_")}
    assert names == {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
    assert os.environ["HOME"] == str(home)
    assert [path.name for path in home.iterdir()] == [".config"]
    assert len(str(home)) < 40, "a socket's path ends at 107 bytes"


OF_A_PROCESS = {
    "getpid",
    "getppid",
    "mkdtemp",
    "mkstemp",
    "TemporaryDirectory",
    "urandom",
    "token_hex",
    "uuid4",
    "Popen",
}


def calls_at_import(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the functions that a module calls outside of its own functions."""
    remaining: list[ast.AST] = list(tree.body)
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.Call):
            yield node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            remaining.extend(ast.iter_child_nodes(node))


def test_no_module_takes_what_belongs_to_one_process_when_it_is_imported() -> None:
    """The processes that run the tests are forked from the one that has imported them, and would share it."""
    named = re.compile(rf"\b(?:{'|'.join(OF_A_PROCESS)})\s*\(")
    shared = {
        f"{path.relative_to(HERE)}: {name}"
        for path in HERE.rglob("*.py")
        if named.search(source := path.read_text())  # few call one at all; only these are parsed
        for name in calls_at_import(ast.parse(source))
        if name in OF_A_PROCESS
    }
    assert shared == {"support/forked.py: getpid"}, "which wants the process that has imported it"


def test_the_test_that_leaves_a_process_fails(tmp_path: Path) -> None:
    shutil.copy(HERE / "conftest.py", tmp_path)
    (tmp_path / "test_leaver.py").write_text(LEAVER)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent), "PYTEST_GRACE_SECONDS": "0.1"}
    ran = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert ran.returncode == 1
    assert "2 passed, 1 error" in ran.stdout
    assert "left behind by this test" in ran.stdout
    arguments = Path("/proc") / (tmp_path / "pid").read_text().strip() / "cmdline"
    assert not arguments.exists() or not arguments.read_bytes(), "ended all the same; a zombie has no arguments"


def test_of_a_product_the_suite_has_each_value_of_each_parameter() -> None:
    cells = [{"a": a, "b": b, "c": c} for a in range(5) for b in range(3) for c in range(2)]
    turns = [corners(cells, turn) for turn in range(len(cells))]
    for kept in turns:
        assert [len({cells[number][name] for number in kept}) for name in "abc"] == [5, 3, 2]
        assert len(kept) <= 6
    assert set().union(*turns) == set(range(len(cells))), "which cells these are differs from test to test"
