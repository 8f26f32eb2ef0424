"""Lines as words: what is plain, what is not, what is found in what is not, and that real shells agree."""

from __future__ import annotations

import os
import shlex
import subprocess
import tracemalloc
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_session.system.shell_words import (
    KEYWORDS,
    MAX_BYTES,
    OPEN_END,
    PIECE_BYTES,
    in_one_line,
    is_whole,
    may_be_cut_off,
    parse,
)
from tests.conftest import BY_CHANCE
from tests.support.bounds import BOUND_SECONDS
from tests.support.processor_time import computing_seconds, once_within

PLAIN = {
    "ls": [("ls",)],
    "git log --oneline -5 | head -n 3": [("git", "log", "--oneline", "-5"), ("head", "-n", "3")],
    "a && b || c; d;": [("a",), ("b",), ("c",), ("d",)],
    "echo 'a b' \"c d\" e'f'\"g\" ''": [("echo", "a b", "c d", "efg", "")],
    "echo '$x `y` * ~ {a} #' \"it's\"": [("echo", "$x `y` * ~ {a} #", "it's")],
    "git log --format='%H %s' x=y": [("git", "log", "--format=%H %s", "x=y")],
    "make 2>&1 >/dev/null | wc": [("make",), ("wc",)],
    "  ls  \n": [("ls",)],
    "echo 'ä 日本 😀'": [("echo", "ä 日本 😀")],
}

FOUND = {
    "FOO=1 git push": [("git", "push")],
    "$(git push) x": [(None, "x"), ("git", "push")],
    'echo "$(git push)" `rm x`': [("echo", None, None), ("git", "push"), ("rm", "x")],
    "if a; then b; elif c; then d; else e; fi": [("a",), ("b",), ("c",), ("d",), ("e",)],
    "for i in $(ls x); do rm $i; done": [("ls", "x"), ("rm", None)],
    "case x in $(rm x)) ls;; esac": [("rm", "x"), ("ls",)],
    "f() { git push; }; (f); { f; }": [("git", "push"), ("f",), ("f",)],
    "cat <<E\n$(rm x)\nE\nls": [("cat",), ("rm", "x"), ("ls",)],
    "a=$(rm x) b=([$(ls)]=1)": [("rm", "x"), ("ls",)],
    "[[ -n $(rm x) ]] && ((y[$(ls)]++))": [("rm", "x"), ("ls",)],
    "echo ${x:-$(rm y)} ${x//a/$(rm z)} $((z[$(rm w)]))": [
        ("echo", None, None, None),
        *[("rm", name) for name in "yzw"],
    ],
    "cat <(rm x) > $(rm y)": [("cat", None), ("rm", "x"), ("rm", "y")],
    "cat <<< $(rm z)": [("cat",), ("rm", "z")],
    "! rm x |& rm y & rm z": [("rm", "x"), ("rm", "y"), ("rm", "z")],
    "g\\it push": [(None, "push")],
    "export A=$(rm x)": [("export", None), ("rm", "x")],
    "a\nb\n": [("a",), ("b",)],
}

UNREAD = [
    *(
        "ls\x00",
        "ls\rrm",
        "ls\x1b[A",
        "ls\u2028rm",
        "ls\u00a0rm",
        "ls \u202e",
        "ls \ud800",
        "ls \\\n rm",
        "\ufeffls",
        "ls\x85",
    ),
    *("ls (", "ls '", "ls &&", "| ls", "ls ;; ; ls", "exec 3<>x", "ls 'a" + "b" * MAX_BYTES + "'", "{" * 500),
    *("cat <<'E'\n$(rm x)\nE", "true;" * 60),
]


@pytest.mark.parametrize("line", PLAIN)
def test_plain_lines_are_their_words(line: str) -> None:
    parsed = parse(line)
    assert (list(parsed.commands), parsed.obscure, parsed.complete) == (PLAIN[line], "", True)


@pytest.mark.parametrize("line", FOUND)
def test_commands_within_commands_are_found(line: str) -> None:
    parsed = parse(line)
    assert sorted(parsed.commands, key=str) == sorted(FOUND[line], key=str)
    assert parsed.complete
    assert parsed.obscure


@pytest.mark.parametrize("line", UNREAD, ids=lambda line: repr(line[:12]))
def test_what_is_not_understood_may_hold_anything(line: str) -> None:
    parsed = parse(line)
    assert not parsed.complete
    assert parsed.obscure
    assert parsed.obscure.isprintable()


PIECES = st.sampled_from(
    [
        *(
            "rec",
            "a",
            "-x",
            "b=c",
            "1",
            " ",
            " ",
            " ",
            "  ",
            "'",
            '"',
            "'q r'",
            '"s t"',
            "''",
            "\\",
            "$",
            "$x",
            "${x}",
            "`",
            "$(rec",
        ),
        *(
            ")",
            "(",
            "{",
            "}",
            ",",
            "{a,b}",
            "*",
            "?",
            "[ab]",
            "~",
            "#",
            "!",
            "=",
            "==",
            ":",
            "%",
            "@",
            "^",
            "+",
            "-",
            ".",
            "/",
            "&&",
        ),
        *(
            "||",
            "|",
            ";",
            "&",
            ";;",
            "|&",
            ">",
            "<",
            "2>&1",
            ">/dev/null",
            "<<E",
            "\n",
            "\t",
            "\r",
            "\u00a0",
            "\u2028",
            "é",
            "$'",
            '$"',
        ),
        *(
            "if ",
            "then ",
            "fi",
            "time ",
            "! ",
            "for ",
            "do ",
            "done",
            "[[ ",
            " ]]",
            "((",
            "))",
            "a[1]=",
            "function ",
            "not ",
            "and ",
        ),
    ]
)
LINES = st.lists(PIECES, max_size=14).map("".join)


@given(st.one_of(LINES, st.text(max_size=200), LINES.map(lambda line: f"rec {line}")))
@settings(deadline=None, max_examples=100)
def test_every_string_has_an_answer(line: str) -> None:
    parsed = parse(line)
    assert bool(parsed.obscure) or parsed.complete
    if not parsed.obscure:
        assert parsed.commands
        assert all(words and None not in words for words in parsed.commands)


def without_operators(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.commenters = ""
    words.wordchars += "%@+,:="
    return [word for word in words if word not in ("&&", "||", "|", ";")]


@given(LINES)
@settings(max_examples=100, suppress_health_check=BY_CHANCE)
def test_the_words_of_a_plain_line_are_those_of_a_second_parser(line: str) -> None:
    parsed = parse(line)
    if not parsed.obscure and ">" not in line:
        assert [word for words in parsed.commands for word in words] == without_operators(line)


RECORDER = """#!/bin/sh
all=rec
for word; do all="$all\2$word"; done
printf '%s\\1' "$all" >> "$RECORD"
"""
"""Notes its words in one write; the separators are characters that no plain line has."""

CHARACTERS = st.text(st.sampled_from([chr(code) for code in range(32, 127)] + ["é", "日"]), max_size=4)
WORDS = st.one_of(
    CHARACTERS,
    CHARACTERS.map(lambda text: f"'{text}'"),
    CHARACTERS.map(lambda text: f'"{text}"'),
    st.tuples(CHARACTERS, CHARACTERS).map(lambda pair: f"{pair[0]}'{pair[1]}'"),
    st.sampled_from(
        ["2>&1", ">/dev/null", ">&2", "-x", "--a=b", "a=b", "%1", "+", "-", "--", "x=", "1", ";rec", "&& rec"]
    ),
)
CALLS = (
    st.lists(WORDS, max_size=5)
    .map(lambda words: " ".join(["rec", *words]))
    .filter(lambda line: not parse(line).obscure and all(words[0] == "rec" for words in parse(line).commands))
)


@pytest.mark.parametrize(
    "shell", [("bash",), ("dash",), ("zsh", "-f"), ("fish", "--no-config")], ids=lambda argv: argv[0]
)
@pytest.mark.either("shell")
@given(lines=st.lists(CALLS, min_size=10, max_size=40))
@settings(
    deadline=None,
    max_examples=8,
    suppress_health_check=[*BY_CHANCE, HealthCheck.function_scoped_fixture],
)
def test_real_shells_run_exactly_the_words_of_a_plain_line(
    home: Path, shell: tuple[str, ...], lines: list[str]
) -> None:
    """Lines that are plain and whose commands are all a program that notes its words."""
    wanted = [list(words) for line in lines for words in parse(line).commands]
    (home / "rec").write_text(RECORDER)
    (home / "rec").chmod(0o755)
    record = home / "record"
    record.write_text("")
    (home / "script").write_text("\n".join(lines) + "\n")
    environ = {"PATH": f"{home}:{os.environ['PATH']}", "RECORD": str(record), "HOME": str(home), "LC_ALL": "C.UTF-8"}
    argv = [*shell, str(home / "script")]
    ran = subprocess.run(argv, env=environ, cwd=home, capture_output=True, timeout=BOUND_SECONDS, check=False)
    got = [call.split("\2") for call in record.read_text().split("\1")[:-1]]
    assert got == wanted, ran.stderr.decode()


@pytest.mark.parametrize(
    "line",
    [
        *(
            "x" * 1_000_000,
            "$(" * 300_000,
            "a;" * 2000,
            "a " * 2000,
            "(" * 399,
            "|" * 399,
            "((" + "$" * 398,
            "[[ (<<(" * 60,
        ),
        *(
            "for " * 1000,
            "{ " * 200 + "}; " * 200,
            '"$a" ' * 399,
            "\n" * 4000 + "x",
            "`" * 399,
            "))((" * 99,
            "'a'" * 1300,
        ),
    ],
    ids=lambda line: f"{line[:8]!r}x{len(line)}",
)
def test_no_line_takes_long(line: str) -> None:
    once_within(0.5, lambda: computing_seconds(lambda: parse(line)))


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("echo $(echo hi", True),
        ("diff <(sort a", True),
        ("cat >(x", True),
        ("echo $(case x in x) echo;; esac", True),
        ("x" * 9000 + " $(", True),
        ("echo $(echo hi)", False),
        ("echo 'abc", False),
        ("echo '$('", False),
        ("cat <<'E'\n$(\nE\n", False),
        ("", False),
    ],
)
def test_a_substitution_without_its_end_is_seen(text: str, cut: bool) -> None:
    assert may_be_cut_off(text) is cut


def test_no_keyword_makes_a_line_whole_that_the_parser_does_not_understand() -> None:
    """Each of each shell at each place of a short line: most lines are known to be whole without the parser."""
    words = [*sorted(KEYWORDS), "ls", ":", "a/b-c.d", "x=1", "--x=y", "!", "%1", "{"]
    lines = [" ".join(line) for length in (1, 2) for line in product(words, repeat=length)]
    whole = {line for line in lines if is_whole(line)}
    assert {"ls", ": x=1", "ls --x=y", "a/b-c.d if"} <= whole
    misread = [line for line in whole if "grammar" in parse(line).obscure or OPEN_END.search(line)]
    assert misread == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sleep 9 &", "sleep 9 &"),
        ("  cd x\nmake > log 2>&1 &\n\nwait; ls\n", "cd x;make > log 2>&1 & wait ; ls"),
        ("if a\nthen b &\nfi\nc && \\\n d\ne |\nf", "if a\nthen b &\nfi;c && \\\n d;e |\nf"),
        ("echo 'ä 😀\n&'\necho \"\n\"", "echo 'ä 😀\n&';echo \"\n\""),
        ("f() { g & }\nf", "f() { g & };f"),
        *((text, "") for text in ("ls", "a && b", "a >& b", "a &> b", "a |& b", "a & # c", "cat <<E &\nx\nE", "a & '")),
        ("a & b &&", ""),
        ("a & \udc80", ""),
    ],
)
def test_what_starts_something_in_the_background_is_put_in_one_line(text: str, line: str) -> None:
    assert in_one_line(text) == line


@pytest.mark.parametrize(
    ("text", "whole"), [("a &", True), ("a && b &\n", True), *((f"a {end}", False) for end in ("&&", "|", "|&", ">&"))]
)
def test_a_text_may_end_in_the_background(text: str, whole: bool) -> None:
    assert is_whole(text) == whole


@pytest.mark.parametrize("character", ["x", "é", "字", "🙂"])
def test_a_character_between_two_pieces_is_read_whole(character: str) -> None:
    """The parser is given a line in pieces; the character lies at each place around the first borders of two."""
    for length in [*range(PIECE_BYTES - 12, PIECE_BYTES + 2), *range(2 * PIECE_BYTES - 12, 2 * PIECE_BYTES + 2)]:
        text = "-" * (length - 6) + character * 3
        assert parse(f"echo '{text}' '$HOME' end").commands == (("echo", text, "$HOME", "end"),)


def test_lines_that_were_parsed_are_let_go_of() -> None:
    """A daemon parses each command, for weeks."""
    lines = [f"echo {number:04} {'x' * 3000}" for number in range(100)]
    for line in lines:
        parse(line)
    tracemalloc.start()
    try:
        for line in lines:
            assert len(parse(line).commands) == 1
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < sum(map(len, lines)) / 4, "of all texts together"
