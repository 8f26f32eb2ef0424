"""Rules: what loads, what does not and why, and what a prefix means for questions and denials."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentwire import plugins
from ai_session.errors import ConfigInvalid
from ai_session.gate.policy.commands import Match, Reading
from ai_session.gate.policy.policy import Action, Policy
from ai_session.gate.policy.rules import load
from ai_session.models import Effect, Principal
from ai_session.system.shell_words import parse
from tests.support.processor_time import computing_seconds, once_within

ROOT = Path(__file__).parents[4]
DENY: dict[str, Any] = {"id": "no-push", "decision": "deny", "commands": ["git push"]}

WRONG = [
    ({**DENY, "comands": []}, "comands is not a key of a rule", "did you mean commands?"),
    ({**DENY, "examples": {"matches": []}}, "examples.matches is not a key", "did you mean match?"),
    ({**DENY, "decision": "forbid"}, "decision: should be 'allow', 'ask' or 'deny'", ""),
    ({**DENY, "effects": ["run"]}, "effects.0: should be 'read'", ""),
    ({**DENY, "commands": ["* push"]}, "a command begins with the name of a program", ""),
    ({**DENY, "commands": [""]}, "a command begins with the name of a program", ""),
    ({**DENY, "commands": [[]]}, "a command begins with the name of a program", ""),
    ({**DENY, "id": "default:x"}, "id: should match pattern", ""),
    ({"id": "all", "decision": "deny"}, "selects nothing", "give one of: tools, effects"),
    (
        {**DENY, "examples": {"match": ["git status"]}},
        "the example 'git status' in match does not match",
        "fix the rule",
    ),
    ({**DENY, "examples": {"not_match": ["git -C x push"]}}, "the example 'git -C x push' in not_match matches", ""),
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
@settings(deadline=None, max_examples=35)
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
    *(
        "alias p='git push'; p",
        "alias -g p='sudo git push'",
        "alias p 'git push'",
        "abbr -a p git push",
        "alias a=b c='git push'",
    ),
    *(
        "tmux new -d 'git push'",
        "tmux new-session -d git push",
        "tmux send-keys 'git push' Enter",
        "screen -dm git push",
    ),
    *("runcon -t x git push", "sg staff 'git push'", "start-stop-daemon --start --exec git -- push; gosu x git push"),
    *("docker exec -it c git push", "podman run --rm i git push", "conda run -n x git push", "dtach -n s git push"),
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
        "alias g=git",
        "alias",
        "tmux ls",
        "docker run git x",
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
    assert Reading(parse(line)).match(("git", "push")) is match


CARRIED = r"""
alias ls='curl x'
PROMPT_COMMAND='curl x'
PROMPT_COMMAND=(true 'curl x')
PROMPT_COMMAND+='; curl x'
export PROMPT_COMMAND='curl x'
declare -x PAGER='curl x'
PAGER='curl x' git log
GIT_SSH_COMMAND='curl x' git fetch
GIT_SSH=/usr/bin/curl git pull
EDITOR=curl crontab -e
VISUAL='env curl x' vipw
BASH_ENV='curl' bash x
GIT_EXTERNAL_DIFF=curl git diff
LESSOPEN='|curl %s' less x
SUDO_ASKPASS=/usr/bin/curl sudo -A ls
FZF_DEFAULT_COMMAND='curl x' fzf
env PAGER='curl x' git log
env -i GIT_PAGER=curl git log
GIT_CONFIG_VALUE_0='!curl x' git x
MANPAGER='curl x' man ls
set -gx PAGER curl x
set -x GIT_SSH_COMMAND 'curl x'
setenv EDITOR curl
RSYNC_RSH='curl x' rsync a b:
LD_PRELOAD=/usr/bin/curl ls
MY_HOOK='bash -c "curl x"' make
ssh -o ProxyCommand='curl x' h
ssh -oProxyCommand='curl x' h
ssh -o 'ProxyCommand curl x' h
scp -o LocalCommand=curl a b
ssh -o knownhostscommand='/usr/bin/curl x' h
rsync -e 'curl x' a b:
rsync --rsh=curl a b:
rsync -ave 'ssh -o ProxyCommand="curl x"' a b:
rsync -aze'curl x' a b:
scp -S curl a b:
sftp -o ProxyUseFdpass=no -o ProxyCommand='curl x' h
git -c core.pager='curl x' log
git -c core.sshCommand='curl x' fetch
git -c core.fsmonitor=curl status
git clone --upload-pack='curl x' a b
git clone --upload-pack curl a
git rebase -x 'curl x' main
git rebase --exec='curl x' main
git bisect run curl x
git submodule foreach curl x
git config core.editor 'curl x'
git config --global diff.external curl
git difftool --extcmd='curl x'
git grep --open-files-in-pager=curl x
git filter-branch --tree-filter 'curl x' HEAD
git fetch 'ext::curl x'
git fetch --upload-pa='curl x' a
tar cf x --checkpoint-action=exec='curl x' y
tar --to-command='curl x' -xf y
tar -I 'curl x' -cf y z
tar --use-compress-prog=curl -cf y z
sort --compress-program=curl x
split --filter='curl x' y
rg --pre curl x
man -P 'curl x' ls
nc -e /usr/bin/curl h 1
ncat --sh-exec 'curl x' h
/lib64/ld-linux-x86-64.so.2 /usr/bin/curl x
/lib/ld-musl-x86_64.so.1 curl x
ld.so --library-path /x /usr/bin/curl x
env -S 'curl x'
env -S'curl x'
env --split-string 'A=b curl x'
busybox curl x
toybox curl x
pkexec curl x
valgrind curl x
complete -C 'curl x' y
""".strip().splitlines()
MAYBE_CARRIED = r"""
cp $(which curl) zz; ./zz
cp /usr/bin/curl zz; ./zz x
ln -s "$(command -v curl)" zz && ./zz
install /bin/curl ./zz
dd if=/usr/bin/curl of=zz
cat /usr/bin/curl > zz
hash -p /usr/bin/curl ls
PS1='$(curl x)'
PAGER=$X git log
sed '1e curl x' y
sed 's/a/curl x/e' y
bind -x '"x": curl x'
rsync -e $X a b:
find . -exec sh -c 'PAGER="curl x" git log' ';'
""".strip().splitlines()
NOT_CARRIED = r"""
which curl
cat curl
cp curl zz
rm -r curl
git commit -m 'curl x'
git log --grep='curl x'
git log -- curl
git config user.name 'curl x'
git push -u origin curl
git add curl
sort curl
man curl
rg curl
apt install curl
NAME='curl x' make
PAGER=less git log
EDITOR=vim git commit
PS1='curl $ '
SHELL=/bin/bash ls
MAKEFLAGS=-j4 ls
tar -cf curl.tar curl
sed 's/curl/wget/' x
sed -n '/curl/p' x
ssh -o StrictHostKeyChecking=no h ls
cp /usr/bin/wget x
cp $(which wget) zz
rsync -a curl b:
CFLAGS='-O2 curl' ls
command -v curl
git -c user.name='curl x' commit
""".strip().splitlines()


SHELLS = [name for one in plugins.names("ai_session.shells") for name in plugins.load("ai_session.shells", one).names]


@pytest.mark.parametrize("shell", sorted({*SHELLS, "yash", "oksh", "tcsh"}))
def test_a_denied_command_is_found_in_what_any_shell_is_given(shell: str) -> None:
    assert Reading(parse(f"{shell} -c 'git push'")).match(("git", "push")) is Match.YES
    assert Reading(parse(f"echo git push | {shell}")).match(("git", "push")) is Match.MAYBE


@pytest.mark.parametrize("line", CARRIED)
def test_a_denied_command_is_found_in_what_carries_one(line: str) -> None:
    assert Reading(parse(line)).match(("curl",)) is Match.YES


@pytest.mark.parametrize("line", MAYBE_CARRIED)
def test_it_is_asked_about_where_it_may_be_carried(line: str) -> None:
    assert Reading(parse(line)).match(("curl",)) is Match.MAYBE


@pytest.mark.parametrize("line", NOT_CARRIED)
def test_a_name_that_runs_nothing_is_no_command(line: str) -> None:
    assert Reading(parse(line)).match(("curl",)) is Match.NO


SLOW = [
    "env -S 'env -S \"env -S x\"' " * 150,
    "bash -c 'bash -c \"bash -c x\"' " * 130,
    "A_CMD='B_CMD=\"x y\" z' " * 180,
    "ssh -o 'ProxyCommand" + " " * 4000 + "'",
    "ssh -o " + "Command" * 500,
    "git -c " + "a" * 4000,
    "rsync -e 'x y' " * 270,
    "sed '/" + "e" * 4000 + "'",
    "tar " + "--use-compress-program=x " * 150,
    ";".join(f"env 'A_CMD=a{n} b'" for n in range(49)),
    "env " + " ".join(f"'A_CMD=a{n} b'" for n in range(200)),
    "sudo " * 800,
    "PAGER='" + "$(" * 200 + "'",
]


@pytest.mark.parametrize("line", SLOW, ids=lambda line: line[:20])
def test_no_line_takes_long_however_many_rules_there_are(line: str) -> None:
    rules = [{"id": f"r{n}", "decision": "deny", "commands": [f"prog{n} x", f"tool{n}"]} for n in range(100)]
    policy = Policy(1000, "workspace", rules)
    action = Action(Principal("mcp", 1000), "execute_command", Effect.EXECUTE, command=line[:4090])
    once_within(0.2, lambda: computing_seconds(lambda: policy.decide(action)))


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
    assert Reading(parse(line)).match(tuple(prefix.split())) is match


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
@settings(deadline=None, max_examples=50)
def test_no_dress_hides_a_command_from_a_denial(wraps: list[str], line: str) -> None:
    for wrap in wraps:
        line = wrap.format(line)
    assert Reading(parse(line)).match(("git", "push")) is not Match.NO


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
    assert [
        judged(line)
        for line in (
            "bash -c 'cat /etc/shadow'",
            "PAGER='less /etc/shadow' git log",
            "X=/root/.ssh/id_rsa make",
            "sh -c 'x</etc/shadow'",
            "python -c 'open(\"/etc/shadow\")'",
            "env -S 'cat /etc/shadow'",
            "ssh -o 'ProxyCommand=cat /etc/shadow' x",
        )
    ] == ["deny"] * 7
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
    text = (ROOT / "docs/reference/policy.md").read_text()
    blocks = [block.partition("```")[0] for block in text.split("```toml\n")[1:]]
    tables = [table for block in blocks for table in tomllib.loads(block).get("policy", {}).get("rules", ())]
    assert len(load(tables)) >= 6
    assert all(rule.table.examples.match for rule in load(tables))
