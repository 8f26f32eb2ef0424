"""The requests of the command line that run concurrently: each gets the connection and its parameters."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ai_session.errors import AiSessionError, InvalidArguments
from ai_session.gate.consent.person_check import parse_signature
from ai_session.models import ToolCall
from ai_session.servers.base import call_gate, person_of
from ai_session.servers.control import questions
from ai_session.servers.control.fields import table, text, texts

if TYPE_CHECKING:
    from ai_session.servers.base import Connection


async def call(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a tool."""
    name, arguments = text(params, "name"), table(params.get("arguments"))
    profile = text(params, "profile") if params.get("profile") else ""
    call_id = "call_" + secrets.token_urlsafe(16)
    asked = ToolCall(connection.principal, name, arguments, call_id, profile=profile, unlisted=True)
    result = await call_gate(connection.daemon.gate, asked)
    return {
        "text": result.text,
        "structured": result.structured,
        "is_error": result.is_error,
        "call_id": result.call_id,
        "meta": result.meta,
    }


async def rename(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rename a session."""
    await (await person_of(connection)).rename(connection.principal, text(params, "session"), text(params, "name"))
    return {}


async def share(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Share a session."""
    names = params.get("names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnknownVariableType]
        raise InvalidArguments("names must be a list of strings")
    await (await person_of(connection)).share(connection.principal, text(params, "session"), names)  # pyright: ignore[reportUnknownArgumentType]
    return {}


async def record(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a recording; return its path, when it begins, and the commands with markers."""
    person = await person_of(connection)
    path, source = await person.recording(connection.principal, text(params, "session"))
    return {"path": str(path), "began": source.began, "commands": [one.command_id for one in source.marked]}


async def approvals(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what waits for a person."""
    person = await person_of(connection)
    return await questions.approvals(person, connection.principal, wait=params.get("wait") is True)


async def approve(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pass on a person's yes."""
    return await questions.answer(await person_of(connection), connection.principal, params, allowed=True)


async def reject(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Pass on a person's no."""
    return await questions.answer(await person_of(connection), connection.principal, params, allowed=False)


async def policy(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the policy in force, after setting its mode if one is given."""
    mode = text(params, "mode") if params.get("mode") else ""
    return await (await person_of(connection)).policy(
        connection.principal, mode, parse_signature(params.get("signature"))
    )


async def explain(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Explain the policy."""
    given = {name: text(params, name) if params.get(name) else "" for name in ("command", "client", "agent")}
    return await (await person_of(connection)).explain(connection.principal, **given)


async def person(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return facts about the caller, and what a signature needs."""
    return await (await person_of(connection)).facts(connection.principal)


async def enrol(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Enrol a person's key."""
    person = await person_of(connection)
    signature = parse_signature(params.get("signature"))
    key = await person.enrol(connection.principal, text(params, "key"), signature)
    return {"key_id": key.key_id}


async def unenrol(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove the enrolled key."""
    key = await (await person_of(connection)).unenrol(connection.principal, parse_signature(params.get("signature")))
    return {"key_id": key.key_id}


async def status(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the status of the process; nothing about any session."""
    return connection.daemon.status()


async def settings(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the files of the settings: a client that finds them unchanged need not read them."""
    await connection.daemon.gate()
    return {"read_from": connection.daemon.read_from()}


async def stop(connection: Connection, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """End the daemon. With ``asked``, only if no other sessions than those end with it."""
    sessions = params.get("sessions") is True
    asked = texts(params, "asked")
    ended: list[str] = []

    def leave() -> None:
        ended.extend(connection.daemon.stop(sessions=sessions, asked=asked))

    try:
        person = await person_of(connection)
    except AiSessionError as error:  # without a gate there is no audit log, but the daemon can be ended anyway
        leave()
        return {"problem": error.message}
    problem = await person.stop(connection.principal, leave, sessions=sessions)
    return {"ended": ended} | ({"problem": problem} if problem else {})


METHODS = {
    method.__name__: method
    for method in (
        call,
        rename,
        share,
        record,
        approvals,
        approve,
        reject,
        policy,
        explain,
        person,
        enrol,
        unenrol,
        status,
        settings,
        stop,
    )
}
"""Requests that run concurrently."""
