"""Rules as written in the configuration → checked, compiled selectors. No I/O.

A rule applies to a call if all of its selectors do. ``matches`` is for rules that ask or deny, which also apply if a
match is only possible; ``allows`` is for rules that allow, which must be certain.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentwire.validation import requirement
from ai_session.errors import ConfigInvalid
from ai_session.gate.policy.commands import Match, Reading, points_elsewhere, strictly_allows
from ai_session.models import Effect, Principal
from ai_session.system.shell_words import Line, Words, parse

SELECTORS = ("tools", "effects", "commands", "paths", "domains", "principals", "clients", "agents")
MAX_RULES = 500

Text = Annotated[str, Field(min_length=1, max_length=1000)]


class Examples(BaseModel):
    """Command lines (else domains, paths or tools: what the rule selects by) that the rule must and must not match."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: tuple[Text, ...] = ()
    not_match: tuple[Text, ...] = ()


class RuleTable(BaseModel):
    """One ``[[policy.rules]]``. An empty selector selects everything; at least one must be given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(default="", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$|^$")
    decision: Literal["allow", "ask", "deny"]
    reason: str = Field(default="", max_length=500)
    tools: tuple[Text, ...] = ()
    effects: tuple[Effect, ...] = ()
    commands: tuple[tuple[Text, ...], ...] = ()
    paths: tuple[Text, ...] = ()
    domains: tuple[Text, ...] = ()
    principals: tuple[Literal["mcp", "person"], ...] = ()
    clients: tuple[Text, ...] = ()
    agents: tuple[Text, ...] = ()
    examples: Examples = Examples()

    @field_validator("commands", mode="before")
    @classmethod
    def split(cls, value: object) -> object:
        """Split a prefix that is written as one string at its blanks."""
        if not isinstance(value, list | tuple):
            return value
        items = cast("Sequence[object]", value)
        return tuple(tuple(item.split()) if isinstance(item, str) else item for item in items)

    @field_validator("commands")
    @classmethod
    def named(cls, value: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        """Raise ValueError unless a prefix begins with the name of a program."""
        if any(not prefix or prefix[0] == "*" for prefix in value):
            raise ValueError("a command begins with the name of a program")
        return value


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled rule. A command line is parsed at most once per call, by the caller."""

    id: str
    table: RuleTable
    about: Callable[[str], bool]
    paths: re.Pattern[str] | None
    by_program: Mapping[str, tuple[tuple[str, ...], ...]]

    @property
    def reads_words(self) -> bool:
        """Whether the rule reads the words of a command."""
        return bool(self.table.commands) or self.paths is not None

    def concerns(self, principal: Principal, tool: str, effect: Effect, agent: str) -> bool:
        """Report whether the selectors that are certain (who, which tool, which effect) all match."""
        table = self.table
        return (
            (not table.tools or self.about(tool))
            and (not table.effects or effect in table.effects)
            and (not table.principals or principal.kind in table.principals)
            and (not table.clients or any(fnmatchcase(principal.client, glob) for glob in table.clients))
            and (not table.agents or any(fnmatchcase(agent, glob) for glob in table.agents))
        )

    def matches(self, reading: Reading | None, paths: Sequence[str], domain: str) -> Match:
        """Return how certainly the rule applies to the call. ``reading`` is None for calls without a command."""
        best = Match.YES
        if self.table.domains:
            best = Match.YES if in_domains(self.table.domains, domain) else Match.NO
        if self.table.commands and best:
            found = (reading.match(prefix) for prefix in self.table.commands) if reading else ()
            best = max(found, default=Match.NO)
        if self.paths and best:
            best = min(best, self._reaches(reading.line if reading else None, paths))
        return best

    def allows(self, words: Words, paths: Sequence[str]) -> bool:
        """Report whether an ``allow`` rule with commands certainly allows one simple command."""
        prefixes = self.by_program.get(words[0] or "", ())
        return any(strictly_allows(prefix, words, self.paths is not None) for prefix in prefixes) and (
            self.paths is None or self.covers([*paths, *_outside_paths(words)])
        )

    def covers(self, paths: Sequence[str]) -> bool:
        """Report whether the rule covers every path in any spelling, without expansions by the shell."""
        return self.paths is not None and all(
            ".." not in path.split("/") and self.paths.match(_normal(path)) for path in paths
        )

    def _reaches(self, line: Line | None, paths: Sequence[str]) -> Match:
        assert self.paths is not None
        words = [*(word for command in line.commands for word in command[1:]), *line.targets] if line else []
        given = [value for _, value in line.assignments] if line else []
        known = [piece for word in (*words, *given) if word for piece in (*pieces(word), *_within(word))]
        if any(self.paths.match(_normal(path)) for path in (*paths, *known)):
            return Match.YES
        unsure = line is not None and (not line.complete or None in words)
        return Match.MAYBE if unsure or any(".." in word.split("/") for word in known) else Match.NO


def load(tables: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Return the rules in order, their examples checked. Raises ConfigInvalid, which names the rule and the problem."""
    if len(tables) > MAX_RULES:
        raise ConfigInvalid(f"policy.rules: more than {MAX_RULES} rules", suggestion="join rules; prefixes are lists")
    rules: list[Rule] = []
    for number, table in enumerate(tables, 1):
        given = str(table.get("id", ""))
        name = f"policy.rules[{number}]" + (f" ({given[:64]})" if given else "")
        rule = _compile(name, number, table)
        if any(other.id == rule.id for other in rules):
            raise ConfigInvalid(f"{name}: the id {rule.id!r} is used twice", suggestion="give each rule its own id")
        _check_examples(name, rule)
        rules.append(rule)
    return tuple(rules)


def _compile(name: str, number: int, table: Mapping[str, Any]) -> Rule:
    try:
        checked = RuleTable.model_validate(table)
    except ValidationError as error:
        raise _invalid(name, error) from None
    if not any(getattr(checked, selector) for selector in SELECTORS):
        raise ConfigInvalid(f"{name}: selects nothing", suggestion=f"give one of: {', '.join(SELECTORS)}")
    tools = re.compile("|".join(translate(glob) for glob in checked.tools))
    # On file systems that ignore case, a denial must too.
    case = re.NOFLAG if checked.decision == "allow" else re.IGNORECASE
    by_program: dict[str, tuple[tuple[str, ...], ...]] = {}
    for prefix in checked.commands:
        by_program[prefix[0]] = (*by_program.get(prefix[0], ()), prefix)
    return Rule(
        id=checked.id or f"rule-{number}",
        table=checked,
        about=lambda tool: tools.match(tool) is not None,
        paths=re.compile("|".join(map(_path_pattern, checked.paths)), case) if checked.paths else None,
        by_program=by_program,
    )


def _invalid(name: str, error: ValidationError) -> ConfigInvalid:
    problems: list[str] = []
    suggestions: list[str] = []
    for item in error.errors(include_url=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            known = [*Examples.model_fields] if where.startswith("examples.") else [*RuleTable.model_fields]
            near = difflib.get_close_matches(where.rpartition(".")[2], known, n=1, cutoff=0)
            suggestions.append(f"did you mean {near[0]}?")
            problems.append(f"{where} is not a key of a rule")
        else:
            problems.append(f"{where}: {requirement(item)}")
    suggestions.append("ai-session docs policy shows every key")
    return ConfigInvalid(f"{name}: {'; '.join(problems)}", suggestion=" ".join(dict.fromkeys(suggestions)))


def _check_examples(name: str, rule: Rule) -> None:
    examples = rule.table.examples
    for wanted, texts in ((True, examples.match), (False, examples.not_match)):
        for text in texts:
            if _fits(rule, text) != wanted:
                key, word = ("match", "does not match") if wanted else ("not_match", "matches")
                raise ConfigInvalid(
                    f"{name}: the example {text!r} in {key} {word} the rule", suggestion="fix the rule or the example"
                )


def _fits(rule: Rule, text: str) -> bool:
    """Report whether one example matches, as what the rule selects by: a command line, a domain, a path, a tool."""
    table = rule.table
    if table.commands:
        line = parse(text)
        if table.decision == "allow":
            return not line.obscure and all(rule.allows(words, ()) for words in line.commands)
        return rule.matches(Reading(line), (), table.domains[0] if table.domains else "") is not Match.NO
    if table.domains:
        return in_domains(table.domains, text)
    if rule.paths:
        return rule.covers([text]) if table.decision == "allow" else rule.matches(None, [text], "") is Match.YES
    return rule.about(text) if table.tools else True


def in_domains(wanted: Sequence[str], domain: str) -> bool:
    """Report whether a list has the domain: ``*.pypi.org`` is any name below pypi.org but not itself; ``*`` is any."""
    name = domain.rstrip(".").lower()
    entries = [entry.rstrip(".").lower() for entry in wanted] if name else []
    return any(
        entry in (name, "*") or (entry.startswith("*.") and name.endswith(entry[1:]) and name != entry[1:])
        for entry in entries
    )


def pieces(word: str) -> set[str]:
    """Return the paths a word may contain: itself, and what follows an option, ``=``, ``:``, ``@`` or a comma."""
    found = {word, *re.split(r"[=:@,]", word)}
    if word.startswith("-") and not word.startswith("--"):
        found.add(word[2:])
    return {piece for piece in found if piece}


def _within(word: str) -> list[str]:
    """Return the paths in a word that is a command or a program of its own: ``bash -c 'cat /etc/shadow'``."""
    return list(filter(None, re.split(r"[\s=:@,;|&<>(){}'\"`]+", word)))


def _outside_paths(words: Words) -> list[str]:
    """Return the words of a plain command that name a path outside the shell's directory."""
    return [piece for word in words[1:] if word and points_elsewhere(word) for piece in pieces(word) if "/" in piece]


def _normal(path: str) -> str:
    return re.sub("^//", "/", os.path.normpath(path))


def _path_pattern(glob: str) -> str:
    """Translate a glob: ``**`` is any number of directories, ``*`` and ``?`` match in one; ``/a/**`` includes /a."""
    signs = {"/**/": "/(?:.*/)?", "/**": "(?:/.*)?", "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\A\*\*/|/\*\*/|/\*\*\Z|\*\*|\*|\?)", glob)
    return f"(?:{''.join(signs.get(part) or re.escape(part) for part in parts)})\\Z"
