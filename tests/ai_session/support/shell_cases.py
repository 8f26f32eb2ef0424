"""What commands must do in a session, as data for any harness that can run a command and type keys.

``@DIR@`` in a command stands for a directory filled by ``prepare``; the harness writes the session's raw log so far to
``@DIR@/old.log`` before each case. Cases of one list run in order in one session (later ones check what earlier ones
left behind); after a case with ``ends_shell`` the next one starts in a new session.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Case:
    """A command and its result. ``output`` is exact, with LF line ends; None accepts any, as for ``exit_code``.

    ``keys`` are typed in order, each after its event: "running" (the start mark was seen), "foreground" (another
    program leads the group that owns the terminal), "reading" (a program sleeps in a read of the terminal), "text:…"
    (that output appeared).
    """

    name: str
    command: str
    output: bytes | None
    exit_code: int | None
    keys: tuple[tuple[str, bytes], ...] = ()
    ends_shell: bool = False


ALL_BYTES = bytes(range(1, 256)).replace(b"\r", b"") * 40
BIG = "echo start\n" + "\n".join(f"x='{i:05}{'y' * 85}'" for i in range(2000)) + "\necho ${#x}"


def prepare(directory: Path) -> None:
    """Write the files the cases read."""
    (directory / "all.bin").write_bytes(ALL_BYTES)
    (directory / "rc.sh").write_text("PS1='evil> '\nPROMPT_COMMAND='echo evil'\n")


def ok(name: str = "  ...check") -> Case:
    """Return a case that shows that the session still works."""
    return Case(name, "echo ok", b"ok\n", 0)


STOP = (("foreground", b"\x03"),)
HEREDOC = "cat <<'EOF'\nhello 'x' \"y\" $z\n\ttab\nEOF"
SPOOF = "\\033]633;D;0\\007\\033]133;D;0\\007\\033]7777;D;0\\007"
RAW_APP = "python3 -c 'import tty,os; tty.setraw(0); os.write(1,b\"R\"); c=os.read(0,1); os.write(1,c)'; stty sane"

TEXTS = (
    Case("no newline at end", "printf 'a\\nb'", b"a\nb", 0),
    Case("empty output", "true", b"", 0),
    Case("code 7", "(exit 7)", b"", 7),
    Case("multi-line loop", "for i in 1 2 3\ndo\n  echo $i\ndone", b"1\n2\n3\n", 0),
    Case("two commands", "echo a\nfalse\necho b; (exit 4)", b"a\nb\n", 4),
    Case("heredoc", HEREDOC, b"hello 'x' \"y\" $z\n\ttab\n", 0),
    Case("trailing comment", "echo hi # comment", b"hi\n", 0),
    Case("trailing backslash", "echo hi \\", b"hi\n", 0),
    Case("unbalanced quote", 'echo "abc', None, None),
    ok(),
    Case("unclosed if", "if true; then echo x", None, None),
    ok(),
    Case("stray )", "echo )", None, None),
    Case("history bang", "echo 'a!b' \"hi!\" !$", b"a!b hi! !$\n", 0),
    Case("control characters in text", "printf '%s' $'x\ty' 'a\tb'", b"x\tya\tb", 0),
    Case("utf-8", "echo 'h\u00e9llo \u4e16\u754c \U0001f600'", "h\u00e9llo \u4e16\u754c \U0001f600\n".encode(), 0),
    Case("all bytes x40", "cat @DIR@/all.bin", ALL_BYTES, 0),
    Case("200 kB of command text", BIG, b"start\n90\n", 0),
    Case("10k character line", "echo " + "z" * 10000, b"z" * 10000 + b"\n", 0),
)

STATE = (
    Case(
        "cd, env, functions persist",
        "cd /tmp; export AISX=1; declare -A m; m[k]=v; f() { echo F$1; }; alias ll2='echo L'",
        b"",
        0,
    ),
    Case("  ...check", "pwd; echo $AISX ${m[k]}; f 1; ll2", b"/tmp\n1 v\nF1\nL\n", 0),
    Case("$? persists", "false", b"", 1),
    Case("  ...check", "echo $?", b"1\n", 0),
    Case("set -- persists", "set -- p q", b"", 0),
    Case("  ...check", "echo $2; set --", b"q\n", 0),
)

LAST = (
    Case("$_ persists", "echo a b", b"a b\n", 0),
    Case("  ...check", "echo $_", b"b\n", 0),
    Case("  ...after a loop", "for i in 1 2\ndo\n  : $i x$i\ndone", b"", 0),
    Case("  ...and a failure", "echo $_; ls /nonexistent 2>/dev/null", b"x2\n", 2),
    Case("  ...check", "echo $? $_", b"2 /nonexistent\n", 0),
)

TRACED = (
    Case("PS4 that counts", "PS4='$(echo >>@DIR@/traced)+ '; : >@DIR@/traced", b"", 0),
    Case("set -x", "set -x", b"", 0),
    Case("  ...a command", "echo a; echo b", b"+ echo a\na\n+ echo b\nb\n", 0),
    Case("  ...its status", "(exit 3) 2>/dev/null", None, 3),
    Case("  ...a function", "f() { echo $?; }; f", None, 0),
    Case("  ...none of it is ours", "set +x; wc -l <@DIR@/traced | tr -d ' '", b"+ set +x\n6\n", 0),
    Case("undo", "PS4='+ '; unset -f f", b"", 0),
    Case("set -x in a command", "set -x; echo ok", b"+ echo ok\nok\n", 0),
    Case("undo", "{ set +x; } 2>/dev/null", None, 0),
)

AS_TYPED = (
    *LAST,
    Case("PIPESTATUS persists", "(exit 1) | true | (exit 3)", b"", 3),
    Case("  ...check", "echo ${PIPESTATUS[@]} $?", b"1 0 3 3\n", 0),
    Case("  ...after it", "echo ${PIPESTATUS[@]}", b"0\n", 0),
    *TRACED,
    Case("ERR trap", "trap 'echo err' ERR", b"", 0),
    Case("  ...runs once", "false", b"err\n", 1),
    Case("  ...status kept", "echo $? $_", b"1 err\n", 0),
    Case("  ...as typed in a pipeline", "true | (exit 4)", b"err\nerr\n", 4),
    Case("  ...not where it is asked", "false || echo $?; ! true", b"1\n", 1),
    Case("undo", "trap - ERR", b"", 0),
    Case("DEBUG trap", "trap 'echo d:$BASH_COMMAND' DEBUG", None, 0),
    Case("  ...before each command", "echo a\necho b", b"d:echo a\na\nd:echo b\nb\n", 0),
    Case("  ...not within functions", "g() { echo in; }; g", b"d:g\nin\n", 0),
    Case("  ...a failure", "false", b"d:false\n", 1),
    Case("  ...everywhere under set -T", "set -T; g", b"d:set -T\nd:g\nd:g\nd:echo in\nin\n", 0),
    Case("  ...taken back", "set +T; trap - DEBUG", None, 0),
    Case("  ...is gone", "echo a; unset -f g", b"a\n", 0),
    Case("ERR trap and set -x", "trap 'echo err' ERR; set -x", None, 0),
    Case("  ...both", "false", b"+ false\n++ echo err\nerr\n", 1),
    Case("  ...unsound text", "echo 'abc", None, None),
    Case("  ...evaluated, unsound", "eval 'echo \"'; echo on", None, 0),
    Case("undo", "{ trap - ERR; set +x; } 2>/dev/null", None, 0),
    ok(),
)
"""Cases of what commands can observe about how they are run."""

DIGITS = (
    Case("IFS of digits", "IFS=0123456789", b"", 0),
    Case("  ...code", "(exit 21)", b"", 21),
    Case("  ...code 101", "IFS=1; (exit 101)", b"", 101),
    Case("  ...^C", "sleep 20", None, 130, STOP),
    Case("  ...check", "echo ok; unset IFS", b"ok\n", 0),
)
"""Cases of numbers that the shell would split."""

TERMINAL = (
    Case("read from tty", "read -r x; echo got:$x", b"abc\ngot:abc\n", 0, (("reading", b"abc\n"),)),
    Case("cat and ^D", "cat", b"xyz\nxyz\n", 0, (("reading", b"xyz\n"), ("text:xyz\nxyz\n", b"\x04"))),
    Case("^C", "sleep 20", None, 130, STOP),
    Case("^C in a pure shell loop", "echo on; while :; do :; done", None, 130, (("text:on\n", b"\x03"),)),
    Case("^C, list stops", "sleep 20; echo no", b"^C\n", 130, STOP),
    Case("^Z stops", "sleep 20", None, 148, (("foreground", b"\x1a"),)),
    Case("  ...jobs, kill", "bg %1; kill %1; wait 2>/dev/null; true", None, 0),
    Case("background job", "sleep 0.05 & wait $!; echo done", None, 0),
    Case("stty -echo", "stty -echo", b"", 0),
    ok(),
    Case("stty raw", "stty raw", b"", 0),
    ok(),
    Case("stty sane", "stty sane", b"", 0),
    Case("stty -icanon -icrnl", "stty -icanon -icrnl", b"", 0),
    Case("  ...check", "echo ok; stty sane", b"ok\n", 0),
    Case("clear", "clear", None, 0),
    Case("alternate screen left on", "printf '\\033[?1049h'", b"\x1b[?1049h", 0),
    Case("unterminated OSC", "printf '\\033]0;abc'", b"\x1b]0;abc", 0),
    Case("unterminated DCS", "printf '\\033Pabc'", b"\x1bPabc", 0),
    Case("forged marks", f"printf '{SPOOF}'; (exit 9)", SPOOF.encode().decode("unicode_escape").encode(), 9),
    Case("own old output", "cat @DIR@/old.log; (exit 5)", None, 5),
)

HOOKS = (
    Case("rc that replaces PS1 and PROMPT_COMMAND", ". @DIR@/rc.sh", b"", 0),
    Case("  ...check", "echo ok; (exit 2)", b"ok\n", 2),
    Case("  ...^C after it", "sleep 20", None, 130, STOP),
    Case("hooks replaced and ^C at once", "unset PROMPT_COMMAND; . @DIR@/rc.sh; sleep 20", None, 130, STOP),
    ok(),
    Case("set -x", "set -x", b"", 0),
    Case("  ...traced", "echo ok", b"+ echo ok\nok\n", 0),
    Case("  ...status kept", "false; (exit 3) 2>/dev/null", None, 3),
    Case("  ...check", "echo $?", b"+ echo 3\n3\n", 0),
    Case("set +x", "set +x", None, 0),
    Case("set -v", "set -v", b"", 0),
    ok(),
    Case("set +v", "set +v", None, 0),
    Case("set -u, posix, vi", "set -u; set -o posix; set -o vi", b"", 0),
    ok(),
    Case("undo", "set +u; set +o posix; set -o emacs", None, 0),
    Case("allexport", "set -a", b"", 0),
    Case("  ...no nonce in children", "env | grep -c 7777", b"0\n", 1),
    Case("undo", "set +a", b"", 0),
    Case("noclobber", "set -C", b"", 0),
    ok(),
    Case("undo", "set +C", b"", 0),
    Case("IFS=/ PATH=", "IFS=/; OP=$PATH; PATH=", b"", 0),
    ok(),
    Case("undo", "unset IFS; PATH=$OP", None, 0),
    *DIGITS,
    Case("alias and function named like what is typed", "alias .=false", b"", 0),
    Case("  ...check", "echo ok; (exit 2)", b"ok\n", 2),
    Case("undo", "unalias .", None, 0),
    Case(
        "printf, eval, return overridden",
        "printf() { echo P; }; eval() { echo E; }; return() { echo R; }; alias printf=false",
        b"",
        0,
    ),
    ok(),
    Case("undo", "unset -f printf eval return; unalias printf", None, 0),
    Case("trap DEBUG, ERR", "trap ': dbg' DEBUG; trap ': err' ERR", b"", 0),
    Case("  ...check", "echo ok; false", b"ok\n", 1),
    Case("undo", "trap - DEBUG ERR", None, 0),
    Case("trap ERR that prints", "trap 'echo err' ERR; false", None, 1),
    Case("  ...once per failure", "echo $?", b"1\n", 0),
    Case("undo", "trap - ERR", None, 0),
    Case(
        "trap '' INT, then sleep",
        "trap '' INT; echo on; sleep 0.3; trap - INT",
        None,
        0,
        (("text:on\n", b"\x03"),),
    ),
)

STREAMS = (
    Case("return 5", "return 5", None, 5),
    ok(),
    Case("break, continue", "break; continue; echo z", None, 0),
    ok(),
    Case("stdout redirected away", "exec 5>&1 >/dev/null", b"", 0),
    Case("  ...check", "echo ok >&2", b"ok\n", 0),
    Case("undo", "exec >&5 5>&-", None, 0),
    Case("stderr redirected away", "exec 5>&2 2>/dev/null", b"", 0),
    Case("  ...check", "echo ok; (exit 3)", b"ok\n", 3),
    Case("undo", "exec 2>&5 5>&-", None, 0),
    Case("stdin closed", "exec 5<&0 </dev/null; exec <&5 5<&-", b"", 0),
    ok(),
)

PROGRAMS = (
    Case(
        "nested bash",
        "PS1='n> ' bash --norc -i",
        None,
        5,
        (("text:n> ", b"echo in-$((1))\n"), ("text:in-1\n", b"exit 5\n")),
    ),
    Case(
        "python REPL",
        "python3 -q",
        None,
        3,
        (("text:>>> ", b"print(6*7)\n"), ("text:42\n>>> ", b"import sys; sys.exit(3)\n")),
    ),
    Case("raw application", RAW_APP, b"Rq", 0, (("text:R", b"q"),)),
    Case(
        "killed child leaves a raw tty", "python3 -c 'import tty,os; tty.setraw(0); os.kill(os.getpid(),9)'", None, 137
    ),
    ok(),
)

LIMITS = (
    Case("ulimit -n 5 in a child", "(ulimit -n 5; echo ok)", b"ok\n", 0),
    Case("descriptors exhausted in the shell itself", "ulimit -Sn 6", b"", 0),
    ok(),
    Case("undo", "ulimit -Sn 1024", None, 0),
)

ENDINGS = (
    Case("set -e and false", "set -e; false; echo no", b"", 1, ends_shell=True),
    ok("  ...a new one works"),
    Case("exit 3", "exit 3", b"", 3, ends_shell=True),
    Case("exec false", "exec false", b"", 1, ends_shell=True),
    Case("kill -9 $$", "kill -9 $$", b"", -9, ends_shell=True),
)

BASH = TEXTS + STATE + AS_TYPED + TERMINAL + HOOKS + STREAMS + PROGRAMS + LIMITS + ENDINGS

POSIX = (
    *TEXTS[:4],
    Case("heredoc", HEREDOC, b"hello 'x' \"y\" $z\n\ttab\n", 0),
    Case("trailing backslash", "echo hi \\", b"hi\n", 0),
    Case("unbalanced quote", 'echo "abc', None, None),
    ok(),
    Case("unclosed if", "if true; then echo x", None, None),
    ok(),
    Case("all bytes x40", "cat @DIR@/all.bin", ALL_BYTES, 0),
    Case("100 kB of command text", ": '" + "y" * 100000 + "'; echo k", b"k\n", 0),
    Case("cd, env, functions persist", "cd /tmp; export AISX=1; f() { echo F$1; }; alias ll2='echo L'", b"", 0),
    Case("  ...check", "pwd; echo $AISX; f 1; ll2", b"/tmp\n1\nF1\nL\n", 0),
    Case("$? persists", "false", b"", 1),
    Case("  ...check", "echo $?", b"1\n", 0),
    Case("read from tty", "read -r x; echo got:$x", b"abc\ngot:abc\n", 0, (("running", b"abc\n"),)),
    Case("^C", "sleep 20", None, 130, STOP),
    Case("^C, list stops", "sleep 20; echo no", b"^C\n", 130, STOP),
    ok(),
    Case("^C in a pure shell loop", "echo on; while :; do :; done", None, None, (("text:on\n", b"\x03"),)),
    ok(),
    Case("^Z stops", "sleep 20", None, 148, (("foreground", b"\x1a"),)),
    Case("  ...jobs, kill", "bg %1; kill %1; wait 2>/dev/null; true", None, 0),
    Case("  ...its end may be told now", "true", None, 0),
    Case("stty raw", "stty raw", b"", 0),
    ok(),
    Case("stty sane", "stty sane", b"", 0),
    Case("stty -echo", "stty -echo", b"", 0),
    ok(),
    Case("stty sane", "stty sane", b"", 0),
    Case("unterminated OSC", "printf '\\033]0;abc'", b"\x1b]0;abc", 0),
    Case("glob without a match", "echo /nonexist*zz", None, None),
    ok(),
    *DIGITS,
    Case("PS1 replaced", "PS1='evil> '", b"", 0),
    Case("  ...check", "echo ok; (exit 2)", b"ok\n", 2),
    Case("  ...^C after it", "sleep 20", None, 130, STOP),
    Case("set -x", "set -x", b"", 0),
    Case("  ...traced", "echo ok", None, 0),
    Case("set +x", "set +x", None, 0),
    Case("set -u", "set -u", b"", 0),
    Case("  ...check", "echo ok; set +u", b"ok\n", 0),
    Case("stdout redirected away", "exec 5>&1 >/dev/null", b"", 0),
    Case("  ...check", "echo ok >&2", b"ok\n", 0),
    Case("undo", "exec >&5 5>&-", None, 0),
    Case("return 5", "return 5", None, 5),
    ok(),
    Case("nested bash", "PS1='n> ' bash --norc -i", None, 5, (("text:n> ", b"exit 5\n"),)),
    Case("background job", "sleep 0.05 & wait; echo done", None, 0),
    *ENDINGS,
)

ZSH = (
    *POSIX[: -len(ENDINGS)],
    *LAST,
    Case("pipestatus persists", "(exit 1) | true | (exit 3)", b"", 3),
    Case("  ...check", "echo $pipestatus $?", b"1 0 3 3\n", 0),
    Case("as bash expands and shows", "setopt prompt_subst; PS4='+ '", b"", 0),
    *TRACED,
    Case("ZERR trap", "trap 'echo err' ZERR", b"", 0),
    Case("  ...runs once", "false", b"err\n", 1),
    Case("  ...status kept", "echo $? $_", b"1 false\n", 0),
    Case("undo", "trap - ZERR", b"", 0),
    Case("DEBUG trap", "trap 'echo d:$ZSH_DEBUG_CMD' DEBUG", None, 0),
    Case("  ...before each command", "echo a\necho b", b"d:echo a\na\nd:echo b\nb\n", 0),
    Case("  ...a failure", "false", b"d:false\n", 1),
    Case("  ...taken back", "trap - DEBUG", None, 0),
    ok(),
    *ENDINGS,
)

SH_AS_TYPED = (
    *LAST,
    Case("set -x", "set -x", b"", 0),
    Case("  ...a command", "echo a; echo b", b"+ echo a\na\n+ echo b\nb\n", 0),
    Case("  ...its status", "(exit 3)", b"+ exit 3\n", 3),
    Case("  ...a function", "f() { echo $?; }; f", b"+ f\n+ echo 0\n0\n", 0),
    Case("  ...and $_", "false; echo $? $_", b"+ false\n+ echo 1 false\n1 false\n", 0),
    Case("PS4", "PS4='> '", None, 0),
    Case("  ...check", "(exit 4)", b"> exit 4\n", 4),
    Case("undo", "set +x; PS4='+ '; unset -f f", None, 0),
    Case("set -x in a command", "set -x; echo ok", b"+ echo ok\nok\n", 0),
    Case("undo", "{ set +x; } 2>/dev/null", None, 0),
    Case("set -v", "set -v", b"", 0),
    Case("  ...check", "echo a", b"a\n", 0),
    Case("undo", "set +v", b"", 0),
    Case("a comment keeps $?", "(exit 6)", b"", 6),
    Case("  ...check", "# nothing", b"", 6),
    Case("  ...unsound text after it", "echo 'abc", None, None),
    ok(),
)

TOLD_MORE = (b"+ f\n+ echo 0\n0\n", b"", b"a\n")
DASH = (*POSIX[: -len(ENDINGS)], *SH_AS_TYPED, *ENDINGS)
MKSH = (
    # Once it was interrupted, mksh itself forgets the status when its ERR trap runs.
    Case("ERR trap", "trap 'echo err' ERR", b"", 0),
    Case("  ...runs once", "false", b"err\n", 1),
    Case("  ...as typed in a pipeline", "true | (exit 4)", b"err\n", 4),
    Case("  ...not where it is asked", "false || echo $?; ! true", b"1\n", 1),
    Case("  ...and set -x", "set -x", b"", 0),
    Case("  ...both", "false", b"+ false\n+ echo err\nerr\n", 1),
    Case("undo", "{ trap - ERR; set +x; } 2>/dev/null", None, 0),
    # mksh itself says 0 of a job that was stopped.
    *(replace(case, exit_code=0) if case.name == "^Z stops" else case for case in POSIX[: -len(ENDINGS)]),
    # It shows what functions do, and a line end under set -v.
    *(replace(case, output=None) if case.output in TOLD_MORE else case for case in SH_AS_TYPED),
    Case("PIPESTATUS persists", "(exit 1) | true | (exit 3)", b"", 3),
    Case("  ...check", "echo ${PIPESTATUS[@]} $?", b"1 0 3 3\n", 0),
    Case("  ...after it", "echo ${PIPESTATUS[@]}", b"0\n", 0),
    ok(),
    *ENDINGS,
)

INTERRUPTED = {"ksh93": 258}
"""What shells say of a command that ^C ended, if it is not 130."""

KSH93 = tuple(
    replace(
        case,
        command=case.command.replace("sleep", "env sleep"),
        output=case.output and b"^C",
        exit_code=INTERRUPTED["ksh93"],
    )
    if case.keys is STOP
    else replace(case, output=None if case.name == "read from tty" else case.output)
    for case in POSIX
    if "^Z" not in case.name and "jobs" not in case.name
)
"""ksh93 has a sleep of its own, says 258 of an interrupted job, shows what was typed ahead of a read twice, and now and
then hangs with a job that was stopped.
"""

FISH = (
    TEXTS[0],
    TEXTS[1],
    Case("code 7", "sh -c 'exit 7'", b"", 7),
    Case("multi-line loop", "for i in 1 2 3\n  echo $i\nend", b"1\n2\n3\n", 0),
    Case("unbalanced quote", 'echo "abc', None, None),
    ok(),
    Case("unclosed if", "if true; echo x", None, None),
    ok(),
    Case("quotes", "echo 'a\\\\b' \"it's\" \\n", b"a\\b it's \n\n", 0),
    Case("trailing comment", "echo hi # comment", b"hi\n", 0),
    Case("all bytes x40", "cat @DIR@/all.bin", ALL_BYTES, 0),
    Case("100 kB of command text", "true '" + "y" * 100000 + "'; echo k", b"k\n", 0),
    Case(
        "cd, env, functions persist",
        "cd /tmp; set -gx AISX 1; function f; echo F$argv[1]; end; alias ll2='echo L'",
        b"",
        0,
    ),
    Case("  ...check", "pwd; echo $AISX; f 1; ll2", b"/tmp\n1\nF1\nL\n", 0),
    Case("plain variable persists", "set y 5", b"", 0),
    Case("  ...check", "echo $y", b"5\n", 0),
    Case("$status persists", "false", b"", 1),
    Case("  ...check", "echo $status", b"1\n", 0),
    Case("$pipestatus persists", "false | sh -c 'exit 3' | true", b"", 0),
    Case("  ...check", "echo $pipestatus $status", b"1 3 0 0\n", 0),
    Case("  ...after it", "echo $pipestatus", b"0\n", 0),
    Case("  ...of what is denied", "not sh -c 'exit 3' | true", b"", 1),
    Case("  ...check", "echo $pipestatus $status", b"3 0 1\n", 0),
    Case("  ...and set", "false | true", b"", 0),
    Case("  ...which says nothing", "set z 1", b"", 0),
    Case("  ...check", "echo $pipestatus $status", b"1 0 0\n", 0),
    Case("an error in the first line", "nosuch-command", b"fish: Unknown command: nosuch-command\n", 127),
    Case("backslash at the end", "echo hi \\", b"hi\n", 0),
    Case("fish_trace", "set fish_trace 1", b"", 0),
    Case("  ...traced", "echo a; false", b"--> echo a\na\n--> false\n", 1),
    Case("  ...status kept", "echo $status", b"--> echo 1\n1\n", 0),
    Case("  ...pipeline", "false | true", None, 0),
    Case("  ...kept", "echo $pipestatus", b"--> echo 1 0\n1 0\n", 0),
    Case("  ...unsound text", "echo 'abc", None, None),
    Case("undo", "set -e fish_trace", b"--> set -e fish_trace\n", 0),
    ok(),
    Case("read from tty", "head -n1", b"abc\nabc\n", 0, (("reading", b"abc\n"),)),
    Case("^C", "sleep 20", None, 130, STOP),
    Case("^C, list stops", "sleep 20; echo no", b"^C", 130, STOP),
    ok(),
    Case("^C in a pure shell loop", "echo on; while true; true; end", None, None, (("text:on\n", b"\x03"),)),
    ok(),
    Case("stty raw", "stty raw", b"", 0),
    ok(),
    Case("stty sane", "stty sane", b"", 0),
    Case("stty -echo", "stty -echo", b"", 0),
    ok(),
    Case("stty sane", "stty sane", b"", 0),
    Case("unterminated OSC", "printf '\\033]0;abc'", b"\x1b]0;abc", 0),
    Case("prompt replaced", "function fish_prompt; echo 'evil> '; end", b"", 0),
    Case("  ...check", "echo ok; sh -c 'exit 2'", b"ok\n", 2),
    Case("  ...^C after it", "sleep 20", None, 130, STOP),
    Case("vi keys", "fish_vi_key_bindings", None, 0),
    ok(),
    Case("undo", "fish_default_key_bindings", None, 0),
    Case("return 5", "return 5", None, 5),
    ok(),
    Case("nested bash", "env PS1='n> ' bash --norc -i", None, 5, (("text:n> ", b"exit 5\n"),)),
    Case("exit 3", "exit 3", b"", 3, ends_shell=True),
    ok("  ...a new one works"),
    Case("kill -9", "kill -9 $fish_pid", b"", -9, ends_shell=True),
    Case("^Z stops", "sleep 20", None, None, (("foreground", b"\x1a"),)),
    Case("  ...jobs, kill", "kill (jobs -p); true", None, 0),
)

OF_SHELL = {"bash": BASH, "zsh": ZSH, "fish": FISH, "posix": DASH, "mksh": MKSH, "lksh": MKSH, "ksh93": KSH93}
"""The cases of shells by executable, else by plug-in."""

STYLES = (
    ("bash", "skel .bashrc", ". /etc/skel/.bashrc"),
    ("bash", "PROMPT_COMMAND array", "PROMPT_COMMAND=('echo A' 'echo B')"),
    ("bash", "vi mode and venv", "set -o vi; . @DIR@/venv/bin/activate"),
    ("bash", "2-line PS1 and title", "PS1='\\[\\e]0;\\u\\a\\]\\n\\w\\n\\$ '"),
    ("bash", "DEBUG trap", "trap 'echo -n dbg >/dev/null' DEBUG; shopt -s extdebug"),
    ("bash", "own history settings", "HISTCONTROL=ignoredups; HISTFILE=@DIR@/history"),
    ("bash", "noglob, noclobber, xpg_echo", "set -f; set -C; shopt -s xpg_echo"),
    ("bash", "prompt built anew each time", 'p() { PS1="[$?] "; }; PROMPT_COMMAND=p'),
    ("bash", "exported prompt", "export PS1='> ' PROMPT_COMMAND=':'"),
    ("zsh", "vi mode", "bindkey -v"),
    ("zsh", "2-line prompt and RPROMPT", "PROMPT=$'%~\\n%# '; RPROMPT='%T'; setopt PROMPT_SUBST"),
    ("zsh", "prompt theme", "autoload -U promptinit; promptinit; prompt adam1"),
    ("zsh", "strict options", "setopt ERR_RETURN NO_UNSET SH_WORD_SPLIT KSH_ARRAYS NO_CLOBBER"),
    ("zsh", "own precmd and preexec", "precmd() { echo -n pre; }; preexec() { echo -n pe; }"),
    ("zsh", "own zle-line-init", "zle-line-init() { zle -M x; }; zle -N zle-line-init"),
    ("fish", "vi mode", "fish_vi_key_bindings"),
    ("fish", "own prompt", "function fish_prompt; echo two; echo lines; end; function fish_right_prompt; echo r; end"),
    ("posix", "2-line PS1", "PS1='a\nb$ '; set -C"),
)
"""Start files as people write them, by plug-in: name and text."""
