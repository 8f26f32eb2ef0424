"""The search for a topic in the files of the workspace: lines with its words, documentation before code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ccswarm.servers._json_values import cut
from ccswarm.servers.mcp.toolsets.orchestre.repository.languages import LOCKS, TESTS, language_of
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import File, Tree

Facts = dict[str, Any]

DOCUMENTS = {"Markdown", "reStructuredText", "HTML"}
DOCUMENT_ENDINGS = (".md", ".mdx", ".rst", ".txt", ".adoc", ".org", ".html")
MOST_FILES_SHOWN = 20
MOST_LINES_SHOWN = 5
LINE_CHARS = 240
MOST_WORDS = 12
COMMON = re.compile(
    r"the|and|for|with|from|into|how|what|which|when|where|why|who|does|did|are|was|were|can|could|should|would|will|this"
    r"|that|these|those|its|our|your|their|has|have|had|not|use|using|used|about|over|under|best|practices|make|between"
    r"|than|then|there|here|any|all|some|more|most|ways?|get|set|want|need"
)
"""Words that say nothing about a topic."""

RULE = (
    "Words of the topic with three letters or more, common ones left out and without the s of a plural, looked for in "
    "the lines of the workspace's text files, in any case, also as the beginning of a word. Files with more different "
    "words come first, of these those with more of them in one line, then documentation, code, tests. Nothing else was "
    "read."
)


class Hit(NamedTuple):
    """A line with ``words`` different words."""

    words: int
    number: int
    text: str


@dataclass(slots=True)
class Hits:
    path: str
    kind: str
    words: set[str] = field(default_factory=set[str])
    lines: list[Hit] = field(default_factory=list[Hit])

    @property
    def rank(self) -> tuple[int, int, int, int, str]:
        rank = ("documentation", "code", "tests").index(self.kind)
        best = max(line.words for line in self.lines)
        return -len(self.words), -best, rank, -len(self.lines), self.path


def words_of(topic: str) -> list[str]:
    """Return the words to search for; empty if the topic has none."""
    found = re.findall(r"[^\W_][\w.+#-]*[^\W_]", topic.casefold())
    kept = [one for one in found if len(one) >= 3 and not COMMON.fullmatch(one)]
    return list(dict.fromkeys(one.removesuffix("s") if len(one) > 4 else one for one in kept))[:MOST_WORDS]


def search(tree: Tree, topic: str) -> Facts:
    """Return ``words``, ``rule``, ``hits`` by file with lines, how many files were searched and how many had hits, and
    what was left out. Blocks."""
    words = words_of(topic)
    found: list[Hits] = []
    count = 0
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(one)}" for one in words), re.IGNORECASE) if words else None
    for file in tree.files() if pattern else ():
        if file.data is None or file.name in LOCKS or not (kind := _kind(file)):
            continue
        count += 1
        if pattern and (hits := _hits(file, kind, pattern)):
            found.append(hits)
    found.sort(key=lambda one: one.rank)
    return {
        "words": words,
        "rule": RULE,
        "filesSearched": count,
        "filesWithHits": len(found),
        "hits": [_to_json(one) for one in found[:MOST_FILES_SHOWN]],
        "leftOut": tree.left_out(),
    }


def _kind(file: File) -> str:
    if file.name.lower().endswith(DOCUMENT_ENDINGS) or language_of(file.name) in DOCUMENTS:
        return "documentation"
    if not language_of(file.name) and "." in file.name.lstrip("."):
        return ""
    return "tests" if TESTS.search(file.path) else "code"


def _hits(file: File, kind: str, pattern: re.Pattern[str]) -> Hits | None:
    text = file.text
    if not pattern.search(text):
        return None
    hits = Hits(file.path, kind)
    for number, line in enumerate(text.splitlines(), 1):
        if found := {match.casefold() for match in pattern.findall(line)}:
            hits.words |= found
            hits.lines.append(Hit(len(found), number, line))
    return hits


def _to_json(hits: Hits) -> Facts:
    best = sorted(hits.lines, key=lambda line: (-line.words, line.number))[:MOST_LINES_SHOWN]
    return {
        "path": hits.path,
        "kind": hits.kind,
        "words": sorted(hits.words),
        "hits": len(hits.lines),
        "lines": [
            {"line": line.number, "text": cut(line.text.strip(), LINE_CHARS)}
            for line in sorted(best, key=lambda line: line.number)
        ],
    }
