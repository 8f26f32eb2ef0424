"""The policy's hook: it only tightens, what fails is denied, and it is bounded in time, number and words."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_session.errors import HookFailed
from ai_session.gate.hook import AT_ONCE, MAX_ANSWER_BYTES, MAX_REASON_CHARS, Hooks
from ai_session.gate.policy.policy import STRICTNESS, Decision, HookProgram
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Principal, SandboxProfile
from tests.conftest import BY_CHANCE
from tests.support.bounds import BOUND_SECONDS, pause

pytestmark = pytest.mark.anyio
AGENT, PERSON = Principal("mcp", os.getuid(), client="agent"), Principal("person", os.getuid())
ALLOW, ASK, DENY = Decision("allow", "default:workspace"), Decision("ask", "r", "Why."), Decision("deny", "r", "No.")
FACTS: dict[str, Any] = {"tool": "execute_command", "arguments": {"command": "ls"}}


def script(home: Path, text: str) -> HookProgram:
    """A hook in shell."""
    path = home / f"hook{os.urandom(4).hex()}"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return HookProgram((str(path),), BOUND_SECONDS, "the configuration")


def hurried(program: HookProgram) -> HookProgram:
    """As it is, with half a second."""
    return HookProgram(program.argv, 0.5, program.origin)


async def asked(
    *programs: HookProgram,
    decision: Decision = ALLOW,
    principal: Principal = AGENT,
    facts: dict[str, Any] = FACTS,
    written: WrittenDirectories | None = None,
) -> Decision:
    hooks = Hooks(programs, written or WrittenDirectories())
    async with asyncio.timeout(BOUND_SECONDS):
        return await hooks.judge(principal, decision, lambda: facts)


@pytest.mark.parametrize(
    ("said", "given", "verdict", "rule"),
    [
        ("allow", ALLOW, "allow", "default:workspace"),
        ("allow", ASK, "ask", "r"),
        ("ask", ALLOW, "ask", "hook"),
        ("ask", ASK, "ask", "r"),
        ("deny", ALLOW, "deny", "hook"),
        ("deny", ASK, "deny", "hook"),
    ],
)
async def test_it_tightens_and_gives_its_reason(
    home: Path, said: str, given: Decision, verdict: str, rule: str
) -> None:
    hook = script(home, f"""echo '{{"decision": "{said}", "reason": "It is late."}}'""")
    found = await asked(hook, decision=given)
    assert (found.verdict, found.rule) == (verdict, rule)
    assert rule != "hook" or found.reason == "It is late."


async def test_what_is_denied_is_not_asked_about(home: Path) -> None:
    assert await asked(script(home, f"touch {home}/ran"), decision=DENY) == DENY
    assert not (home / "ran").exists()


async def test_a_person_is_not_asked_about_what_he_orders_but_can_be_refused(home: Path) -> None:
    assert await asked(script(home, """echo '{"decision": "ask"}'"""), principal=PERSON) == ALLOW
    refused = await asked(script(home, """echo '{"decision": "deny"}'"""), principal=PERSON)
    assert (refused.verdict, refused.reason) == ("deny", "It gives no reason.")


JSON: Any = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner))
ANSWERS = st.one_of(
    st.binary(max_size=200),
    st.fixed_dictionaries(
        {"decision": st.sampled_from(["allow", "ask", "deny", "ALLOW", "", None]) | JSON},
        optional={"reason": st.text(max_size=2000) | JSON, "verdict": st.just("allow"), "rule": JSON},
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(ANSWERS, min_size=1, max_size=2), st.sampled_from([ALLOW, ASK, DENY]), st.sampled_from([AGENT, PERSON]))
@settings(suppress_health_check=[*BY_CHANCE, HealthCheck.function_scoped_fixture])
def test_no_answer_ever_loosens(home: Path, answers: list[bytes], given: Decision, principal: Principal) -> None:
    programs: list[HookProgram] = []
    for number, answer in enumerate(answers):
        (home / str(number)).write_bytes(answer)
        programs.append(HookProgram(("/bin/cat", str(home / str(number))), BOUND_SECONDS, "x"))
    try:
        found = asyncio.run(asked(*programs, decision=given, principal=principal))
    except HookFailed:
        return
    assert STRICTNESS.index(found.verdict) >= STRICTNESS.index(given.verdict)
    assert len(found.reason) <= MAX_REASON_CHARS


FAILING = [
    ("exit 3", "it ended with status 3"),
    ("""echo '{"decision": "allow"}'; exit 1""", "it ended with status 1"),
    ("kill -9 $$", "it was killed by signal 9"),
    ("true", "its answer is not valid"),
    ("echo yes", "its answer is not valid"),
    ("""echo '{"decision": "maybe"}'""", "its answer is not valid: decision"),
    ("""echo '{"decision": "allow"}{"decision": "allow"}'""", "its answer is not valid"),
    ("""echo '{"decision": ["allow"]}'""", "its answer is not valid"),
    ("""echo '{"decision": "deny", "decision": "allow"}'""", "its answer is not valid: a key occurs twice"),
    ("""echo '"allow"'""", "its answer is not valid"),
    ("head -c 60000 /dev/zero | tr '\\0' '['", "its answer is not valid"),
    (r"""printf '{"decision": "allow", "reason": "\377"}'""", "its answer is not valid"),
    (f"head -c {MAX_ANSWER_BYTES + 1} /dev/zero", f"it printed more than {MAX_ANSWER_BYTES} bytes"),
    ("yes", f"it printed more than {MAX_ANSWER_BYTES} bytes"),
]


@pytest.mark.parametrize(("text", "why"), FAILING)
async def test_what_fails_is_denied_and_says_whose_fault_it_is(home: Path, text: str, why: str) -> None:
    hook = script(home, text)
    with pytest.raises(HookFailed) as failed:
        await asked(hook)
    assert failed.value.message.startswith(f"the policy's hook {hook.argv[0]} failed, so nothing was run: {why}")
    assert failed.value.suggestion == (
        "the call itself is fine; the person must check policy.hook in the configuration"
    )


def lifetimes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    "text",
    [
        "exec tail -f /dev/null",
        """echo '{"decision": "allow"}'; exec tail -f /dev/null""",
        """echo '{"decision": "allow"}'; tail -f /dev/null & exit 0""",
        """trap '' TERM HUP INT; tail -f /dev/null""",
        "exec >/dev/null; exec tail -f /dev/null",
    ],
)
async def test_what_takes_too_long_is_ended_with_all_it_started(home: Path, text: str) -> None:
    hook = hurried(script(home, f"echo $$ > {home}/pid; {text}"))
    with pytest.raises(HookFailed, match=r"did not answer within 0\.5 s \(policy\.hook_seconds\)"):
        await asked(hook)
    group = int((home / "pid").read_text())
    async with asyncio.timeout(BOUND_SECONDS):
        while lifetimes(group):  # what was killed is gone as soon as its parent has waited for it
            await asyncio.to_thread(pause)


async def test_what_leaves_its_group_and_keeps_the_pipe_holds_up_nobody(home: Path) -> None:
    keeper = f"setsid sh -c 'echo $$ > {home}/pid; exec tail -f /dev/null' &"
    hook = hurried(script(home, f"""echo '{{"decision": "allow"}}'; {keeper}"""))
    try:
        with pytest.raises(HookFailed, match="did not answer within"):
            await asked(hook)
    finally:
        os.kill(int((home / "pid").read_text()), signal.SIGKILL)


async def test_it_is_told_the_call_and_finds_a_clean_world(home: Path) -> None:
    os.environ["SECRET_OF_DAEMON"] = "x"
    hook = script(
        home,
        f"""cat > {home}/question; env > {home}/env; pwd > {home}/cwd; grep Sig /proc/self/status > {home}/signals
ls /proc/self/fd > {home}/files; echo '{{"decision": "allow"}}'""",
    )
    try:
        assert await asked(hook, facts={**FACTS, "arguments": {"command": "x" * 300_000}}) == ALLOW
    finally:
        del os.environ["SECRET_OF_DAEMON"]
    question = json.loads((home / "question").read_text())
    assert question["version"] == 1
    assert question["decision"] == {"verdict": "allow", "rule": "default:workspace", "reason": ""}
    assert len(question["arguments"]["command"]) == 300_000
    names = {line.partition("=")[0] for line in (home / "env").read_text().splitlines()}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"PATH", "LANG", "HOME"}
    assert (home / "cwd").read_text() == "/\n"
    assert len((home / "files").read_text().split()) <= 4, "nothing but 0, 1, 2 and what ls opens"


async def test_one_that_does_not_read_its_question_may_answer(home: Path) -> None:
    hook = script(home, """exec <&-; echo '{"decision": "allow"}'""")
    assert await asked(hook, facts={**FACTS, "arguments": {"command": "x" * 3_000_000}}) == ALLOW


async def test_a_question_that_cannot_be_kept_leaves_nothing_open(home: Path) -> None:
    hook = script(home, """echo '{"decision": "allow"}'""")
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most[1]))
    try:
        with pytest.raises(HookFailed):
            await asked(hook, facts={**FACTS, "arguments": {"command": "x" * 100_000}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_no_more_than_a_few_run_at_once(home: Path) -> None:
    slow = hurried(script(home, f"echo >> {home}/ran; exec tail -f /dev/null"))
    hooks = Hooks([slow], WrittenDirectories())
    calls = [hooks.judge(AGENT, ALLOW, lambda: FACTS) for _ in range(3 * AT_ONCE)]
    async with asyncio.timeout(BOUND_SECONDS):
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, HookFailed) for result in results)
    assert any(f"{AT_ONCE} hooks are running already" in str(result) for result in results)
    assert len((home / "ran").read_text()) < 3 * AT_ONCE


async def test_a_caller_who_goes_away_leaves_nothing_running(home: Path) -> None:
    os.mkfifo(home / "started")
    hook = script(home, f"echo $$ > {home}/started; exec tail -f /dev/null")
    call = asyncio.ensure_future(asked(hook))
    pid = int(await asyncio.to_thread((home / "started").read_text))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("what", ["missing", "directory", "plain"])
async def test_what_is_not_a_program_lets_nothing_run(home: Path, what: str) -> None:
    (home / "directory").mkdir()
    (home / "plain").write_text("x")
    with pytest.raises(HookFailed, match="is not a program that can be run"):
        await asked(HookProgram((str(home / what),), 1.0, "x"))


async def test_one_that_a_box_may_write_lets_nothing_run(home: Path) -> None:
    (home / "shop/.venv/bin").mkdir(parents=True)
    (home / "safe").mkdir()
    inside = script(home / "shop", """echo '{"decision": "allow"}'""")
    planted = home / "shop/.venv/bin/sh"
    planted.symlink_to("/bin/sh")
    (home / "safe/link").symlink_to(inside.argv[0])

    def begun_by(first: str, name: str) -> HookProgram:
        path = home / "safe" / name
        path.write_text(f"""#!{first}\necho '{{"decision": "allow"}}'\n""")
        path.chmod(0o755)
        return HookProgram((str(path),), BOUND_SECONDS, "x")

    interpreter = begun_by(str(planted), "interpreter")
    programs = (
        inside,
        HookProgram((str(home / "safe/link"),), BOUND_SECONDS, "x"),
        HookProgram(("/bin/sh", inside.argv[0]), BOUND_SECONDS, "x"),
        HookProgram(("/usr/bin/env", f"RULES={inside.argv[0]}", "/bin/sh", "-c", inside.argv[0]), BOUND_SECONDS, "x"),
        interpreter,
        begun_by(f"/usr/bin/env -S {planted}", "named"),
        begun_by(f"/usr/bin/env -S PATH={planted.parent} sh", "found"),
        begun_by(interpreter.argv[0], "through-another"),
    )
    written = WrittenDirectories()
    for program in programs:
        assert await asked(program, written=written) == ALLOW, program.argv
    await written.add(SandboxProfile("workspace", workspace=str(home / "shop")))
    for program in programs:
        with pytest.raises(HookFailed, match="lies where a box may write"):
            await asked(program, written=written)
    outside = begun_by("/bin/sh", "outside")
    assert await asked(outside, written=written) == ALLOW
