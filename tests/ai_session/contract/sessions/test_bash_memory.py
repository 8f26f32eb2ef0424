"""Texts that end within a substitution, which damage the memory of bash before 5.2.21 when it evaluates them, leave a
session's shell whole. glibc's checking allocator ends what has been damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.sessions import request, run, runtime_directory, until

pytestmark = pytest.mark.anyio

CUT_OFF = (
    "echo $(echo hi",
    "diff <(sort a",
    "cat >(x",
    'echo "$(foo',
    "x=$(cat <<EOF\nfoo\nEOF\n",
    "echo $(case x in x) echo;; esac",
    "f() { echo $(",
    "echo $(echo $(echo hi)",
    "$(",
    "a=$(b) c=$(d",
    "echo $(# comment )",
    "echo ran\necho $(echo hi",
    "echo " + "x" * 5000 + "\necho $(echo hi",
)
SOUND = (
    ("echo $(echo fine)", "fine\n", 0),
    ("cat <<'E'\n$(echo hi\nE", "$(echo hi\n", 0),
    ("echo '$(' \"<(\"", "$( <(\n", 0),
    ("shopt -s extglob\ncase ab in a@(b|c)) echo $(echo yes);; esac", "yes\n", 0),
    ("(exit 3)", "", 3),
    ("echo $? $(echo x)", "3 x\n", 0),
    ("echo $(false) | grep -c .; (exit $(echo 9))", "0\n", 9),
)


@pytest.fixture
async def manager(home: Path) -> AsyncIterator[SessionManager]:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend="pty"))
    yield manager
    await manager.stop()


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shell", ["bash", "sh"])
async def test_no_text_damages_the_shell(manager: SessionManager, shell: str, times: int, home: Path) -> None:
    (home / "sh").symlink_to("/bin/bash")
    # Whoever checks its memory from its first moment on is the shell itself; what it starts need not.
    checked = home / shell if shell == "sh" else home / "bash"
    if shell == "bash":
        checked.write_text('#!/bin/sh\nexport MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0\nexec /bin/bash "$@"\n')
        checked.chmod(0o700)
    session = await manager.create(request(shell=str(checked)))
    await run(session, "unset LD_PRELOAD; kept=1")
    for text in CUT_OFF * times:
        result = await run(session, text)
        assert (result.exit_code, result.status) == (2, "finished"), text
        assert "ran" not in result.output
        assert "unexpected EOF" in result.output or "syntax error" in result.output, result
        assert await run(session, "echo $(echo $kept)") == type(result)("1\n", 0, "finished"), text


async def test_the_question_whether_this_is_the_prompt_does_no_harm_in_a_line_that_is_not_complete(
    manager: SessionManager, home: Path
) -> None:
    checked = home / "bash"
    checked.write_text('#!/bin/sh\nexport MALLOC_CHECK_=3 LD_PRELOAD=libc_malloc_debug.so.0\nexec /bin/bash "$@"\n')
    checked.chmod(0o700)
    session = await manager.create(request(shell=str(checked)))
    await run(session, "unset LD_PRELOAD")
    assert session.terminal is not None
    for begin, end in ((b"echo 'abc", b"def'"), (b"echo $((", b"1))"), (b"echo $(", b"echo)"), (b"case x in", b"esac")):
        session.send(begin + b"\n")
        await until(session, lambda: session.at.incomplete)
        session.terminal.write(session.shell.asks * 3)
        session.send(end + b"\n")
        await until(session, lambda: session.at.ready and not session.at.human_line)
        printed = session.log.read(session.log.first, session.log.end)
        assert b"syntax error" not in printed
        assert b"Q;p\x07" not in printed, "it is no prompt"
        assert (await run(session, "echo fine")).output == "fine\n"


async def test_sound_texts_run_as_ever(manager: SessionManager) -> None:
    session = await manager.create(request(shell="bash"))
    for text, output, code in SOUND:
        result = await run(session, text)
        assert (result.output, result.exit_code) == (output, code), text
    assert (await run(session, "set -e")).exit_code == 0
    assert (await run(session, "echo $(echo hi")).exit_code == 2
    assert (await run(session, "echo $(echo still here)")).output == "still here\n"
    result = await run(session, "set +e; echo $(oops", separate_stderr=True)
    assert result.exit_code == 2
    last = session.history.last
    assert last is not None
    assert "EOF" in Path(last.stderr_path).read_text()
