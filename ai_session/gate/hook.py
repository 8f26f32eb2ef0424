"""The policy's hook: a program of the person's or the administrator's that is run before a call.

It can only be stricter than the rules. Without a valid answer in time and status 0, the call is denied.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pwd
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agentwire.validation import requirements
from ai_session.errors import HookFailed
from ai_session.gate.policy.policy import Decision, HookProgram, stricter
from ai_session.gate.policy.rules import pieces
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.results import masked
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Effect, Principal, ToolResult
from ai_session.system.turns import finished

AT_ONCE = 8
MAX_ANSWER_BYTES = 64 << 10
MAX_REASON_CHARS = 500
LOGGED_BYTES = 2000
MOST_INTERPRETERS, MAX_FIRST_LINE = 6, 256
"""One more than the kernel follows, and what it reads of each."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

log = logging.getLogger(__name__)


class Answer(BaseModel):
    """What the program prints."""

    model_config = ConfigDict(strict=True, extra="ignore")

    decision: Literal["allow", "ask", "deny"]
    reason: str = ""


class Hooks:
    """Runs each program in turn, at most AT_ONCE of them at a time. Without programs it costs nothing."""

    def __init__(self, programs: Sequence[HookProgram], written: WrittenDirectories) -> None:
        self._programs = programs
        self._written = written
        self._env = {**ENVIRONMENT, "HOME": _home()}
        self._free = asyncio.Semaphore(AT_ONCE)

    def __bool__(self) -> bool:
        return bool(self._programs)

    async def judge(self, principal: Principal, decision: Decision, facts: Callable[[], Mapping[str, Any]]) -> Decision:
        """Return ``decision``, or a stricter one of a hook. A person is not asked about a call of their own.

        Raises HookFailed if a hook gives no valid answer.
        """
        if not self._programs or decision.verdict == "deny":
            return decision
        known = facts()
        for program in self._programs:
            decided = {"verdict": decision.verdict, "rule": decision.rule, "reason": decision.reason}
            answer = await self._ask(program, json.dumps({"version": 1, **known, "decision": decided}).encode())
            if answer.decision != "allow" and not (answer.decision == "ask" and principal.kind == "person"):
                reason = answer.reason[:MAX_REASON_CHARS] or "It gives no reason."
                decision = stricter(decision, Decision(answer.decision, program.rule, reason))
            if decision.verdict == "deny":
                break
        return decision

    async def _ask(self, program: HookProgram, question: bytes) -> Answer:
        if why := await asyncio.to_thread(unusable, program.argv, self._written):
            raise _failed(program, why)
        try:
            async with asyncio.timeout(program.seconds):
                await self._free.acquire()
        except TimeoutError:
            raise _failed(
                program, f"{AT_ONCE} hooks are running already, and none ended within {program.seconds:g} s"
            ) from None
        try:
            data = await self._run(program, question)
        finally:
            self._free.release()
        try:
            return Answer.model_validate(json.loads(data, object_pairs_hook=_unique_keys))
        except ValidationError as error:
            raise _failed(program, f"its answer is not valid: {requirements(error.errors())[:200]}") from None
        except (ValueError, RecursionError) as error:
            raise _failed(program, f"its answer is not valid: {str(error)[:200]}") from None

    async def _run(self, program: HookProgram, question: bytes) -> bytes:
        """Return the program's output. Its pipes are ours, as processes it leaves behind may hold them."""
        answer, errors = Output(MAX_ANSWER_BYTES), Output(LOGGED_BYTES)
        process: asyncio.subprocess.Process | None = None
        try:
            async with asyncio.timeout(program.seconds):
                with answer.end(), errors.end(), await asyncio.to_thread(_file, question) as source:
                    process = await asyncio.create_subprocess_exec(
                        *program.argv,
                        stdin=source,
                        stdout=answer.write_end,
                        stderr=errors.write_end,
                        env=self._env,
                        cwd="/",
                        start_new_session=True,
                    )
                await answer.read()
                status = 0 if answer.more else await process.wait()
        except TimeoutError:
            raise _failed(program, f"it did not answer within {program.seconds:g} s (policy.hook_seconds)") from None
        except OSError as error:
            raise _failed(program, f"it cannot be started: {error.strerror or error}") from None
        finally:
            if process is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
            if message := errors.close():
                log.warning("policy hook %s says: %s", program.argv[0], message.decode(errors="replace").strip())
            data = answer.close()
        if answer.more:
            raise _failed(program, f"it printed more than {MAX_ANSWER_BYTES} bytes")
        if status:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            raise _failed(program, f"it {how}")
        return data


def unusable(argv: Sequence[str], written: WrittenDirectories) -> str:
    """Return why a program of the person's must not be run; empty if it may be. Blocks."""
    path = argv[0]
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        return f"{path!r} is not a program that can be run"
    for word in (*argv, *_interpreters(path)):
        for piece in pieces(word):
            if "/" in piece and (directory := written.leads_into(os.path.join("/", piece))):
                return f"{piece!r} lies where a box may write ({directory})"
    return ""


def _interpreters(script: str) -> Iterator[str]:
    """Yield the words that the kernel puts before a script: those of its first line, and of its interpreter's."""
    for _ in range(MOST_INTERPRETERS):
        try:
            with open(script, "rb") as file:
                line = file.readline(MAX_FIRST_LINE)
        except OSError:
            return
        words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
        if not words:
            return
        yield from words
        script = words[0]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. Raises ValueError for a duplicate key: parsers differ in which value they use."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def call_facts(
    principal: Principal, tool: str, effect: Effect | None, masking: Masking, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the facts of any call. Secrets are masked, but not what only the caller calls one, except in ``env``."""
    shown, _ = finished(masked(ToolResult("", dict(arguments)), masking.mask_for_judge))
    given, _ = finished(masked(ToolResult("", {k: v for k, v in arguments.items() if k == "env"}), masking.mask))
    who = {"kind": principal.kind, "uid": principal.uid, "client": principal.client, "subject": principal.subject}
    return {
        "principal": who,
        "tool": tool,
        "effect": effect and str(effect),
        "arguments": {**shown.structured, **given.structured},
    }


class Output:
    """A pipe for a program's output: at most ``most`` bytes of it; ``more`` says that there were further ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = b""
        self._ended = asyncio.Event()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self.more = False
        asyncio.get_running_loop().add_reader(self._read_end, self._readable)

    @contextmanager
    def end(self) -> Generator[None]:
        """Surround the start of the program, after which only the program has the other end."""
        try:
            yield
        finally:
            os.close(self.write_end)

    async def read(self) -> None:
        """Wait for the end of the output, or for more than the maximum."""
        await self._ended.wait()

    def close(self) -> bytes:
        """Return what was printed and close the pipe."""
        if self._read_end >= 0:
            if not self._ended.is_set():
                self._readable()
            asyncio.get_running_loop().remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1
        return self._data

    def _readable(self) -> None:
        try:
            chunk = os.read(self._read_end, 1 << 16)
        except BlockingIOError:
            return
        self.more = len(self._data) + len(chunk) > self._most
        self._data = (self._data + chunk)[: self._most]
        if not chunk or self.more:
            self._ended.set()
            asyncio.get_running_loop().remove_reader(self._read_end)


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # in a container the user may be a bare number
        return "/"


def _file(question: bytes) -> IO[bytes]:
    with ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        file.write(question)
        file.seek(0)
        stack.pop_all()
    return file


def _failed(program: HookProgram, why: str) -> HookFailed:
    return HookFailed(
        f"the policy's hook {program.argv[0]} failed, so nothing was run: {why}",
        suggestion=f"the call itself is fine; the person must check policy.hook in {program.origin}",
    )
