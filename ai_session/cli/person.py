"""Verbs about the person: the passphrase for signatures, and whether this terminal is known to be theirs."""

from __future__ import annotations

import time
from typing import Any

from agentwire.cli.options import Group, Json
from agentwire.cli.output import remark, show_facts, show_json
from ai_session.cli import signing
from ai_session.cli.signing import Act
from ai_session.client.connection import connect

app = Group("How your answers are recognized as yours: by your terminal or your signature.")


@app.command()
def show(as_json: Json = False) -> None:
    """Show where this terminal comes from, whether an answer from here counts as it is, and which key counts."""
    with connect() as client:
        facts = client.request("person")
    if as_json:
        show_json({name: value for name, value in facts.items() if name != "nonce"})
        return
    counts = "counts as it is" if facts["unsigned"] else "counts when it is signed"
    key = f"{facts['key']['key_id']}, since {_day(facts['key'])}, by {facts['key']['by']}" if facts["key"] else "none"
    show_facts({"this terminal": facts["origin"], "because": facts["why"], "an answer from here": counts, "key": key})
    if not facts["unsigned"] and not facts["key"]:
        remark("To sign, first choose a passphrase: ai-session person enrol")


@app.command()
def enrol(as_json: Json = False) -> None:
    """Choose the passphrase that signs your answers where your terminal alone does not prove that you are a person.

    The first one is accepted in a terminal of this machine that no agent owns, and by ssh while no client of ai-session
    runs. Changing it requires the old passphrase, or a terminal of this machine.
    """
    from ai_session.gate.consent.person_signature import PrivateKey

    with signing.terminal() as tty:
        key = PrivateKey(tty.new_passphrase())
    with connect() as client:
        act = Act("enrol", {"key": key.public.line}, "Accept signatures made with the new passphrase, and no others.")
        done = signing.request(client, "enrol", lambda: act, key=key.public.line)
    if as_json:
        show_json(done)
    else:
        remark(f"Key {done['key_id']} is enrolled: what you sign with this passphrase counts as your answer.")


@app.command()
def remove(as_json: Json = False) -> None:
    """Remove the key, so that no signature counts any more. Requires the passphrase, or a terminal of this machine."""
    with connect() as client:

        def act() -> Act:
            return Act("unenrol", {"key": client.request("person")["key"]["line"]}, "Stop accepting signatures.")

        done = signing.request(client, "unenrol", act)
    if as_json:
        show_json(done)
    else:
        remark(f"Key {done['key_id']} is no longer accepted.")


def _day(key: dict[str, Any]) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(key["at"]))
