"""A mini-swe-agent environment in a terminal of ai-session: sandboxed, on the audit log, open to ``ai-session attach``.

    from minisweagent.agents.default import DefaultAgent
    agent = DefaultAgent(model, AiSessionEnvironment(directory="~/shop"), …)

Unlike environments that start a shell for each action, this one preserves the directory, variables and functions from
one action to the next.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Self

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

import ai_session

SUBMITTED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
"""The line that an agent prints before its answer when it has finished."""


class AiSessionEnvironmentConfig(BaseModel):
    """The settings. A named ``session`` may exist already and stays open; ``profile`` selects a sandbox profile."""

    session: str = ""
    directory: str = "."
    profile: str = ""
    env: dict[str, str] = {}
    timeout: float = 30


class AiSessionEnvironment:
    """An implementation of minisweagent.Environment. ``close`` it at the end, or use it in a ``with`` block."""

    def __init__(self, *, config_class: type[AiSessionEnvironmentConfig] = AiSessionEnvironmentConfig, **kwargs: Any):
        self.config = config_class(**kwargs)
        self._session: ai_session.Session | None = None

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run a command, and interrupt it on timeout. A refusal by the policy is returned as its output."""
        command, seconds = str(action.get("command", "")), timeout or self.config.timeout
        if cwd:
            command = f"cd {_quote(cwd)} && {{ {command}\n}}"
        try:
            output = self._run(command, seconds)
        except ai_session.AiSessionError as error:
            output = _failed("", error.code, f"{error.message}; {error.suggestion}")
        self._check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the variables that templates may use."""
        return recursive_merge(self.config.model_dump(), platform.uname()._asdict(), self.config.env, kwargs)

    def serialize(self) -> dict[str, Any]:
        """Return the facts that a trajectory records about this environment."""
        name = f"{type(self).__module__}.{type(self).__name__}"
        facts = {"environment": self.config.model_dump(mode="json"), "environment_type": name}
        return {"info": {"config": facts}}

    def close(self) -> None:
        """Close the session, unless the settings name it."""
        session = self._session
        self._session = None
        if session and not self.config.session:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, command: str, seconds: float) -> dict[str, Any]:
        try:
            running = self._open().start(command)
        except ai_session.AiSessionError as error:
            if error.code != "session_exited":
                raise
            self._session = None  # the previous action ended the shell: open another
            running = self._open().start(command)
        done = running.wait(seconds)
        if done.status == "running":
            cause = f"it waits for input ({done.input_mode})" if done.input_mode else f"it took more than {seconds:g} s"
            done = running.interrupt()
            return _failed(done.output, "TimeoutExpired", f"the command was interrupted: {cause}")
        code = -1 if done.exit_code is None else done.exit_code
        return {"output": done.output, "returncode": code, "exception_info": ""}

    def _open(self) -> ai_session.Session:
        if self._session is None:
            config = self.config
            self._session = ai_session.open(
                config.session, directory=Path(config.directory).expanduser(), profile=config.profile, env=config.env
            )
        return self._session

    def _check_finished(self, output: dict[str, Any]) -> None:
        """Raise Submitted if the output says that the agent has finished."""
        first, _, submission = output["output"].lstrip().partition("\n")
        if first.strip() == SUBMITTED and output["returncode"] == 0:
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})


def _failed(output: str, kind: str, reason: str) -> dict[str, Any]:
    extra = {"exception_type": kind, "exception": reason}
    return {"output": output, "returncode": -1, "exception_info": reason, "extra": extra}


def _quote(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
