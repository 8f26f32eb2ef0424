"""Node apps with the terminal that a plan gave them: compiled, really served, their commands really run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ai_session.support.integration_planning import judged, planned
from tests.ai_session.support.integration_projects import APPS, Project, apply_plan
from tests.ai_session.support.mcp_client import living_in
from tests.clients.node import BOUND_SECONDS, FOLDERS, node

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.clients

MODULES = FOLDERS[0].parent / "apps"
TOKEN = "correct-horse-battery-staple"
NEXT_CONFIG = f"export default {{ turbopack: {{ root: {json.dumps(str(MODULES))} }} }};\n"
LISTEN = "listen(0, '127.0.0.1', function () { console.log(`http://127.0.0.1:${this.address().port}`); });"
STARTS = {
    "express CommonJS": ["-e", f"require('./server.js').{LISTEN}"],
    "express modules": ["--input-type=module", "-e", f"import {{ app }} from './src/server.js'; app.{LISTEN}"],
    "express TypeScript": [
        "--input-type=module",
        "-e",
        f"import {{ makeApp }} from './dist/server.js'; makeApp().{LISTEN}",
    ],
    "nest": [
        "--input-type=module",
        "-e",
        (
            "import { NestFactory } from '@nestjs/core'; import { AppModule } from './dist/app.module.js';"
            "const app = await NestFactory.create(AppModule, { logger: false }); app.enableShutdownHooks();"
            "await app.listen(0, '127.0.0.1'); console.log(await app.getUrl());"
        ),
    ],
    "next app router": [str(MODULES / "node_modules/next/dist/bin/next"), "start", "-p", "0"],
    "next pages router": [str(MODULES / "node_modules/next/dist/bin/next"), "start", "-p", "0"],
    "next pages router, TypeScript": [str(MODULES / "node_modules/next/dist/bin/next"), "start", "-p", "0"],
}


class App:
    """A project below the folder of the installed packages, its plan applied."""

    def __init__(self, name: str, home: Path) -> None:
        self.project: Project = APPS[name]
        self.root = self.project.write(Path(tempfile.mkdtemp(dir=MODULES)))
        self.env = living_in(home) | {"AI_SESSION_TERMINAL_TOKEN": TOKEN, "NEXT_TELEMETRY_DISABLED": "1"}
        self.path = "/terminal"
        if self.project.framework == "nextjs":
            self.path = "/api/terminal"
            (self.root / "next.config.js").unlink(missing_ok=True)
            (self.root / "next.config.mjs").write_text(NEXT_CONFIG)
        plan = planned(self.root, self.project.framework)
        assert judged(self.root, plan)["issues"] == []
        apply_plan(self.root, plan)

    def run(self, *words: str) -> None:
        """A program of Node's that must succeed."""
        ran = subprocess.run([node(), *words], cwd=self.root, env=self.env, capture_output=True, text=True, timeout=200)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def check(self) -> None:
        """What compilers say of it."""
        if (self.root / "tsconfig.json").exists():
            emit = [] if (self.root / "src/main.ts").exists() or self.project.framework == "express" else ["--noEmit"]
            self.run(str(MODULES / "node_modules/typescript/bin/tsc"), *emit)
        else:
            for path in self.project.made | self.project.changed:
                if "pages" not in path:
                    self.run("--check", path)
        if self.project.framework == "nextjs":
            self.run(str(MODULES / "node_modules/next/dist/bin/next"), "build")

    @contextmanager
    def served(self, name: str) -> Iterator[str]:
        """Its address while it runs."""
        command = [node(), *STARTS[name]]
        with subprocess.Popen(command, cwd=self.root, env=self.env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            found = (re.search(r"http://[\w.\[\]:]+", line) for line in process.stdout)
            yield next(match[0] for match in found if match).replace("[::1]", "localhost")
            process.terminate()
            process.communicate(timeout=BOUND_SECONDS)


def post(url: str, body: Any, token: str = TOKEN) -> tuple[int, Any]:
    """Status and answer of a command."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=BOUND_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize("name", STARTS)
def test_the_terminal_runs_commands_for_those_who_have_the_token(home: Path, name: str) -> None:
    assert MODULES.exists(), "run first: make clients"
    app = App(name, home)
    try:
        app.check()
        with app.served(name) as url:
            terminal = url + app.path
            status, facts = post(terminal, {"command": "cd /; kept=secret; echo $((6*7)); (exit 3)"})
            assert (status, facts["output"], facts["exit_code"], facts["status"]) == (200, "42\n", 3, "finished")
            assert post(terminal, {"command": "pwd; echo $kept"})[1]["output"] == "/\nsecret\n"
            assert post(terminal, {"command": "id"}, "wrong")[0] == post(terminal, {"command": "id"}, "")[0] == 401
            assert post(terminal, {})[0] == post(terminal, {"command": 5})[0] == 400
            waiting = post(terminal, {"command": "read -r line", "timeout_seconds": 0})
            assert waiting[1]["status"] == "running"
            refused, answer = post(terminal, {"command": "id"})
            assert (refused, answer["message"].startswith("error session_busy")) == (409, True)
        app.env["AI_SESSION_TERMINAL_TOKEN"] = "short"
        with app.served(name) as url:
            status, answer = post(url + app.path, {"command": "id"}, "short")
            assert (status, "AI_SESSION_TERMINAL_TOKEN" in answer["message"]) == (503, True)
    finally:
        shutil.rmtree(app.root)
