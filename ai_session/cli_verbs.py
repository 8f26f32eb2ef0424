"""Every verb, under the heading that ``--help`` shows it under. Its module is imported when the verb is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

SECTIONS: dict[str, dict[str, Callable[[], Any]]] = {
    "Sessions": {
        "new": lambda: import_module("ai_session.cli_sessions").new,
        "ls": lambda: import_module("ai_session.cli_sessions").ls,
        "info": lambda: import_module("ai_session.cli_sessions").info,
        "attach": lambda: import_module("ai_session.cli_attach").attach,
        "rename": lambda: import_module("ai_session.cli_sessions").rename,
        "share": lambda: import_module("ai_session.cli_sessions").share,
        "kill": lambda: import_module("ai_session.cli_sessions").kill,
    },
    "Commands": {
        "exec": lambda: import_module("ai_session.cli_commands").exec_,
        "interrupt": lambda: import_module("ai_session.cli_sessions").interrupt,
        "send": lambda: import_module("ai_session.cli_commands").send,
        "screen": lambda: import_module("ai_session.cli_commands").screen,
        "logs": lambda: import_module("ai_session.cli_commands").logs,
        "replay": lambda: import_module("ai_session.cli_record").replay,
        "record": lambda: import_module("ai_session.cli_record").app,
    },
    "People": {
        "approvals": lambda: import_module("ai_session.cli_approvals").approvals,
        "approve": lambda: import_module("ai_session.cli_approvals").approve,
        "reject": lambda: import_module("ai_session.cli_approvals").reject,
        "person": lambda: import_module("ai_session.cli_person").app,
    },
    "Safety": {
        "sandbox": lambda: import_module("ai_session.cli_sandbox").sandbox,
        "policy": lambda: import_module("ai_session.cli_policy").app,
        "audit": lambda: import_module("ai_session.cli_audit").app,
    },
    "Programs": {
        "mcp": lambda: import_module("ai_session.cli_install").app,
        "mcp-server": lambda: import_module("ai_session.cli_server").mcp_server,
        "http": lambda: import_module("ai_session.cli_http_access").app,
        "serve": lambda: import_module("ai_session.cli_serve").serve,
        "token": lambda: import_module("ai_session.cli_token").token,
    },
    "Service": {
        "doctor": lambda: import_module("ai_session.cli_doctor").doctor,
        "config": lambda: import_module("ai_session.cli_config").app,
        "daemon": lambda: import_module("ai_session.cli_daemon").app,
        "completion": lambda: import_module("ai_session.cli_completion").completion,
    },
}
"""Functions, and groups of them: with the options of ``cli_options``, or with typer's."""

VERBS = {name: load for section in SECTIONS.values() for name, load in section.items()}
