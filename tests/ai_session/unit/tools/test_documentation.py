"""Our own pages: how they are cut, what is found in them, and that nothing is said which does not stand there."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.system.manual import folder, read_pages
from ai_session.tools.documentation.index import LEFT_OUT, Index, index, sections, stem, terms
from ai_session.tools.documentation.plugin import NOTHING, answer, hints

ROOT = folder()
assert ROOT
PAGES = {path: text for path, text in read_pages(ROOT).items() if path not in LEFT_OUT}

PAGE = """\
# A page

<!-- not
shown -->
First sentence of it. A second
one, over two lines, with a [link](elsewhere.md#place).

- An item
  that goes on.
- Another: `code`.

| Name | Use |
|---|---|
| `a\\|b` | either. Or both. |

```console
$ make all
a line of output
```

## Empty

## With commands

Install it:

```sh
pip install it   # now
pip check
```

```toml
[table]
key = "value"
```

~~~
# not a heading
~~~
Closing words
"""


def test_a_page_is_cut_at_its_headings_into_sentences() -> None:
    first, second = sections("docs/page.md", PAGE)
    assert (first.path, first.heading, second.heading) == ("docs/page.md", "A page", "With commands")
    assert first.sentences == (
        "First sentence of it.",
        "A second one, over two lines, with a link.",
        "An item that goes on.",
        "Another: `code`.",
        "Name: Use",
        "`a|b`: either.",
        "Or both.",
        "`make all`",
    )
    assert second.sentences == (
        "Install it: `pip install it # now`",
        "`pip check`",
        '`key = "value"`',
        "Closing words",
    )


@pytest.mark.parametrize(
    "words",
    [
        "session sessions",
        "share shared shares sharing",
        "copy copies copied",
        "deny denied denies",
        "run runs running",
        "install installs installed installing",
        "use1 use1s",
        "process processes",
    ],
)
def test_forms_of_a_word_are_compared_as_one(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_names_are_words_and_so_are_their_parts() -> None:
    assert list(terms("How is `execute_command` used by ai-session?")) == [
        *("execute_command", "execut", "command", "ai-session", "ai", "session"),
    ]


def words_of(text: str) -> list[str]:
    """Of a page without what is only form."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^ {0,3}(`{3,}|~{3,}).*$", "", text, flags=re.MULTILINE)
    return re.findall(r"\w+", re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text))


def test_every_sentence_stands_in_its_page() -> None:
    texts = {path: " ".join(words_of(text)) for path, text in PAGES.items()}
    wrong = [
        (section.path, sentence)
        for section in index().sections
        for sentence in section.sentences
        if " ".join(words_of(sentence)) not in texts[section.path]
    ]
    assert wrong == []
    assert len(index().sections) > 300


def test_who_asks_for_a_heading_finds_its_section() -> None:
    """Nearly always: some words head many sections."""
    asked = [section for section in index().sections if set(terms(section.heading))]
    found = [one for one in asked if any(hit.section is one for hit in index().search(one.heading, 5))]
    assert len(found) > 0.85 * len(asked)


QUESTIONS = {
    "How do I install ai-session?": "docs/howto/install.md",
    "What happens to sessions when the daemon crashes?": "docs/howto/after-a-crash.md",
    "how can I allow a domain": "docs/howto/allow-domains.md",
    "what is the audit log": "docs/explanation/audit.md",
    "Claude Desktop configuration": "docs/howto/install.md",
    "what does exit code 124 mean": "docs/reference/ai-session.md",
    "redaction of secrets": "docs/explanation/redaction.md",
    "serve MCP over HTTP with OAuth": "docs/reference/oauth.md",
    "swarm topology ring": "docs/protocols/visionflow.md",
    "what are the limits on memory of a box": "docs/explanation/sandbox.md",
    "why is my command denied": "docs/reference/policy.md",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_find_the_page_about_them(question: str) -> None:
    reported = answer(question, 10, "")
    assert QUESTIONS[question] in {one["path"] for one in reported["citations"]}
    assert reported["answer"].startswith("- ")


@pytest.mark.parametrize(
    "question",
    [
        "weather in Paris tomorrow",
        "how do I bake a cake?",
        "capital of France",
        "what is it?",
        "?!",
        "한국어",
    ],
)
def test_what_is_not_in_the_pages_is_not_answered(question: str) -> None:
    assert answer(question, 5, "audit") == {"answer": NOTHING, "citations": []}


@pytest.mark.parametrize("name", ["FastAPI", "Express"])
def test_who_asks_how_to_integrate_gets_the_install_and_every_step(name: str) -> None:
    reported = answer(f"How do I integrate {name}?", 5, "")
    assert (reported["citations"][0]["path"], reported["citations"][0]["section"]) == ("docs/howto/integrate.md", name)
    steps = reported["answer"].splitlines()[:5]
    for step, said in zip(steps, ("install .", "install '", "propose_edit_plan", "TOKEN", "/terminal"), strict=True):
        assert said in step


DEFINED = {
    "What is ai-session?": "README.md",
    "what is ccswarm": "docs/reference/ccswarm.md",
    "What's the sandbox?": "docs/explanation/sandbox.md",
    "What is the audit log?": "docs/explanation/audit.md",
    "What is a session?": "docs/explanation/glossary.md",
    "What is a gate?": "docs/explanation/glossary.md",
}


@pytest.mark.parametrize("question", DEFINED)
def test_what_something_is_is_said_first(question: str) -> None:
    """By the first sentence of the page of that name, else by one that defines it."""
    reported = answer(question, 3, "")
    cited = reported["citations"][0]
    page = [one for one in index().sections if (one.path, one.heading) == (cited["path"], cited["section"])]
    said = reported["answer"].splitlines()[0].removeprefix("- ")
    assert cited["path"] == DEFINED[question]
    assert said == page[0].sentences[0] or said.startswith("**")
    assert len(reported["citations"]) <= 3
    assert reported["score"] == max(one["score"] for one in reported["citations"])


def test_an_answer_names_a_section_for_every_quote() -> None:
    reported = answer("how is a terminal shared with a person?", 4, "")
    places = {(one["path"], one["section"]) for one in reported["citations"]}
    cited = [one for one in index().sections if (one.path, one.heading) in places]
    quotes = [line.removeprefix("- ") for line in reported["answer"].splitlines()]
    assert all(any(quote in section.sentences for section in cited) for quote in quotes)
    assert len(places) == 4
    assert len(quotes) == len(set(quotes)) >= 4
    assert all(0 < one["score"] <= reported["score"] <= 1 for one in reported["citations"])


def test_hints_move_a_section_up_and_find_none_alone() -> None:
    pages = {"a.md": "# Start\nStart a server with flask.", "b.md": "# Start\nStart a server with django."}
    small = Index(pages)
    assert [hit.section.path for hit in small.search("start a server", 2)] == ["a.md", "b.md"]
    assert [hit.section.path for hit in small.search("start a server", 2, "django")] == ["b.md", "a.md"]
    assert small.search("flask", 2, "django")[0].section.path == "a.md"
    assert small.search("nothing", 2, "django") == []
    assert Index({}).search("start", 2) == []
    assert hints({"detected_framework": "django", "n": 7, "more": {"x": "y"}}) == "django"
    assert hints("x" * 9000) == "x" * 500


@given(st.text(max_size=400), st.text(max_size=60))
def test_any_text_can_be_a_page_and_a_question(text: str, question: str) -> None:
    small = Index({"a.md": text, "b.md": PAGE})
    for hit in small.search(question, 20, text):
        assert 0 < hit.score <= 1
        assert small.quotes(question, hit.section, 3) == [
            sentence for sentence in hit.section.sentences if sentence in small.quotes(question, hit.section, 3)
        ] or len(set(hit.section.sentences)) < len(hit.section.sentences)


def test_pages_are_read_in_part_where_they_are_huge() -> None:
    assert max(len(text) for text in PAGES.values()) < 1 << 20
    assert PAGES.keys() >= {"README.md", "docs/index.md", "docs/howto/install.md"}
    assert all(path == "README.md" or path.startswith("docs/") for path in PAGES)
