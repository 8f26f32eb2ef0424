"""Plans apply cleanly to real files, once, and say so the second time."""

from __future__ import annotations

import ast
import json
import os
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from ai_session.integration_frameworks import FRAMEWORKS, framework
from ai_session.integration_plans import PRESENT, propose, validate
from ai_session.integration_profile import NODE, PYTHON, Profile, survey
from ai_session.integration_steps import steps
from ai_session.integration_text import unbalanced
from ai_session.integration_tree import Tree
from ai_session.redaction import Redactor
from tests.ai_session.unit.integration_projects import APPS, CLIENTS, FASTAPI_MODULE, NEST, Project, apply_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ai_session.unit.integration_projects import Plan

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
REDACTOR = Redactor((), (), b"key")
ENTRY = {"command": "ai-session", "args": ["mcp-server", "--stdio"]}


def secret(text: str) -> bool:
    return bool(REDACTOR.spans(text.encode(errors="surrogatepass")))


def planned(root: Path, name: str, told: Profile | None = None) -> Plan:
    with Tree(str(root)) as tree:
        return propose(tree, framework(name), survey(tree), told or Profile(), secret)


def judged(root: Path, plan: Plan) -> dict[str, Any]:
    with Tree(str(root)) as tree:
        return validate(tree, plan, secret)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def unusual(path: str, text: str) -> str:
    """What is wrong with a file, as far as this can be seen without a compiler."""
    if path.endswith(".py"):
        ast.parse(text)
    return unbalanced(text) if path.endswith(("js", "ts")) else ""


@pytest.mark.parametrize("name", APPS)
def test_a_plan_applies_cleanly_and_only_once(home: Path, name: str) -> None:
    project = APPS[name]
    root = project.write(home / "p")
    before = files(root)
    plan = planned(root, project.framework)
    verdict = judged(root, plan)
    assert (verdict["valid"], verdict["issues"], verdict["warnings"]) == (True, [], [])
    assert files(root) == before
    apply_plan(root, plan)
    after = files(root)
    assert after.keys() - before.keys() == project.made
    assert {path for path in before if after[path] != before[path]} == project.changed
    for path in project.made | project.changed:
        assert unusual(path, after[path].decode()) == ""
        assert b"\xe2\x9f" not in after[path]
    again = judged(root, plan)
    assert again["valid"]
    assert len(again["warnings"]) == len(plan["edits"])
    assert all(PRESENT in warning for warning in again["warnings"])
    repeated = planned(root, project.framework)
    assert repeated["edits"] == []
    assert PRESENT in repeated["warnings"][0]
    assert judged(root, repeated)["valid"]


@pytest.mark.parametrize("name", APPS)
def test_what_is_missing_of_a_plan_is_proposed_again(home: Path, name: str) -> None:
    root = APPS[name].write(home / "p")
    plan = planned(root, APPS[name].framework)
    for left in range(len(plan["edits"])):
        APPS[name].write(root)
        for path in APPS[name].made:
            (root / path).unlink(missing_ok=True)
        edits = plan["edits"][:left] + plan["edits"][left + 1 :]
        apply_plan(root, {"edits": edits})
        rest = planned(root, APPS[name].framework)
        assert [edit["filepath"] for edit in rest["edits"]] == [plan["edits"][left]["filepath"]]
        assert judged(root, rest)["valid"]
        apply_plan(root, rest)
        assert planned(root, APPS[name].framework)["edits"] == []


@pytest.mark.parametrize("name", APPS)
def test_nothing_of_a_plan_looks_like_a_secret(home: Path, name: str) -> None:
    plan = planned(APPS[name].write(home / "p"), APPS[name].framework)
    assert not secret(json.dumps(plan))
    assert not any(secret(edit["payload"]["code"]) for edit in plan["edits"])


def test_line_breaks_stay_what_they_are(home: Path) -> None:
    root = APPS["fastapi factory"].write(home / "p")
    apply_plan(root, planned(root, "fastapi"))
    text = (root / "server.py").read_bytes()
    assert text.count(b"\r\n") == text.count(b"\n")
    assert b"    application.include_router(ai_session_terminal)\r\n    return" in text


@pytest.mark.parametrize("framework_name", FRAMEWORKS)
def test_a_project_of_another_kind_gets_no_edits_of_an_app(home: Path, framework_name: str) -> None:
    (home / "p").mkdir()
    (home / "p/readme.md").write_text("hello\n")
    plan = planned(home / "p", framework_name)
    assert bool(plan["edits"]) == FRAMEWORKS[framework_name].is_client
    assert judged(home / "p", plan)["valid"]
    assert plan["edits"] or plan["warnings"]


ODD_PYTHON = {
    "one line": "from fastapi import FastAPI; app = FastAPI()\n",
    "in an expression": "import fastapi\nservers = {'a': fastapi.FastAPI()}\n",
    "one-line suite": "from fastapi import FastAPI\nif True: app = FastAPI()\n",
    "broken": "app = FastAPI(\n",
}
FINE_PYTHON = {
    "module attribute": "import fastapi as f\napp = f.FastAPI()\n",
    "no line break": "from fastapi import FastAPI\napp = FastAPI()",
    "unicode": "from fastapi import FastAPI\nx = 'žluť'; y = 1\napp = FastAPI(title='漢字')  # č\n",
    "two alike": "from fastapi import FastAPI\na = FastAPI()\nb = FastAPI()\napp = FastAPI()\n",
    "import in function": "def make():\n    from fastapi import FastAPI\n    app = FastAPI()\n    return app\n",
    "form feed": "from fastapi import FastAPI\n\x0c\napp = FastAPI()\n",
}


@pytest.mark.parametrize("name", [*ODD_PYTHON, *FINE_PYTHON])
def test_python_of_every_shape(home: Path, name: str) -> None:
    text = (ODD_PYTHON | FINE_PYTHON)[name]
    root = Project("fastapi", {"main.py": text}).write(home / "p")
    plan = planned(root, "fastapi")
    if name in ODD_PYTHON:
        assert (plan["edits"], len(plan["warnings"])) == ([], 1)
        return
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    module = ast.parse((root / "main.py").read_text())
    names = [
        node.lineno for node in ast.walk(module) if isinstance(node, ast.Name) and node.id == "ai_session_terminal"
    ]
    (made,) = [
        node.lineno for node in ast.walk(module) if isinstance(node, ast.ImportFrom) and "ai_" in str(node.module)
    ]
    assert len(names) == 1
    assert made < names[0]


ODD_SCRIPT = {
    "chained": "const express = require('express');\nconst app = express().use(x);\n",
    "in a comment": "/*\nconst app = express();\n*/\n",
    "in a string": "const text = `\nconst app = express();\n`;\n",
}
FINE_SCRIPT = {
    "other name": "var server = require('express');\nlet web = server()\nweb.listen(1)\n",
    "several requires": "const express = require('express'), path = require('path');\nconst app = express();\n",
    "namespace import": "import * as express from 'express';\nexport const app = express();\n",
    "regular expressions": "const r = /['\"`{(]/g, q = 4 / 2;\n"
    "const express = require('express');\nconst app = express();\n",
    "comment behind": "const express = require('express'); // it's\nconst app = express(); /* a */ // b\n",
}


@pytest.mark.parametrize("name", [*ODD_SCRIPT, *FINE_SCRIPT])
def test_javascript_of_every_shape(home: Path, name: str) -> None:
    root = Project("express", {"app.js": (ODD_SCRIPT | FINE_SCRIPT)[name]}).write(home / "p")
    plan = planned(root, "express")
    if name in ODD_SCRIPT:
        assert (plan["edits"], len(plan["warnings"])) == ([], 1)
        return
    verdict = judged(root, plan)
    assert verdict["issues"] == []
    assert "only their brackets" in verdict["checks_performed"][-1]
    apply_plan(root, plan)
    text = (root / "app.js").read_text()
    assert unbalanced(text) == ""
    assert text.count(".use('/terminal', terminalRouter());") == 1
    assert text.count("ai-session-terminal.js") == 1


@pytest.mark.parametrize(
    ("decorator", "expected"),
    [
        ("@Module({})", "@Module({ imports: [AiSessionTerminalModule] })"),
        ("@Module({ providers: [A] })", "@Module({\n  imports: [AiSessionTerminalModule], providers: [A] })"),
        ("@Module({ imports: [A] })", "@Module({ imports: [AiSessionTerminalModule, A] })"),
        ("@Module({ x: { imports: [B] }, imports: [] })", "imports: [B] }, imports: [AiSessionTerminalModule] })"),
        ("@Module({\n  imports: [\n    A,\n  ],\n})", "  imports: [\n    AiSessionTerminalModule,\n    A,\n  ],\n})"),
    ],
)
def test_modules_of_every_shape(home: Path, decorator: str, expected: str) -> None:
    text = f"import {{ Module }} from '@nestjs/common';\n\n{decorator}\nexport class AppModule {{}}\n"
    root = Project("nestjs", {**NEST.files, "src/app.module.ts": text}).write(home / "p")
    plan = planned(root, "nestjs")
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    assert expected in (root / "src/app.module.ts").read_text()


def test_a_module_that_cannot_be_edited_is_told(home: Path) -> None:
    text = NEST.files["src/app.module.ts"].replace("imports: [],", "imports: modules,")
    root = Project("nestjs", {**NEST.files, "src/app.module.ts": text}).write(home / "p")
    plan = planned(root, "nestjs")
    assert plan["edits"] == []
    assert "add by hand" in plan["warnings"][0]


EXISTING = {
    "none": None,
    "empty object": "{}",
    "blank": "\n",
    "empty table": '{\n    "KEY": {}\n}\n',
    "another": '{\n\t"KEY": {\n\t\t"other": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n',
    "one line": '{"KEY": {"other": {"command": "x"}}, "theme": "dark"}',
    "other keys": '{\n  "theme": "dark",\n  "list": [{"a": 1}, {"a": 1}]\n}',
    "windows": '\ufeff{\r\n  "KEY": {\r\n    "other": {"command": "x"}\r\n  }\r\n}\r\n',
    "alike": '{"a": {"KEY": {}}, "KEY": {"x": {"KEY": {}}}}',
}


@pytest.mark.parametrize("state", EXISTING)
@pytest.mark.parametrize("client", [name for name, (path, _) in CLIENTS.items() if path.endswith(".json")])
def test_a_client_s_file_keeps_what_it_says(home: Path, client: str, state: str) -> None:
    path, keys = CLIENTS[client]
    text = EXISTING[state]
    given = {} if text is None else {path: text.replace("KEY", keys[0])}
    root = Project(client, {"README": "", **given}).write(home / "p")
    plan = planned(root, client)
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    after = (root / path).read_bytes().decode()
    data = json.loads(after.removeprefix("\ufeff"))
    entry = data[keys[0]].pop("ai-session")
    assert {name: entry[name] for name in ENTRY} == ENTRY
    expected = json.loads((given.get(path) or "").strip().removeprefix("\ufeff") or "{}")
    assert data == {keys[0]: {}, **expected}
    if state == "windows":
        assert after.count("\n") == after.count("\r\n")
    repeated = planned(root, client)
    assert (repeated["edits"], PRESENT in repeated["warnings"][0]) == ([], True)
    assert all(PRESENT in warning for warning in judged(root, plan)["warnings"])


@pytest.mark.parametrize(
    "text", [None, "", 'model = "x"', "[mcp_servers.other]\ncommand = 'x'\n", "\r\n[a]\r\nb = 1\r\n"]
)
def test_codex_keeps_what_its_file_says(home: Path, text: str | None) -> None:
    path = CLIENTS["codex"][0]
    root = Project("codex", {"README": "", **({} if text is None else {path: text})}).write(home / "p")
    plan = planned(root, "codex")
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    after = (root / path).read_bytes().decode()
    assert after.startswith(text or "")
    assert tomllib.loads(after)["mcp_servers"]["ai-session"] == ENTRY
    assert planned(root, "codex")["edits"] == []


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{\n  // mine\n  "servers": {}\n}\n'),
        ("claude-code", "[]"),
        ("claude-code", '{"mcpServers": []}'),
        ("claude-code", '{"a": 1'),
        ("cursor", "[" * 100_000),
        ("codex", 'mcp_servers = { other = { command = "x" } }\n'),
        ("codex", "model = \n"),
        ("ccswarm", 'mcp = { servers = [{ name = "other", command = "x" }] }\n'),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(home: Path, client: str, text: str) -> None:
    path = {**{name: path for name, (path, _) in CLIENTS.items()}, "ccswarm": "ccswarm.toml"}[client]
    root = Project(client, {path: text}).write(home / "p")
    plan = planned(root, client)
    assert plan["edits"] == []
    assert plan["warnings"]
    assert PRESENT not in plan["warnings"][0]


def test_the_place_of_an_entry_is_not_named_by_somebody_s_token(home: Path) -> None:
    text = json.dumps({"mcpServers": {"other": {"command": "x", "env": {"TOKEN": TOKEN}}}})
    root = Project("", {".mcp.json": text}).write(home / "p")
    plan = planned(root, "claude-code")
    assert TOKEN not in json.dumps(plan)
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    data = json.loads((root / ".mcp.json").read_text())["mcpServers"]
    assert data["other"]["env"] == {"TOKEN": TOKEN}
    assert data["ai-session"]["command"] == "ai-session"


@pytest.mark.parametrize("before", [None, "", '[swarm]\nname = "mine"\n', '[[mcp.servers]]\nname = "a"\ncommand = "b"'])
def test_a_swarm_gets_terminals(home: Path, before: str | None) -> None:
    root = Project("", {"README": "", **({} if before is None else {"ccswarm.toml": before})}).write(home / "p")
    plan = planned(root, "ccswarm")
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    servers = tomllib.loads((root / "ccswarm.toml").read_text())["mcp"]["servers"]
    assert servers[-1] == {"name": "ai-session", "command": "ai-session mcp-server --stdio"}
    assert planned(root, "ccswarm")["edits"] == []


def edit(path: object = "a.py", strategy: object = "append", code: object = "y = 1\n", *anchors: object) -> Plan:
    return {"filepath": path, "strategy": strategy, "anchors": list(anchors), "payload": {"code": code}}


def after(pattern: object) -> dict[str, object]:
    return {"type": "after_match", "pattern": pattern}


BAD_EDITS = {
    "no object": 5,
    "no path": {"strategy": "append", "payload": {"code": "x"}},
    "leads out": edit("../a.py"),
    "absolute": edit("/etc/passwd"),
    "git's": edit(".git/hooks/pre-commit", "create_file"),
    "a link": edit("link.py"),
    "behind a link": edit("folder/new.py", "create_file"),
    "a folder": edit("src"),
    "secrets": edit(".env", "create_file", "A=1\n"),
    "no strategy": edit("a.py", "replace_all"),
    "odd strategy": edit("a.py", ["append"]),
    "not there": edit("b.py"),
    "there already": edit("a.py", "create_file"),
    "binary": edit("data.bin"),
    "no payload": {"filepath": "a.py", "strategy": "append"},
    "empty payload": edit("a.py", "append", " \n"),
    "odd payload": edit("a.py", "append", ["x"]),
    "surrogate": edit("a.py", "append", "x = '\ud800'\n"),
    "a secret": edit("a.py", "append", f"token = '{TOKEN}'\n"),
    "no anchor": edit("a.py", "insert"),
    "two anchors": edit("a.py", "insert", "y\n", after("x"), after("x")),
    "odd anchor": edit("a.py", "insert", "y\n", after(5)),
    "missing anchor": edit("a.py", "insert", "y\n", after("z = 1")),
    "anchor twice": edit("a.py", "insert", "y\n", after("a")),
    "overlapping anchor": edit("b.txt", "insert", "y\n", after("aba")),
    "broken Python": edit("a.py", "append", "def (\n"),
    "deep Python": edit("new.py", "create_file", "-" * 90_000 + "1\n"),
    "broken JSON": edit("a.json", "append", "}\n"),
    "key twice": edit("a.json", "insert", '"a": 1, "a": 2', after("{")),
    "broken TOML": edit("new.toml", "create_file", "a = \n"),
    "broken TypeScript": edit("new.ts", "create_file", "const a = {(\n"),
    "too large": edit("new.txt", "create_file", "x" * 600_000),
}


@pytest.mark.parametrize("name", BAD_EDITS)
def test_a_bad_edit_blocks_the_plan(home: Path, name: str) -> None:
    (home / "outside").mkdir()
    (home / "outside/secret.py").write_text("x = 1\n")
    root = Project("", {"a.py": "aa = 1\n", "a.json": "{}", "b.txt": "ababa", "src/c.py": ""}).write(home / "p")
    (root / "data.bin").write_bytes(b"\0")
    (root / "link.py").symlink_to(home / "outside/secret.py")
    (root / "folder").symlink_to(home / "outside")
    before = files(home)
    verdict = judged(
        root, {"summary": "s", "edits": [BAD_EDITS[name]], "postChecks": ["x"], "rollback": {"instruction": "x"}}
    )
    assert not verdict["valid"]
    assert len(verdict["issues"]) == 1
    assert verdict["warnings"] == []
    assert TOKEN not in str(verdict)
    assert files(home) == before


def test_edits_of_a_plan_build_on_each_other(home: Path) -> None:
    root = Project("", {"a.py": "aa = 1\n"}).write(home / "p")
    first, second = edit("n.py", "create_file", "b = (\n"), edit("n.py", "append", "2)\n")
    third = edit("n.py", "insert", " + 1", after("2"))
    verdict = judged(root, {"edits": [first, second, third]})
    assert verdict["issues"] == []
    assert len(verdict["warnings"]) == 3
    assert judged(root, {"edits": [first]})["issues"] == [
        "n.py: would not be valid: '(' was never closed (<unknown>, line 1)"
    ]


@pytest.mark.parametrize("plan", [{}, {"edits": {}}, {"edits": [edit()] * 101}, {"edits": "x", "summary": 5}])
def test_what_is_no_plan_is_not_valid(home: Path, plan: Plan) -> None:
    assert not judged(home, plan)["valid"]


def test_a_file_that_was_broken_before_is_a_warning(home: Path) -> None:
    root = Project("", {"a.py": "def (\n"}).write(home / "p")
    verdict = judged(root, {"summary": "s", "edits": [edit()], "postChecks": ["x"], "rollback": {"instruction": "x"}})
    assert (verdict["valid"], len(verdict["warnings"])) == (True, 1)


def test_the_client_s_entry_point_is_looked_at_first(home: Path) -> None:
    text = FASTAPI_MODULE.files["app/main.py"]
    root = Project("fastapi", {"one/main.py": text, "two/main.py": text}).write(home / "p")
    assert planned(root, "fastapi")["edits"][0]["filepath"].startswith("one/")
    told = Profile(entry_points=("two/main.py", "../../etc/passwd", "nowhere.py"))
    assert planned(root, "fastapi", told)["edits"][0]["filepath"].startswith("two/")


@pytest.mark.parametrize("manager", [*NODE, *PYTHON])
@pytest.mark.parametrize("name", ["express", "fastapi"])
def test_steps_use_the_project_s_package_manager(name: str, manager: str) -> None:
    found = steps(FRAMEWORKS[name], Profile(package_managers=(manager,), entry_points=("a",)))
    fits = manager in FRAMEWORKS[name].managers
    assert found["package_manager"] == (manager if fits else FRAMEWORKS[name].managers[-1])
    install = next(row["details"] for row in found["steps"] if row["id"] == "install_client")
    assert install.split()[0] == found["package_manager"]
    assert bool(found["warnings"]) != fits
    assert found.keys() == {"framework", "runner_pattern", "steps", "estimated_time", "package_manager", "warnings"}
    assert all(set(row) == {"id", "title", "details", "doc_ref"} for row in found["steps"])


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_has_steps(name: str) -> None:
    found = steps(FRAMEWORKS[name], Profile())
    assert found["steps"][0]["id"] == "install_ai_session"
    assert "apply_edits" in [row["id"] for row in found["steps"]]
    assert os.path.exists(found["steps"][0]["doc_ref"].partition("#")[0])
