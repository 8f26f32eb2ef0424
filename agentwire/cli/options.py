"""Arguments and options of verbs, declared in the verb's signature without importing typer.

``quick`` parses them; ``cli`` passes them to typer, which prints the help and the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

Verb = Callable[..., None]

Complete = Callable[[str], Sequence[str | tuple[str, str]]]
"""Returns what a shell offers for the beginning of a word: words, or words with their descriptions."""


class Argument:
    """A positional argument; all remaining words if the parameter is a list."""

    def __init__(
        self,
        *,
        help: str,  # noqa: A002  # typer's name for it
        metavar: str | None = None,
        complete: Complete | None = None,
        show_default: bool = True,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.complete = complete
        self.show_default = show_default


class Option:
    """An option. ``names`` begin with dashes. A bool is a flag; a list may be given several times."""

    def __init__(
        self,
        *names: str,
        help: str,  # noqa: A002
        metavar: str | None = None,
        least: float | None = None,
        complete: Complete | None = None,
        show_default: bool = True,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.least = least
        self.complete = complete
        self.show_default = show_default


Json = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


class Group:
    """Verbs behind one word, by name, and ``help`` for all of them."""

    def __init__(self, help: str, *, epilog: str | None = None) -> None:  # noqa: A002
        self.help = help
        self.epilog = epilog
        self.verbs: dict[str, Verb | Group] = {}

    def command(self, name: str = "") -> Callable[[Verb], Verb]:
        """Add the decorated function as a verb, under its own name unless another one is given."""

        def add(verb: Verb) -> Verb:
            self.verbs[name or verb.__name__] = verb
            return verb

        return add
