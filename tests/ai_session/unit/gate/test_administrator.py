"""The administrator's file: whose it must be, what it bounds, and that nothing of the user's loosens it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.config.settings import Settings
from ai_session.errors import ConfigInvalid, Denied
from ai_session.gate.policy.administrator import Administrator, Bounds, read
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import MODES, STRICTNESS, Action, Policy
from ai_session.models import Effect, Principal, SandboxLevel
from tests.ai_session.support.unprivileged import GROUP, USER

UID = os.getuid()
ETC = Path("/etc/ai-session/policy.toml")
AGENT, PERSON = Principal("mcp", UID, client="agent"), Principal("person", UID)
DIRECTORY, FILE, LINK = stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK


def facts(kind: int, mode: int, uid: int = 0) -> os.stat_result:
    return os.stat_result((kind | mode, 1, 1, 1, uid, 0, 0, 0, 0, 0))


class Disk:
    """A whole system's owners and modes; what is not listed does not exist."""

    def __init__(self, **changes: os.stat_result | None) -> None:
        found: Mapping[str, os.stat_result | None] = {
            "/": facts(DIRECTORY, 0o755),
            "/etc": facts(DIRECTORY, 0o755),
            "/etc/ai-session": facts(DIRECTORY, 0o755),
            str(ETC): facts(FILE, 0o644),
        }
        names = {"root": "/", "etc": "/etc", "directory": "/etc/ai-session", "file": str(ETC)}
        self._facts = {**found, **{names[name]: value for name, value in changes.items()}}

    def look(self, path: str) -> os.stat_result:
        known = self._facts.get(path)
        if known is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return known


@pytest.mark.parametrize("at", ["root", "etc", "directory", "file"])
@pytest.mark.parametrize(
    ("mode", "uid", "said"),
    [
        (0o755, 1000, "belongs to uid 1000"),
        (0o775, 0, "is writable by others (mode 0775)"),
        (0o757, 0, "is writable by others (mode 0757)"),
        (0o777, 65534, "belongs to uid 65534"),
    ],
)
def test_what_others_may_write_is_refused_with_all_above_it(at: str, mode: int, uid: int, said: str) -> None:
    kind = FILE if at == "file" else DIRECTORY
    with pytest.raises(ConfigInvalid) as refused:
        read(ETC, lstat=Disk(**{at: facts(kind, mode, uid)}).look)
    assert said in refused.value.message
    assert "the administrator runs: ch" in refused.value.suggestion


@pytest.mark.parametrize("at", ["directory", "file"])
def test_none_at_all_is_fine(at: str) -> None:
    assert read(ETC, lstat=Disk(**{at: None}).look) == Administrator()


def test_one_of_the_user_is_no_better_for_being_missing_further_down() -> None:
    with pytest.raises(ConfigInvalid, match="belongs to uid 1000"):
        read(ETC, lstat=Disk(directory=facts(DIRECTORY, 0o755, 1000), file=None).look)


def test_in_a_sticky_directory_nobody_replaces_what_is_anothers() -> None:
    assert read(ETC, lstat=Disk(etc=facts(DIRECTORY, 0o1777), file=None).look) == Administrator()
    with pytest.raises(ConfigInvalid, match="is writable by others"):
        read(ETC, lstat=Disk(file=facts(FILE, 0o1666)).look)


def written(home: Path, text: str) -> Path:
    path = home / "laid/down.toml"
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


def test_a_real_file_is_read(home: Path) -> None:
    path = written(home, '[policy]\nmode = "ask-all"\n\n[sandbox]\nprocesses = 20\n')
    found = read(path, UID)
    assert (found.path, found.bounds.policy.mode, found.bounds.sandbox.processes) == (str(path), "ask-all", 20)


@pytest.mark.parametrize("writable", ["laid/down.toml", "laid", "."])
def test_a_real_file_that_others_may_write_is_refused(home: Path, writable: str) -> None:
    path = written(home, "")
    (home / writable).chmod(0o775)
    with pytest.raises(ConfigInvalid, match="is writable by others"):
        read(path, UID)


def test_a_real_file_of_somebody_else_is_refused(home: Path) -> None:
    """As root it is given away; as anybody else a root that expects another owner finds this user's."""
    path = written(home, "")
    if UID == 0:
        os.chown(path, USER, GROUP)
    with pytest.raises(ConfigInvalid, match="belongs to uid"):
        read(path, 0)


def test_links_are_followed_and_all_they_lead_through_counts(home: Path) -> None:
    path = written(home, '[policy]\nmode = "read-only"\n')
    (home / "open").mkdir()
    (home / "open/link").symlink_to(path)
    (home / "link").symlink_to("open/link")
    assert read(home / "link", UID).bounds.policy.mode == "read-only"
    (home / "open").chmod(0o777)
    with pytest.raises(ConfigInvalid, match=r"open is writable by others"):
        read(home / "link", UID)


@pytest.mark.parametrize("link", ["policy.toml", "linked"])
def test_a_link_that_leads_nowhere_is_refused(home: Path, link: str) -> None:
    (home / link).symlink_to("/nowhere/at/all")
    path = home / "linked/policy.toml" if link == "linked" else home / link
    with pytest.raises(ConfigInvalid, match="is a link to /nowhere/at/all, which does not exist"):
        read(path, UID)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[policy", "Expected"),
        ('[policy]\nmode = "loose"\n', "policy.mode"),
        ("[policy]\nask_seconds = 3\n", "policy.ask_seconds"),
        ("[session]\nrows = 3\n", "session"),
        ("[sandbox]\nprocesses = 1\n", "sandbox.processes"),
        ("x = '" + "x" * (1 << 20) + "'", "longer than"),
        ("\udcff", "utf-8"),
    ],
)
def test_what_is_wrong_is_refused(home: Path, text: str, said: str) -> None:
    path = written(home, "")
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigInvalid) as refused:
        read(path, UID)
    assert said in refused.value.message
    assert str(path) in refused.value.message


def test_a_directory_or_a_pipe_in_its_place_is_refused(home: Path) -> None:
    (home / "directory").mkdir()
    with pytest.raises(ConfigInvalid, match="it is not a file"):
        read(home / "directory", UID)
    os.mkfifo(home / "fifo", 0o600)
    with pytest.raises(ConfigInvalid, match="it is not a file"):
        read(home / "fifo", UID)


def test_a_wrong_rule_is_refused_with_the_files_name() -> None:
    bounds = Bounds.model_validate({"policy": {"rules": [{"decision": "deny"}]}})
    with pytest.raises(ConfigInvalid, match=r"^/x: policy.rules\[1\]: selects nothing"):
        Administrator("/x", bounds).policy(UID)


def test_limits_are_the_lower_and_levels_the_stronger() -> None:
    bounds = Bounds.model_validate({"sandbox": {"processes": 100, "memory_bytes": 1 << 40, "minimum_level": "bwrap"}})
    own = Settings.model_validate({"sandbox": {"processes": 200, "memory_bytes": 1 << 30}})
    bound = Administrator("/x", bounds).bound(own).sandbox
    assert (bound.processes, bound.memory_bytes, bound.minimum_level) == (100, 1 << 30, "bwrap")
    weaker = Bounds.model_validate({"sandbox": {"minimum_level": "landlock"}})
    strong = Settings.model_validate({"sandbox": {"minimum_level": "bwrap"}})
    assert Administrator("/x", weaker).bound(strong).sandbox.minimum_level == "bwrap"


RULES = [
    {"id": "d", "decision": "deny", "commands": ["git push"]},
    {"id": "k", "decision": "ask", "commands": ["git fetch"]},
    {"id": "a", "decision": "allow", "commands": ["git status", "git push", "git fetch"]},
    {"id": "t", "decision": "allow", "tools": ["*"]},
    {"id": "n", "decision": "deny", "effects": ["network"]},
]
SETS = st.lists(st.sampled_from(RULES), unique_by=lambda rule: rule["id"])
ACTIONS = st.builds(
    Action,
    principal=st.sampled_from([AGENT, PERSON, Principal("mcp", UID + 1)]),
    tool=st.sampled_from(["execute_command", "read_output", "create_session", "close_session", "send_input"]),
    effect=st.sampled_from([None, *Effect]),
    profile=st.sampled_from(["read-only", "workspace", "trusted"]),
    level=st.sampled_from([SandboxLevel.BWRAP, SandboxLevel.NONE]),
    command=st.sampled_from([None, "git push", "git fetch", "git status", "rm x"]),
    raw_input=st.booleans(),
    outside_workspace=st.booleans(),
    domain=st.sampled_from(["", "pypi.org"]),
    loosens=st.booleans(),
    ends_only=st.booleans(),
)
PROFILES = st.sampled_from(["read-only", "workspace", "trusted"])


@given(ACTIONS, SETS, SETS, st.sampled_from(MODES), st.sampled_from(MODES), st.sampled_from(MODES), PROFILES)
@settings(deadline=None, max_examples=75)
def test_the_stricter_decides_whatever_the_user_configures_or_sets(
    action: Action,
    own_rules: list[dict[str, Any]],
    rules: list[dict[str, Any]],
    own_mode: str,
    mode: str,
    wanted: str,
    profile: Any,
) -> None:
    own, above = Policy(UID, own_mode, own_rules), Policy(UID, mode, rules, loosest=profile)
    held = PolicyInForce(own, Path("/nowhere/mode.json"), above, "/etc/x")
    if MODES.index(wanted) > MODES.index(mode):
        with pytest.raises(Denied, match="the administrator has set"):
            held.set_mode(wanted, by_person=True)
    decision = held.decide(action)
    both = own.decide(action).verdict, above.decide(action).verdict
    assert decision.verdict == max(both, key=STRICTNESS.index)
    assert MODES.index(held.mode) <= min(MODES.index(own_mode), MODES.index(mode))
    assert held.rules_out(action) == (decision.verdict == "deny")


def test_a_rule_of_the_administrator_is_named_as_such_and_asked_about_on_its_own() -> None:
    above = Policy(UID, "workspace", [RULES[1]])
    held = PolicyInForce(Policy(UID, "workspace"), Path("/nowhere/mode.json"), above, "/etc/x")
    unboxed = Action(AGENT, "execute_command", Effect.EXECUTE, profile="trusted", level=SandboxLevel.NONE)
    assert held.decide(Action(**{**as_dict(unboxed), "command": "git fetch"})).rule == "administrator:k"
    assert held.decide(Action(**{**as_dict(unboxed), "command": "git log"})).rule == "default:no-box"


def as_dict(action: Action) -> dict[str, Any]:
    return {name: getattr(action, name) for name in Action.__dataclass_fields__}


def test_no_session_is_looser_than_the_administrators_profile_whoever_wants_it() -> None:
    held = PolicyInForce(
        Policy(UID, "trusted"), Path("/nowhere/mode.json"), Policy(UID, "trusted", (), loosest="workspace"), "/etc/x"
    )
    for principal in (AGENT, PERSON):
        for tool in ("create_session", "execute_command", "send_input", "sandbox"):
            for profile, verdict in (("trusted", "deny"), ("workspace", "allow"), ("read-only", "allow")):
                assert held.decide(Action(principal, tool, Effect.EXECUTE, profile=profile)).verdict == verdict


def test_the_example_of_the_manual_holds_what_it_says(home: Path) -> None:
    page = (Path(__file__).parents[4] / "docs/reference/policy.md").read_text()
    (text,) = re.findall(r"^```toml policy\.toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = read(written(home, text), UID)
    above = found.policy(UID)
    assert above is not None
    push = Action(PERSON, "execute_command", Effect.EXECUTE, command="git push -f")
    assert (above.mode, above.decide(push).rule) == ("workspace", "no-force")
    assert found.bound(Settings()).sandbox.minimum_level == "bwrap"


@pytest.mark.parametrize("principal", [AGENT, PERSON])
def test_typing_into_an_older_looser_session_is_refused_and_looking_is_not(principal: Principal) -> None:
    held = Policy(UID, "trusted", (), loosest="workspace")
    older = Action(principal, "attach", Effect.EXECUTE, profile="trusted", level=SandboxLevel.NONE)
    assert held.decide(older).rule == "default:profile"
    assert held.decide(replace(older, effect=Effect.READ)).verdict == "allow"
