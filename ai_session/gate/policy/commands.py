"""What a rule's command prefix means for a line: strict for permission, generous for questions and denials. No I/O.

A rule that allows needs every word certain: the prefix word for word, then only words that are known not to run, write
or access anything else. A rule that asks or denies looks through ``env``, ``sudo``, ``bash -c``, paths, case, options
in between and abbreviated options, and counts what cannot be known as *maybe*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

from ai_session.gate.policy.programs import (
    COMMAND_FOLLOWS,
    LOADER,
    OPTIONS,
    PROMPTS,
    REMOTE,
    SEARCHERS,
    SHELLS,
    STARTERS,
    TAKE_VALUES,
    WORD_FOR_WORD,
    embedded_commands,
    named_program,
    names_program,
    renamed_programs,
    word_set,
)
from ai_session.system.shell_words import Line, Words, parse


class Match(IntEnum):
    """How certainly a rule applies: the least of several selectors counts, the greatest of several commands."""

    NO = 0
    MAYBE = 1
    YES = 2


SETTERS = word_set("set setenv")
SED_RUNS = re.compile(r"(?:^|[0-9;{}$/,!\s])e(?:\s|\Z)|/[a-zA-Z0-9]{0,8}e[a-zA-Z0-9]{0,8}(?:[;}\s]|\Z)")
"""Where sed's language runs something."""

MAX_SUFFIXES = 64
MAX_DEPTH = 4
MAX_TEXTS = 64
"""The number of texts within a line that are parsed as shell; each takes up to a millisecond."""

FOREIGN = WORD_FOR_WORD | SEARCHERS | {"sed"}
NESTING = FOREIGN | SETTERS | REMOTE | OPTIONS.keys() | COMMAND_FOLLOWS.keys()
SIMPLE = re.compile(r"[\w./+-]+\Z")


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
"""Git's commands that may have further words, and their risky letters; all others must match word for word."""

OPERANDS = {"uniq": 1, "date": 0}
"""The number of operands that may follow the prefix: the next one would be written to, or set."""

SED_PRINTS = re.compile(r"(?:[0-9]+(?:,(?:[0-9]+|\$))?|\$)p\Z")
BEFORE = r"(?:^|[=:@,]|^-[A-Za-z]+)"
ELSEWHERE = re.compile(rf"{BEFORE}[/~]|://|(?:{BEFORE}|/)\.(?:\.(?:/|\Z)|[^./])|(?:^|/)\.\.(?:/|\Z)")


def strictly_allows(prefix: Sequence[str], words: Words, anywhere: bool) -> bool:
    """Report whether ``prefix`` allows exactly these words. With ``anywhere``, the rule's paths judge the words."""
    if len(words) < len(prefix) or None in words[: len(prefix)]:
        return False
    for wanted, word in zip(prefix, words, strict=False):
        if not (wanted == word or (wanted == "*" and word and not word.startswith("-"))):
            return False
    given = tuple(word for word in words if word is not None)
    free = [word for i, word in enumerate(given) if i >= len(prefix) or prefix[i] == "*"]
    return len(given) == len(words) and not _risk(given, len(prefix), free, anywhere)


def _risk(words: tuple[str, ...], fixed: int, free: list[str], anywhere: bool) -> bool:
    head, rest = words[0], words[fixed:]
    if rest and (head in WORD_FOR_WORD or "/" in head):
        return True
    if not anywhere and any(points_elsewhere(word) for word in free):
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
    """Report whether it is ``sed -n 10,20p FILE``: its language can run and write, so nothing else of it is allowed."""
    return (
        len(words) >= 2
        and words[0] in ("-n", "-nE", "-En")
        and all(SED_PRINTS.match(words[1]) if i == 1 else not word.startswith("-") for i, word in enumerate(words) if i)
    )


def points_elsewhere(word: str) -> bool:
    """Report whether a word is an absolute path, a home, a URL, a parent or a hidden name, also after ``=``."""
    return bool(ELSEWHERE.search(word))


class Reading:
    """A line read generously, once for all rules: every command it may run, as far as its words show."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._commands: dict[str, list[Words]] | None = None
        self._unknown = not line.complete
        self._renamed: set[str] = set()
        self._programs: list[str] = []
        self._read: set[str] = set()

    def match(self, prefix: Sequence[str]) -> Match:
        """Report whether the line runs the command that begins with ``prefix``, however it is disguised."""
        if not self.line.complete:
            return Match.MAYBE
        if self._commands is None:
            self._commands = {}
            self._line(self.line, 0)
        program = named_program(prefix[0])
        best = max((_match_prefix(prefix, words) for words in self._commands.get(program, ())), default=Match.NO)
        if best is Match.NO and (self._unknown or program in self._renamed or self._mentions(prefix)):
            return Match.MAYBE
        return best

    def _mentions(self, prefix: Sequence[str]) -> bool:
        """Report whether a program in another language names every word of the prefix."""
        words = [re.escape(word.lstrip("-")) for word in prefix if word != "*"] if self._programs else []
        return any(all(re.search(rf"(?<![\w-]){word}(?![\w-])", text) for word in words) for text in self._programs)

    def _line(self, line: Line, depth: int) -> None:
        self._unknown = self._unknown or not line.complete
        self._renamed |= renamed_programs(line.commands)
        for words in line.commands:
            self._command(words, depth)
        for name, value in line.assignments:
            if names_program(name):
                self._variable(name, value, depth)

    def _text(self, text: str, depth: int) -> None:
        """Read shell text within the line, each one once and only a limited number."""
        if text in self._read:
            return
        if depth >= MAX_DEPTH or len(self._read) >= MAX_TEXTS:
            self._unknown = True
            return
        self._read.add(text)
        self._line(parse(text), depth + 1)

    def _candidate(self, words: Words) -> None:
        assert self._commands is not None
        if words and words[0] is None:
            self._unknown = True
        elif words and words[0]:
            self._commands.setdefault(named_program(words[0]), []).append(words)

    def _command(self, words: Words, depth: int) -> None:
        self._candidate(words)
        head = named_program(words[0]) if words and words[0] is not None else ""
        if head not in NESTING and not LOADER.match(head):
            return
        if head == "git" and any("alias." in (word or "").casefold() for word in words):
            self._unknown = True
        for value in embedded_commands(head, words):
            self._value(value, depth)
        for start in _starts(head, words):
            self._candidate(words[start:])
            if head in ("xargs", "parallel"):
                self._candidate((words[start], None))
        if head in STARTERS and (len(words) > MAX_SUFFIXES or _reads_input(words[:MAX_SUFFIXES])):
            self._unknown = True
        if head in SETTERS:
            self._set(words, depth)
        if head in FOREIGN:
            for text in _texts(words):
                if head in STARTERS - SEARCHERS:
                    self._text(text, depth)
                elif head != "sed" or SED_RUNS.search(text):
                    self._programs.append(text)

    def _value(self, value: str | None, depth: int) -> None:
        """Read a command that an option or a variable contains: a program with or without words."""
        if value is None:
            self._unknown = True
            return
        for text in dict.fromkeys((value, re.sub(r"\A\w+=", "", value))):
            text = text.strip(" ;|!&")
            if SIMPLE.match(text):  # also if it is a shell, which reads nothing here
                self._candidate((text,))
            elif text:
                self._text(text, depth)

    def _variable(self, name: str, value: str | None, depth: int) -> None:
        if name.upper() not in PROMPTS:
            self._value(value, depth)
        elif value is None:
            self._unknown = True
        elif "$(" in value or "`" in value:
            self._programs.append(value)

    def _set(self, words: Words, depth: int) -> None:
        """Read ``set -gx PAGER less`` of fish and ``setenv PAGER less`` of csh."""
        for at, word in enumerate(words[1:], 1):
            if word and names_program(word):
                rest = words[at + 1 :]
                self._variable(word, None if None in rest else " ".join(word or "" for word in rest), depth)


def _starts(head: str, words: Words) -> Iterator[int]:
    """Yield where in a command another one may begin."""
    asks = head == "command" and len(words) > 1 and re.match(r"-p?[vV]", words[1] or "")
    if (head in STARTERS and not asks) or LOADER.match(head):
        yield from range(1, min(len(words), MAX_SUFFIXES))
    for leading in COMMAND_FOLLOWS.get(head, ()):
        indices = [words.index(mark) if mark in words else -1 for mark in leading]
        if -1 not in indices:
            yield from range(max(indices) + 1, min(len(words), MAX_SUFFIXES))


def _reads_input(words: Words) -> bool:
    """Report whether a shell in it has neither a script nor ``-c``, so that it reads a pipe or a here-document."""
    for start, word in enumerate(words):
        if word is None or named_program(word) not in SHELLS | {"source", "."}:
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
    """Yield arguments that are programs of their own: those of several words, also after ``-S`` or ``--option=``."""
    for word in words[1:]:
        if word is None or word.isalnum():
            continue
        if word.startswith("--"):
            yield word.partition("=")[2]
        elif word.startswith("-"):
            yield word[2:]
        if any(not (char.isalnum() or char in "-_./") for char in word):
            yield word


def _match_prefix(prefix: Sequence[str], words: Words) -> Match:
    """Match a prefix in one command: options, each with a value, may stand between; option words count anywhere."""
    if not words:
        return Match.NO
    if words[0] is None:
        return Match.MAYBE
    if prefix[0] != "*" and named_program(prefix[0]) != named_program(words[0]):
        return Match.NO
    certainty = Match.YES
    at = 1
    valued = False
    for wanted in prefix[1:]:
        if wanted.startswith("-"):
            certainty = min(certainty, _has_option(wanted, words[1:]))
            continue
        while at < len(words):
            word = words[at]
            at += 1
            if word is None:
                return min(certainty, Match.MAYBE)
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
    return certainty


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
