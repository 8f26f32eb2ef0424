"""Parses a command line into the words of its simple commands, or reports that they cannot be known. No I/O.

A *plain* line means the same in bash, zsh, fish and dash: literal words, joined by ``&& || | ;`` only. Whatever else it
contains (an expansion, a redirection to a file, an assignment, a keyword) makes it obscure, with the reason. The
commands of an obscure line are still listed as far as the grammar shows them, with None for words that are not literal;
``complete`` is False if it does not show all of them. Knows nothing of rules.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Tree

Words = tuple[str | None, ...]
"""One simple command. None stands for any number of words that are known only when it runs."""

MAX_BYTES = 4096
MAX_OPERATORS = 400
"""The limit for the parser. It takes 0.5 µs a byte, but quadratic time on rubbish: 2.5 s for 16 kB, 40 ms for this."""

MAX_COMMANDS = 50
OPERATOR = re.compile(r"[|&;<>(){}$`]")
OPEN_END = re.compile(r"(?:\||[&|<>]&|\\|(?:^|\s)(?:!|time|in|do|then|else|elif))\s*\Z")
BACKGROUND = re.compile(r"(?<![&|<>])&(?![&>])")
DOCUMENT = re.compile(r"(?<!<)<<(?!<)(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?(\w+))?")
SUBSTITUTION = re.compile(r"[$<>]\(")
HEAD = re.compile(r"[A-Za-z0-9_./+\-]+\Z")
BARE = re.compile(r"(?!.*==)[A-Za-z0-9_./:@+,\-][A-Za-z0-9_./:@%+,=\-]*\Z")
"""A word that no shell expands: %1 is a job, =ls a path in zsh, and a==ls one with MAGIC_EQUAL_SUBST."""

QUOTED = re.compile(r"[^\\'\n\t]*\Z")
DOUBLE_QUOTED = re.compile(r"[^\\\"$`!\n\t]*\Z")
HARMLESS_REDIRECT = re.compile(r"[12]?>(?:&[12]|\s*/dev/null)\Z")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    "if then elif else fi for while until do done case esac select in function time coproc repeat foreach"
    " end begin switch and or not nocorrect noglob builtin command exec eval source . - [ [[ (("
)
"""First words that are grammar, or change the grammar of what follows, in one of the shells."""

PLAIN = re.compile(
    rf"(?!(?:{'|'.join(map(re.escape, sorted(KEYWORDS)))})(?: |\Z))[A-Za-z0-9_./:@+,%-]+"
    r"(?: +[A-Za-z0-9_./:@+,%=-]+)*(?<! in)(?<! do)(?<! then)(?<! else)(?<! elif)(?<! time)"
)
"""One command of purely literal words, as most are: no need to parse it."""

JOINTS = frozenset(("&&", "||", "|", ";"))
KNOWN = _words(
    "program list pipeline command command_name word number raw_string string string_content"
    " concatenation variable_assignment variable_assignments variable_name special_variable_name"
    " simple_expansion expansion command_substitution process_substitution redirected_statement"
    " file_redirect file_descriptor herestring_redirect heredoc_redirect heredoc_start heredoc_body"
    " heredoc_content heredoc_end negated_command subshell compound_statement if_statement elif_clause"
    " else_clause for_statement c_style_for_statement while_statement do_group case_statement case_item"
    " function_definition declaration_command unset_command test_command unary_expression"
    " binary_expression parenthesized_expression test_operator comment subscript array"
    " arithmetic_expansion postfix_expression ternary_expression ansi_c_string translated_string"
    " extglob_pattern regex brace_expression"
)
INERT = frozenset(("raw_string", "comment", "ansi_c_string"))
HIDDEN = re.compile(r"[$<>=]\(|`")
"""A substitution that the parser mistook for text, in a leaf of the tree."""

NAMES = {
    "command_substitution": "a command substitution",
    "process_substitution": "a process substitution",
    "simple_expansion": "an expansion ($)",
    "expansion": "an expansion ($)",
    "arithmetic_expansion": "an expansion ($)",
    "variable_assignment": "an assignment",
    "file_redirect": "a redirection",
    "redirected_statement": "a redirection",
    "ansi_c_string": "an escape ($'')",
    "heredoc_redirect": "a here-document",
    "herestring_redirect": "a here-string",
    "comment": "a comment",
}


@dataclass(frozen=True, slots=True)
class Line:
    """The known facts about a line. ``obscure`` is why it is not plain; ``complete``: ``commands`` contains all of
    them.

    ``targets`` are the files of redirections, None for one that is not literal. ``assignments`` are variables with
    their values, one for each element of an array, None for a value that is not literal.
    """

    commands: tuple[Words, ...]
    obscure: str = ""
    complete: bool = True
    targets: Words = ()
    assignments: tuple[tuple[str, str | None], ...] = ()


def parse(line: str) -> Line:
    """Parse any string, in time bounded by MAX_BYTES. A plain line has at least one command. Never raises."""
    line = line.strip(" \n")
    unread = _unreadable(line)
    if unread:
        return Line((), unread, complete=False)
    data = line.encode()
    tree = _tree(data)
    if tree is None or tree.root_node.has_error:
        return Line((), "not valid shell grammar", complete=False)
    walk = _Walk(data)
    walk.run(tree.root_node)
    if len(walk.commands) > MAX_COMMANDS:
        return Line((), f"more than {MAX_COMMANDS} commands", complete=False)
    if not walk.commands:
        walk.blur("no command")
    return Line(tuple(walk.commands), walk.obscure, walk.complete, tuple(walk.targets), tuple(walk.assignments))


def is_whole(text: str) -> bool:
    """Report whether ``text`` is certainly complete. Never raises; bounded like ``parse``, and False beyond that."""
    if PLAIN.fullmatch(text):
        return True
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES or len(OPERATOR.findall(text)) > MAX_OPERATORS or OPEN_END.search(text):
        return False
    lines = set(text.splitlines()) if "<<" in text else set[str]()
    for tabs, *words in DOCUMENT.findall(text):
        end = "".join(words)
        if not end or not any(line.lstrip("\t" if tabs else "") == end for line in lines):
            return False
    tree = _tree(data)
    return tree is not None and not tree.root_node.has_error


def in_one_line(text: str) -> str:
    """A text that starts something in the background with all of its statements in one line; empty where it starts
    nothing, or where that could mean something else. Total, and bounded as ``parse`` is."""
    if not BACKGROUND.search(text) or "#" in text or "<<" in text or not is_whole(text):
        return ""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return ""
    if (tree := _tree(data)) is None:
        return ""
    line = end = ""
    for node in tree.root_node.children:
        piece = data[node.start_byte : node.end_byte].decode()
        if node.is_named:
            line += end + piece
            end = ";"
        else:
            line += f" {piece}"
            end = " "
    return line


def may_be_cut_off(text: str) -> bool:
    """Report whether a substitution in ``text`` may be unterminated. False is certain; bounded like ``parse``."""
    if not SUBSTITUTION.search(text):
        return False
    data = text.encode(errors="replace")
    if len(data) > MAX_BYTES or len(OPERATOR.findall(text)) > MAX_OPERATORS:
        return True
    tree = _tree(data)
    return tree is None or tree.root_node.has_error


def _name(kind: str) -> str:
    return NAMES.get(kind) or f"the construct {kind.replace('_', ' ')!r}"


def _unreadable(line: str) -> str:
    if len(line) > MAX_BYTES or len(line.encode(errors="replace")) > MAX_BYTES:
        return f"longer than {MAX_BYTES} bytes"
    if not line.replace("\n", "").replace("\t", "").isprintable():
        odd = next(char for char in line if char not in "\n\t" and not char.isprintable())
        return f"the character U+{ord(odd):04X}"
    if "\\\n" in line:
        return "a backslash at the end of a line"
    if len(OPERATOR.findall(line)) > MAX_OPERATORS:
        return f"more than {MAX_OPERATORS} operators"
    return ""


PIECE_BYTES = 256
_buffers: dict[int, bytearray] = {}
"""Buffers by their length, which is at most PIECE_BYTES."""


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _piece(data: bytes, offset: int) -> bytearray:
    """Return what the parser reads next. It never releases a buffer, so one per length serves all pieces. A character
    that is cut between pieces is read again from its first byte."""
    piece = data[offset : offset + PIECE_BYTES]
    buffer = _buffers.get(len(piece))
    if buffer is None:
        buffer = _buffers[len(piece)] = bytearray(len(piece))
    buffer[:] = piece
    return buffer


def _tree(data: bytes) -> Tree | None:
    """Return None after a syntax error: recovery, which is of no use here, takes the parser quadratic time."""
    try:
        return _parser().parse(lambda offset, _: _piece(data, offset), progress_callback=lambda _, wrong: wrong)
    except ValueError:
        _parser().reset()
        return None


class _Walk:
    """One pass over a tree in text order. Bytes outside of all tokens must be blanks, or the line is obscure."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.commands: list[Words] = []
        self.targets: list[str | None] = []
        self.assignments: list[tuple[str, str | None]] = []
        self.obscure = ""
        self.complete = True

    def blur(self, reason: str) -> None:
        self.obscure = self.obscure or reason

    def run(self, root: Node) -> None:
        if not self._covered(root):
            self.blur("text outside of every word")
        if b"\n" in self.data or b"\t" in self.data:
            self.blur("a tab or a second line")
        stack = [root]
        while stack:
            node = stack.pop()
            kind = node.type
            if not node.is_named:
                if kind not in JOINTS:
                    self.blur(f"the operator {kind.strip()!r}")
                continue
            if kind not in KNOWN or (not node.children and kind not in INERT and HIDDEN.search(self._text(node))):
                self.blur(_name(kind))
                self.complete = False
            if kind == "redirected_statement" and self._harmless(node):
                stack += [child for child in node.named_children if child.type != "file_redirect"]
                continue
            if kind == "command":
                stack += reversed(self._command(node))
                continue
            if kind == "file_redirect":
                self.blur(_name(kind))
                self.targets += [self._literal(part) for part in node.children_by_field_name("destination")]
            elif kind == "variable_assignment":
                self._assignment(node)
            elif kind in ("declaration_command", "unset_command"):
                self.commands.append((self._text(node.children[0]), None))
            if kind not in ("program", "list", "pipeline"):
                self.blur(_name(kind))
            stack += reversed(node.children)

    def _covered(self, root: Node) -> bool:
        at, stack = 0, [root]
        while stack:
            node = stack.pop()
            if node.children and node.type not in ("string", "heredoc_body"):
                stack += reversed(node.children)
            elif node.end_byte > at:
                if self.data[at : node.start_byte].strip(b" \t\n"):
                    return False
                at = node.end_byte
        return not self.data[at:].strip(b" \t\n")

    def _text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode()

    def _harmless(self, statement: Node) -> bool:
        redirects = [child for child in statement.named_children if child.type == "file_redirect"]
        others = [child.type for child in statement.named_children if child.type != "file_redirect"]
        # Shells disagree about where a redirection begins that follows a word without a blank.
        apart = all(
            self.data[child.start_byte - 1 : child.start_byte] == b" "
            and self.data[child.end_byte : child.end_byte + 1] in (b"", b" ", b";", b"|", b"&")
            for child in redirects
        )
        return (
            apart and others == ["command"] and all(HARMLESS_REDIRECT.match(self._text(child)) for child in redirects)
        )

    def _command(self, node: Node) -> list[Node]:
        """Record one command; return the parts of it that may contain further commands."""
        words: list[str | None] = []
        inner: list[Node] = []
        for child in node.children:
            if child.type in ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"):
                inner.append(child)
                continue
            word = child.children[0] if child.type == "command_name" and child.children else child
            literal = self._literal(word)
            words.append(literal)
            if literal is None:
                inner.append(word)
        if not words:
            self.complete = False
        elif words[0] in KEYWORDS or not HEAD.match(words[0] or "-"):
            self.blur(f"the command {words[0]!r}")
        self.commands.append(tuple(words))
        return inner

    def _assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None:
            return
        parts = value.named_children if value.type == "array" else [value]
        self.assignments += [(self._text(name).partition("[")[0], self._literal(part)) for part in parts]

    def _literal(self, node: Node) -> str | None:
        """Return the word as the program gets it, or None. Bare words must not contain what any shell expands."""
        text = self._text(node)
        kind = node.type
        if kind in ("word", "number") and not node.children:
            if BARE.match(text):
                return text
        elif kind == "raw_string":
            if QUOTED.match(text[1:-1]) and "''" not in text[1:-1]:
                return text[1:-1]
        elif kind == "string" and text.startswith('"'):
            if DOUBLE_QUOTED.match(text[1:-1]) and text.endswith('"') and len(text) > 1:
                return text[1:-1]
        elif kind == "concatenation":
            return self._joined(node)
        self.blur(f"the word {text[:40]!r}" if kind in ("word", "raw_string", "string") else _name(kind))
        return None

    def _joined(self, node: Node) -> str | None:
        parts = node.children
        # zsh with RC_QUOTES reads 'a''b' as one quoted string with a quote in it.
        doubled = any(a.type == b.type == "raw_string" for a, b in pairwise(parts))
        literals = [self._literal(part) for part in parts]
        if doubled or None in literals or self._text(node).startswith("="):
            self.blur(f"the word {self._text(node)[:40]!r}")
            return None
        return "".join(literal or "" for literal in literals)
