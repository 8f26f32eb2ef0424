"""The first words of a command that a person may be offered to allow with anything after them. No I/O.

Only programs that read are offered, and only as ``allow`` rules understand them: literal words, no option that writes,
runs or reads elsewhere, no path outside the shell's directory. Everything else is allowed word for word or not at all.
"""

from __future__ import annotations

from ai_session.gate.policy.commands import strictly_allows, word_set
from ai_session.system.shell_words import parse

DEFAULTS = frozenset(("default:no-box", "default:ask-all"))
"""Only questions of a mode are widened: the author of a rule that asks wants to see each command it matches."""

READING = word_set(
    "ls cat head tail wc grep egrep fgrep rg find fd fdfind sort uniq cut tr tree file stat du df diff cmp comm nl"
    " column md5sum sha1sum sha256sum cksum basename dirname realpath readlink echo"
)
GIT_READING = word_set(
    "status log diff show rev-parse ls-tree ls-files shortlog describe cat-file merge-base grep blame"
)


def offered_prefix(command: str, rule: str) -> str:
    """Return the words an answer may cover instead of the whole ``command`` that ``rule`` asks about; empty for none.

    Two commands with the same words and rule are covered by the same answer, so a line has none unless it is a single
    command that an ``allow`` rule with these words would allow.
    """
    line = parse(command) if rule in DEFAULTS else None
    if line is None or line.obscure or len(line.commands) != 1:
        return ""
    given = line.commands[0]
    prefix = tuple(word or "" for word in given[: 2 if given[0] == "git" else 1])
    known = prefix[0] in READING if len(prefix) == 1 else prefix[1] in GIT_READING
    return " ".join(prefix) if known and strictly_allows(prefix, given, anywhere=False) else ""
