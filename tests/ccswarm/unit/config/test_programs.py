"""Which files the commands of a configuration name: what an agent could write for a person to start."""

from __future__ import annotations

import json
import os
import time
from contextlib import chdir
from pathlib import Path

import pytest

from ccswarm.config.programs import Command, Directories, commands_in, files_of, tables_in

WORDS = [
    ("python3 tools/srv.py", {"tools/srv.py"}),
    ("python3 ./tools/../tools/srv.py --quick", {"tools/srv.py"}),
    ("./srv", {"srv"}),
    ("bash -c 'exec python3 tools/srv.py'", {"tools/srv.py"}),
    ("sh -c 'cd tools && python3 srv.py'", {"tools/srv.py"}),
    ("sh -c \"python3 '$PWD/tools/srv.py'\"", {"tools/srv.py"}),
    ("sh -c 'python3 ${PWD}/tools/srv.py'", {"tools/srv.py"}),
    ("sh -c 'x=tools/srv.py; python3 $x'", {"tools/srv.py"}),
    ("sh -c 'python3 $HOME/project/tools/srv.py'", {"tools/srv.py"}),
    ("env A=1 python3 tools/srv.py", {"tools/srv.py"}),
    ("python3 {here}/tools/srv.py", {"tools/srv.py"}),
    ("python3 ~/project/tools/srv.py", {"tools/srv.py"}),
    ("uv run tools/srv.py", {"tools/srv.py", "pyproject.toml"}),
    ("uv run --directory tools srv.py", {"tools/srv.py", "pyproject.toml"}),
    ("uv --directory=tools run srv.py", {"tools/srv.py", "pyproject.toml"}),
    ("node --require ./hook.js srv.js", {"hook.js", "srv.js"}),
    ("node -r./hook.js srv.js", {"hook.js", "srv.js"}),
    ("node --import=./hook srv.js", {"hook.js", "srv.js"}),
    ("sh -c 'cd tools && cd deep && ./run'", {"tools/deep/run"}),
    ("node srv", {"srv", "srv.js"}),
    ("node .", {"package.json"}),
    ("node folder", {"folder/index.js", "folder/__main__.py"}),
    ("deno run file://{here}/srv.js", {"srv.js"}),
    ("tool --file='two words.py'", {"two words.py"}),
    ("uv run helped", {".venv/bin/helped", "pyproject.toml"}),
    ("python3 -m pkg", {"pkg/__init__.py", "pkg/__main__.py"}),
    ("python3 -m pkg.sub", {"pkg/__init__.py", "pkg/sub.py"}),
    ("sh -c 'python3 -m pkg.sub'", {"pkg/__init__.py", "pkg/sub.py"}),
    ("uvicorn pkg.sub:app", {"pkg/__init__.py", "pkg/sub.py"}),
    ("python3 folder", {"folder/__main__.py"}),
    ("make serve", {"Makefile"}),
    ("make -C tools serve", {"Makefile", "tools/Makefile"}),
    ("npm start", {"package.json"}),
    ("npx -y @scope/server@1.2", {"node_modules/@scope/server/package.json", "node_modules/.bin/server"}),
    ("link.py", {"link.py"}),
    ("helper", {"bin/helper"}),
    ("sh -c helper", {"bin/helper"}),
    ("/usr/bin/env", set[str]()),
    ("python3", set[str]()),
    ("python3 gone.py", set[str]()),
    ("python3 ../outside.py", set[str]()),
    ("ls tools", set[str]()),
]


@pytest.fixture
def here(home: Path) -> Path:
    folder = home / "project"
    files = [
        "tools/srv.py",
        "tools/Makefile",
        "srv",
        "hook.js",
        "srv.js",
        "pyproject.toml",
        "pkg/__init__.py",
        "pkg/__main__.py",
        "pkg/sub.py",
        "folder/__main__.py",
        "Makefile",
        "package.json",
        "bin/helper",
        "node_modules/@scope/server/package.json",
        "node_modules/.bin/server",
        "../outside.py",
        "data.db",
        "unused.py",
        "tools/deep/run",
        "folder/index.js",
        "two words.py",
        ".venv/bin/helped",
        "tools/sitecustomize.py",
    ]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "link.py").symlink_to("../outside.py")
    return folder


def found(here: Path, command: Command) -> set[str]:
    """Relative to the directory."""
    environ = {"HOME": str(here.parent), "PATH": f"{here}/bin:/usr/local/bin:/usr/bin:/bin"}
    with chdir(here):
        return {os.path.relpath(path, here) for path in files_of(command, Directories.of((here,)), environ)}


@pytest.mark.parametrize(("line", "files"), WORDS)
def test_files_that_words_name(here: Path, line: str, files: set[str]) -> None:
    text = (
        f'[[mcp.servers]]\nname = "a"\ncommand = {json.dumps(line.format(here=here) if "{here}" in line else line)}\n'
    )
    assert tables_in(b"\xef\xbb\xbf" + text.encode()) == tables_in(text.encode()), "as it is read"
    (command,) = commands_in(tables_in(text.encode()))
    assert found(here, command) == files


def test_arguments_and_variables_are_words_as_well(here: Path) -> None:
    text = """[[mcp.servers]]
name = "a"
command = "node"
args = ["srv.js", "data.db"]
env = { NODE_OPTIONS = "--require ./hook.js", PYTHONPATH = "folder:./tools" }
data_files = ["./data.db"]
"""
    (command,) = commands_in(tables_in(text.encode()))
    assert found(here, command) == {
        "srv.js",
        "hook.js",
        "folder/__main__.py",
        "folder/index.js",
        "tools/sitecustomize.py",
    }


def test_words_count_from_where_the_server_is_started(here: Path) -> None:
    (command,) = commands_in({"mcp": {"servers": [{"name": "a", "command": "python3 srv.py", "cwd": "tools"}]}})
    assert found(here, command) == {"tools/srv.py"}


def test_a_suite_prepares_cases_in_copies_of_their_fixtures(here: Path) -> None:
    cases = {"cases": [{"fixture": "tools", "setup": ["python3 srv.py"]}, {"setup": ["./srv", f"{here}/srv.js"]}]}
    one, two, three = commands_in(cases)
    assert [found(here, command) for command in (one, two, three)] == [{"tools/srv.py"}, set(), {"srv.js"}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[[[",
        b"[]",
        b"1",
        b'{"mcp": 1}',
        b'{"mcp": {"servers": [1, {"command": 2, "args": 3}]}}',
        b'{"cases": [{"setup": [1]}]}',
        b'{"ccswarmPlan": "[[["}',
        b"{" * 100_000,
        b'{"mcp": {"servers": {"a": 1}}}',
        b'[[mcp.servers]]\ncommand = "a \\"b"\nargs = ["\\u0000", "", "-", "--", "=", "/", "~", ".."]\n',
    ],
)
def test_whatever_is_written_there_is_read_without_harm(here: Path, data: bytes) -> None:
    for command in commands_in(tables_in(data)):
        assert found(here, command) <= {"srv"}


def test_the_whole_file_system_is_no_workspace(here: Path) -> None:
    command = Command("a", ("/bin/sh", f"{here}/srv"))
    assert files_of(command, Directories.of(("/",)), {"PATH": "/usr/bin:/bin"}) == []


def test_it_takes_no_time_that_a_person_could_notice(here: Path) -> None:
    """Of processor, in the best of many attempts."""
    words = ("python3", "tools/srv.py", "--port", "80", "--verbose", "srv.js", "-m", "pkg")
    commands = [Command(str(number), words) for number in range(3)]
    best = 1.0
    for _ in range(20):
        begun = time.process_time()
        for command in commands:
            found(here, command)
        best = min(best, time.process_time() - begun)
    assert best < 0.006
