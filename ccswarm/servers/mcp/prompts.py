"""The prompts that MCP clients offer as slash commands: instructions for using the tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ccswarm.errors import InvalidArguments


@dataclass(frozen=True, slots=True)
class SwarmPrompt:
    """A prompt with a single argument, ``argument``, which ``text`` contains as ``{argument}``."""

    name: str
    title: str
    about: str
    argument: str
    argument_about: str
    text: str


PROMPTS = (
    SwarmPrompt(
        "orchestrate",
        "Orchestrate a project",
        "Analyze an idea, plan it, show the plan, and have the agents carry it out.",
        "idea",
        "What is to be built, in words.",
        "Orchestrate this: {argument}\n\n1. Call analyze_project with it as requirements.\n2. Call generate_plan with "
        "the same requirements and that analysis.\n3. Show the person the phases, what is unknown, and what check "
        "says. Wait for a yes.\n4. Call start_run with ccswarmPlan as its plan, follow it with run_events, and report"
        " its result with read_result.",
    ),
    SwarmPrompt(
        "plan",
        "Plan a project",
        "Make a plan of phases and tasks; nothing is started.",
        "idea",
        "What is to be built, in words.",
        "Make a plan for this: {argument}\n\nCall analyze_project, then generate_plan with the same requirements and "
        "that analysis. Show phases, tasks, their basis and what is unknown. Start nothing.",
    ),
    SwarmPrompt(
        "review",
        "Have models review",
        "Have the models of the configured agents review files or code.",
        "what",
        "Paths in the workspace, or code.",
        "Have this reviewed: {argument}\n\nCall multi_llm_review with it, as files or as code. Report what the models"
        " agree on and where they differ. If it answers NO_MODEL, show its suggestion.",
    ),
    SwarmPrompt(
        "survey",
        "Survey the workspace",
        "Report what the workspace contains about a topic.",
        "topic",
        "What to find out.",
        "Research this: {argument}\n\nCall research with it as the topic. Report the findings, each with its source,"
        " and what remains unanswered.",
    ),
)
BY_NAME = {prompt.name: prompt for prompt in PROMPTS}


def fill(name: str, arguments: Mapping[str, str] | None) -> tuple[SwarmPrompt, str]:
    """Return the prompt with that name, and its text with the argument. Raises InvalidArguments."""
    if name not in BY_NAME:
        raise InvalidArguments(f"there is no prompt {name[:80]!r}", suggestion=f"use one of: {', '.join(BY_NAME)}")
    prompt = BY_NAME[name]
    given = str((arguments or {}).get(BY_NAME[name].argument, "")).strip()
    if not given:
        raise InvalidArguments(f"{prompt.argument} is missing", suggestion=prompt.argument_about)
    return prompt, prompt.text.format(argument=given)
