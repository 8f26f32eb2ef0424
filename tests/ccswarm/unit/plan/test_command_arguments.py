"""Data in a step's commands is quoted or refused, with the command as it would be right."""

from __future__ import annotations

from typing import Any

import pytest

from ccswarm.config.settings import PlanStep
from ccswarm.plan.command_arguments import problems


def reported(tool: str = "ai-session.execute_command", for_each: Any = None, when: str = "", **args: Any) -> list[str]:
    return list(problems(PlanStep(id="s", tool=tool, args=args, for_each=for_each, when=when)))


@pytest.mark.parametrize(
    ("command", "right"),
    [
        ("echo ${steps.p.output}", "echo ${q:steps.p.output}"),
        ('echo "${steps.p.output}"', "echo ${q:steps.p.output}"),
        ("echo '${needs.t.steps.p.lines[0]}'", "echo ${q:needs.t.steps.p.lines[0]}"),
        ('git commit -m "do ${task.text} now"', 'git commit -m "do "${q:task.text}" now"'),
        ('echo "${item.a}${item.b}"', "echo ${q:item.a}${q:item.b}"),
        ("cd ${workspace} && ls", "cd ${q:workspace} && ls"),
        ('awk "{ print \\"${item}\\" }"', 'awk "{ print \\""${q:item}"\\" }"'),
        ("${item}", "${q:item}"),
        ('echo "$(cat "${item}")"', 'echo "$(cat ${q:item})"'),
        ('grep -e "${q:item}" ${run.id}', "grep -e ${q:item} ${run.id}"),
        ("echo ${q:item} ${item} '${q:item}'", "echo ${q:item} ${q:item} ${q:item}"),
    ],
)
def test_what_is_not_quoted_is_refused_with_the_command_that_is_right(command: str, right: str) -> None:
    found = reported(command=command)
    assert found
    for problem in found:
        assert problem.startswith("args.command: ${")
        assert problem.endswith(f": write {right}"), problem
    assert reported(command=right) == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("cat <<EOF\n${item}\nEOF", "${item} comes after a here-document, where shells quote differently"),
        ("echo `cat ${q:item}`", "${q:item} comes after a backtick (write $(…)), where shells quote differently"),
        ("echo \\${q:item}", "comes after a backslash"),
        ("make # ${item}", "is in a comment"),
    ],
)
def test_where_nothing_can_be_quoted_it_is_said(command: str, why: str) -> None:
    (found,) = reported(command=command)
    assert why in found


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("x.y", {"Command": "echo ${item}"}),
        ("x.y", {"cmd": "echo ${item}"}),
        ("x.y", {"script": "echo ${item}"}),
        ("x.y", {"commands": ["ls", "${item}"]}),
        ("x.y", {"command": ["sh", "-c", "echo ${item}"]}),
        ("swarm.delegate", {"tasks": [{"id": "t", "gates": [{"command": "test ${item}"}]}]}),
        ("x.y", {"deep": {"er": [{"command": "echo ${item}"}]}}),
        ("ai-session.run_python", {"code": "print('${item}')"}),
        ("ai-session.run_python", {"code": "print(${q:item})"}),
        ("ai-session.send_input", {"text": "${item}\n"}),
        ("ai-session.send_input", {"text": "${q:item}\n"}),
    ],
)
def test_wherever_a_command_is_its_data_is_looked_at(tool: str, args: dict[str, Any]) -> None:
    assert len(reported(tool, **args)) == 1


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("x.y", {"text": "echo ${item}", "stdin": "${item}", "path": "${item}"}),
        ("x.y", {"command": ["git", "log", "--", "${item}"]}),
        ("x.send_input", {"keys": ["Enter"], "session_id": "${item}", "text": "y\n"}),
        ("x.y", {"command": "echo ${run.id} ${task.id} ${task.attempt} ${agent.name} $${HOME} $(id)"}),
        ("x.y", {"content": "#!/bin/sh\necho ${q:item}\n"}),
    ],
)
def test_what_is_no_command_is_left_alone(tool: str, args: dict[str, Any]) -> None:
    assert reported(tool, **args) == []


def test_what_the_plan_spells_out_is_its_own_text() -> None:
    assert reported(for_each=("make", "make test && echo '$x'"), command="${item}") == []
    assert reported(for_each=("a", "b"), command="echo '${item}' ${q:steps.p.output}") == []
    assert reported(for_each=({"name": "a"},), code="print('${item.name}')", tool="x.run") == []
    assert reported(for_each=("a", "${steps.p.output}"), command="echo ${item}") != []
    assert reported(for_each="${steps.p.files}", command="echo ${item}") != []
    (found,) = reported(for_each=("it's", "b"), command="echo ${item} ${q:steps.p.output}")
    assert "comes after a value inserted before it" in found


def test_what_is_quoted_for_a_shell_stands_in_no_condition() -> None:
    assert reported(when="${q:steps.a.output} == 1") == [
        "when: ${q:steps.a.output} is quoted for a shell, but no shell reads it: write ${steps.a.output}"
    ]
    assert len(reported(for_each="${q:steps.a.files}")) == 1
