"""The steps of one task: their order, and their problems."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from ccswarm.config.settings import PlanStep
from ccswarm.errors import PlanInvalid
from ccswarm.plan import command_arguments
from ccswarm.plan.references import Reference, condition, parse, path, tokens


def needs_of(steps: Sequence[PlanStep]) -> dict[str, tuple[str, ...]]:
    """Return the steps that each step waits for: those it names, by id or second name, else the previous one. Steps
    that always run also wait for all that do not; without names, for the previous one that always runs."""
    names = {step.save_as: step.id for step in steps if step.save_as} | {step.id: step.id for step in steps}
    found: dict[str, tuple[str, ...]] = {}
    others = tuple(step.id for step in steps if not step.always)
    above: dict[bool, tuple[str, ...]] = {}
    for step in steps:
        needs = above.get(step.always, ()) if step.needs is None else step.needs
        named = (names.get(need, need) for need in needs)
        found[step.id] = tuple(dict.fromkeys((*(others if step.always else ()), *named)))
        above[step.always] = (step.id,)
    return found


def cycle_problems(needs: Mapping[str, Collection[str]]) -> list[str]:
    """Return a problem like ``a → b → a wait for each other`` for each cycle."""
    left = {name: list(wanted) for name, wanted in needs.items()}
    found: list[str] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            found.append(
                f"{' → '.join(circle)} wait for each other" if len(circle) > 2 else f"{circle[0]} needs itself"
            )
            left = {name: [each for each in wanted if each not in circle] for name, wanted in left.items()}
        else:
            return found


def predecessors(needs: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Return all steps that have ended when each begins: its needs, their needs, and so on."""
    found: dict[str, set[str]] = {}
    for name in needs:
        seen: set[str] = set()
        left = list(needs[name])
        while left:
            need = left.pop()
            if need not in seen:
                seen.add(need)
                left += needs.get(need, ())
        found[name] = seen
    return found


def not_needed(task: str) -> str:
    """Return what a task is whose results a reference cannot use yet."""
    return f"a task that its own task does not need: add {task} to the task's needs"


def problems(
    steps: Sequence[PlanStep],
    inputs: Mapping[str, Collection[str] | None],
    not_input: Callable[[str], str] = not_needed,
) -> list[str]:
    """Return the reasons for which steps cannot be carried out, each with its step. ``inputs`` are the tasks that the
    task needs, with the names of their steps, or None if their results are unknown; ``not_input`` says why another name
    is none."""
    needs = needs_of(steps)
    twice = Counter(name for step in steps for name in (step.id, step.save_as) if name)
    found = [
        f"{name} is the name of {count} results: change an id or save_as" for name, count in twice.items() if count > 1
    ]
    for name, wanted in needs.items():
        found += [f"{name} needs {describe_unknown(need, needs)}" for need in wanted if need not in needs]
    found += cycle_problems({name: [need for need in wanted if need in needs] for name, wanted in needs.items()})
    names = {step.save_as: step.id for step in steps if step.save_as} | {step.id: step.id for step in steps}
    earlier = predecessors(needs)
    by_id = {step.id: step for step in steps}
    for step in steps:
        found += [f"{step.id}: {problem}" for problem in (*_malformed(step), *command_arguments.problems(step))]
        for reference, item in _references(step, found):
            if reference.scope == "steps" and reference.name in names:
                problem = _unordered(step, by_id[names[reference.name]], reference.name, earlier)
            else:
                problem = _misplaced(reference, item, names, inputs, not_input)
            if problem:
                found.append(f"{step.id}: {reference.text} {problem}")
    return list(dict.fromkeys(found))


def describe_unknown(name: str, known: Iterable[str], within: str = "") -> str:
    """Return a message like ``x, which does not exist (did you mean y?)``, with ``within`` before x and y."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"{within}{name}, which does not exist" + (f" (did you mean {within}{near[0]}?)" if near else "")


def _malformed(step: PlanStep) -> Iterator[str]:
    if step.gate and step.always:
        yield "gate ends the task at once, but always runs the step at its end: use only one of them"
    if step.expect.matches is not None:
        try:
            re.compile(step.expect.matches)
        except re.error as error:
            yield f"expect.matches is not a valid regular expression: {error}"
    for check in (*((condition, step.when) for _ in step.when[:1]), *((path, where) for where in step.expect.equals)):
        try:
            check[0](check[1])
        except PlanInvalid as error:
            yield error.message


def _references(step: PlanStep, problems: list[str]) -> Iterator[tuple[Reference, bool]]:
    """Yield each reference, and whether ``${item}`` is allowed there. Invalid ones are added to ``problems``."""
    each = step.for_each is not None
    for value, item in ((step.args, each), (step.when, each), (step.for_each, False)):
        for token in tokens(value):
            try:
                yield parse(token), item
            except PlanInvalid as error:
                problems.append(f"{step.id}: {error.message} ({error.suggestion})")


def _unordered(step: PlanStep, other: PlanStep, name: str, earlier: Mapping[str, Collection[str]]) -> str:
    """Return why ``step`` cannot refer to ``other``, by this ``name``, or ``""``."""
    if other.id == step.id:
        return "refers to the result of its own step"
    if other.id in earlier[step.id]:
        return ""
    if step.id not in earlier[other.id]:
        return f"refers to a step that does not run before it: add {name} to its needs"
    if other.needs is None and other.always == step.always:
        return f"refers to a step that runs after it: put {name} above it"
    return f"refers to a step that waits for it: {name}" + (" always runs at the end" if other.always else "")


def _misplaced(
    reference: Reference,
    item: bool,
    names: Collection[str],
    inputs: Mapping[str, Collection[str] | None],
    not_input: Callable[[str], str],
) -> str:
    """Return why a reference will have no value, or ``""``."""
    name = reference.name
    if reference.scope == "item":
        return "" if item else "is outside a for_each"
    if reference.scope == "steps":
        return f"refers to {describe_unknown(name, names)}"
    if reference.scope != "needs":
        return ""
    if name not in inputs:
        return f"refers to {not_input(name)}"
    known = inputs[name]
    if known is None or len(reference.parts) < 2:
        return ""
    if reference.parts[1] != "steps":
        return f"is not a result of a playbook: write ${{needs.{name}.steps.ID…}}"
    step = str(reference.parts[2]) if len(reference.parts) > 2 else ""
    return "" if not step or step in known else f"refers to {describe_unknown(step, known)}"
