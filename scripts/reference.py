"""Write docs/reference and the man pages from the code; with --check report which of them are out of date.

The site's other pages are written by hand. Run it after a change to verbs, tools, settings or errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from command_tree import Program, Verb, programs
from error_pages import errors
from man_pages import man_page
from settings_pages import settings
from tool_pages import tools

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by scripts/reference.py from the code. -->\n\n"


def cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    for sign in "\\|<*_`":
        text = text.replace(sign, "\\" + sign)
    return text


def code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def verbs_page(program: Program) -> str:
    """Return the page of every verb of one program."""
    verb = program.verb
    lines = [f"# {verb.name}: every verb", "", verb.text[0], "", program.exit_codes, ""]
    lines += ["| | |", "|---|---|"]
    for leaf in verb.leaves():
        lines.append(f"| [{code(' '.join(leaf.words[1:]))}](#{'-'.join(leaf.words)}) | {cell(leaf.summary)} |")
    lines += ["", "`-h` and `--help` explain each of them.", ""]
    for leaf in verb.leaves():
        lines += list(verb_lines(leaf))
    return "\n".join(lines)


def verb_lines(verb: Verb) -> Iterator[str]:
    yield from (f"## `{verb.name}`", "", "```text", verb.usage, "```", "")
    for paragraph in verb.text:
        yield from (prose(paragraph), "")
    rows = [*verb.arguments, *verb.options]
    if rows:
        yield from ("| | |", "|---|---|", *(f"| {code(names)} | {cell(text)} |" for names, text in rows), "")


def prose(text: str) -> str:
    """Return help text as Markdown, with angle brackets and stars escaped."""
    return text.replace("<", "\\<").replace("*", "\\*")


def pages() -> dict[Path, str]:
    """Return all generated files by path."""
    folder = ROOT / "docs/reference"
    found: dict[Path, str] = {}
    for program in programs():
        name = program.verb.name
        found[folder / f"{name}.md"] = NOTE + verbs_page(program).rstrip() + "\n"
        found[ROOT / f"man/{name}.1"] = man_page(program)
    for found_pages in (tools(), settings(), errors()):
        found |= {folder / name: NOTE + text.rstrip() + "\n" for name, text in found_pages.items()}
    return found


def main() -> int:
    stale = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    names = " ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not up to date, run scripts/reference.py: {names}", file=sys.stderr)
        return bool(stale)
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"written: {names}" if stale else "all up to date")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
