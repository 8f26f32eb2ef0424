"""Verbs registered with typer, which prints their help and what is wrong with a command line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

from agentwire.cli.options import Argument, Group, Option
from agentwire.cli.output import write_bytes

ClickException: Any = typer.BadParameter.__mro__[2]
"""The error of a wrong command line."""


def program(group: type[TyperGroup], version: str, *, help: str, epilog: str) -> typer.Typer:  # noqa: A002
    """Return a program without verbs, whose option --version prints the line ``version``."""
    app = typer.Typer(
        cls=group,
        help=help,
        epilog=epilog,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,  # its tables cost 60 ms
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def print_version(wanted: bool) -> None:
        if wanted:
            write_bytes(f"{version}\n".encode())
            raise typer.Exit

    def declare(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=print_version
        ),
    ) -> None:
        """Declare the options before any verb."""

    app.callback()(declare)
    return app


def add(app: typer.Typer, name: str, verb: Any) -> None:
    """Add a function, a group of functions, or a typer group to ``app`` as a verb."""
    if isinstance(verb, Group):
        group = typer.Typer(help=verb.help, epilog=verb.epilog, rich_markup_mode=None)
        for inner, function in verb.verbs.items():
            add(group, inner, function)
        verb = group
    if isinstance(verb, typer.Typer):
        app.add_typer(verb, name=name, no_args_is_help=True)
    else:
        app.command(name, cls=_Verb)(for_typer(verb))


def for_typer(verb: Callable[..., None]) -> Callable[..., None]:
    """Return ``verb`` with its arguments and options declared as typer expects."""
    signature = inspect.signature(verb, eval_str=True)

    def run(**given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                hint = f"'--{name.replace('_', '-')}'"
                raise typer.BadParameter(f"{value} is not a finite number.", param_hint=hint)
        verb(**given)

    translated = [each.replace(annotation=_translated(each)) for each in signature.parameters.values()]
    run.__doc__ = verb.__doc__
    run.__annotations__ = {each.name: each.annotation for each in translated}
    run.__signature__ = signature.replace(parameters=translated)  # pyright: ignore[reportFunctionMemberAccess]
    return run


class _Verb(TyperCommand):
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage; only brackets around a word have a meaning: it may be left out."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


def _translated(parameter: inspect.Parameter) -> Any:
    match get_args(parameter.annotation):
        case [kind, Argument(help=text, metavar=metavar, complete=complete, show_default=shown)]:
            info = typer.Argument(help=text, metavar=metavar, autocompletion=complete, show_default=shown)
        case [
            kind,
            Option(names=names, help=text, metavar=metavar, least=least, complete=complete, show_default=shown),
        ]:
            info = typer.Option(
                *names, help=text, metavar=metavar, min=least, autocompletion=complete, show_default=shown
            )
        case [kind, ArgumentInfo() | OptionInfo() as given]:
            info = copy(given)
        case _:
            kind, info = parameter.annotation, typer.Argument()
    info.metavar = info.metavar or _metavar(kind, parameter.name)
    return Annotated[kind, info]


def _metavar(kind: Any, name: str) -> str | None:
    """Return the word for a value in help; None where help lists the values."""
    types = {inner for each in get_args(kind) or [kind] for inner in get_args(each) or [each]}
    if types & {int, float}:
        return "SECONDS" if name.endswith(("seconds", "timeout")) else "N"
    if Path in types:
        return "PATH"
    return name.split("_")[-1].upper() if str in types else None
