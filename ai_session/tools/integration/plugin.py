"""Integrates ai-session into people's projects: profiles a repository, proposes and checks edits. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ai_session.models import ToolResult
from ai_session.sessions.workspaces import unboxed
from ai_session.system.turns import finished
from ai_session.tools.base import Arguments, Context, Subject, Tool, output, unlisted

if TYPE_CHECKING:
    from ai_session.tools.integration.project.tree import Tree

Facts = dict[str, Any]
Root = Annotated[str, Field(max_length=4000, description="Directory of the repository; default: the client's.")]
Profile = Annotated[Facts, Field(description="What analyze_repository returned.")]
Name = Annotated[str, Field(min_length=1, max_length=100, description="express, fastapi, nextjs, nestjs, claude-code…")]
Glob = Annotated[str, Field(min_length=1, max_length=200)]


EXECUTOR = ThreadPoolExecutor(2, "integration")
"""Reading a repository may take seconds, so it does not use the threads that every call needs."""


class AnalyzeRepository(Arguments):
    root: Root = ""
    globs: Annotated[list[Glob], Field(max_length=50, description="Files to consider; default: all.")] = Field(
        default_factory=list[str]
    )


class DetectFrameworks(Arguments):
    repository_profile: Profile = Field(default_factory=dict[str, Any])


class GenerateIntegrationSteps(Arguments):
    framework: Name
    repository_profile: Profile = Field(default_factory=dict[str, Any])


class ProposeEditPlan(Arguments):
    framework: Name
    repository_profile: Profile = Field(default_factory=dict[str, Any])
    root: Root = ""


class ValidateEditPlan(Arguments):
    plan: Annotated[Facts, Field(description="What propose_edit_plan returned.")]
    root: Root = ""


class RunIntegrationWorkflow(Arguments):
    root: Root = ""
    question: Annotated[str, Field(max_length=10_000, description="May name the framework.")] = ""


def subject_of_root(context: Context, arguments: Any) -> Subject:
    """Return the directory to be read, judged as that of a new session. Raises DirectoryUnusable, SandboxRefused."""
    principal = context.principal
    profile_root: object = getattr(arguments, "repository_profile", {}).get("root")
    wanted = arguments.root or (profile_root if isinstance(profile_root, str) and len(profile_root) <= 4000 else "")
    if context.sessions.boxes.profile(context.profile).name == "trusted":
        home = principal.env.get("HOME", "")
        return Subject(start=unboxed(wanted, principal.working_directory, home))
    return Subject(start=context.workspaces.start_directory(wanted, principal.working_directory))


def subject_of_plan(context: Context, arguments: ValidateEditPlan) -> Subject:
    """Return ``subject_of_root`` with each file that the plan names, so that rules for paths apply to them."""
    from ai_session.tools.integration.plans import named_files

    subject = subject_of_root(context, arguments)
    directory = subject.start.directory if subject.start else ""
    return replace(subject, files=tuple(f"{directory.rstrip('/')}/{path}" for path in named_files(arguments.plan)))


def subject_of_nothing(context: Context, arguments: Any) -> Subject:
    """Return no subject: the call reads no file and has all it needs."""
    return Subject()


async def _read_tree(context: Context, of_tree: Callable[[Tree], Facts]) -> Facts:
    """Return ``of_tree`` of the call's directory, run in a thread."""
    import os

    from ai_session.tools.integration.project.tree import Tree

    start = context.subject.start
    root = start.real or os.path.realpath(start.directory) if start else "/"
    profile = context.sessions.boxes.profile("")
    top = os.path.realpath(start.workspace) if start and start.workspace else root
    above = os.path.relpath(root, top) if root.startswith(top.rstrip("/") + "/") else ""

    def read() -> Facts:
        with Tree(root, profile.masked, protected=profile.protected, above=above) as tree:
            return of_tree(tree)

    return await asyncio.get_running_loop().run_in_executor(EXECUTOR, read)


def _secret(context: Context) -> Callable[[str], bool]:
    spans = context.spans
    return lambda text: bool(spans and finished(spans(text.encode(errors="surrogatepass"))))


async def analyze_repository(context: Context, arguments: AnalyzeRepository) -> ToolResult:
    from ai_session.tools.integration.project.profile import profile_tree

    facts = await _read_tree(context, lambda tree: profile_tree(tree, arguments.globs).facts())
    frameworks = ", ".join(facts["frameworkCandidates"]) or "no known framework"
    return _result(f"{facts['root']}: {facts['stats']['files']} source files, {frameworks}", facts)


async def detect_frameworks(context: Context, arguments: DetectFrameworks) -> ToolResult:
    from ai_session.tools.integration.frameworks import detect
    from ai_session.tools.integration.project.profile import read_profile

    facts = detect(read_profile(arguments.repository_profile))
    return _result(", ".join(f"{row['name']} {row['confidence']}" for row in facts["frameworks"]) or "none", facts)


async def generate_integration_steps(context: Context, arguments: GenerateIntegrationSteps) -> ToolResult:
    from ai_session.tools.integration.frameworks import framework
    from ai_session.tools.integration.project.profile import read_profile
    from ai_session.tools.integration.steps import steps

    facts = steps(framework(arguments.framework), read_profile(arguments.repository_profile))
    return _result("\n".join(f"{row['title']}: {row['details']}" for row in facts["steps"]), facts)


async def propose_edit_plan(context: Context, arguments: ProposeEditPlan) -> ToolResult:
    from ai_session.tools.integration.frameworks import framework
    from ai_session.tools.integration.plans import propose
    from ai_session.tools.integration.project.profile import profile_tree, read_profile

    chosen = framework(arguments.framework)
    sent = read_profile(arguments.repository_profile)
    secret = _secret(context)
    facts = await _read_tree(context, lambda tree: propose(tree, chosen, profile_tree(tree), sent, secret))
    return _result("\n".join((facts["summary"], *facts["warnings"])), facts)


async def validate_edit_plan(context: Context, arguments: ValidateEditPlan) -> ToolResult:
    from ai_session.tools.integration.plans import validate

    secret = _secret(context)
    facts = await _read_tree(context, lambda tree: validate(tree, arguments.plan, secret))
    return _result("\n".join((_verdict(facts), *facts["issues"], *facts["warnings"])), facts)


async def run_integration_workflow(context: Context, arguments: RunIntegrationWorkflow) -> ToolResult:
    from ai_session.tools.integration.frameworks import choose, detect
    from ai_session.tools.integration.plans import propose, validate
    from ai_session.tools.integration.project.profile import profile_tree
    from ai_session.tools.integration.steps import steps

    secret = _secret(context)

    def integrate(tree: Tree) -> Facts:
        profile = profile_tree(tree)
        chosen, why = choose(profile, arguments.question)
        plan = propose(tree, chosen, profile, profile, secret)
        integration_steps = steps(chosen, profile)
        integration_steps["warnings"] += [why] if why else []
        return {
            "profile": profile.facts(),
            "detection": detect(profile),
            "integration_steps": integration_steps,
            "edit_plan": plan,
            "validation": validate(tree, plan, secret),
        }

    facts = await _read_tree(context, integrate)
    return _result(f"{facts['edit_plan']['summary']} {_verdict(facts['validation'])}", facts)


def _verdict(facts: Facts) -> str:
    return "The plan can be applied." if facts["valid"] else "The plan cannot be applied as it is."


def _result(text: str, facts: Mapping[str, Any]) -> ToolResult:
    return ToolResult(text, facts)


def _planning(run: FunctionType, title: str, arguments: type[Arguments], subject: Any, /, **kinds: str) -> Tool:
    described = f"{title}. Reads, and changes nothing."
    return unlisted(run, title, arguments, output(**kinds), description=described, subject=subject)


PLUGIN = (
    _planning(
        analyze_repository,
        "Analyze a repository",
        AnalyzeRepository,
        subject_of_root,
        root="string",
        languages="array",
        packageManagers="array",
        entryPoints="array",
        frameworkCandidates="array",
        riskFlags="array",
        stats="object",
    ),
    _planning(
        detect_frameworks,
        "Detect its frameworks",
        DetectFrameworks,
        subject_of_nothing,
        frameworks="array",
        recommended_patterns="array",
    ),
    _planning(
        generate_integration_steps,
        "Explain the integration",
        GenerateIntegrationSteps,
        subject_of_nothing,
        framework="string",
        runner_pattern="string",
        steps="array",
        package_manager="string",
        warnings="array",
    ),
    _planning(
        propose_edit_plan,
        "Propose edits",
        ProposeEditPlan,
        subject_of_root,
        summary="string",
        edits="array",
        postChecks="array",
        rollback="object",
        warnings="array",
    ),
    _planning(
        validate_edit_plan,
        "Validate proposed edits",
        ValidateEditPlan,
        subject_of_plan,
        valid="boolean",
        issues="array",
        warnings="array",
        checks_performed="array",
    ),
    _planning(
        run_integration_workflow,
        "Analyze, plan and validate",
        RunIntegrationWorkflow,
        subject_of_root,
        profile="object",
        detection="object",
        integration_steps="object",
        edit_plan="object",
        validation="object",
    ),
)
