"""Plans apply cleanly to real files, once, and say so the second time."""

from __future__ import annotations

import ast
import json
import os
from typing import TYPE_CHECKING

import pytest

from ai_session.tools.integration.frameworks import FRAMEWORKS
from ai_session.tools.integration.plans import PRESENT
from ai_session.tools.integration.project.profile import NODE, PYTHON, Profile
from ai_session.tools.integration.project.source_text import unbalanced
from ai_session.tools.integration.steps import steps
from tests.ai_session.support.integration_planning import files, judged, planned, secret
from tests.ai_session.support.integration_projects import APPS, FASTAPI_MODULE, NEST, Project, apply_plan

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_module_that_cannot_be_edited_is_reported(home: Path) -> None:
    text = NEST.files["src/app.module.ts"].replace("imports: [],", "imports: modules,")
    root = Project("nestjs", {**NEST.files, "src/app.module.ts": text}).write(home / "p")
    plan = planned(root, "nestjs")
    assert plan["edits"] == []
    assert "add by hand" in plan["warnings"][0]


def test_the_client_s_entry_point_is_looked_at_first(home: Path) -> None:
    text = FASTAPI_MODULE.files["app/main.py"]
    root = Project("fastapi", {"one/main.py": text, "two/main.py": text}).write(home / "p")
    assert planned(root, "fastapi")["edits"][0]["filepath"].startswith("one/")
    reported = Profile(entry_points=("two/main.py", "../../etc/passwd", "nowhere.py"))
    assert planned(root, "fastapi", reported)["edits"][0]["filepath"].startswith("two/")


@pytest.mark.parametrize("manager", [*NODE, *PYTHON])
@pytest.mark.parametrize("name", ["express", "fastapi"])
def test_steps_use_the_project_s_package_manager(name: str, manager: str) -> None:
    found = steps(FRAMEWORKS[name], Profile(package_managers=(manager,), entry_points=("a",)))
    fits = manager in FRAMEWORKS[name].managers
    assert found["package_manager"] == (manager if fits else FRAMEWORKS[name].managers[-1])
    install = next(row["details"] for row in found["steps"] if row["id"] == "install_client")
    assert install.split()[0] == found["package_manager"]
    assert bool(found["warnings"]) != fits
    assert found.keys() == {"framework", "runner_pattern", "steps", "package_manager", "warnings"}
    assert all(set(row) == {"id", "title", "details", "doc_ref"} for row in found["steps"])


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_has_steps(name: str) -> None:
    found = steps(FRAMEWORKS[name], Profile())
    assert found["steps"][0]["id"] == "install_ai_session"
    assert "apply_edits" in [row["id"] for row in found["steps"]]
    assert os.path.exists(found["steps"][0]["doc_ref"].partition("#")[0])
