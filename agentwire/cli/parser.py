"""Verbs registered with typer, which prints their help and what is wrong with a command line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

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
        app.command(name)(for_typer(verb))


def for_typer(verb: Callable[..., None]) -> Callable[..., None]:
    """Return ``verb`` with its arguments and options declared as typer expects."""
    signature = inspect.signature(verb, eval_str=True)

    def run(**given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                hint = f"'--{name.replace('_', '-')}'"
                raise typer.BadParameter(f"{value} is not a finite number.", param_hint=hint)
        verb(**given)

    translated = [each.replace(annotation=_translated(each.annotation)) for each in signature.parameters.values()]
    run.__doc__ = verb.__doc__
    run.__annotations__ = {each.name: each.annotation for each in translated}
    run.__signature__ = signature.replace(parameters=translated)  # pyright: ignore[reportFunctionMemberAccess]
    return run


def _translated(annotation: Any) -> Any:
    match get_args(annotation):
        case [kind, Argument(help=text, metavar=metavar, complete=complete, show_default=shown)]:
            info = typer.Argument(help=text, metavar=metavar, autocompletion=complete, show_default=shown)
        case [
            kind,
            Option(names=names, help=text, metavar=metavar, least=least, complete=complete, show_default=shown),
        ]:
            info = typer.Option(
                *names, help=text, metavar=metavar, min=least, autocompletion=complete, show_default=shown
            )
        case _:
            return annotation
    return Annotated[kind, info]
