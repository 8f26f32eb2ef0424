"""Our own pages, split at their headings and ranked for a question. Quotes are unchanged sentences.

The ranking is Okapi BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with
Lucene's form of the inverse document frequency, which is never negative. Words of a heading count several times.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import log

from ai_session.system import manual

K1, B = 1.2, 0.75
OWN_HEADING, PAGE_HEADING = 4, 2
"""How often a word of a section's heading, and of its page's, counts in addition to the text."""

LEAST_SCORE = 0.22
"""Below it there is no answer: questions about weather, football and kitchens score 0 to 0.2."""

LEAST_OF_BEST = 0.5
"""A section that scores less than this share of the best one is left out."""

HINT_WEIGHT = 0.5
MAX_SENTENCE_CHARS = 400
MAX_COUNT = 255
CODE = {"sh": "", "bash": "", "console": "$ ", "toml": ""}
"""Languages whose lines answer questions, and the beginning of a line that is not output."""

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\Z")
ITEM = re.compile(r"\s*(?:[-*+>]|\d+[.)])\s+")
RULE = re.compile(r"[\s|:*_-]+\Z")
PART = re.compile(r"\A[\[#{]|[\[({,\\]\Z")
"""A line of code without meaning of its own: a table's name, a comment, the beginning of something longer."""

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")
CELL = re.compile(r"(?<!\\)\|")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"(])")
WORD = re.compile(r"[^\W_]+(?:[_./-][^\W_]+)*")
PARTS = re.compile(r"[_./-]")

WHAT_IS = re.compile(r"what(?:'s| is| are)\s+(?:an?\s+|the\s+)?(.+?)\s*\??\Z", re.IGNORECASE)
DEFINES = re.compile(
    r"(?:(?:An?|The) |(?=[A-Z`*]))[*`]*([\w -]+?)[*`]*(?:, [^.;:]+,)? "
    r"(?:(?:is|are) (?:an?|the(?! same)|what)|lets|gives|says) "
)
TERM = re.compile(r"\*\*([\w -]+)\*\*: ")
"""A row of the glossary."""

HOW = re.compile(r"how\s+(?:do|can|to|should|would)\b", re.IGNORECASE)
LEFT_OUT = frozenset({"docs/protocols/documents.md"})
"""The comparison of these programs with their documents quotes questions and answers none."""

STOP_WORD_TEXT = """
a about all also am an and any are as at be been but by can could did do does for from get give go had happen happens
has have he her his how i if in into is it its just let like make may me mean meaning means mine more most must my no
not of on one only or other our out own please really say shall she should show so some sure tell than that the their
them then there these they this those to too up us use used using very want was way we were what when where which who
whom whose why will with would you your
"""
STOP_WORDS = frozenset(STOP_WORD_TEXT.split())


@dataclass(frozen=True, slots=True)
class Section:
    """What is below one heading: ``path`` from the root of the project, the heading, and its sentences in order."""

    path: str
    heading: str
    sentences: tuple[str, ...]
    steps: tuple[str, ...] = ()
    """The items of its numbered list, unsplit."""
    opens: bool = False
    """Whether it is the first section of its page."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A section and its score: 1 would be one that contains nothing but the question's words."""

    section: Section
    score: float


def terms(text: str) -> Iterator[str]:
    """Yield the words of a text in the form in which they are compared, without stop words."""
    for word in WORD.findall(text.lower()):
        parts = PARTS.split(word)
        if len(parts) > 1:
            yield word
        for part in parts:
            if part not in STOP_WORDS:
                yield stem(part)


def stem(word: str) -> str:
    """Return an English word roughly without its ending: sessions, session; sharing, shared, share; copies, copy."""
    if len(word) > 4 and word.endswith(("ies", "ied")):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        short = word.removesuffix(ending)
        if short != word and len(short) > 2 and re.search("[aeiouy]", short):
            doubled = short[-1] == short[-2] and short[-1] not in "lsz"
            return short[:-1] if doubled else short.removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


def sections(path: str, text: str) -> Iterator[Section]:
    """Yield the sections of a page that have text."""
    heading = path
    block = list[str]()
    fence = ""
    language = ""
    found = list[str]()
    code = list[str]()
    before = 0
    steps = list[str]()
    numbered = False
    opens = True
    for line in [*COMMENT.sub("", text).splitlines(), "# end"]:
        opened, title = FENCE.match(line), HEADING.match(line)
        if fence:
            if opened and opened[1].startswith(fence) and not opened[2].strip():
                _add_code(found, code, language, led=len(found) > before)
                fence = ""
                code = []
                before = len(found)
            else:
                code.append(line)
            continue
        item, row = ITEM.match(line), line.lstrip().startswith("|")
        if opened or title or item or row or not line.strip():
            found += _sentences(block)
            if numbered and block:
                steps.append(plain(" ".join(block)))
            block, numbered = [], False
        if opened:
            fence, language = opened[1], opened[2].strip()
        elif title:
            if found:
                yield Section(path, heading, tuple(found), tuple(steps), opens)
                opens = False
            heading = plain(title[2])
            found = []
            steps = []
            before = 0
        elif row and not RULE.match(line):
            cells = (plain(cell.replace("\\|", "|")) for cell in CELL.split(line.strip().strip("|")))
            found += _cut(": ".join(cell for cell in cells if cell))
        elif item:
            block, numbered = [line[item.end() :]], item[0].strip()[0].isdigit()
        elif not row and line.strip():
            block.append(line)


def plain(text: str) -> str:
    """Return Markdown as one line, with each link replaced by its text."""
    return " ".join(LINK.sub(r"\1", text).split())


def _sentences(block: list[str]) -> list[str]:
    return _cut(plain(" ".join(block))) if block else []


def _cut(text: str) -> list[str]:
    return [sentence for sentence in SENTENCE_END.split(text) if WORD.search(sentence)]


def _add_code(found: list[str], code: list[str], language: str, *, led: bool) -> None:
    """Add commands and settings as sentences; one directly after a sentence that ends with a colon is added to it."""
    begin = CODE.get(language)
    if begin is None:
        return
    for number, line in enumerate(code):
        text = " ".join(line.removeprefix(begin).split())
        if line.startswith(begin) and "`" not in text and WORD.search(text) and not PART.search(text):
            if number == 0 and led and found[-1].endswith(":"):
                found[-1] += f" `{text}`"
            else:
                found.append(f"`{text}`")


class Index:
    """A search index of sections. Immutable, so any thread may use it."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        """Index ``pages``: Markdown texts by path."""
        self.sections: list[Section] = []
        self._postings: dict[str, array[int]] = {}
        lengths: list[int] = []
        for path, text in pages.items():
            title = ""
            for section in sections(path, text):
                title = title or section.heading
                counts = Counter(chain.from_iterable(map(terms, section.sentences)))
                for words, weight in ((section.heading, OWN_HEADING), (title, PAGE_HEADING)):
                    for term in terms(words):
                        counts[term] += weight
                for term, count in counts.items():
                    posting = len(self.sections) << 8 | min(count, MAX_COUNT)
                    self._postings.setdefault(term, array("L")).append(posting)
                lengths.append(counts.total())
                self.sections.append(section)
        mean = sum(lengths) / max(1, len(lengths))
        self._norms = array("d", (K1 * (1 - B + B * length / mean) for length in lengths))

    def search(self, question: str, count: int, hints: str = "") -> list[Hit]:
        """Return the at most ``count`` sections that answer best, best first. Sections with words of ``hints`` rank
        higher; such words alone find none."""
        wanted = dict.fromkeys(terms(question), 1.0)
        score, answering = defaultdict[int, float](float), set[int]()
        for term, weight in {**dict.fromkeys(terms(hints), HINT_WEIGHT), **wanted}.items():
            for posting in self._postings.get(term, ()):
                number, times = posting >> 8, posting & MAX_COUNT
                score[number] += weight * self.rarity(term) * times * (K1 + 1) / (times + self._norms[number])
                if term in wanted:
                    answering.add(number)
        best = sorted(answering, key=lambda number: (-score[number], number))[:count]
        top = sum(map(self.rarity, wanted)) * (K1 + 1)
        least = max(LEAST_SCORE * top, LEAST_OF_BEST * score[best[0]]) if best else 0.0
        scored = ((number, score[number]) for number in best)
        return [Hit(self.sections[number], round(min(1.0, had / top), 3)) for number, had in scored if had >= least]

    def definition(self, question: str) -> tuple[Section, str] | None:
        """Return the one sentence that answers "What is …?": the first one of the page with exactly that title, else
        one that begins with the term, else the first one of the page with the shortest title that contains it."""
        wanted = WHAT_IS.match(question.strip())
        subject = set(terms(wanted[1])) if wanted else set[str]()
        if not subject:
            return None
        titled = [(set(terms(one.heading.partition(": ")[0])), one) for one in self.sections if one.opens]
        pages = [one for _, one in sorted((row for row in titled if subject <= row[0]), key=lambda row: len(row[0]))]
        if pages and set(terms(pages[0].heading.partition(": ")[0])) == subject:
            return pages[0], pages[0].sentences[0]
        for one in self.sections:
            for sentence in one.sentences:
                defined = TERM.match(sentence) or DEFINES.match(sentence)
                if defined and set(terms(defined[1])) == subject:
                    return one, sentence
        return (pages[0], pages[0].sentences[0]) if pages else None

    def quotes(self, question: str, section: Section, count: int) -> list[str]:
        """Return the sentences of a section that share most with the question, in order, or its first one if none do.
        For "How …?", return all the steps of a section that has them."""
        if HOW.match(question.strip()) and count > 1 and section.steps:
            return list(section.steps)
        wanted = {term: self.rarity(term) for term in terms(question)}
        usable = [sentence for sentence in section.sentences if len(sentence) <= MAX_SENTENCE_CHARS]
        worth = {
            number: sum(wanted[term] for term in wanted.keys() & set(terms(sentence)))
            for number, sentence in enumerate(usable)
        }
        best = sorted((number for number in worth if worth[number]), key=lambda number: (-worth[number], number))
        return [usable[number] for number in sorted(best[:count])] or usable[:1]

    def rarity(self, term: str) -> float:
        """Return the weight of a word; highest for one that no section contains."""
        having = len(self._postings.get(term, ()))
        return log(1 + (len(self.sections) - having + 0.5) / (having + 0.5))


@cache
def index() -> Index:
    """Return the index of the pages as they are at the first call, which takes some 0.2 s."""
    root = manual.folder()
    pages = manual.read_pages(root) if root else {}
    return Index({path: text for path, text in pages.items() if path not in LEFT_OUT})
