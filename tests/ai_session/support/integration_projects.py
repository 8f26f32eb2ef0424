"""Small projects of each kind that FluxLoop's plans are for, and a client that applies the plans."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Files = dict[str, str]
Plan = dict[str, Any]


@dataclass(frozen=True)
class Project:
    """A project's files, its framework, and the files that its plan creates and changes."""

    framework: str
    files: Files
    made: set[str] = field(default_factory=set[str])
    changed: set[str] = field(default_factory=set[str])
    manager: str = ""

    def write(self, root: Path) -> Path:
        """Write the files below ``root``."""
        for name, text in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return root


def apply_plan(root: Path, plan: Plan) -> None:
    """Apply a plan exactly, as a client does, or change nothing if that is impossible."""
    for edit in plan["edits"]:
        path = root / edit["filepath"]
        text = edit["payload"]["import"] + edit["payload"]["code"]
        if edit["strategy"] == "create_file":
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            continue
        before = path.read_bytes().decode()
        if edit["strategy"] == "append":
            path.write_bytes((before + text).encode())
            continue
        assert edit["strategy"] == "insert"
        (anchor,) = edit["anchors"]
        assert anchor["type"] == "after_match"
        head, pattern, tail = before.partition(anchor["pattern"])
        assert pattern
        assert anchor["pattern"] not in tail
        path.write_bytes((head + pattern + text + tail).encode())


def package(*dependencies: str, **more: Any) -> str:
    """Return a package.json that names these dependencies."""
    return json.dumps({"name": "sample", "private": True, "dependencies": dict.fromkeys(dependencies, "*"), **more})


TSCONFIG = json.dumps(
    {
        "compilerOptions": {
            "target": "ES2022",
            "module": "NodeNext",
            "moduleResolution": "NodeNext",
            "strict": True,
            "skipLibCheck": True,
            "esModuleInterop": True,
            "experimentalDecorators": True,
            "emitDecoratorMetadata": True,
            "outDir": "dist",
            "types": ["node"],
        },
        "include": ["src"],
    }
)

FASTAPI_MODULE = Project(
    "fastapi",
    {
        "pyproject.toml": '[project]\nname = "sample"\nversion = "1"\ndependencies = ["fastapi>=0.110", "uvicorn"]\n',
        "uv.lock": "version = 1\n",
        "app/__init__.py": "",
        "app/main.py": '''"""An app."""

from contextlib import asynccontextmanager

from fastapi import FastAPI


@asynccontextmanager
async def lifespan(app):
    yield {"greeting": "hello"}


app = FastAPI(
    title="Sample",  # not app = FastAPI()
    lifespan=lifespan,
)  # made here


@app.get("/")
def root() -> dict[str, str]:
    return {"says": "hello"}
''',
    },
    {"app/ai_session_terminal.py"},
    {"app/main.py"},
    "uv",
)

FASTAPI_FACTORY = Project(
    "fastapi",
    {
        "requirements.txt": "fastapi[standard]==0.110\r\nuvicorn\n",
        "server.py": (
            "from fastapi import FastAPI\r\n\r\n\r\n"
            "def create_app() -> FastAPI:\r\n    application: FastAPI = FastAPI()\r\n    return application\r\n"
        ),
    },
    {"ai_session_terminal.py"},
    {"server.py"},
    "pip",
)

EXPRESS_CJS = Project(
    "express",
    {
        "package.json": package("express", main="server.js", scripts={"start": "node server.js"}),
        "package-lock.json": "{}",
        "server.js": """'use strict';
// const app = express(); is below
const express = require('express');

const app = express();
app.use(express.json());

app.get('/', (request, response) => response.json({ says: `hello ${[1, 2].map((n) => `${n}}`)}` }));

module.exports = app;
if (require.main === module) app.listen(Number(process.env.PORT));
""",
    },
    {"ai-session-terminal.js"},
    {"server.js"},
    "npm",
)

EXPRESS_ESM = Project(
    "express",
    {
        "package.json": package("express", type="module", packageManager="pnpm@9.1.0"),
        "src/server.js": """import express from 'express'

export const app = express()

app.get('/', (request, response) => response.json({ says: 'hello' }))
if (process.env.PORT) app.listen(Number(process.env.PORT))
""",
    },
    {"src/ai-session-terminal.js"},
    {"src/server.js"},
    "pnpm",
)

EXPRESS_TS = Project(
    "express",
    {
        "package.json": package("express", type="module"),
        "yarn.lock": "",
        "tsconfig.json": TSCONFIG,
        "src/greeting.ts": "export const greeting = 'hello';\n",
        "src/server.ts": """import express, {
  type Express,
  type Request,
} from 'express';
import { greeting } from './greeting.js';

export function makeApp(): Express {
  const app: Express = express(); // the app
  app.get('/', (request: Request, response) => response.json({ says: greeting, at: request.path }));
  return app;
}

if (process.env.PORT) makeApp().listen(Number(process.env.PORT));
""",
    },
    {"src/ai-session-terminal.ts"},
    {"src/server.ts"},
    "yarn",
)

NEXT_TSCONFIG = json.dumps(
    {
        "compilerOptions": {
            "target": "ES2022",
            "lib": ["dom", "esnext"],
            "module": "esnext",
            "moduleResolution": "bundler",
            "strict": True,
            "noEmit": True,
            "skipLibCheck": True,
            "jsx": "react-jsx",
            "isolatedModules": True,
            "esModuleInterop": True,
        },
        "include": ["**/*.ts", "**/*.tsx"],
        "exclude": ["node_modules"],
    }
)

NEXT_APP = Project(
    "nextjs",
    {
        "package.json": package("next", "react", "react-dom"),
        "bun.lock": "{}",
        "tsconfig.json": NEXT_TSCONFIG,
        "src/app/layout.tsx": """import type { ReactNode } from 'react';

export default function Layout({ children }: { children: ReactNode }) {
  return <html><body>Don't {children}</body></html>;
}
""",
        "src/app/page.tsx": "export default function Page() {\n  return <p>hello</p>;\n}\n",
    },
    {"src/app/api/terminal/route.ts"},
    manager="bun",
)

NEXT_PAGES = Project(
    "nextjs",
    {
        "package.json": package("next", "react", "react-dom"),
        "package-lock.json": "{}",
        "next.config.js": "module.exports = {};\n",
        "pages/index.jsx": "export default function Page() {\n  return <p>hello</p>;\n}\n",
    },
    {"pages/api/terminal.js"},
    manager="npm",
)

NEXT_PAGES_TS = Project(
    "nextjs",
    {
        "package.json": package("next", "react", "react-dom"),
        "tsconfig.json": NEXT_TSCONFIG,
        "pages/_app.tsx": """import type { AppProps } from 'next/app';

export default function App({ Component, pageProps }: AppProps) {
  return <Component {...pageProps} />;
}
""",
        "pages/index.tsx": "export default function Page() {\n  return <p>hello</p>;\n}\n",
    },
    {"pages/api/terminal.ts"},
    manager="npm",
)

NEST = Project(
    "nestjs",
    {
        "package.json": package("@nestjs/core", "@nestjs/common", type="module"),
        "package-lock.json": "{}",
        "tsconfig.json": TSCONFIG,
        "src/main.ts": """import { NestFactory } from '@nestjs/core';
import { AppModule } from './app.module.js';

const app = await NestFactory.create(AppModule);
app.enableShutdownHooks();
await app.listen(Number(process.env.PORT));
""",
        "src/app.controller.ts": """import { Controller, Get } from '@nestjs/common';

@Controller()
export class AppController {
  @Get()
  root(): { says: string } {
    return { says: 'hello' };
  }
}
""",
        "src/app.module.ts": """import { Module } from '@nestjs/common';
import { AppController } from './app.controller.js';

@Module({
  // imports: [] stands below
  controllers: [AppController],
  imports: [],
})
export class AppModule {}
""",
    },
    {"src/ai-session-terminal.module.ts"},
    {"src/app.module.ts"},
    "npm",
)

APPS = {
    "fastapi module": FASTAPI_MODULE,
    "fastapi factory": FASTAPI_FACTORY,
    "express CommonJS": EXPRESS_CJS,
    "express modules": EXPRESS_ESM,
    "express TypeScript": EXPRESS_TS,
    "next app router": NEXT_APP,
    "next pages router": NEXT_PAGES,
    "next pages router, TypeScript": NEXT_PAGES_TS,
    "nest": NEST,
}

CLIENTS = {
    "claude-code": (".mcp.json", ("mcpServers",)),
    "cursor": (".cursor/mcp.json", ("mcpServers",)),
    "vscode": (".vscode/mcp.json", ("servers",)),
    "gemini": (".gemini/settings.json", ("mcpServers",)),
    "codex": (".codex/config.toml", ("mcp_servers",)),
}
"""Each client's file, and the way to its servers."""
