"""A plan of phases and tasks by rules: their order, and the days that the rules count for them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ccswarm.models import Priority
from ccswarm.servers._json_values import cut, items, table
from ccswarm.servers.mcp.toolsets.orchestre.analysis import (
    BASE,
    HARD,
    HARDENING_DAYS,
    UNKNOWN,
    Brief,
    count_in,
    days_in,
    days_of,
    span,
    statements,
    topics_in,
)
from ccswarm.servers.mcp.toolsets.orchestre.rules import Topic

Facts = dict[str, Any]
Kind = Literal["study", "build", "check", "tell"]
KINDS: tuple[Kind, ...] = ("study", "build", "check", "tell")

BASIS = (
    "By rules: what a rule knows takes 1 day, and 1 more for each of its points, which count where it is met first; "
    "how long all else takes is unknown, and dates leave it out. Days are working days of one; phases follow each "
    "other, tasks of one share the team."
)
TITLE_CHARS = 80
WEEK = 5
SPRINTING = re.compile(r"agile|scrum|sprint|xp", re.IGNORECASE)
MUST = re.compile(r"\b(?:must|critical|essential|required)\b", re.IGNORECASE)
LATER = re.compile(r"\b(?:could|nice to have|optional(?:ly)?|later|if possible)\b", re.IGNORECASE)
BY_ORDER = re.compile(r"order|given|fifo|sequence|value", re.IGNORECASE)


@dataclass(slots=True)
class Work:
    """A task that is not numbered yet. ``needs`` are earlier tasks."""

    title: str
    description: str
    kind: Kind
    days: int | None
    """None if no rule has a basis for a number."""
    priority: Priority = "medium"
    needs: list[Work] = field(default_factory=list["Work"])
    id: str = ""


@dataclass(slots=True)
class Phase:
    name: str
    objectives: list[str]
    works: list[Work]
    deliverables: list[str]
    risks: list[str] = field(default_factory=list[str])

    def days(self, team: int) -> int:
        """Return the days of the phase: its longest chain, or the whole work of the team, whichever is more."""
        return max(_chain(self.works), math.ceil(sum(work.days or 0 for work in self.works) / team))

    @property
    def is_known(self) -> bool:
        """Whether the length of all tasks is known."""
        return all(work.days is not None for work in self.works)


@dataclass(frozen=True, slots=True)
class Preferences:
    methodology: str
    team: int
    sprint: int
    """In working days; 0 means no sprints."""
    by_order: bool


def preferences_of(given: object, brief: Brief, able: int) -> Preferences:
    """Return the preferences in a call's arguments; ``able`` is the number of agents that could do tasks."""
    values = table(given)
    methodology = cut(" ".join(str(values.get("methodology") or "phases").split()), TITLE_CHARS)
    length = values.get("sprintLength")
    sprint = days_in(str(length or "")) or count_in(length) * WEEK
    if not sprint and SPRINTING.search(methodology):
        sprint = 2 * WEEK
    team = count_in(values.get("teamSize")) or brief.team or able or 1
    return Preferences(
        methodology, max(1, team), sprint, bool(BY_ORDER.search(str(values.get("prioritization") or "")))
    )


def analysis_in(given: object) -> Mapping[str, Any]:
    """Return the analysis that a client gives, also within the answer that contained it; else an empty one."""
    found = table(given)
    for _ in range(3):
        inner = next((found[name] for name in ("analysis", "data") if table(found.get(name))), None)
        if inner is None:
            break
        found = table(inner)
    return found


def plan_of(
    brief: Brief, analysis: Mapping[str, Any], facts: Mapping[str, Any] | None, wanted: Preferences, template: str = ""
) -> Facts:
    """Return the plan as docs/protocols/orchestre.md describes it. ``analysis`` is one by rules or of the same form;
    missing members are ignored."""
    phases = _phases(brief, analysis, facts, wanted, template)
    for number, phase in enumerate(phases, 1):
        for count, work in enumerate(phase.works, 1):
            work.id = f"{number}.{count}"
    lengths = [phase.days(wanted.team) for phase in phases]
    effort = sum(work.days or 0 for phase in phases for work in phase.works)
    unknown = sum(work.days is None for phase in phases for work in phase.works)
    more = f", and {_count(unknown, 'task')} of unknown length" if unknown else ""
    return {
        "overview": f"{_count(len(statements(brief.requirements)), 'requirement')} in {len(phases)} phases, "
        f"{sum(len(phase.works) for phase in phases)} tasks, {effort} days of work{more}: "
        + cut(" ".join(brief.requirements.split()), 200),
        "methodology": wanted.methodology,
        "totalDuration": f"{span(sum(lengths))} with {wanted.team}{more}",
        "phases": [_phase(number, *one) for number, one in enumerate(zip(phases, lengths, strict=True), 1)],
        "milestones": _milestones(phases, lengths, wanted),
        "resources": {"team": wanted.team, "effortDays": effort, "basis": BASIS},
    }


def _phase(number: int, phase: Phase, days: int) -> Facts:
    return {
        "id": str(number),
        "name": phase.name,
        "duration": span(days if phase.is_known else None),
        "objectives": phase.objectives,
        "tasks": [
            {
                "id": work.id,
                "title": work.title,
                "description": work.description,
                "effort": span(work.days),
                "dependencies": sorted(
                    {one.id for one in work.needs}, key=lambda one: [int(n) for n in one.split(".")]
                ),
                "assignee": "",
                "priority": work.priority,
                "kind": work.kind,
            }
            for work in phase.works
        ],
        "deliverables": phase.deliverables,
        "risks": phase.risks,
    }


def _milestones(phases: Sequence[Phase], lengths: Sequence[int], wanted: Preferences) -> list[Facts]:
    """Return the milestones. Their dates count from the beginning, whose date is unknown."""
    found: list[Facts] = []
    days = 0
    is_known = True
    for phase, length in zip(phases, lengths, strict=True):
        days += length
        is_known = is_known and phase.is_known
        date = f"end of day {days}" if days < WEEK else f"end of week {math.ceil(days / WEEK)}"
        if wanted.sprint:
            date = f"end of sprint {math.ceil(days / wanted.sprint)}, {date.removeprefix('end of ')}"
        date = date if is_known else UNKNOWN
        criteria = [f"{work.id} {work.title}" for work in phase.works]
        found.append({"name": f"{phase.name} done", "date": date, "criteria": criteria})
    return found


def _phases(
    brief: Brief, analysis: Mapping[str, Any], facts: Mapping[str, Any] | None, wanted: Preferences, template: str
) -> list[Phase]:
    foundation = _foundation(facts, template)
    base, features = _requirements(brief, analysis, wanted)
    before = [foundation.works[-1]]
    phases = [foundation]
    for name, works in (("Base", base), ("Features", features)):
        if works:
            for work in works:
                work.needs = list(before)
            titles = [work.title for work in works]
            phases.append(Phase(name, titles, works, ["Working code, with tests"], _risks_of(analysis, works)))
            before = works
    if hardening := _hardening(analysis, before):
        phases.append(hardening)
        before = hardening.works
    last = Work(
        "Try everything together",
        "Go through every requirement as its user would, and note what fails.",
        "check",
        1,
        "high",
        list(before),
    )
    guide = Work(
        "Write down how it is used and run",
        "Documentation for those who use it and those who run it.",
        "tell",
        1,
        "medium",
        [last],
    )
    goals = ["Everything works together", "Somebody else can use and run it"]
    phases.append(Phase("Delivery", goals, [last, guide], ["Notes of the trial", "Documentation"]))
    return phases


def _foundation(facts: Mapping[str, Any] | None, template: str) -> Phase:
    works: list[Work] = []
    code = bool(facts and facts["lines"])
    if template:
        works.append(
            Work(
                f"Start from the template {template}",
                f"Bring in {template}, and see that it builds.",
                "build",
                1,
                "high",
            )
        )
    study = (
        Work(
            "Find what is there and what it touches",
            "Read the code that the requirements touch; list its places.",
            "study",
            1,
            "high",
            works[-1:],
        )
        if code
        else Work(
            "Settle what is wanted",
            "For each requirement: how one sees that it is met.",
            "study",
            1,
            "high",
            works[-1:],
        )
    )
    command = str(facts["tests"]["command"]) if facts else ""
    test = (
        Work(
            "Run the tests as they are",
            f"{command}: note what fails before anything is changed.",
            "study",
            1,
            "high",
            [study],
        )
        if command and facts and facts["tests"]["cases"]
        else Work("Have tests run", "One command that runs all tests, and a first test.", "build", 1, "high", [study])
    )
    goals = ["What is there and what is wanted is known", "Tests run"]
    return Phase("Foundation", goals, [*works, study, test], ["Notes", "A command that runs the tests"])


def _requirements(brief: Brief, analysis: Mapping[str, Any], wanted: Preferences) -> tuple[list[Work], list[Work]]:
    """Return the tasks on which others build, and the other ones."""
    counted: set[str] = set()
    base: list[Work] = []
    features: list[Work] = []
    for text in (*statements(brief.requirements), *_unmentioned(brief, analysis)):
        topics = [topic for topic, _ in topics_in([("", text)])]
        title = text if len(text) <= TITLE_CHARS else cut(text, TITLE_CHARS)
        # A sentence about several topics becomes a task for each.
        for those, name in (
            [([one], f"{one.component}: {title}") for one in topics] if topics[1:] else [(topics, title)]
        ):
            fresh = [topic for topic in those if topic.rule not in counted]
            counted |= {topic.rule for topic in those}
            care = [f"{topic.component}: {topic.mitigation}." for topic in those]
            days = days_of(fresh) if those else None
            work = Work(name, "\n".join((text, *care)), "build", days, _priority(text, those, wanted))
            (base if any(topic.rule in BASE for topic in those) else features).append(work)
    return base, features


def _unmentioned(brief: Brief, analysis: Mapping[str, Any]) -> list[str]:
    """Return the analysis's components that no requirement mentions."""
    text = brief.requirements.casefold()
    known = {topic.component for topic, _ in topics_in(brief.texts)} | {"The program itself"}
    named = [str(table(one).get("name") or one) for one in items(analysis.get("keyComponents"))]
    return [
        cut(" ".join(name.split()), 200)
        for name in named[:20]
        if name.strip()
        and name not in known
        and not any(word in text for word in re.findall(r"\w{4,}", name.casefold()))
    ]


def _priority(text: str, topics: Sequence[Topic], wanted: Preferences) -> Priority:
    """Return the priority that the words name, else the one that follows from the topics, if risk counts."""
    if LATER.search(text):
        return "low"
    if MUST.search(text):
        return "critical"
    if wanted.by_order:
        return "medium"
    return "high" if any(topic.severity == "high" for topic in topics) else "medium"


def _hardening(analysis: Mapping[str, Any], before: Sequence[Work]) -> Phase | None:
    points = table(table(analysis.get("complexity")).get("factors"))
    works = [
        Work(title, text, "check", HARDENING_DAYS, "high", list(before))
        for name, title, text in (
            (
                "security",
                "Check what a stranger could do",
                "Rights at every call, input that harms, secrets, old parts.",
            ),
            ("scalability", "Measure it under load", "The load that is wanted, what gives way first, at what figures."),
        )
        if isinstance(points.get(name), int | float) and points[name] >= HARD
    ]
    if not works:
        return None
    return Phase("Hardening", [work.title for work in works], works, ["Findings, and what was done about them"])


def _risks_of(analysis: Mapping[str, Any], works: Sequence[Work]) -> list[str]:
    """Return the analysis's challenges whose area occurs in these tasks."""
    text = "\n".join(work.description for work in works)
    met = [one for one in map(table, items(analysis.get("challenges"))) if one and str(one.get("area") or "-") in text]
    return [cut(f"{one.get('area')}: {one.get('description', '')}", 300) for one in met[:20]]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _chain(works: Sequence[Work]) -> int:
    """Return the days of the longest chain of these tasks."""
    ends: dict[int, int] = {}
    for work in works:
        ends[id(work)] = (work.days or 0) + max((ends.get(id(one), 0) for one in work.needs), default=0)
    return max(ends.values(), default=0)
