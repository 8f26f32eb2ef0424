"""Rules: what loads, what does not and why, and what a prefix means for questions and denials."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.errors import ConfigInvalid
from ai_session.models import Effect, Principal
from ai_session.policy import Action, Policy
from ai_session.policy_commands import Match, loosely
from ai_session.policy_rules import load
from ai_session.shell_words import parse

ROOT = Path(__file__).parents[3]
DENY: dict[str, Any] = {"id": "no-push", "decision": "deny", "commands": ["git push"]}

WRONG = [
    ({**DENY, "comands": []}, "comands is not a key of a rule", "did you mean commands?"),
    ({**DENY, "examples": {"matches": []}}, "examples.matches is not a key", "did you mean match?"),
    ({**DENY, "decision": "forbid"}, "decision: Input should be 'allow', 'ask' or 'deny'", ""),
    ({**DENY, "effects": ["run"]}, "effects.0: Input should be 'read'", ""),
    ({**DENY, "commands": ["* push"]}, "a command begins with the name of a program", ""),
    ({**DENY, "commands": [""]}, "a command begins with the name of a program", ""),
    ({**DENY, "commands": [[]]}, "a command begins with the name of a program", ""),
    ({**DENY, "id": "default:x"}, "id: String should match pattern", ""),
    ({"id": "all", "decision": "deny"}, "selects nothing", "give one of: tools, effects"),
    (
        {**DENY, "examples": {"match": ["git status"]}},
        "the example 'git status' in match does not fit",
        "mend the rule",
    ),
    ({**DENY, "examples": {"not_match": ["git -C x push"]}}, "the example 'git -C x push' in not_match fits", ""),
    ({**DENY, "decision": "allow", "examples": {"match": ["git push > x"]}}, "'git push > x' in match does not", ""),
    ({"decision": "allow", "domains": ["*.x.org"], "examples": {"match": ["x.org"]}}, "'x.org' in match", ""),
    (
        {"decision": "deny", "paths": ["/etc/**"], "examples": {"not_match": ["/etc/passwd"]}},
        "'/etc/passwd' in not",
        "",
    ),
    ({"decision": "ask", "tools": ["send_*"], "examples": {"match": ["execute_command"]}}, "'execute_command' in", ""),
]


@pytest.mark.parametrize(("table", "message", "suggestion"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_rule_is_named_with_what_is_wrong(table: dict[str, Any], message: str, suggestion: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load([{"id": "first", "decision": "ask", "tools": ["x"]}, table])
    assert caught.value.message.startswith("policy.rules[2]")
    assert message in caught.value.message
    assert suggestion in caught.value.suggestion


def test_ids_are_unique_and_given_by_place_when_missing() -> None:
    rules = load([{"decision": "deny", "tools": ["x"]}, {"id": "b", "decision": "deny", "tools": ["x"]}])
    assert [rule.id for rule in rules] == ["rule-1", "b"]
    with pytest.raises(ConfigInvalid, match="the id 'no-push' is used twice"):
        load([DENY, DENY])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["deny", "git push", "read"]),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=6,
    ).flatmap(
        lambda value: st.dictionaries(
            st.sampled_from(["id", "decision", "tools", "effects", "commands", "paths", "domains", "examples", "x"]),
            st.just(value) | st.sampled_from(["deny", ["git push"], {"match": ["x"]}]),
            max_size=5,
        )
    )
)
@settings(deadline=None, max_examples=150)
def test_any_table_loads_or_is_named(table: dict[str, Any]) -> None:
    message = "policy.rules[1]"
    try:
        load([table])
    except ConfigInvalid as error:
        message = error.message
    assert message.startswith("policy.rules[1]")


SURE = [
    *(
        "git push",
        "git push origin main",
        "git --no-pager push",
        "git -C /x push",
        "git -c a=b push",
        "GIT push",
        "git  'push'",
    ),
    *(
        "/usr/bin/git push",
        "./git push",
        "../bin/git push",
        "FOO=1 git push",
        "A=1 B=2 git push -f",
        "git push > x 2>&1",
    ),
    *("ls && git push", "ls | git push", "ls; git push", "(git push)", "{ git push; }", "! git push", "git push &"),
    *(
        "if true; then git push; fi",
        "for i in 1; do git push; done",
        "f() { git push; }",
        "$(git push)",
        'echo "`git push`"',
    ),
    *(
        "env git push",
        "env -i A=b git push",
        "sudo -u x git push",
        "nohup git push",
        "timeout 5 git push",
        "nice -n 5 git push",
    ),
    *("command git push", "exec git push", "time -p git push", "coproc git push", "eval git push", "eval 'git push'"),
    *(
        "bash -c 'git push'",
        "sh -lc 'ls; git push'",
        "sudo sh -c 'git push'",
        "env -S 'git push'",
        "bash -c \"git 'push'\"",
    ),
    *(
        "find . -exec git push ';'",
        "ls | xargs git push",
        "ssh host git push",
        "ssh host 'cd x && git push'",
        "not git push",
    ),
    *(
        "su -c 'git push'",
        "env --split-string='git push'",
        "busybox sh -c 'git push'",
        "echo x | while git push; do ls; done",
    ),
    *(
        "a=$(git push)",
        "cat <(git push)",
        "cat <<E\n$(git push)\nE",
        "ls\ngit push",
        "noglob git push",
        "repeat 3 git push",
    ),
]
PERHAPS = [
    *(
        "echo git push | bash --norc",
        "echo git push | sudo bash -o errexit",
        "source /dev/stdin <<E\ngit push\nE",
        ". <(x)",
    ),
    *(
        "parallel git ::: push",
        "bash <<< 'git push'",
        "bash /dev/stdin < x",
        'p() { git "$@"; }; p push',
        "xargs -n1 git < x",
    ),
    *(
        "$X push",
        "git $X",
        "g\\it push",
        "git pu\\sh",
        "git {push,x}",
        "git pu*",
        "'git'$Y push",
        "$(echo git) push",
        "~/git push",
    ),
    *(
        'bash -c "$X"',
        "eval $X",
        "echo git push | bash",
        "bash -s < x",
        "sh",
        "ls | xargs git",
        "python -c \"import os; os.system('git push')\"",
    ),
    *(
        "awk 'BEGIN{system(\"git push\")}'",
        "git -c alias.p=push p",
        "git config alias.p push",
        "perl -e 'exec qw(git push)'",
    ),
    *(
        "git push (",
        "bash -c 'git push ('",
        "git \\\npush",
        "git\u00a0push",
        "git\rpush",
        "x" * 5000,
        "sudo $X",
        "env A=$B $C",
    ),
    *('bash -c "bash -c \\"git push\\""', "timeout 5 $CMD", 'exec "$@"', "node -e 'run(`git push`)'"),
]
OTHERS = [
    *(
        "git status",
        "git log push",
        "git pull",
        "echo git push",
        "gitpush",
        "git-push x",
        "ls push",
        "git commit -m 'git push'",
    ),
    *("git stash push", "grep 'git push' x", "cat x > git", "for f in *; do wc -l $f; done", "echo $HOME ~ *.py {a,b}"),
    *(
        "FOO=$(date) make -j4",
        "cat <<E\ngit push\nE",
        "if [ -f x ]; then cat x; fi",
        "python x.py push",
        "sudo ls",
        "bash x.sh",
    ),
    *(
        "find . -name '*.py'",
        "bash -c 'ls; git status'",
        "ls 2>/dev/null | head",
        "docker push x",
        "xargs rm",
        "push git",
    ),
]


@pytest.mark.parametrize(
    ("line", "match"),
    [(line, Match.YES) for line in SURE]
    + [(line, Match.MAYBE) for line in PERHAPS]
    + [(line, Match.NO) for line in OTHERS],
    ids=lambda value: repr(value)[:40],
)
def test_a_denied_command_is_found_however_it_is_dressed(line: str, match: Match) -> None:
    assert loosely(("git", "push"), parse(line)) is match


OPTIONS = [
    ("git push --force", "git push origin main --force", Match.YES),
    ("git push --force", "git push --forc", Match.YES),
    ("git push --force", "git push --force=x", Match.YES),
    ("git push --force", "git push --force-with-lease", Match.NO),
    ("git push --force", "git push", Match.NO),
    ("git push --force", "git push $X", Match.MAYBE),
    ("rm -rf", "rm -fr x", Match.YES),
    ("rm -rf", "rm -r -v -f x", Match.YES),
    ("rm -rf", "rm -r x", Match.NO),
    ("rm -rf /", "rm -rf //./", Match.YES),
    ("rm -rf /", "rm -rf x", Match.NO),
    ("npm * --unsafe", "npm run x --unsafe", Match.YES),
    ("npm * --unsafe", "npm run x", Match.NO),
    ("./deploy.sh", "/w/deploy.sh now", Match.YES),
]


@pytest.mark.parametrize(("prefix", "line", "match"), OPTIONS)
def test_options_count_wherever_and_however_they_are_given(prefix: str, line: str, match: Match) -> None:
    assert loosely(tuple(prefix.split()), parse(line)) is match


WRAPS = st.sampled_from(
    [
        *(
            "{}",
            "env {}",
            "A=b {}",
            "sudo -n {}",
            "ls; {}",
            "ls && {} | cat",
            "({})",
            "$({})",
            "if {}; then ls; fi",
            "! {}",
        ),
        *(
            "timeout 5 {}",
            "nohup {} &",
            "for i in a; do {}; done",
            "{} > out",
            "cat <({})",
            "time {}",
            'echo "$({})"',
            "{{ {}; }}",
        ),
    ]
)


@given(st.lists(WRAPS, max_size=5), st.sampled_from(["git push", "/bin/git push", "git -C x push", "git push -f"]))
@settings(deadline=None, max_examples=200)
def test_no_dress_hides_a_command_from_a_denial(wraps: list[str], line: str) -> None:
    for wrap in wraps:
        line = wrap.format(line)
    assert loosely(("git", "push"), parse(line)) is not Match.NO


def test_denied_paths_are_found_in_words_and_arguments() -> None:
    rule = {"id": "keys", "decision": "deny", "paths": ["**/.ssh/**", "/etc/shadow"]}
    policy = Policy(1000, "trusted", [rule])

    def judged(command: str = "", *paths: str) -> str:
        return policy.decide(
            Action(Principal("mcp", 1000), "execute_command", Effect.EXECUTE, command=command, paths=paths)
        ).verdict

    denied = [
        "cat /home/u/.ssh/id_rsa",
        "cat .ssh/id_rsa",
        "ls .ssh",
        "cat a/../.ssh/x",
        "tar -f/etc/shadow",
        "cp --x=/etc/shadow y",
    ]
    assert [judged(line) for line in [*denied, "cat //etc/./shadow", "cat /ETC/shadow"]] == ["deny"] * 8
    assert [
        judged(line) for line in ("echo x >> /root/.ssh/authorized_keys", "cat < /etc/shadow", "x=$(< /etc/shadow)")
    ] == ["deny"] * 3
    assert judged("ls", "/root/.ssh/x") == "deny"
    assert [judged(line) for line in ("cat $X", "cat ~/x", "cat x)", "cat ../x", "ls > $X")] == ["ask"] * 5
    assert [judged(line) for line in ("cat x", "cat /etc/passwd", "ls /home/u/.sshx")] == ["allow"] * 3


def test_who_is_selected_by_client_agent_tool_and_effect() -> None:
    rules: list[dict[str, Any]] = [
        {"id": "reviewers-read", "decision": "deny", "agents": ["review*"], "effects": ["write", "execute"]},
        {"id": "desktop", "decision": "deny", "clients": ["claude-desktop *"], "tools": ["send_*", "create_session"]},
    ]
    policy = Policy(1000, "workspace", rules)

    def rule(client: str, agent: str, tool: str, effect: Effect) -> str:
        return policy.decide(Action(Principal("mcp", 1000, client=client), tool, effect, agent)).rule

    assert rule("x", "reviewer", "execute_command", Effect.EXECUTE) == "reviewers-read"
    assert rule("x", "reviewer", "read_output", Effect.READ) == "default:workspace"
    assert rule("claude-desktop 1.2", "", "send_input", Effect.EXECUTE) == "desktop"
    assert rule("claude-desktop 1.2", "", "execute_command", Effect.EXECUTE) == "default:workspace"
    assert rule("claude-code 1.2", "", "send_input", Effect.EXECUTE) == "default:workspace"


def test_every_rule_of_the_manual_loads() -> None:
    text = (ROOT / "docs/policy.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    tables = [table for block in blocks for table in tomllib.loads(block).get("policy", {}).get("rules", ())]
    assert len(load(tables)) >= 6
    assert all(rule.table.examples.match for rule in load(tables))
