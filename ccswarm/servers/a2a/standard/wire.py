"""The formats of A2A 0.3 and 1.0: requests of clients are parsed, and tasks are written as responses. Messages, parts
and artifacts are stored as 1.0 writes them; 0.3 is translated in both directions. JSON values in them are unchanged:
numbers, texts and the order of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from agentwire.validation import requirement
from ccswarm.servers.a2a.standard.errors import INVALID_PARAMS, VERSION_NOT_SUPPORTED, Fault, Violation
from ccswarm.servers.a2a.task_store import State, Task, TaskEvent

Version = Literal["0.3", "1.0"]
Operation = Literal["send", "stream", "get", "list", "cancel", "subscribe", "push", "card"]
Object = dict[str, Any]

CONTENTS = ("text", "raw", "url", "data")
"""The members of a part, of which it has exactly one."""
METHODS: Mapping[str, tuple[Version, Operation]] = {
    "message/send": ("0.3", "send"),
    "message/stream": ("0.3", "stream"),
    "tasks/get": ("0.3", "get"),
    "tasks/cancel": ("0.3", "cancel"),
    "tasks/resubscribe": ("0.3", "subscribe"),
    "tasks/pushNotificationConfig/set": ("0.3", "push"),
    "tasks/pushNotificationConfig/get": ("0.3", "push"),
    "tasks/pushNotificationConfig/list": ("0.3", "push"),
    "tasks/pushNotificationConfig/delete": ("0.3", "push"),
    "agent/getAuthenticatedExtendedCard": ("0.3", "card"),
    "SendMessage": ("1.0", "send"),
    "SendStreamingMessage": ("1.0", "stream"),
    "GetTask": ("1.0", "get"),
    "ListTasks": ("1.0", "list"),
    "CancelTask": ("1.0", "cancel"),
    "SubscribeToTask": ("1.0", "subscribe"),
    "CreateTaskPushNotificationConfig": ("1.0", "push"),
    "GetTaskPushNotificationConfig": ("1.0", "push"),
    "ListTaskPushNotificationConfigs": ("1.0", "push"),
    "DeleteTaskPushNotificationConfig": ("1.0", "push"),
    "GetExtendedAgentCard": ("1.0", "card"),
}
WRAPPED = "data_part_compat"
"""The key in the metadata of a 0.3 part whose data is not an object, and is in ``value``."""
ROLES = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}
"""The roles of 0.3, by those of 1.0."""
VERSION = "A2A-Version"
"""The header or query parameter by which clients name their version."""
MOST_ID_CHARS = 200
LARGEST = (1 << 31) - 1


class Section(BaseModel):
    """A part of a request. Null counts as absent, except for data; unknown members are ignored, as required."""

    model_config = ConfigDict(strict=True, frozen=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        given = cast("Object", value)
        # Null is data if there is no other content.
        other = any(given.get(name) is not None for name in CONTENTS[:3])
        return {name: one for name, one in given.items() if one is not None or (name == "data" and not other)}


class Part(Section):
    """A part of a message. ``data`` is any JSON value; ``model_fields_set`` says whether there is one."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: Any = None
    metadata: Object = {}
    filename: str = ""
    media_type: str = ""

    @model_validator(mode="after")
    def _one_content(self) -> Part:
        if sum(name in self.model_fields_set for name in CONTENTS) != 1:
            raise ValueError(f"must have exactly one of: {', '.join(CONTENTS)}")
        return self


class Message(Section):
    """A message of a client."""

    message_id: str = Field(min_length=1, max_length=MOST_ID_CHARS)
    context_id: str = Field(default="", max_length=MOST_ID_CHARS)
    task_id: str = Field(default="", max_length=MOST_ID_CHARS)
    role: str
    parts: list[Part] = Field(min_length=1)
    metadata: Object = {}
    extensions: list[str] = []
    reference_task_ids: list[str] = []

    def to_json(self) -> Object:
        """Return the message in the format of version 1.0."""
        plain = self.model_dump(by_alias=True, exclude_unset=True)
        return {name: value for name, value in plain.items() if value not in ("", [], {})}


class Configuration(Section):
    """The options of a request; ``blocking`` is 0.3's opposite of ``return_immediately``."""

    accepted_output_modes: list[str] = []
    history_length: int | None = Field(default=None, ge=0, le=LARGEST)
    return_immediately: bool = False
    blocking: bool = True
    task_push_notification_config: Object | None = None
    push_notification_config: Object | None = None


class Sent(Section):
    """The parameters of message/send and message/stream."""

    message: Message
    configuration: Configuration = Configuration()
    metadata: Object = {}

    @property
    def waits(self) -> bool:
        """Whether the client wants the response only when the task is over."""
        return self.configuration.blocking and not self.configuration.return_immediately

    @property
    def pushes(self) -> bool:
        """Whether the client wants push notifications."""
        configuration = self.configuration
        return bool(configuration.task_push_notification_config or configuration.push_notification_config)


class Named(Section):
    """The parameters of operations on one task."""

    id: str = Field(min_length=1)
    history_length: int | None = Field(default=None, ge=0, le=LARGEST)


class Listed(Section):
    """The parameters of ListTasks."""

    context_id: str = ""
    status: str = ""
    page_size: int = Field(default=50, ge=1, le=100)
    page_token: str = ""
    history_length: int | None = Field(default=None, ge=0, le=LARGEST)
    status_timestamp_after: datetime | None = Field(default=None, strict=False)
    include_artifacts: bool = False


AnySection = TypeVar("AnySection", bound=Section)


def check_version(named: str, spoken: Sequence[Version] = ("0.3", "1.0")) -> None:
    """Raise Fault if the version that a client names is not supported; clients of 0.3 name none."""
    if named and ".".join(named.strip().split(".")[:2]) not in spoken:
        problem = f"{named[:40]!r} is not supported, only {' and '.join(spoken)}"
        raise Fault(VERSION_NOT_SUPPORTED, problem, requested=named[:40], supported=", ".join(spoken))


def parse_send(params: Any, version: Version) -> Sent:
    """Parse the parameters. Raises Fault, with every violation."""
    found = _read(Sent, _sent_10(params) if version == "0.3" else params)
    if found.message.role not in ROLES:
        known = ROLES if version == "1.0" else ROLES.values()
        raise Fault(INVALID_PARAMS, violations=[("message.role", f"must be one of: {', '.join(known)}")])
    return found


def parse_task_query(params: Any, version: Version) -> Named:
    """Parse the parameters. Raises Fault."""
    found = _read(Named, params)
    return found.model_copy(update={"history_length": most_history(found.history_length, version)})


def parse_list(params: Any) -> Listed:
    """Parse the parameters. Raises Fault."""
    found, states = _read(Listed, params), [state_json(state, "1.0") for state in State]
    if found.status and found.status not in states:
        raise Fault(INVALID_PARAMS, violations=[("status", f"must be one of: {', '.join(states)}")])
    return found


def most_history(given: int | None, version: Version) -> int | None:
    """Return how many messages a client wants; None for all, which 0.3 also writes as 0."""
    return given or None if version == "0.3" else given


def _read(model: type[AnySection], params: Any) -> AnySection:
    if not isinstance(params, dict):
        raise Fault(INVALID_PARAMS, violations=[("params", "must be an object")])
    try:
        return model.model_validate(params)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise Fault(INVALID_PARAMS, violations=[_violation(one) for one in problems[:20]]) from None


def _violation(problem: Mapping[str, Any]) -> Violation:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"]).removeprefix(".")
    return path, requirement(problem)


def _sent_10(params: Any) -> Any:
    message = _object(params).get("message")
    if not isinstance(message, dict):
        return params
    given = cast("Object", message)
    role, parts = given.get("role"), given.get("parts")
    roles = {short: long for long, short in ROLES.items()}
    changed = {**given, "role": roles.get(role, role) if isinstance(role, str) else role}
    if isinstance(parts, list):
        changed["parts"] = [_part_10(one) for one in cast("list[Any]", parts)]
    return {**_object(params), "message": changed}


def _part_10(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    given = cast("Object", part)
    metadata = _object(given.get("metadata"))
    kind = given.get("kind") or next((name for name in ("text", "data", "file") if name in given), "")
    found: Object = {name: given[name] for name in ("metadata",) if name in given}
    if kind == "file":
        file = _object(given.get("file"))
        names = {"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType"}
        return found | {new: file[old] for old, new in names.items() if old in file}
    if kind == "data" and metadata.get(WRAPPED) and "value" in _object(given.get("data")):
        rest = {name: value for name, value in metadata.items() if name != WRAPPED}
        return {"data": given["data"]["value"], **({"metadata": rest} if rest else {})}
    if kind in ("text", "data") and kind in given:
        found[str(kind)] = given[kind]
    return found


def _object(value: Any) -> Object:
    return cast("Object", value) if isinstance(value, dict) else {}


def state_json(state: State, version: Version) -> str:
    """Return the name of a state."""
    return state.value if version == "0.3" else "TASK_STATE_" + state.name


def time_json(at: float) -> str:
    """Return a time in ISO 8601, UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def part_json(part: Object, version: Version) -> Object:
    """Convert a part from 1.0."""
    if version == "1.0":
        return part
    metadata: Object = {"metadata": part["metadata"]} if "metadata" in part else {}
    if "text" in part:
        return {"kind": "text", "text": part["text"], **metadata}
    if "data" in part:
        data = part["data"]
        if isinstance(data, dict):
            return {"kind": "data", "data": data, **metadata}
        return {"kind": "data", "data": {"value": data}, "metadata": {**metadata.get("metadata", {}), WRAPPED: True}}
    names = {"raw": "bytes", "url": "uri", "mediaType": "mimeType", "filename": "name"}
    return {"kind": "file", "file": {new: part[old] for old, new in names.items() if old in part}, **metadata}


def message_json(message: Object, version: Version) -> Object:
    """Convert a message from 1.0."""
    if version == "1.0":
        return message
    parts = [part_json(part, version) for part in message["parts"]]
    return {**message, "role": ROLES[message["role"]], "parts": parts, "kind": "message"}


def artifact_json(artifact: Object, version: Version) -> Object:
    """Convert an artifact from 1.0."""
    return {**artifact, "parts": [part_json(part, version) for part in artifact["parts"]]}


def status_json(state: State, said: Object | None, at: float, version: Version) -> Object:
    """Return a task's status, with the message about it."""
    message: Object = {"message": message_json(said, version)} if said else {}
    return {"state": state_json(state, version), **message, "timestamp": time_json(at)}


def task_json(task: Task, version: Version, history: int | None, *, artifacts: bool = True) -> Object:
    """Return the complete task with its last ``history`` messages."""
    found: Object = {
        "id": task.id,
        "contextId": task.context,
        "status": status_json(task.state, task.said, task.updated, version),
    }
    if artifacts and (task.artifacts or version == "1.0"):
        found["artifacts"] = [artifact_json(one, version) for one in task.artifacts]
    messages = task.messages[-history:] if history else task.messages if history is None else []
    if messages:
        found["history"] = [message_json(one, version) for one in messages]
    return found if version == "1.0" else {**found, "kind": "task"}


def wrap_task(operation: Operation, task: Object, version: Version) -> Object:
    """Return a task as the response to ``operation``, or as an event."""
    return {"task": task} if version == "1.0" and operation in ("send", "stream", "subscribe") else task


def event_json(task: Task, run_event: TaskEvent, version: Version) -> Object | None:
    """Return an event of a task; None for one that has no counterpart."""
    if run_event.kind == "status":
        return _status_event(task, run_event.state, run_event.content, run_event.at, version)
    if run_event.kind == "artifact":
        about: Object = {"taskId": task.id, "contextId": task.context}
        event = {**about, "artifact": artifact_json(run_event.content, version), "append": False, "lastChunk": True}
        return {"artifactUpdate": event} if version == "1.0" else {**event, "kind": "artifact-update"}
    return None


def status_event(task: Task, version: Version) -> Object:
    """Return a task's state as an event."""
    return _status_event(task, task.state, task.said, task.updated, version)


def _status_event(task: Task, state: State, said: Object | None, at: float, version: Version) -> Object:
    event: Object = {"taskId": task.id, "contextId": task.context, "status": status_json(state, said, at, version)}
    return {"statusUpdate": event} if version == "1.0" else {**event, "final": state.over, "kind": "status-update"}
