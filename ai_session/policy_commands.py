"""What a rule's command prefix means for a line: strictly for leave, generously for questions and denials. Pure.

Leave needs every word certain: the prefix word for word, then only words that are known not to run, write or reach
anything else. A question or a denial looks through ``env``, ``sudo``, ``bash -c``, paths, case, options in between
and abbreviated options, and counts what cannot be known as *maybe*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

from ai_session.shell_words import Line, Words, parse


class Match(IntEnum):
    """How surely a rule speaks of a call; the least of several selectors counts, the greatest of several commands."""

    NO = 0
    MAYBE = 1
    YES = 2


MAX_SUFFIXES = 64
MAX_DEPTH = 4


def word_set(text: str) -> frozenset[str]:
    """Those of a text."""
    return frozenset(text.split())


SHELLS = word_set("sh bash dash zsh fish ksh mksh ash rbash busybox toybox")
TAKE_VALUES = word_set("-o +o -O +O --rcfile --init-file")
SEARCHERS = word_set("find fd fdfind")
STARTERS = (
    SHELLS
    | SEARCHERS
    | word_set(
        "env sudo doas su runuser nohup nice ionice chrt taskset setsid stdbuf timeout time xargs parallel watch entr"
        " flock command builtin exec eval noglob nocorrect coproc repeat not and or if while until begin else then do"
        " source . trap at batch chroot unshare nsenter bwrap firejail script unbuffer expect ssh systemd-run"
        " dbus-run-session strace ltrace proot fakeroot prlimit setpriv setarch choom caffeinate direnv mise poetry uv"
        " pipenv hatch npx bunx - ! {"
    )
)
"""Programs and words that run what stands behind them."""

WORD_FOR_WORD = (STARTERS - SEARCHERS) | word_set(
    "test printf print whence exit return shift break logout wait ulimit umask jobs fg bg disown getopts make gmake"
    " ninja cmake meson bazel just rake ant gradle gradlew mvn sbt npm pnpm yarn bun deno node tsc"
    " python python2 python3 pypy pypy3 ipython pip pip3 pipx pytest tox nox go cargo rustc gcc cc ruby gem bundle perl"
    " php composer lua luajit tclsh awk gawk mawk nawk ed ex vi vim nvim view emacs nano less more most man info gdb"
    " lldb valgrind perf docker podman nerdctl kubectl helm terraform ansible scp sftp rsync curl wget nc ncat netcat"
    " socat openssl tmux screen crontab systemctl launchctl osascript open xdg-open alias unalias set shopt setopt"
    " unsetopt export declare typeset local readonly unset read mapfile readarray bind complete compgen enable hash fc"
    " history kill pkill killall ps printenv dd tee cp mv ln install mount umount tar unzip zip gzip xxd hostname jq yq"
    " sqlite3 psql mysql let m4 bc tput reset stty svn hg gh glab aws gcloud az tsort who"
)
"""Programs with a language, a configuration or a reach of their own: given leave with no words but the rule's."""

RISKY = word_set(
    "output outfile out-file output-file output-directory output-dir exec exec-path exec-batch pre hostname-bin"
    " compress-program use-compress-program to-command ext-diff textconv filters open-files-in-pager paginate pager"
    " config config-env config-file eval load in-place delete remove-files unlink files0-from files-from git-dir"
    " work-tree template no-index edit force move set-upstream-to edit-description set compile magic-file"
)
"""Long options with which some program writes, runs or reads elsewhere. Any that begins like one of them counts."""

RISKY_LETTERS = dict.fromkeys(("grep", "egrep", "fgrep", "rg"), "f") | {
    "fd": "xX",
    "fdfind": "xX",
    "sort": "oT",
    "tree": "oR",
    "date": "sf",
    "file": "Cmf",
    "base64": "o",
    "tail": "fF",
}
RISKY_WORDS = {"find": word_set("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from -f")}
GIT_LETTERS = (
    dict.fromkeys(("status", "rev-parse", "ls-tree", "shortlog", "describe", "cat-file", "merge-base"), "")
    | dict.fromkeys(("log", "diff", "show"), "O")
    | {
        "grep": "Of",
        "blame": "S",
        "ls-files": "X",
        "branch": "dDmMcCfu",
        "tag": "dFfum",
        "add": "eip",
        "commit": "FCcte",
    }
)
"""Commands of git that may have further words, and their risky letters; all others are taken word for word."""

OPERANDS = {"uniq": 1, "date": 0}
"""How many operands may follow the prefix: the next one would be written to, or set."""

SED_PRINTS = re.compile(r"(?:[0-9]+(?:,(?:[0-9]+|\$))?|\$)p\Z")
BEHIND = r"(?:^|[=:@,]|^-[A-Za-z]+)"
ELSEWHERE = re.compile(rf"{BEHIND}[/~]|://|(?:{BEHIND}|/)\.(?:\.(?:/|\Z)|[^./])|(?:^|/)\.\.(?:/|\Z)")


def strictly(prefix: Sequence[str], words: Words, reach: bool) -> bool:
    """Whether ``prefix`` gives leave for exactly these words. ``reach``: the rule's paths judge where words point."""
    if len(words) < len(prefix) or None in words[: len(prefix)]:
        return False
    for wanted, word in zip(prefix, words, strict=False):
        if not (wanted == word or (wanted == "*" and word and not word.startswith("-"))):
            return False
    given = tuple(word for word in words if word is not None)
    free = [word for i, word in enumerate(given) if i >= len(prefix) or prefix[i] == "*"]
    return len(given) == len(words) and not _risk(given, len(prefix), free, reach)


def _risk(words: tuple[str, ...], fixed: int, free: list[str], reach: bool) -> bool:
    head, rest = words[0], words[fixed:]
    if rest and (head in WORD_FOR_WORD or "/" in head):
        return True
    if not reach and any(points_elsewhere(word) for word in free):
        return True
    if head == "sed":
        return not _prints_only(words[1:])
    letters = RISKY_LETTERS.get(head, "")
    if head == "git" and rest:
        if words[1] not in GIT_LETTERS:
            return True
        letters = GIT_LETTERS[words[1]]
    if sum(not word.startswith(("-", "+")) for word in rest) > OPERANDS.get(head, len(rest)):
        return True
    return any(_risky_option(head, word, letters) for word in rest)


def _risky_option(head: str, word: str, letters: str) -> bool:
    if not word.startswith("-") or word in ("-", "--"):
        return False
    if word.startswith("--"):
        name = word[2:].partition("=")[0]
        return any(risky.startswith(name) for risky in RISKY)
    return word in RISKY_WORDS.get(head, ()) or any(letter in word for letter in letters)


def _prints_only(words: Sequence[str]) -> bool:
    """``sed -n 10,20p FILE``: its language can run and write, so nothing else of it is let through."""
    return (
        len(words) >= 2
        and words[0] in ("-n", "-nE", "-En")
        and all(SED_PRINTS.match(words[1]) if i == 1 else not word.startswith("-") for i, word in enumerate(words) if i)
    )


def points_elsewhere(word: str) -> bool:
    """An absolute path, a home, a URL, a parent directory or a hidden name, also behind an option or ``=``."""
    return bool(ELSEWHERE.search(word))


def loosely(prefix: Sequence[str], line: Line) -> Match:
    """Whether ``line`` runs the command that begins with ``prefix``, however it is dressed up."""
    if not line.complete:
        return Match.MAYBE
    return _in_line(prefix, line, 0)


def _in_line(prefix: Sequence[str], line: Line, depth: int) -> Match:
    best = Match.NO if line.complete else Match.MAYBE
    for words in line.commands:
        best = max(best, _in_command(prefix, words, depth))
        if best is Match.YES:
            break
    return best


def _in_command(prefix: Sequence[str], words: Words, depth: int) -> Match:
    best = _dressed(prefix, words)
    head = _base(words[0]) if words and words[0] is not None else ""
    if head == "git" and any("alias." in (word or "").casefold() for word in words):
        best = max(best, Match.MAYBE)
    if best is Match.YES or head not in WORD_FOR_WORD | SEARCHERS:
        return best
    if head in STARTERS:
        for start in range(1, min(len(words), MAX_SUFFIXES)):
            best = max(best, _dressed(prefix, words[start:]))
            if head in ("xargs", "parallel"):
                best = max(best, _dressed(prefix, (words[start], None)))
        if len(words) > MAX_SUFFIXES or _reads_input(words[:MAX_SUFFIXES]):
            best = max(best, Match.MAYBE)
    for text in _texts(words):
        if head in STARTERS - SEARCHERS:
            best = max(best, _in_line(prefix, parse(text), depth + 1) if depth < MAX_DEPTH else Match.MAYBE)
        elif _mentions(prefix, text):
            best = max(best, Match.MAYBE)
    return best


def _mentions(prefix: Sequence[str], text: str) -> bool:
    """A program in another language that names every word of the prefix."""
    return all(re.search(rf"(?<![\w-]){re.escape(word.lstrip('-'))}(?![\w-])", text) for word in prefix if word != "*")


def _reads_input(words: Words) -> bool:
    """Whether a shell in it has neither a script nor ``-c``: its commands come by a pipe or a here-document."""
    for start, word in enumerate(words):
        if word is None or _base(word) not in SHELLS | {"source", "."}:
            continue
        given = [(words[at] or "-", words[at - 1]) for at in range(start + 1, len(words))]
        scripts = [
            text
            for text, before in given
            if (not text.startswith(("-", "+", "/dev/", "/proc/")) and before not in TAKE_VALUES)
            or re.fullmatch("-[a-zA-Z]*c[a-zA-Z]*", text)
        ]
        if not scripts:
            return True
    return False


def _texts(words: Words) -> Iterator[str]:
    """Arguments that are programs of their own: those with more than one word, also behind ``-S`` or ``--option=``."""
    for word in words[1:]:
        if word is None or word.isalnum():
            continue
        if word.startswith("--"):
            yield word.partition("=")[2]
        elif word.startswith("-"):
            yield word[2:]
        if any(not (char.isalnum() or char in "-_./") for char in word):
            yield word


def _base(word: str) -> str:
    """A program by its name: a path to it and, on file systems that ignore it, its case say nothing else."""
    return word.rstrip("/").rpartition("/")[2].casefold()


def _dressed(prefix: Sequence[str], words: Words) -> Match:
    """The prefix in one command: options may stand between, each with a value; option words count wherever they are."""
    if not words:
        return Match.NO
    if words[0] is None:
        return Match.MAYBE
    if prefix[0] != "*" and _base(prefix[0]) != _base(words[0]):
        return Match.NO
    sure, at, valued = Match.YES, 1, False
    for wanted in prefix[1:]:
        if wanted.startswith("-"):
            sure = min(sure, _has_option(wanted, words[1:]))
            continue
        while at < len(words):
            word = words[at]
            at += 1
            if word is None:
                return min(sure, Match.MAYBE)
            if word.startswith("-") and word != "-":
                valued = "=" not in word
            elif wanted in ("*", word) or _same_path(wanted, word):
                valued = False
                break
            elif not valued:
                return Match.NO
            else:
                valued = False
        else:
            return Match.NO
    return sure


def _same_path(wanted: str, word: str) -> bool:
    return "/" in wanted and re.sub(r"/(?:\./|/)*", "/", word) == wanted


def _has_option(wanted: str, words: Words) -> Match:
    literal = [word for word in words if word is not None]
    if wanted.startswith("--"):
        name = wanted.partition("=")[0]
        names = (word.partition("=")[0] for word in literal if word.startswith("--") and len(word) > 2)
        found = any(name.startswith(given) for given in names)
    else:
        letters = {letter for word in literal if word.startswith("-") and word[1:2] != "-" for letter in word[1:]}
        found = wanted in literal or letters.issuperset(wanted[1:])
    if found:
        return Match.YES
    return Match.MAYBE if None in words else Match.NO
