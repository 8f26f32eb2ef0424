"""Any text that is put into a command as a quoted word arrives as one argument and runs nothing, in real shells."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ccswarm.errors import PlanInvalid
from ccswarm.plan.references import TOKEN, resolve
from ccswarm.plan.shell_text import Spot, locate, quote
from tests.support.bounds import BOUND_SECONDS

SHELLS = [("bash",), ("dash",), ("zsh", "-f"), ("fish", "--no-config"), ("mksh",), ("busybox", "sh")]
UNTRUE = [("zsh", "-f", "-o", "rc_quotes", "-o", "extended_glob"), ("bash", "--posix", "-O", "extglob")]
NASTY = "'\"\\`$(){}[]<>|&;!#~*?=%^-+,:@ \t\n\r\x01\x1b\x7f\u2028é\U0001f600abcx01"
TEXTS = st.text(st.sampled_from(NASTY) | st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


def ran(shell: tuple[str, ...], script: str, folder: Path) -> bytes:
    """What a shell prints that reads a file with that text, as sessions do."""
    file = folder / "no program's name"
    file.write_bytes(script.encode())
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        [*shell, str(file)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=BOUND_SECONDS,
        check=False,
    ).stdout


@pytest.mark.parametrize("examples", [2, pytest.param(25, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_each_text_arrives_as_one_argument(tmp_path: Path, shell: tuple[str, ...], examples: int) -> None:
    @settings(max_examples=examples)
    @given(texts=st.lists(TEXTS, min_size=1, max_size=20))
    @example(
        texts=["", "-", "--help", "-n", "-e", "\\", "\\'", "'", "''", "\n", "a\nb\n", "$(touch PWNED)", "`touch PWNED`"]
    )
    @example(
        texts=["!!", "~", "~root", "*", "a b", "\\n", "\\\\n", "${HOME}", "%s", "'; touch PWNED; '", "\r\n", "\x04\x03"]
    )
    def tried(texts: list[str]) -> None:
        said = ran(shell, "printf '%s\\0' " + " ".join(map(quote, texts)) + "\n", tmp_path)
        assert said == b"".join(text.encode() + b"\0" for text in texts)
        assert not (tmp_path / "PWNED").exists()

    tried()


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "\udc80x", "a\udfff"])
def test_what_can_be_no_argument_is_refused(text: str) -> None:
    with pytest.raises(PlanInvalid) as refused:
        quote(text)
    assert "stdin" in refused.value.suggestion
    with pytest.raises(PlanInvalid, match=r"\$\{q:item\}"):
        resolve("echo ${q:item}", {"item": text})


FRAGMENTS = [
    *("${q:item}",) * 6,
    *"'\"\\`$()[]<>|&;!#~*?=%^-+,:@ \t\n{}",
    *(" ", "\n", '"', "'") * 2,
    "a",
    "x=",
    "$(",
    "((",
    "))",
    "<<",
    "<<<",
    "<(",
    "$'",
    '$"',
    "$${",
    "$${x}",
    "$${x:-",
    "$[",
    "$x[",
    "a[",
    "case ",
    " in ",
    "esac",
    "echo ",
    "\\c",
    "\\\n",
    "if ",
    "fi",
    "#",
    " # ",
    "EOF",
    "\nEOF\n",
    "[[ ",
    " ]]",
    "@(",
    "begin;",
    "end;",
    "\r",
    "\u00a0",
    ">&",
    ">&1",
]
PAYLOADS = [
    "x;touch PWNED;$(touch PWNED)`touch PWNED`\ntouch PWNED\n",
    "';touch PWNED;'$(touch PWNED)`touch PWNED`\ntouch PWNED\n",
    '";touch PWNED;"$(touch PWNED)`touch PWNED`\ntouch PWNED\n',
    "')\";touch PWNED;\n\\';touch PWNED;\nEOF\ntouch PWNED\n}]]))\ntouch PWNED\n(touch PWNED)",
    '\\";touch PWNED;a[$(touch PWNED)]',
]


@pytest.mark.parametrize("examples", [2, pytest.param(60, marks=pytest.mark.torture)])
def test_where_a_quoted_word_may_stand_nothing_of_it_runs(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(parts=st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=14))
    @example(parts=["echo ", "a", "\\", "${q:item}"])
    @example(parts=["echo ", '"', "$(", "a", ")", "#", "'", "\n", "${q:item}"])
    @example(parts=["echo ", "\\", " ", "#", "'", "\n", "${q:item}"])
    @example(parts=["echo ", '"', "$${x:-", '"', "${q:item}", '"', "}", '"'])
    @example(parts=["echo a ", ">&", " ", "${q:item}"])
    @example(parts=["echo a ", ">&1", "${q:item}"])
    @example(parts=["echo ", '"', "$", "$(", "${q:item}", ")", '"'])
    @example(parts=["echo a ", ">&1", "\\\n", "${q:item}"])
    def tried(parts: list[str]) -> None:
        (tmp_path / "PWNED").unlink(missing_ok=True)
        text = "".join(parts)
        found = [match for match in TOKEN.finditer(text) if not match[1]]
        if any(match[0] != "${q:item}" for match in found):
            return  # fragments that make a reference of their own
        spans = [match.span() for match in found]
        if not spans or any(one.spot is not Spot.WORD for one in locate(text, spans)):
            return
        for payload in PAYLOADS:
            script = resolve(text, {"item": payload})
            assert isinstance(script, str)
            for shell in (*SHELLS[:4], *UNTRUE):
                ran(shell, script, tmp_path)
                assert not (tmp_path / "PWNED").exists(), (shell, script)

    tried()


@pytest.mark.parametrize(
    ("text", "spot"),
    [
        ("echo ${q:item}", Spot.WORD),
        ("echo a${q:item}b", Spot.WORD),
        ("x=${q:item} make", Spot.WORD),
        ("echo $(cat ${q:item})", Spot.WORD),
        ('echo "a $(cat ${q:item}) b"', Spot.WORD),
        ("diff <(sort ${q:item}) b", Spot.WORD),
        ("(cd ${q:item} && ls)", Spot.WORD),
        ("make 2>&1 >&2 | tee ${q:item} 2>&- &", Spot.WORD),
        ("make >& ${q:item}", Spot.UNCLEAR),
        ("cat <&${q:item}", Spot.UNCLEAR),
        ("cat <<< ${q:item}", Spot.WORD),
        ("case $x in a) echo ${q:item};; esac", Spot.WORD),
        ("# it is so\necho ${q:item}", Spot.WORD),
        ('echo "$${HOME}" \'a\' "b\\"c" ${q:item}', Spot.WORD),
        ("awk '{ print $1 }' ${q:item}", Spot.WORD),
        ('echo "${q:item}"', Spot.DOUBLE),
        ("echo '${q:item}'", Spot.SINGLE),
        ("echo # ${q:item}", Spot.COMMENT),
        ("cat <<EOF\n${q:item}\nEOF", Spot.UNCLEAR),
        ("echo `cat ${q:item}`", Spot.UNCLEAR),
        ("echo \\${q:item}", Spot.UNCLEAR),
        ("echo $((1 + ${q:item}))", Spot.UNCLEAR),
        ("echo 'it\\' ${q:item}", Spot.UNCLEAR),
        ("a[${q:item}]=1", Spot.UNCLEAR),
        ('echo "$${x:-${q:item}}"', Spot.UNCLEAR),
    ],
)
def test_where_something_stands(text: str, spot: Spot) -> None:
    (span,) = [found.span() for found in TOKEN.finditer(text) if not found[1]]
    assert [one.spot for one in locate(text, [span])] == [spot]


@pytest.mark.parametrize("lines", [400, pytest.param(4_000, marks=pytest.mark.torture)])
def test_a_long_text_is_read_in_one_go(lines: int) -> None:
    text = "echo $(a) \"b $(c)\" 'd' $${x} [e] \\f\n" * lines + "${q:item}"
    assert locate(text, [(len(text) - 9, len(text))])[0].spot is Spot.WORD
    assert len(quote("'\\a" * 20_000)) == 20_000 * (2 + 2 + 3)
