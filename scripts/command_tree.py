"""The two programs as plain values: verbs, arguments and options, as ``--help`` lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import typer


@dataclass(frozen=True)
class Verb:
    """One command. ``words`` begin with the program; ``verbs`` are its subcommands, in the order of ``--help``.
    ``arguments`` and ``options`` are pairs of syntax and description; ``text`` has paragraphs."""

    words: tuple[str, ...]
    usage: str
    text: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    verbs: tuple[Verb, ...]

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def summary(self) -> str:
        return self.text[0].partition("\n")[0] if self.text else ""

    def leaves(self) -> list[Verb]:
        """Return the verbs without subcommands, in order."""
        return [leaf for verb in self.verbs for leaf in verb.leaves()] if self.verbs else [self]


@dataclass(frozen=True)
class Program:
    """A program, its verbs and the description of its exit codes."""

    verb: Verb
    version: str
    exit_codes: str


def programs() -> list[Program]:
    """Return both programs."""
    import ai_session.cli.main
    import ccswarm.cli.main

    return [
        Program(_read(typer.main.get_command(app), (name,), None), version, exit_codes)
        for name, app, version, exit_codes in (
            ("ai-session", ai_session.cli.main.program(), ai_session.__version__, ai_session.cli.main.EXIT_CODES),
            ("ccswarm", ccswarm.cli.main.app, ccswarm.__version__, ccswarm.cli.main.EXIT_CODES),
        )
    ]


def _read(command: Any, words: tuple[str, ...], parent: Any) -> Verb:
    context = typer.Context(command, info_name=words[-1], parent=parent)
    pieces = " ".join(command.collect_usage_pieces(context))
    names: list[str] = command.list_commands(context) if hasattr(command, "list_commands") else []
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    return Verb(
        words=words,
        usage=f"{' '.join(words)} {pieces}".strip(),
        text=_paragraphs(command.help or ""),
        arguments=_records(shown, "argument", context),
        options=_records(shown, "option", context),
        verbs=tuple(_read(command.get_command(context, name), (*words, name), context) for name in names),
    )


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()) if part.strip())


def _records(params: list[Any], kind: str, context: Any) -> tuple[tuple[str, str], ...]:
    found = (param.get_help_record(context) for param in params if param.param_type_name == kind)
    return tuple((" ".join(names.split()), " ".join(text.split())) for names, text in filter(None, found))
