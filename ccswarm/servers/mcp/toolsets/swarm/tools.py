"""The tools of the swarm, as listed to clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccswarm.models import RunStatus
from ccswarm.plan.schemas import Schema
from ccswarm.servers.mcp.toolsets.base import Facts

LONGEST_WAIT = 45
MOST_EVENTS = 200
PAGE_CHARS = 7000
"""The size of a page of a result: all known clients show as much completely."""

INTERRUPTED = "interrupted"
"""The status of a run whose worker has ended, and that no other worker has taken over."""

INSTRUCTIONS = """\
ccswarm has a team of agents carry out tasks with the tools of MCP servers. list_agents shows who there is and what \
each may use. Which agents, grants, servers and limits there are is the person's configuration: it cannot be changed \
from here.

1. start_run takes a task in words (it needs an agent that thinks), or a plan: TOML with [[tasks]] and their \
[[tasks.steps]], or the path of one in the workspace. check_plan names every problem of a plan, with its place, before \
anything runs.
2. start_run answers at once with a run's id; the run continues by itself. Follow it with run_events: pass the cursor \
of the last answer, and wait_seconds (up to 45) to wait for the next event, or with until "over" for the end. \
run_status shows the status of all tasks.
3. read_result reads the result of a run or of one task, page by page.
4. An agent may have to ask a person before a call: the run is then waiting_approval, and list_approvals shows what is \
asked. You cannot answer. Tell the person what is asked, and the command that answers it in a terminal: \
ccswarm approve ID, or ccswarm reject ID --reason WHY.
5. Runs are kept on disk. When this connection ends, they continue if a worker runs (ccswarm worker), else they are \
paused; resume_run continues one that is paused or interrupted, and repeats the tasks that did not succeed in one \
that is over. A run is named by its id, an unambiguous beginning of it, or: last.
6. A tool error names its code and the next step. A start_run that may have to be repeated after a lost connection: \
give it a unique call_key, and it never starts two runs.
"""


def _object(properties: Facts, required: tuple[str, ...] = ()) -> Facts:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


def _answer(properties: Facts) -> Facts:
    """Return the schema of an answer: all members are always there; later versions may add some."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(description: str, **more: Any) -> Facts:
    return {"type": "string", "description": description, **more}


def _list(items: Facts, description: str) -> Facts:
    return {"type": "array", "items": items, "description": description}


RUN_ID = _text("The run's id, an unambiguous beginning of it, or: last.", minLength=1, maxLength=200)
RUN_OUT = _text("The run's id.")
STATUS_OUT = {
    "type": "string",
    "enum": [*(status.value for status in RunStatus), INTERRUPTED],
    "description": "interrupted: no worker carries it out any more; resume_run continues it.",
}
NEXT_OUT = _text("What to do next.")
SECONDS_OUT = {"type": "number", "description": "0 if it has not ended, or not started."}
TASK_OUT = _answer(
    {
        "task": _text("Its id; PARENT.STEP.ID if another task delegated it."),
        "status": {"type": "string"},
        "agent": {"type": "string"},
        "attempts": {"type": "integer"},
        "seconds": SECONDS_OUT,
        "summary": {"type": "string"},
    }
)
APPROVAL_OUT = _answer(
    {
        "id": {"type": "string"},
        "task": _text("RUN.TASK"),
        "agent": {"type": "string"},
        "tool": _text("What it wants to call: SERVER.TOOL."),
        "arguments": {"type": "object", "description": "Long ones are cut, with a note."},
        "answer": _text("Command with which a person approves in a terminal; ccswarm reject ID --reason WHY rejects."),
    }
)
APPROVALS_OUT = _list(APPROVAL_OUT, "Open questions for a person. They cannot be answered from here.")
PLAN_IN: Facts = {
    "task": _text("What to do, in words, with everything the agents have to know. Instead of a plan."),
    "plan": _text(
        "TOML: [[tasks]] with id, text, agent, needs, gates and [[tasks.steps]] (id, tool = SERVER.TOOL, args), or "
        "[[steps]] alone; or the path of a .toml file in the workspace. Instead of a task. Without either, the tasks "
        "of the configuration."
    ),
}
WORKSPACE_IN = _text("Directory to work in, inside the server's workspace, which is the default.")


@dataclass(frozen=True, slots=True)
class SwarmTool:
    """A tool: its description for clients, and the schema of its arguments."""

    name: str
    title: str
    description: str
    input_schema: Facts
    output_schema: Facts
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    arguments: Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", Schema(self.input_schema))


def _read_only_tool(name: str, title: str, description: str, takes: Facts, gives: Facts) -> SwarmTool:
    return SwarmTool(name, title, description, takes, gives, read_only=True, idempotent=True)


STATUS_ANSWER = _answer(
    {
        "run": RUN_OUT,
        "name": {"type": "string"},
        "status": STATUS_OUT,
        "over": {"type": "boolean", "description": "Whether nothing more will happen by itself."},
        "worker": _text("Worker that carries it out, or: this server. Empty: none at present."),
        "workspace": {"type": "string"},
        "seconds": {"type": "number", "description": "Seconds since its start, or until its end."},
        "tasks": _list(TASK_OUT, "In the plan's order."),
        "usage": {"type": "object", "description": "calls, tokens, dollars, seconds; empty until it is over."},
        "approvals": APPROVALS_OUT,
        "error": {"type": "string"},
        "next": NEXT_OUT,
    }
)
CHANGED_ANSWER = _answer(
    {"run": RUN_OUT, "status": STATUS_OUT, "notes": _list({"type": "string"}, "Worth knowing."), "next": NEXT_OUT}
)

TOOLS = (
    SwarmTool(
        "cancel_run",
        "Cancel a run",
        "End a run and all its tasks, wherever they are carried out. Completed work stays, and resume_run can still"
        " continue it. To stop only for now, use pause_run.",
        _object({"run": RUN_ID}, ("run",)),
        CHANGED_ANSWER,
        destructive=True,
        idempotent=True,
    ),
    _read_only_tool(
        "check_plan",
        "Check a plan",
        "Say whether a plan can be carried out, before anything runs: every problem with its place, and the order "
        "in which tasks would run. The servers it calls are started and asked for their tools, unless offline is true.",
        _object({**PLAN_IN, "offline": {"type": "boolean", "description": "Ask no server.", "default": False}}),
        _answer(
            {
                "valid": {"type": "boolean"},
                "problems": _list(
                    _answer({"location": _text("Where; empty: the plan as a whole."), "problem": {"type": "string"}}),
                    "All of them.",
                ),
                "stages": _list(_list({"type": "string"}, "Tasks that may run side by side."), "One after the other."),
                "tasks": _list(
                    _answer(
                        {
                            "task": {"type": "string"},
                            "text": {"type": "string"},
                            "agents": _list({"type": "string"}, "Who is able to do it."),
                            "needs": _list({"type": "string"}, "Tasks before it."),
                            "steps": _list({"type": "string"}, "STEP: SERVER.TOOL"),
                        }
                    ),
                    "In that order.",
                ),
                "next": NEXT_OUT,
            }
        ),
    ),
    _read_only_tool(
        "list_agents",
        "List the agents",
        "List the agents: type, capabilities, the tools each may use, and when a person is asked first.",
        _object({}),
        _answer(
            {
                "agents": _list(
                    _answer(
                        {
                            "name": {"type": "string"},
                            "type": {"type": "string"},
                            "capabilities": _list({"type": "string"}, "Abilities that tasks can require."),
                            "brain": _text("playbook: follows the steps of a plan. All others have a model."),
                            "grants": _list({"type": "string"}, "Patterns of SERVER.TOOL."),
                            "approval": _text("When a person is asked first: auto, destructive or all."),
                            "workspace": _text("clone: a git clone of its own; shared: the run's directory."),
                        }
                    ),
                    "In the order of the configuration.",
                ),
                "servers": _list({"type": "string"}, "Servers of their tools."),
                "tasks": _list(
                    {"type": "string"}, "Tasks of the configuration, which start_run without arguments carries out."
                ),
                "workspace": _text("Directory that runs work in by default, and cannot leave."),
                "topology": _text("Who may send messages to whom."),
                "next": NEXT_OUT,
            }
        ),
    ),
    _read_only_tool(
        "list_approvals",
        "List what waits for a person",
        "List what agents ask a person before they act, in one run or in all. You cannot answer: show the person the"
        " question, and the command that answers it in a terminal.",
        _object({"run": RUN_ID}),
        _answer({"approvals": APPROVALS_OUT, "next": NEXT_OUT}),
    ),
    _read_only_tool(
        "list_runs",
        "List the runs",
        "List the runs, newest first, with their status. Finished runs are kept for a week.",
        _object({"limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}}),
        _answer(
            {
                "runs": _list(
                    _answer(
                        {
                            "run": RUN_OUT,
                            "status": STATUS_OUT,
                            "begun": _text("Local time."),
                            "seconds": SECONDS_OUT,
                            "tasks": _text("Number of runs by status."),
                        }
                    ),
                    "The newest first.",
                ),
                "next": NEXT_OUT,
            }
        ),
    ),
    SwarmTool(
        "pause_run",
        "Pause a run",
        "Stop a run for now, wherever it is carried out: steps in progress are cancelled, and resume_run continues"
        " after the last completed step.",
        _object({"run": RUN_ID}, ("run",)),
        CHANGED_ANSWER,
        idempotent=True,
    ),
    _read_only_tool(
        "read_result",
        "Read a result",
        "Read the result of a run, or of one of its tasks, page by page: pass next_offset of the last answer as"
        " offset. Finished tasks can be read while the rest continues.",
        _object(
            {
                "run": RUN_ID,
                "task": _text("Only this task's, as run_status names it.", minLength=1, maxLength=400),
                "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "In characters."},
            },
            ("run",),
        ),
        _answer(
            {
                "run": RUN_OUT,
                "task": {"type": "string"},
                "status": STATUS_OUT,
                "text": _text("JSON, or the text of a task's answer."),
                "offset": {"type": "integer"},
                "next_offset": {"type": "integer"},
                "more": {"type": "boolean", "description": "Whether there is another page, at next_offset."},
                "total_chars": {"type": "integer"},
                "next": NEXT_OUT,
            }
        ),
    ),
    SwarmTool(
        "resume_run",
        "Resume a run",
        "Resume a run that is paused, cancelled or interrupted where it stopped. For one that is over and did not"
        " succeed, a new run repeats the tasks that did not, from their first step; its id is in the answer.",
        _object({"run": RUN_ID}, ("run",)),
        CHANGED_ANSWER,
        destructive=True,
        open_world=True,
    ),
    _read_only_tool(
        "run_events",
        "Follow a run",
        "Events of a run since a cursor: tasks that started and ended, and what agents said, asked and delegated."
        " With wait_seconds it answers as soon as something happens, with until 'over' only when the run is over or a"
        " person is asked; after that time in any case. Pass the cursor of the last answer; without one it begins at"
        " the start of the run.",
        _object(
            {
                "run": RUN_ID,
                "cursor": _text("The cursor of the last answer.", maxLength=20_000),
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_EVENTS, "default": 50},
                "wait_seconds": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0},
                "until": {"enum": ["event", "over"], "default": "event", "description": "What it waits for."},
            },
            ("run",),
        ),
        _answer(
            {
                "run": RUN_OUT,
                "status": STATUS_OUT,
                "over": {"type": "boolean", "description": "Whether nothing more will come."},
                "events": _list(
                    {
                        "type": "object",
                        "properties": {
                            "event": _text("task.started, task.ended, agent.said, approval.asked, run.ended…"),
                            "at": {"type": "number", "description": "Seconds since 1970."},
                            "task": {"type": "string"},
                            "sentence": _text("The event in words."),
                        },
                        "required": ["event", "sentence"],
                    },
                    "In order; each has facts of its own.",
                ),
                "cursor": _text("Pass it to the next call."),
                "more": {"type": "boolean", "description": "Whether more events are available: call again at once."},
                "approvals": APPROVALS_OUT,
                "next": NEXT_OUT,
            }
        ),
    ),
    _read_only_tool(
        "run_status",
        "Look at a run",
        "Show the progress of a run: the status of all its tasks, who carries it out, and what waits for a person.",
        _object({"run": RUN_ID}, ("run",)),
        STATUS_ANSWER,
    ),
    SwarmTool(
        "start_run",
        "Start a run",
        "Have the agents carry out a task in words, a plan, or the tasks of the configuration. Answers with the run's"
        " id as soon as it is queued; the run continues by itself. Follow it with run_events.",
        _object(
            {
                **PLAN_IN,
                "name": _text("Name of the run.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"),
                "workspace": WORKSPACE_IN,
                "call_key": _text("Idempotency key: with the same one only one run is started.", maxLength=200),
            }
        ),
        CHANGED_ANSWER,
        destructive=True,
        open_world=True,
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
