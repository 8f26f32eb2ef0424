"""Harbor trials without containers: each runs in a terminal of ai-session, in its sandbox, on its audit log.

    harbor run --path TASK --agent oracle --env harbor_environment:AiSessionEnvironment

A task's image is not built: what its Dockerfile installs has to be on this machine. Harbor's own directories
(``/app``, ``/logs``, ``/solution``, ``/tests`` and whatever else it uploads to) are folders of the trial, and their
names stand for these in commands and in uploaded scripts.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, override
from uuid import uuid4

from harbor.environments.base import BaseEnvironment, ExecResult

import ai_session

FOLDER = "machine"
WORK = "app"
OWN = (WORK, "logs", "solution", "tests", "installed-agent")
BEFORE, BEHIND = r"(?<![\w.~}/-])", r"(?![\w.-])"
MOST_SCRIPT_BYTES = 1 << 20


class AiSessionEnvironment(BaseEnvironment):
    """One trial's machine: a folder of the trial, and a session in it. ``profile`` asks for another sandbox profile
    than the configured one; without a network there, tasks that install packages fail."""

    def __init__(self, *args: Any, profile: str = "", **kwargs: Any) -> None:
        self._profile = profile
        self._names = set(OWN)
        self._one = asyncio.Lock()
        self._session: ai_session.aio.Session | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        """What Harbor calls it."""
        return "ai-session"

    @override
    def _validate_definition(self) -> None:
        """Nothing is needed of the task's definition."""

    @override
    async def start(self, force_build: bool) -> None:
        """Make the folder, and open the session in it."""
        for name in OWN:
            (self._root / name).mkdir(parents=True, exist_ok=True)
        self._session = await ai_session.aio.open(  # noqa: S604
            f"harbor-{self.session_id}"[:60],
            directory=self._root,
            shell="bash",
            profile=self._profile,
            env=self._startup_env(),
        )
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        """End all that runs there; with ``delete`` the folder is removed."""
        if self._session:
            session = self._session
            self._session = None
            await session.close()
        if delete:
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in a shell of its own; there is one user, whoever is named."""
        if not self._session:
            raise RuntimeError("the environment is not started")
        wanted = cwd or self.task_env_config.workdir or f"/{WORK}"
        lines = [f"cd {shlex.quote(str(self._inside(wanted)))} || exit", self._translated(command)]
        if variables := self._merge_env(env):
            kept = shlex.quote(str(self._keep(variables)))
            lines.insert(0, f". {kept}; rm -f {kept}")
        script = "\n".join(lines)
        async with self._one:
            line = f"bash -c {shlex.quote(script)}"
            running = await self._session.start(line, stdin="", separate_stderr=True)
            done = await running.wait(timeout_sec)
            if done.status == "running":
                done = await running.interrupt()
                raise RuntimeError(f"the command did not end within {timeout_sec} s: {done.output[-1000:]}")
        code = 1 if done.exit_code is None else done.exit_code
        return ExecResult(stdout=done.output, stderr=done.stderr, return_code=code)

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file there."""
        await asyncio.to_thread(self._copy_in, Path(source_path), self._inside(target_path, claim=True))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a directory has into one there."""
        await asyncio.to_thread(self._copy_all_in, Path(source_dir), self._inside(target_dir, claim=True))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file from there."""
        await asyncio.to_thread(_copy_out, self._inside(source_path), Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy what a directory there has."""
        await asyncio.to_thread(shutil.copytree, self._inside(source_dir), target_dir, dirs_exist_ok=True)

    @property
    def _root(self) -> Path:
        return (self.trial_paths.trial_dir / FOLDER).resolve()

    def _inside(self, path: str, *, claim: bool = False) -> Path:
        """Where what Harbor calls ``path`` lies; with ``claim`` it belongs to the trial from now on."""
        whole = Path(path)
        if not whole.is_absolute():
            return self._root / WORK / whole
        name = str(whole.relative_to("/"))
        mine = any(f"{name}/".startswith(f"{one}/") for one in self._names)
        if claim and not mine and not whole.is_relative_to(self._root):
            self._names.add(name)
        return self._root / name if mine or name in self._names else whole

    def _translated(self, text: str) -> str:
        names = "|".join(map(re.escape, sorted(self._names, reverse=True)))
        return re.sub(f"{BEFORE}/({names}){BEHIND}", rf"{self._root}/\1", text)

    def _keep(self, variables: dict[str, str]) -> Path:
        """A file that sets them, of this user alone: keys of agents stay out of the command and the audit log."""
        file = self._root / f".variables-{uuid4().hex}"
        file.touch(mode=0o600)
        file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
        return file

    def _copy_all_in(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for file in source.rglob("*"):
            if file.is_file():
                self._copy_in(file, target / file.relative_to(source))

    def _copy_in(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        data = target.read_bytes() if target.stat().st_size <= MOST_SCRIPT_BYTES else b"\0"
        if b"\0" not in data:
            target.write_bytes(self._translated(data.decode(errors="surrogateescape")).encode(errors="surrogateescape"))


def _copy_out(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
