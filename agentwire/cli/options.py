"""Arguments and options of verbs that start often, said in the verb's own signature without the parser's library.

``quick`` reads them as they are typed; ``cli`` hands them to typer, which shows the help and words the errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

Verb = Callable[..., None]

Complete = Callable[[str], Sequence[str | tuple[str, str]]]
"""What a shell offers for the beginning of a word: words, or words and what they are."""


class Argument:
    """A word without a dash; all that are left where the parameter is a list."""

    def __init__(
        self,
        *,
        help: str,  # noqa: A002  # as it is spelled everywhere
        metavar: str | None = None,
        complete: Complete | None = None,
        show_default: bool = True,
    ) -> None:
        self.help = help
        self.metavar = metavar
        self.complete = complete
        self.show_default = show_default


class Option:
    """``names`` begin with dashes. A bool is a flag; a list may be given several times."""

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
    """Verbs behind one word: what ``help`` says of them together, and each by its name."""

    def __init__(self, help: str, *, epilog: str | None = None) -> None:  # noqa: A002
        self.help = help
        self.epilog = epilog
        self.verbs: dict[str, Verb | Group] = {}

    def command(self, name: str = "") -> Callable[[Verb], Verb]:
        """Adds the function below as a verb, of its own name where no other is given."""

        def add(verb: Verb) -> Verb:
            self.verbs[name or verb.__name__] = verb
            return verb

        return add
