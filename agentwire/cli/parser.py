"""Verbs registered with typer, which prints their help and what is wrong with a command line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from agentwire.cli.options import Argument, Group, Option


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
