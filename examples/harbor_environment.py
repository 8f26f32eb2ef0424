"""A Harbor environment without containers: each trial runs in a terminal of ai-session, sandboxed and on the audit log.

    harbor run --path TASK --agent oracle --env harbor_environment:AiSessionEnvironment

The image of a task is not built: what its Dockerfile installs must already be on this machine. Harbor's own directories
(``/app``, ``/logs``, ``/solution``, ``/tests`` and any other it uploads to) are directories of the trial; their
absolute paths are translated in commands and in uploaded scripts.
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
    """The machine of one trial: a directory of the trial, and a session in it. ``profile`` replaces the configured
    sandbox profile; one without network fails tasks that install packages."""

    def __init__(self, *args: Any, profile: str = "", **kwargs: Any) -> None:
        self._profile = profile
        self._names = set(OWN)
        self._lock = asyncio.Lock()
        self._session: ai_session.aio.Session | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        """Return Harbor's name of this environment."""
        return "ai-session"

    @override
    def _validate_definition(self) -> None:
        """Accept every task definition."""

    @override
    async def start(self, force_build: bool) -> None:
        """Create the directory, and open the session in it."""
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
        """End the session and its programs; with ``delete``, remove the directory."""
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
        """Run a command in a shell of its own; ``user`` is ignored. Raises RuntimeError on timeout."""
        if not self._session:
            raise RuntimeError("the environment is not started")
        directory = cwd or self.task_env_config.workdir or f"/{WORK}"
        lines = [f"cd {shlex.quote(str(self._inside(directory)))} || exit", self._translate(command)]
        if variables := self._merge_env(env):
            file = shlex.quote(str(self._write_variables(variables)))
            lines.insert(0, f". {file}; rm -f {file}")
        script = "\n".join(lines)
        async with self._lock:
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
        """Copy a file into the trial."""
        await asyncio.to_thread(self._copy_in, Path(source_path), self._inside(target_path, claim=True))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the contents of a directory into one of the trial."""
        await asyncio.to_thread(self._copy_all_in, Path(source_dir), self._inside(target_dir, claim=True))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the trial."""
        await asyncio.to_thread(_copy_out, self._inside(source_path), Path(target_path))

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a directory out of the trial."""
        await asyncio.to_thread(shutil.copytree, self._inside(source_dir), target_dir, dirs_exist_ok=True)

    @property
    def _root(self) -> Path:
        return (self.trial_paths.trial_dir / FOLDER).resolve()

    def _inside(self, path: str, *, claim: bool = False) -> Path:
        """Return the path on this machine of Harbor's ``path``; with ``claim`` it belongs to the trial from now on."""
        whole = Path(path)
        if not whole.is_absolute():
            return self._root / WORK / whole
        name = str(whole.relative_to("/"))
        mine = any(f"{name}/".startswith(f"{one}/") for one in self._names)
        if claim and not mine and not whole.is_relative_to(self._root):
            self._names.add(name)
        return self._root / name if mine or name in self._names else whole

    def _translate(self, text: str) -> str:
        names = "|".join(map(re.escape, sorted(self._names, reverse=True)))
        return re.sub(f"{BEFORE}/({names}){BEHIND}", rf"{self._root}/\1", text)

    def _write_variables(self, variables: dict[str, str]) -> Path:
        """Write a file that exports them, readable by this user only: keys stay out of commands and the audit log."""
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
            target.write_bytes(self._translate(data.decode(errors="surrogateescape")).encode(errors="surrogateescape"))


def _copy_out(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
