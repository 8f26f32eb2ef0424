"""Small projects on the disk, as people have them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS

PYTHON = {
    "pyproject.toml": '[project]\nname = "calc"\ndependencies = ["httpx>=1", "Pydantic"]\nlicense = "MIT"\n'
    'scripts = { calc = "calc:main" }\n[project.optional-dependencies]\ndev = ["pytest>=8"]\n[tool.pytest]\n',
    "uv.lock": "version = 1\n" * 500,
    "calc/__init__.py": "def add(a, b):\n    return a + b\n",
    "calc/__main__.py": "from calc import add\n",
    "tests/test_calc.py": "def test_add():\n    pass\n\n\nasync def test_more():\n    pass\n",
    "README.md": "# calc\n\nAdds numbers. Rounding is documented here.\n",
    ".github/workflows/test.yml": "on: push\n",
    "LICENSE": "MIT License\n\nPermission is hereby granted, free of charge, to any person\n",
}
NODE = {
    "package.json": '{"name": "web", "license": "ISC", "scripts": {"test": "vitest run", "start": "node ."},'
    ' "dependencies": {"hono": "4"}, "devDependencies": {"vitest": "3", "typescript": "5"}}',
    "pnpm-lock.yaml": "lockfileVersion: 9\n",
    "src/index.ts": "export const one = 1\n",
    "src/index.test.ts": "test('one', () => {})\nit.each([1])('two', () => {})\n",
    "node_modules/hono/index.js": "x\n" * 1000,
    ".env": "SECRET=1\n",
    ".env.example": "SECRET=\n",
}
RUST = {
    "Cargo.toml": '[package]\nname = "r"\nlicense = "MIT OR Apache-2.0"\n[dependencies]\nserde = "1"\ntokio = "1"\n'
    '[dev-dependencies]\nproptest = "1"\n[[bin]]\nname = "rr"\n',
    "Cargo.lock": "version = 4\n",
    "src/main.rs": "fn main() {}\n\n#[test]\nfn one() {}\n#[tokio::test]\nasync fn two() {}\n",
    "target/debug/r.rs": "x\n" * 1000,
}
MIXED = {
    **{f"web/{name}": text for name, text in NODE.items()},
    "api/go.mod": "module x\n\ngo 1.23\n\nrequire (\n\tgithub.com/a/b v1.2.3\n\tgithub.com/c/d v0.1.0 // indirect\n)\n",
    "api/main.go": "package main\n\nfunc main() {}\n",
    "api/main_test.go": "package main\n\nfunc TestMain(t *testing.T) {}\n",
    "requirements.txt": "flask==3\n# comment\n-r other.txt\npytest\n",
    "app.py": "print(1)\n",
    "Makefile": "all:\n\ttrue\ntest: all\n\ttrue\n",
}


def made(root: Path, files: dict[str, str | bytes] | dict[str, str]) -> Path:
    """Write files below ``root`` and return it."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def committed(root: Path, *messages: str, author: str = "ada") -> None:
    """Commit everything, and then a change of README.md for each message."""
    who = {
        f"GIT_{role}_{what}": f"{author}@x.example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    env = {**os.environ, **who}

    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(root), *words], env=env, check=True, capture_output=True, timeout=BOUND_SECONDS
        )

    if not (root / ".git").exists():
        git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--allow-empty", "--message", "all")
    for number, message in enumerate(messages):
        (root / "README.md").write_text(f"{message} {number}\n")
        git("add", "--all")
        git("commit", "--quiet", "--message", message)
