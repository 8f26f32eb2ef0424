"""One program as a man page (man(7) macros)."""

from __future__ import annotations

from collections.abc import Iterator

from command_tree import Program, Verb

FILES = {
    "ai-session": (
        ("~/.config/ai-session/config.toml", "Settings; AI_SESSION_CONFIG names another file."),
        ("~/.local/state/ai-session", "Sessions and their output, the audit log, the daemon's socket and its log."),
    ),
    "ccswarm": (
        ("ccswarm.toml", "Configuration and plan of the current directory; CCSWARM_CONFIG names another file."),
        ("~/.config/ccswarm/config.toml", "The same, used if neither ccswarm.toml nor config/ccswarm.toml exists."),
        ("~/.local/state/ccswarm", "Runs, the journal, the agents' clones."),
    ),
}
OTHERS = {"ai-session": "ccswarm", "ccswarm": "ai-session"}


def man_page(program: Program) -> str:
    """Return the whole page, with a newline at its end."""
    verb = program.verb
    name = verb.name
    lines = [f'.TH {name.upper()} 1 "" "{name} {program.version}" "User Commands"', ".SH NAME"]
    lines += [f"{plain(name)} \\- {plain(verb.text[0][0].lower() + verb.text[0][1:].rstrip('.'))}"]
    lines += [".SH SYNOPSIS", f".B {plain(name)}", ".I VERB", r"[\fIOPTIONS\fR] [\fIARGUMENTS\fR]"]
    lines += [".SH DESCRIPTION"]
    lines += text(*verb.text, f"{name} VERB --help explains a verb; most print one JSON document with --json.")
    lines += [".SH OPTIONS"]
    for names, described in verb.options:
        lines += tagged_paragraph(names, described)
    lines += [".SH VERBS"]
    for leaf in verb.leaves():
        lines += verb_lines(leaf)
    lines += [".SH EXIT STATUS", *text(program.exit_codes.removeprefix("Exit codes: "))]
    lines += [".SH FILES"]
    for path, described in FILES[name]:
        lines += [".TP", f".I {plain(path)}", plain(described)]
    lines += [".SH SEE ALSO", f".BR {plain(OTHERS[name])} (1)"]
    return "\n".join(lines) + "\n"


def verb_lines(verb: Verb) -> Iterator[str]:
    yield f".SS {plain(verb.usage)}"
    yield from text(*verb.text)
    for names, described in (*verb.arguments, *verb.options):
        yield from tagged_paragraph(names, described)


def text(*paragraphs: str) -> list[str]:
    """Return the lines of paragraphs; the first one in a section has no space above it."""
    return [line for paragraph in paragraphs for line in (".PP", plain(paragraph))][1:]


def tagged_paragraph(names: str, described: str) -> list[str]:
    return [".TP", f".B {plain(names)}", plain(described) or r"\&"]


def plain(words: str) -> str:
    """Escape what roff interprets: backslashes, typed hyphens, dots and quotes at the start of a line."""
    words = words.replace("\\", r"\e").replace("-", r"\-").replace("^", r"\(ha").replace("~", r"\(ti")
    words = "".join(sign if sign.isascii() else rf"\[u{ord(sign):04X}]" for sign in words)
    return rf"\&{words}" if words.startswith((".", "'")) else words
