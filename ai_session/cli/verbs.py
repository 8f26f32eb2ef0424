"""Every verb, under its heading in ``--help``. Its module is imported when the verb is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

SECTIONS: dict[str, dict[str, Callable[[], Any]]] = {
    "Sessions": {
        "new": lambda: import_module("ai_session.cli.sessions").new,
        "ls": lambda: import_module("ai_session.cli.sessions").ls,
        "info": lambda: import_module("ai_session.cli.sessions").info,
        "attach": lambda: import_module("ai_session.cli.attach").attach,
        "rename": lambda: import_module("ai_session.cli.sessions").rename,
        "share": lambda: import_module("ai_session.cli.sessions").share,
        "kill": lambda: import_module("ai_session.cli.sessions").kill,
    },
    "Commands": {
        "exec": lambda: import_module("ai_session.cli.commands").exec_,
        "interrupt": lambda: import_module("ai_session.cli.sessions").interrupt,
        "send": lambda: import_module("ai_session.cli.commands").send,
        "screen": lambda: import_module("ai_session.cli.commands").screen,
        "logs": lambda: import_module("ai_session.cli.commands").logs,
        "replay": lambda: import_module("ai_session.cli.record").replay,
        "record": lambda: import_module("ai_session.cli.record").app,
    },
    "People": {
        "top": lambda: import_module("ai_session.cli.top").top,
        "console": lambda: import_module("ai_session.cli.console").console,
        "approvals": lambda: import_module("ai_session.cli.approvals").approvals,
        "approve": lambda: import_module("ai_session.cli.approvals").approve,
        "reject": lambda: import_module("ai_session.cli.approvals").reject,
        "person": lambda: import_module("ai_session.cli.person").app,
        "notify": lambda: import_module("ai_session.cli.notify").app,
    },
    "Safety": {
        "sandbox": lambda: import_module("ai_session.cli.sandbox").sandbox,
        "policy": lambda: import_module("ai_session.cli.policy").app,
        "audit": lambda: import_module("ai_session.cli.audit").app,
    },
    "Programs": {
        "mcp": lambda: import_module("ai_session.cli.install").app,
        "mcp-server": lambda: import_module("ai_session.cli.mcp_server").mcp_server,
        "http": lambda: import_module("ai_session.cli.http_users").app,
        "serve": lambda: import_module("ai_session.cli.serve").serve,
        "token": lambda: import_module("ai_session.cli.token").token,
    },
    "Service": {
        "doctor": lambda: import_module("ai_session.cli.doctor").doctor,
        "docs": lambda: import_module("ai_session.cli.docs").docs,
        "config": lambda: import_module("ai_session.cli.config").app,
        "daemon": lambda: import_module("ai_session.cli.daemon").app,
        "completion": lambda: import_module("ai_session.cli.completion").completion,
    },
}
"""Functions and groups of them, with the options of ``options`` or with typer's."""

VERBS = {name: load for section in SECTIONS.values() for name, load in section.items()}
