"""The tools that use models: analyze_project, generate_plan, multi_llm_review, research. Each does what rules and the
workspace's files allow; if a configured agent has a model, that is asked, in a run like any other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentwire.counts import counted
from ccswarm.config.config import Loaded
from ccswarm.errors import ConfigInvalid, PlanInvalid, ServerUnavailable, SwarmError
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import missing_for_gates
from ccswarm.runs.checks import brain_problems
from ccswarm.servers._json_values import cut, items, table
from ccswarm.servers.mcp.toolsets.base import PARTIAL, Facts, Given
from ccswarm.servers.mcp.toolsets.orchestre.analysis import analysis_of, brief_of, is_new
from ccswarm.servers.mcp.toolsets.orchestre.base import REQUIREMENTS, OrchestreTool, Refusal, takes
from ccswarm.servers.mcp.toolsets.orchestre.models import ModelReply, Thinker, ask_models, question, thinkers, usage_of
from ccswarm.servers.mcp.toolsets.orchestre.plan import analysis_in, plan_of, preferences_of
from ccswarm.servers.mcp.toolsets.orchestre.plan_toml import able_agents, assign, gate_of, toml_of
from ccswarm.servers.mcp.toolsets.orchestre.repository.scan import scan
from ccswarm.servers.mcp.toolsets.orchestre.repository.tree import Tree
from ccswarm.servers.mcp.toolsets.orchestre.research import search
from ccswarm.servers.mcp.toolsets.orchestre.review import SHAPE, consensus, findings_of
from ccswarm.servers.mcp.toolsets.orchestre.schemas import ANALYSIS, PLAN, analysis_problem, plan_problem
from ccswarm.servers.mcp.toolsets.orchestre.sources import MOST_FILES, sources_of, within
from ccswarm.servers.mcp.toolsets.orchestre.starters import ABOUT
from ccswarm.servers.mcp.workbench import Workbench
from ccswarm.toolbox.discovery import called_tools

RULES, MODEL = "rules", "model"

TO_ANALYSE = (
    "Analyse what a project needs. The repository facts were counted, not guessed; the analysis by rules is a "
    "beginning that looks for words only: correct it where you know better. Scores are from 1 to 10."
)
TO_PLAN = (
    "Plan the work that the requirements need, in phases of tasks, ready to be given to agents one by one: say in each "
    "description all that its agent has to know. The plan by rules is a beginning that looks for words only: correct "
    "it where you know better. ids are PHASE.NUMBER; dependencies are ids of tasks; assignee is the name of an agent, "
    "or left out; kind is study, build, check or tell."
)
TO_REVIEW = (
    "Review what you are given{focus}. Name only what you can point at; an empty list is a good answer where nothing "
    "is wrong. Lines count from 1, as they are numbered."
)
TO_RESEARCH = (
    "Find out what there is to know about the topic. Use the tools you have to read sources; the hits in the workspace "
    "were found by its words. Name as sources only what you read, or the paths of hits; where you know something "
    "without having read it, give no source."
)
RESEARCHED: Facts = {
    "findings": [{"title": "what is so", "detail": "more of it", "sources": ["path:line or address, as it was read"]}],
    "summary": "a few sentences",
    "openQuestions": ["what is not answered"],
}
MOST_RESEARCH = 50
NEW = (
    "by its words it is something new: what lies in the workspace does not count for it; where it should, name it as "
    "projectPath"
)


async def analyze_project(workbench: Workbench, given: Given) -> Given:
    """Return facts about the project, and a model's analysis if a model is configured. Raises SwarmError."""
    loaded, brief = await workbench.loaded(), brief_of(given)
    facts = await scan(_project(workbench, given, loaded))
    fresh = is_new(brief) and not given.get("projectPath")
    analysis = analysis_of(brief, None if fresh else facts, time.time())
    if brief.existing_code:
        facts["existingCode"] = {"characters": len(brief.existing_code), "lines": brief.existing_code.count("\n") + 1}
    done: Facts = {"analysis": analysis, "repository": facts, "method": RULES, "notes": [NEW] if fresh else []}
    PARTIAL.get()(f"by rules: {analysis['summary']}")
    reply = await _ask_first_model(
        workbench,
        loaded,
        done["notes"],
        "analyze",
        lambda: question(
            TO_ANALYSE,
            ANALYSIS,
            given=dict(given),
            repository=facts,
            analysis_by_rules=analysis,
        ),
    )
    if reply is None:
        return done
    answer = analysis_in(reply.answer)
    if problem := analysis_problem(answer):
        done["notes"].append(f"the answer of {reply.thinker.model} was not used: {cut(problem, 500)}")
        return {**done, **_model_facts([reply])}
    by_rules = analysis["complexity"]
    return {
        **done,
        "analysis": dict(answer),
        "method": MODEL,
        "byRules": {"complexity": by_rules},
        **_model_facts([reply]),
    }


async def generate_plan(workbench: Workbench, given: Given) -> Given:
    """Return phases and tasks, and a plan that ccswarm can run. Raises SwarmError."""
    loaded, brief = await workbench.loaded(), brief_of(given)
    template = str(given.get("template") or "")
    if template and template not in ABOUT:
        raise Refusal(
            "Template not found",
            "TEMPLATE_NOT_FOUND",
            "Choose one of the available templates",
            {"availableTemplates": sorted(ABOUT)},
        )
    facts = await scan(_project(workbench, given, loaded))
    fresh = is_new(brief) and not given.get("projectPath")
    analysis = given_analysis(given) or analysis_of(brief, None if fresh else facts, time.time())
    agents_for_tasks = able_agents(loaded.settings)
    wanted = preferences_of(given.get("preferences"), brief, len(agents_for_tasks))
    plan = plan_of(brief, analysis, None if fresh else facts, wanted, template)
    done: Facts = {"plan": plan, "method": RULES, "notes": [NEW] if fresh else []}
    PARTIAL.get()(f"by rules: {plan['overview']} {', '.join(one['name'] for one in plan['phases'])}")
    agents = {agent.name: {"type": agent.type, "capabilities": list(agent.capabilities)} for agent in agents_for_tasks}
    arguments = {name: one for name, one in given.items() if name != "analysis"}
    reply = await _ask_first_model(
        workbench,
        loaded,
        done["notes"],
        "plan",
        lambda: question(
            TO_PLAN,
            PLAN,
            given=arguments,
            analysis=analysis,
            agents=agents,
            plan_by_rules=plan,
        ),
    )
    if reply is not None:
        answer = table(reply.answer.get("plan")) or reply.answer
        problem = plan_problem(answer)
        done |= _model_facts([reply])
        if problem:
            done["notes"].append(f"the answer of {reply.thinker.model} was not used: {cut(problem, 500)}")
        else:
            plan = json.loads(json.dumps({**answer, "resources": dict(table(answer.get("resources")))}))
            done |= {"plan": plan, "method": MODEL}
    assign(plan, agents_for_tasks)
    plan["resources"]["agents"] = [{"name": name, **one} for name, one in agents.items()]
    return {**done, **await _runnable(workbench, loaded, plan, brief.requirements, facts, done["notes"])}


def given_analysis(given: Given) -> Mapping[str, Any]:
    """Return the analysis that a client gives, empty without one. Raises Refusal for anything else."""
    if "analysis" not in given:
        return {}
    found = analysis_in(given["analysis"])
    wrong = [
        f"analysis.{name}: {what}"
        for name, what, fits in (
            ("keyComponents", "must be a list", isinstance(found.get("keyComponents"), list)),
            ("complexity.factors", "must be an object", bool(table(table(found.get("complexity")).get("factors")))),
        )
        if not fits
    ]
    if wrong:
        raise Refusal(
            "; ".join(wrong), "INVALID_ARGUMENTS", "Give what analyze_project answered, or leave analysis out"
        )
    return found


async def _runnable(
    workbench: Workbench, loaded: Loaded, plan: Mapping[str, Any], requirements: str, facts: Facts, notes: list[str]
) -> Facts:
    """Return the plan for the swarm, and the result of check_plan."""
    if not able_agents(loaded.settings):
        notes.append(
            "no configured agent can do what is only said, so there is no plan to run: give an agent a brain that "
            "thinks (llm, cli), or settings.steps"
        )
        return {"ccswarmPlan": "", "check": {"valid": False, "problems": notes[-1:]}}
    if gate := gate_of(loaded.settings, facts):
        notes.append(f"after tasks that build or check, {gate!r} must succeed")
        shell = loaded.settings.swarm.shell
        if without := [one.name for one in able_agents(loaded.settings) if missing_for_gates(one, shell)]:
            notes.append(
                f"not where {', '.join(without)} does the task: gates act for that agent, which may not run commands"
            )
    text = toml_of(plan, requirements, loaded.settings, facts)
    problems = await _problems(workbench, loaded, text)
    return {"ccswarmPlan": text, "check": {"valid": not problems, "problems": problems}}


async def _problems(workbench: Workbench, loaded: Loaded, text: str) -> list[str]:
    """Return the problems that check_plan would report."""
    try:
        settings = workbench.settings_for({"plan": text}, loaded)
        if problems := plan_problems(settings, None):
            return problems
        tools = await called_tools(settings, workbench.directory(".", loaded))
        return [*plan_problems(settings, tools), *await asyncio.to_thread(brain_problems, settings)]
    except (ConfigInvalid, PlanInvalid, ServerUnavailable) as error:
        return [error.message]


async def multi_llm_review(workbench: Workbench, given: Given) -> Given:
    """Return the findings of several models on the same sources, grouped where they agree. Raises SwarmError."""
    loaded = await workbench.loaded()
    sources = await asyncio.to_thread(sources_of, workbench, loaded, given)
    models_to_ask, wrong = await asyncio.to_thread(thinkers, loaded.settings)
    if not models_to_ask:
        raise Refusal(
            "no model can be asked" + (f": {'; '.join(wrong)[:1000]}" if wrong else ": no agent has the brain llm"),
            "NO_MODEL",
            'configure agents with brain = "llm", each with another settings.model: ai-session docs brains-llm',
        )
    focus = [str(one) for one in items(given.get("focus"))] or ([str(given["focus"])] if given.get("focus") else [])
    instruction = TO_REVIEW.format(focus=f", above all for: {', '.join(focus)}" if focus else "")
    text = question(instruction, SHAPE, **{one.name: one.numbered for one in sources})
    replies = await ask_models(workbench, loaded, models_to_ask, "review", text)
    answers = {_label(one): findings_of(_label(one), one.answer) for one in replies if not one.why}
    usable = {name: found for name, found in answers.items() if found is not None}
    models = [_review_facts(one, answers.get(_label(one))) for one in replies]
    if not usable:
        why = "; ".join(f"{one['model']}: {one['why']}" for one in models)
        raise Refusal(
            f"no model answered: {why[:1500]}", "NO_ANSWER", "see the run: ccswarm logs", {"run": replies[0].run}
        )
    agreed, disagreements = consensus(usable, len(replies))
    return {
        "reviews": models,
        "consensus": agreed,
        "disagreements": disagreements,
        "reviewed": [one.shown() for one in sources],
        "focus": focus,
        "method": MODEL,
        "notes": wrong + (["one model alone is not a consensus"] if len(usable) < 2 else []),
        **_model_facts(replies),
    }


def _label(said: ModelReply) -> str:
    """Return the model's name with its agent: one model may be available at two addresses."""
    return f"{said.thinker.agent.name} ({said.thinker.model})"


def _review_facts(said: ModelReply, found: Any) -> Facts:
    facts: Facts = {"agent": said.thinker.agent.name, "model": said.thinker.model, "answered": found is not None}
    if found is None:
        return {**facts, "why": said.why or "its answer was not of the shape that was asked for", "findings": []}
    summary = cut(str(said.answer.get("summary") or said.text), 2000)
    return {**facts, "why": "", "findings": [one.shown() for one in found], "summary": summary}


async def research(workbench: Workbench, given: Given) -> Given:
    """Return what the project's files contain about a topic, summarized by a model. Raises SwarmError."""
    loaded, topic = await workbench.loaded(), str(given["topic"])
    found_files = await asyncio.to_thread(search, Tree(workbench.root(loaded).resolve()), topic)
    done: Facts = {"topic": topic, "findings": [], "workspace": found_files, "method": "search", "notes": []}
    hits = [{"path": one["path"], "lines": one["lines"]} for one in found_files["hits"]]
    PARTIAL.get()(f"{found_files['filesWithHits']} files have words of it: {', '.join(one['path'] for one in hits)}")
    reply = await _ask_first_model(
        workbench,
        loaded,
        done["notes"],
        "research",
        lambda: question(
            TO_RESEARCH,
            RESEARCHED,
            topic=topic,
            context=given.get("context") or "",
            hits_in_the_workspace=hits,
        ),
        tools=True,
    )
    if reply is None:
        done["notes"].append("only the files of the workspace were searched, by words; nobody drew conclusions")
        return done
    findings = [
        _finding(table(one)) for one in items(reply.answer.get("findings"))[:MOST_RESEARCH] if table(one).get("title")
    ]
    done |= {"summary": cut(str(reply.answer.get("summary") or reply.text), 4000), **_model_facts([reply])}
    if not findings and not done["summary"].strip():
        done["notes"].append(f"the answer of {reply.thinker.model} was not used: it says nothing")
        return done
    calls = int(reply.usage.get("calls") or 0)
    done["notes"].append(
        f"the model made {counted(calls, 'call')} of tools; sources are as it names them"
        if calls
        else "the model called no tool: besides the hits in the workspace, what it says is from memory"
    )
    questions = [cut(str(one), 500) for one in items(reply.answer.get("openQuestions"))[:MOST_RESEARCH]]
    return {**done, "findings": findings, "openQuestions": questions, "toolCalls": calls, "method": MODEL}


def _finding(given: Mapping[str, Any]) -> Facts:
    sources = [cut(str(one), 500) for one in items(given.get("sources"))[:20]]
    return {
        "title": cut(str(given["title"]), 500),
        "detail": cut(str(given.get("detail") or ""), 4000),
        "sources": sources,
    }


async def _ask_first_model(
    workbench: Workbench, loaded: Loaded, notes: list[str], task: str, text: Any, *, tools: bool = False
) -> ModelReply | None:
    """Return the answer of the first model; or None, and add the reason to ``notes``."""
    available, wrong = await asyncio.to_thread(thinkers, loaded.settings)
    notes += wrong
    if not available:
        return None
    first: Thinker = available[0]
    try:
        (reply,) = await ask_models(workbench, loaded, [first], task, text(), tools=tools)
    except SwarmError as error:
        notes.append(f"{first.model} could not be asked: {error.message}")
        return None
    if reply.why:
        notes.append(f"{first.model} did not answer: {cut(reply.why, 500)} (run {reply.run})")
        return None
    return reply


def _model_facts(said: list[ModelReply]) -> Facts:
    return {"models": [one.thinker.model for one in said], "run": said[0].run, "usage": usage_of(said)}


def _project(workbench: Workbench, given: Given, loaded: Loaded) -> Path:
    """Return the project's directory in the workspace. Raises Refusal."""
    path = str(given.get("projectPath") or ".")
    found = within(workbench, loaded, path)
    if not found.is_dir():
        raise Refusal(
            f"{path[:200]!r} is not a directory",
            "PROJECT_NOT_FOUND",
            "leave projectPath out, or name one in the workspace",
        )
    return found


PATH_IN: Facts = {
    "type": "string",
    "description": "The directory of the project, inside the server's workspace, which it is where it is left out.",
}
TEXTS_IN: Facts = {"type": "array", "items": {"type": "string"}}
LOOSE: Facts = {"maxLength": 1_000_000}
"""The schema of values of several types; some clients complain of an empty schema."""
CONTEXT_IN: Facts = {
    "type": "object",
    "description": "What else is known.",
    "properties": {
        "existingStack": {**LOOSE, "description": "Technologies that are used: a text, or a list."},
        "teamSize": {**LOOSE, "description": "How many people or agents."},
        "timeline": {**LOOSE, "description": "As in: 6 weeks."},
        "constraints": {**LOOSE, "description": "A text, or a list."},
        "businessDomain": {**LOOSE, "description": "What it is for."},
    },
}
PREFERENCES_IN: Facts = {
    "type": "object",
    "properties": {
        "methodology": {**LOOSE, "description": "As in: agile."},
        "teamSize": {**LOOSE, "description": "How many share the work; else as many as agents could."},
        "sprintLength": {**LOOSE, "description": "As in: 2 weeks; a number counts weeks."},
        "prioritization": {**LOOSE, "description": "risk (by default), or order: as the requirements stand."},
    },
}

TOOLS = (
    OrchestreTool(
        "analyze_project",
        "Analyse a project",
        "Analyse requirements and the repository they are for: complexity with its reasons, components, challenges, "
        "risks, phases, and what the directory holds, counted. By stated rules, or by the model of a configured agent.",
        takes(
            {
                "requirements": REQUIREMENTS,
                "constraints": {**TEXTS_IN, "description": "What has to be kept to."},
                "existingCode": {"type": "string", "description": "Code, or words about it, besides the directory's."},
                "projectPath": PATH_IN,
                "context": CONTEXT_IN,
            },
            ("requirements",),
        ),
        analyze_project,
        read_only=True,
        open_world=True,
    ),
    OrchestreTool(
        "generate_plan",
        "Make a plan",
        "Make a plan of phases and tasks from requirements; and the same as ccswarmPlan, which start_run and ccswarm "
        "run take as it is, checked. Nothing is started.",
        takes(
            {
                "requirements": REQUIREMENTS,
                "analysis": {"type": "object", "description": "What analyze_project answered."},
                "template": {"type": "string", "description": f"To begin from: {', '.join(sorted(ABOUT))}."},
                "preferences": PREFERENCES_IN,
                "constraints": {**TEXTS_IN, "description": "What has to be kept to."},
                "context": CONTEXT_IN,
                "projectPath": PATH_IN,
            },
            ("requirements",),
        ),
        generate_plan,
        read_only=True,
        open_world=True,
    ),
    OrchestreTool(
        "multi_llm_review",
        "Have models review",
        "Have each different model of the configured agents review files, code or a plan, side by side: what each "
        "found, what they agree on, and what not. Without a model it refuses.",
        takes(
            {
                "files": {
                    "type": "array",
                    "maxItems": MOST_FILES,
                    "items": LOOSE,
                    "description": "Paths in the workspace, or objects with path and content; of each the first 10 KB.",
                },
                "code": {"type": "string", "description": "A text to review."},
                "content": {"type": "string", "description": "As code."},
                "plan": {**LOOSE, "description": "A plan to review: a text, or an object."},
                "focus": {**LOOSE, "description": "What to look at above all: a list, or a text."},
            }
        ),
        multi_llm_review,
        read_only=True,
        open_world=True,
    ),
    OrchestreTool(
        "research",
        "Look something up",
        "Look a topic up in the workspace's documentation and code; where a configured agent has a model, that reads "
        "on with the tools it is granted, and says what it found.",
        takes(
            {
                "topic": {"type": "string", "minLength": 2, "maxLength": 2000, "description": "What to find out."},
                "context": {"type": "string", "maxLength": 10_000, "description": "What it is for."},
            },
            ("topic",),
        ),
        research,
        open_world=True,
    ),
)
