"""The audit log in other formats: OCSF 1.6 events and OpenTelemetry (OTLP as JSON lines). No I/O.

A call becomes one event or one span, from its two records; any other record becomes one event. Calls without an end
record come last, with an unknown outcome.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]

OCSF_VERSION = "1.6.0"
_PROCESS_ACTIVITY = 1007
_API_ACTIVITY = 6003
_NETWORK_ACTIVITY = 4001
_BASE_EVENT = 0
_LAUNCH = 1
_OPEN = 1
_REFUSE = 5
_OTHER = 99
_API_VERBS = {"create": 1, "get": 2, "list": 2, "read": 2, "rename": 3, "resize": 3, "close": 4}
_INFORMATIONAL, _MEDIUM = 1, 3
_MACHINE = ("audit.open", "audit.segment")
_CHAIN = frozenset({"v", "seq", "prev", "hash", "ts", "mono", "event"})


def calls_and_events(records: Iterable[Record]) -> Iterator[tuple[Record, Record | None, str]]:
    """Yield (begin, end, host) for each call, in the order of their ends; (record, None, host) for each other event."""
    begun: dict[int, tuple[Record, str]] = {}
    host = ""
    for record in records:
        event = record.get("event", "")
        if event in _MACHINE:
            host = str(record.get("host", ""))
        if event == "tool.start":
            begun[record["seq"]] = (record, host)
        elif event == "tool.end":
            # Its begin record may have been removed.
            begin, _ = begun.pop(record.get("start", 0), ({**record, "ts": record["ts"] - record.get("us", 0)}, host))
            yield begin, record, host
        else:
            yield record, None, host
    for begin, where in begun.values():
        yield begin, {"outcome": "unknown", "ts": begin["ts"]}, where


def ocsf(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Yield OCSF events: Process Activity for commands, API Activity for other calls, Network Activity, Base Event."""
    for first, end, host in calls_and_events(records):
        yield _ocsf_event(first, host) if end is None else _ocsf_call(first, end, host)


def _ocsf_call(begin: Record, end: Record, host: str) -> dict[str, Any]:
    tool, outcome = str(begin.get("tool", "")), str(end.get("outcome", "unknown"))
    command: Mapping[str, str] = begin.get("args", {}).get("command") or end.get("command") or {}
    event = _ocsf_base(begin, host)
    event |= {"end_time": end["ts"] // 1000, "start_time": begin["ts"] // 1000, "duration": end.get("us", 0) // 1000}
    event["status_id"] = {"ok": 1, "unknown": 0}.get(outcome, 2)
    event |= {"status": outcome, "status_code": end.get("code", outcome)}
    blocked = outcome in ("denied", "limited")
    event |= {"action_id": 2 if blocked else 1, "disposition_id": 2 if blocked else 1}
    event["severity_id"] = _MEDIUM if blocked else _INFORMATIONAL
    event["metadata"]["profiles"].append("security_control")
    event["metadata"]["correlation_uid"] = begin.get("call", "")
    event["unmapped"] = {"begin": _without(begin, "actor", "tool"), "end": _without(end, "tool", "us", "outcome")}
    if command:
        process: dict[str, Any] = {"cmd_line": command["text"], "working_directory": end.get("cwd"), "name": "shell"}
        event["process"] = {name: value for name, value in process.items() if value is not None}
        event |= {"exit_code": end["exit_code"]} if "exit_code" in end else {}
        return _classed(event, _PROCESS_ACTIVITY, _LAUNCH)
    event |= {"api": {"operation": tool, "service": {"name": "ai-session"}}, "src_endpoint": {"hostname": host}}
    return _classed(event, _API_ACTIVITY, _API_VERBS.get(tool.partition("_")[0], _OTHER))


def _ocsf_event(record: Record, host: str) -> dict[str, Any]:
    event = {**_ocsf_base(record, host), "severity_id": _INFORMATIONAL, "unmapped": _without(record, "actor")}
    name = str(record.get("event", ""))
    if name in ("net.allow", "net.deny"):
        endpoint = {"hostname": record.get("host"), "port": record.get("port"), "ip": record.get("address")}
        event["dst_endpoint"] = {key: value for key, value in endpoint.items() if value is not None}
        return _classed(event, _NETWORK_ACTIVITY, _OPEN if name == "net.allow" else _REFUSE)
    return _classed({**event, "message": name}, _BASE_EVENT, _OTHER)


def _ocsf_base(record: Record, host: str) -> dict[str, Any]:
    actor: Mapping[str, Any] = record.get("actor", {})
    who: dict[str, Any] = {"app_name": actor.get("client") or actor.get("kind") or "ai-session"}
    if "uid" in actor:
        who["user"] = {"uid": str(actor["uid"])}
    if "pid" in actor:
        who["process"] = {"pid": actor["pid"]}
    product = {"name": "ai-session", "vendor_name": "ai-session"}
    metadata = {"version": OCSF_VERSION, "product": product, "log_name": "audit", "profiles": ["host"]}
    metadata |= {"uid": record.get("hash", ""), "sequence": record["seq"], "event_code": record.get("event", "")}
    device = {"hostname": host, "type_id": 0}
    return {"time": record["ts"] // 1000, "metadata": metadata, "actor": who, "device": device}


def _classed(event: dict[str, Any], class_uid: int, activity_id: int) -> dict[str, Any]:
    numbers = {"class_uid": class_uid, "category_uid": class_uid // 1000, "activity_id": activity_id}
    return {**numbers, "type_uid": class_uid * 100 + activity_id, **event}


def otel(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Yield OTLP requests: a server span for each call (MCP conventions), a log record for each other event."""
    for first, end, host in calls_and_events(records):
        about = {"service.name": "ai-session", "host.name": host}
        resource = {"attributes": _attributes(about)}
        scope = {"name": "ai_session.audit"}
        if end is None:
            logs = [{"scope": scope, "logRecords": [_otel_event(first)]}]
            yield {"resourceLogs": [{"resource": resource, "scopeLogs": logs}]}
        else:
            spans = [{"scope": scope, "spans": [_otel_span(first, end)]}]
            yield {"resourceSpans": [{"resource": resource, "scopeSpans": spans}]}


def _otel_span(begin: Record, end: Record) -> dict[str, Any]:
    tool, outcome = str(begin.get("tool", "")), str(end.get("outcome", "unknown"))
    actor: Mapping[str, Any] = begin.get("actor", {})
    method = "tools/call" if actor.get("kind") == "mcp" else ""
    facts: dict[str, Any] = {
        "mcp.method.name": method or None,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.agent.name": actor.get("agent"),
        "jsonrpc.request.id": begin.get("request"),
        "error.type": None if outcome == "ok" else end.get("code") or outcome,
        "process.exit.code": end.get("exit_code"),
        "process.working_directory": end.get("cwd"),
        "process.command_line": begin.get("args", {}).get("command", {}).get("text"),
        "user.id": actor.get("uid"),
        "ai_session": {
            "actor": actor,
            "begin": _without(begin, "actor", "tool", "request"),
            "end": _without(end, "tool", "exit_code", "cwd", "us"),
        },
    }
    return {
        "traceId": hashlib.sha256(str(begin.get("call") or begin["seq"]).encode()).hexdigest()[:32],
        "spanId": str(begin.get("hash", end.get("hash", "")))[:16],
        "name": f"{method} {tool}".strip(),
        "kind": 2,
        "startTimeUnixNano": str(begin["ts"] * 1000),
        "endTimeUnixNano": str(max(begin["ts"], end["ts"]) * 1000),
        "attributes": _attributes(facts),
        "status": {"code": 0} if outcome in ("ok", "unknown") else {"code": 2, "message": outcome},
    }


def _otel_event(record: Record) -> dict[str, Any]:
    name = str(record.get("event", ""))
    at = str(record["ts"] * 1000)
    facts = {"ai_session": {"seq": record["seq"], "hash": record.get("hash"), **_without(record)}}
    return {
        "timeUnixNano": at,
        "observedTimeUnixNano": at,
        "severityNumber": 9,
        "severityText": "INFO",
        "eventName": name,
        "body": {"stringValue": name},
        "attributes": _attributes(facts),
    }


def _attributes(facts: Mapping[str, Any], prefix: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            found += _attributes(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
        elif value is not None:
            found.append({"key": prefix + name, "value": _value(value)})
    return found


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value if isinstance(value, str) else ", ".join(map(str, value))}


def _without(record: Record, *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _CHAIN and name not in names}
