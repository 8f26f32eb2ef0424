"""Positions for edits in a text: anchors that occur once; JavaScript without strings and comments. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

COMMENT, LITERAL = "\x01", "\x02"
"""What ``code_of`` puts for each character of a comment, and of a string, template or regular expression."""

MAX_ANCHOR_LINES = 40
_OPENING = {")": "(", "]": "[", "}": "{"}
_BEFORE_REGEX = re.compile(r"(?:^|[(,=:\[!&|?{};+\-*%<>~^]|\b(?:return|typeof|case|in|of|await|yield))[ \t\r\n\x01]*\Z")
_LOOK_BACK = 24


def occurrences(text: str, pattern: str) -> int:
    """Return how often ``pattern`` occurs: 0, 1, or 2 for more; occurrences may overlap."""
    first = text.find(pattern) if pattern else -1
    if first < 0:
        return 0
    return 1 if text.find(pattern, first + 1) < 0 else 2


def anchor(text: str, start: int, end: int) -> str:
    """Return the text from ``start``, or from as many lines before it as needed, to ``end`` that occurs only once;
    empty if there is none."""
    for _ in range(MAX_ANCHOR_LINES):
        if occurrences(text, text[start:end]) == 1:
            return text[start:end]
        if start == 0:
            break
        start = text.rfind("\n", 0, start - 1) + 1
    return ""


def line_end(text: str, position: int) -> int:
    """Return where the line of ``position`` ends, before its line break."""
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    return end - 1 if end > position and text[end - 1] == "\r" else end


def newline_of(text: str) -> str:
    """Return the line break that the text uses."""
    return "\r\n" if "\r\n" in text else "\n"


def code_of(text: str) -> str:
    """Return JavaScript or TypeScript at the same length, with COMMENT and LITERAL for everything that is not code.

    It is not a parser: a quote that is not closed in its line counts as text, as an apostrophe in JSX is. Takes time
    linear in the text, whatever it is.
    """
    out: list[str] = []
    templates: list[int] = []
    unclosed: dict[str, int] = {}
    position = depth = 0
    while position < len(text):
        sign, pair = text[position], text[position : position + 2]
        if pair == "//":
            end = line_end(text, position)
            out.append(COMMENT * (end - position))
        elif pair == "/*":
            found = text.find("*/", position + 2)
            end = len(text) if found < 0 else found + 2
            out.append(COMMENT * (end - position))
        elif sign in "'\"" and position >= unclosed.get(sign, 0):
            end = _quoted_end(text, position)
            out.append(LITERAL * (end - position) if end else sign)
            if not end:
                unclosed[sign], end = line_end(text, position), position + 1
        elif sign == "`" or (sign == "}" and templates and templates[-1] == depth):
            if sign == "}":
                templates.pop()
                depth -= 1
            end, opens = _template_end(text, position + 1)
            out.append(LITERAL * (end - position))
            if opens:
                depth += 1
                templates.append(depth)
        elif sign == "/" and position >= unclosed.get(sign, 0) and _BEFORE_REGEX.search("".join(out[-_LOOK_BACK:])):
            end = _regex_end(text, position)
            out.append(LITERAL * (end - position) if end else sign)
            if not end:
                unclosed[sign], end = line_end(text, position), position + 1
        else:
            depth += (sign == "{") - (sign == "}")
            end = position + 1
            out.append(sign)
        position = end
    return "".join(out)


def _quoted_end(text: str, start: int) -> int:
    """Return the position after the closing quote, 0 if the line has none."""
    quote, position = text[start], start + 1
    while position < len(text):
        sign = text[position]
        if sign == quote:
            return position + 1
        if sign == "\n":
            break
        position += 2 if sign == "\\" else 1
    return 0


def _template_end(text: str, position: int) -> tuple[int, bool]:
    """Return the position after the closing backquote, or after ``${`` with True."""
    while position < len(text):
        if text[position] == "`":
            return position + 1, False
        if text.startswith("${", position):
            return position + 2, True
        position += 2 if text[position] == "\\" else 1
    return len(text), False


def _regex_end(text: str, start: int) -> int:
    """Return the position after the closing slash, 0 if the line has none."""
    position, group = start + 1, False
    while position < len(text) and text[position] != "\n":
        sign = text[position]
        if sign == "/" and not group:
            return position + 1
        group = sign == "[" or (group and sign != "]")
        position += 2 if sign == "\\" else 1
    return 0


def unbalanced(text: str) -> str:
    """Return what is wrong with the brackets of JavaScript or TypeScript; empty if they match."""
    open_: list[tuple[str, int]] = []
    line = 1
    for sign, plain in zip(text, code_of(text), strict=True):
        line += sign == "\n"
        if plain in "([{":
            open_.append((plain, line))
        elif plain in _OPENING and (not open_ or open_.pop()[0] != _OPENING[plain]):
            return f"line {line}: {plain!r} has no opening bracket"
    return f"line {open_[-1][1]}: {open_[-1][0]!r} is not closed" if open_ else ""


def members(text: str, keys: Sequence[str]) -> list[tuple[str, int]] | None:
    """Return the members of the object at ``keys`` in plain JSON: each name, and where its value ends. The first pair
    is an empty name and where the object opens. None if there is no such object. Raises ValueError for invalid JSON."""
    position, rest = _space(text, 0), list(keys)
    while True:
        if text[position : position + 1] != "{":
            return None
        found, starts = _object(text, position)
        if not rest:
            return found
        key = rest.pop(0)
        if key not in starts:
            return None
        position = starts[key]


def _object(text: str, position: int) -> tuple[list[tuple[str, int]], dict[str, int]]:
    import json

    decoder = json.JSONDecoder()
    found, starts = [("", position + 1)], dict[str, int]()
    position = _space(text, position + 1)
    while text[position : position + 1] == '"':
        name, position = decoder.raw_decode(text, position)
        position = _space(text, position)
        if text[position : position + 1] != ":":
            raise ValueError("a colon is missing")
        starts[str(name)] = start = _space(text, position + 1)
        _, position = decoder.raw_decode(text, start)
        found.append((str(name), position))
        position = _space(text, position)
        if text[position : position + 1] != ",":
            break
        position = _space(text, position + 1)
    if text[position : position + 1] != "}":
        raise ValueError("an object is not closed")
    return found, starts


def _space(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n\ufeff":
        position += 1
    return position
