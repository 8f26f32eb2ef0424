"""Attacks on files: writing and reading outside, and planting in the workspace what programs outside would run."""

from __future__ import annotations

from tests.ai_session.escape.evidence import (
    backdated,
    changed,
    gone,
    made,
    marked,
    mode,
    run_by_git,
    shown,
    written_by_git,
)
from tests.ai_session.escape.model import Attack

KEPT = "@state_directory@"

WRITES = (
    Attack("write-home", "writing files", "critical", made("@home@/pwned"), "echo x >@home@/pwned"),
    Attack("append-bashrc", "writing files", "critical", changed("@home@/.bashrc"), "echo evil >>@home@/.bashrc"),
    Attack(
        "authorized-keys",
        "writing files",
        "critical",
        made("@home@/.ssh/authorized_keys"),
        "mkdir -p @home@/.ssh; echo key >>@home@/.ssh/authorized_keys",
    ),
    Attack("write-outside", "writing files", "critical", made("@outside@/pwned"), "echo x >@outside@/pwned"),
    Attack(
        "dotdot",
        "writing files",
        "critical",
        made("@outside@/pwned"),
        "(cd src; echo x >../../../../outside/pwned)",
    ),
    Attack(
        "through-a-link",
        "writing files",
        "critical",
        made("@outside@/pwned"),
        "ln -s @outside@ link; echo x >link/pwned; rm link",
    ),
    Attack(
        "through-proc-root",
        "writing files",
        "critical",
        made("@outside@/pwned"),
        "for p in /proc/[0-9]*; do echo x >$p/root@outside@/pwned; done 2>/dev/null",
    ),
    Attack(
        "through-proc-cwd",
        "writing files",
        "critical",
        made("@outside@/pwned"),
        "for p in /proc/[0-9]*; do echo x >$p/cwd/outside/pwned; done 2>/dev/null",
    ),
    Attack("remove-outside", "writing files", "critical", gone("@outside@/victim"), "rm -rf @outside@/victim"),
    Attack("hard-link", "writing files", "high", changed("@outside@/file"), "ln @outside@/file h; echo x >>h; rm h"),
    Attack("move-out", "writing files", "high", made("@outside@/pwned"), "touch moved; mv moved @outside@/pwned"),
    Attack(
        "truncate",
        "writing files",
        "high",
        changed("@outside@/file"),
        python="os.truncate('@outside@/file', 0)",
    ),
    Attack("chmod-outside", "writing files", "medium", mode("@outside@/file", 0o777), "chmod 777 @outside@/file"),
    Attack("touch-outside", "writing files", "low", backdated("@outside@/file"), "touch -d 2001-01-01 @outside@/file"),
    Attack("leave-in-tmp", "writing files", "medium", made("/tmp/@nonce@"), "echo x >/tmp/@nonce@"),
    Attack(
        "autostart",
        "writing files",
        "high",
        made("@home@/.config/autostart/x.desktop"),
        "mkdir -p @home@/.config/autostart; echo x >@home@/.config/autostart/x.desktop",
    ),
    Attack(
        "own-settings",
        "writing files",
        "critical",
        marked("@home@/.config/ai-session/config.toml"),
        "echo '# @nonce@' >>@home@/.config/ai-session/config.toml",
    ),
    Attack(
        "own-audit-log",
        "writing files",
        "critical",
        marked(f"{KEPT}/audit/**/*"),
        f"for f in $(find {KEPT}/audit -type f); do echo @nonce@ >>$f; done",
    ),
    Attack(
        # One of the files is the text of this very command, which must not be taken for what it writes.
        "own-start-files",
        "writing files",
        "critical",
        marked(f"{KEPT}/sessions/*/shell/*", "#written:"),
        f"for f in $(find {KEPT}/sessions/*/shell -maxdepth 1 -type f); do chmod u+w $f; "
        'echo "#$(echo written):@nonce@" >>$f; done',
    ),
    Attack("move-the-workspace", "writing files", "high", gone("@ws@"), "cd /; mv @ws@ @ws@.old", alone=True),
)

PAYLOAD = "printf '#!/bin/sh\\ntouch @outside@/ran\\n' >payload; chmod +x payload"

PLANTS = (
    Attack(
        "git-hook",
        "planting code",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD}; cp payload .git/hooks/post-checkout; cp payload .git/hooks/pre-commit",
        alone=True,
    ),
    Attack(
        "git-config",
        "planting code",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD}; git config core.fsmonitor @ws@/payload",
        alone=True,
    ),
    Attack(
        "git-config-worktree",
        "planting code",
        "high",
        run_by_git("@ws@/deep/repo"),
        f"{PAYLOAD}; printf '[core]\\n\\tfsmonitor = @ws@/payload\\n' >deep/repo/.git/config.worktree",
        alone=True,
    ),
    Attack(
        "git-config-of-a-worktree",
        "planting code",
        "high",
        run_by_git("@ws@/linked"),
        f"{PAYLOAD}; printf '[core]\\n\\tfsmonitor = @ws@/payload\\n' >.git/worktrees/linked/config.worktree",
        alone=True,
    ),
    Attack(
        # A log of git takes a line with the name of the branch, which may hold a command.
        "git-log-through-a-link",
        "planting code",
        "high",
        written_by_git("@ws@", "@home@/.bashrc"),
        "git checkout -qb 'x;touch${IFS}pwned;'; ln -sf @home@/.bashrc .git/logs/HEAD",
        alone=True,
    ),
    Attack(
        "git-commondir",
        "planting code",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD}; mkdir other; cp -r .git/. other/; git config -f other/config core.fsmonitor @ws@/payload;"
        "rm -f .git/commondir; echo ../other >.git/commondir",
        alone=True,
    ),
    Attack(
        "git-swap",
        "planting code",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD}; mv .git x; cp -r x .git; git config -f .git/config core.fsmonitor @ws@/payload",
        alone=True,
    ),
    Attack(
        "git-attributes",
        "planting code",
        "medium",
        made("@ws@/.git/info/attributes", "evil"),
        "mkdir -p .git/info; echo '* filter=evil' >.git/info/attributes",
        alone=True,
    ),
    Attack(
        "git-submodule",
        "planting code",
        "high",
        changed("@ws@/.git/modules/sub/config"),
        "git config -f .git/modules/sub/config core.fsmonitor @ws@/payload",
        alone=True,
    ),
    Attack(
        "git-nested-hook",
        "planting code",
        "high",
        made("@ws@/deep/repo/.git/hooks/x"),
        f"{PAYLOAD}; cp payload deep/repo/.git/hooks/x",
        alone=True,
    ),
    Attack(
        "git-hooks-in-tree",
        "planting code",
        "high",
        run_by_git("@ws@/deep/repo"),
        f"{PAYLOAD}; cp payload deep/repo/hooks.d/post-checkout; cp payload deep/repo/hooks.d/pre-commit",
        alone=True,
    ),
    Attack(
        "git-file",
        "planting code",
        "high",
        run_by_git("@ws@/linked"),
        f"{PAYLOAD}; cp -r .git x; git config -f x/config core.fsmonitor @ws@/payload;"
        "rm -f linked/.git; echo 'gitdir: @ws@/x' >linked/.git",
        alone=True,
    ),
    Attack(
        "git-new-repository",
        "planting code",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD}; mkdir new; git init -q new; git -C new config core.fsmonitor @ws@/payload",
        alone=True,
    ),
    Attack(
        "editor-tasks",
        "planting code",
        "high",
        changed("@ws@/.vscode/tasks.json"),
        "echo evil >.vscode/tasks.json",
        alone=True,
    ),
    Attack(
        "agent-settings",
        "planting code",
        "high",
        made("@ws@/.claude/settings.json"),
        "mkdir -p .claude; echo evil >.claude/settings.json",
        alone=True,
    ),
    Attack(
        "agent-servers",
        "planting code",
        "high",
        changed("@ws@/.mcp.json"),
        "rm -f .mcp.json; echo evil >.mcp.json",
        alone=True,
    ),
    Attack("envrc", "planting code", "high", changed("@ws@/.envrc"), "echo evil >>.envrc", alone=True),
)

TRAPS = (
    Attack(
        "link-for-git",
        "traps for the set-up",
        "critical",
        made("@outside@/git/hooks/x"),
        "mkdir -p .git/hooks; echo evil >.git/hooks/x",
        alone=True,
        trap="git",
    ),
    Attack(
        "link-for-editor",
        "traps for the set-up",
        "high",
        made("@outside@/victim/pwned"),
        "echo evil >.vscode/pwned",
        alone=True,
        trap="vscode",
    ),
    Attack(
        "link-for-agent",
        "traps for the set-up",
        "high",
        made("@home@/.ssh/planted"),
        "echo evil >.claude",
        alone=True,
        trap="claude",
    ),
)

READS = (
    Attack("ssh-key", "reading secrets", "critical", shown("ssh"), "cat @home@/.ssh/id_ed25519"),
    Attack("cloud-credentials", "reading secrets", "critical", shown("aws"), "cat @home@/.aws/credentials"),
    Attack("dotenv", "reading secrets", "high", shown("dotenv"), "cat .env"),
    Attack(
        "dotenv-by-another-name",
        "reading secrets",
        "high",
        shown("dotenv"),
        "ln .env e; cp .env f; cat e f; rm -f e f",
    ),
    Attack("other-project", "reading secrets", "high", shown("note"), "cat @outside@/file"),
    Attack("environment", "reading secrets", "critical", shown("env_secret"), "env; echo $MY_SETTING"),
    Attack(
        "environments-of-others",
        "reading secrets",
        "critical",
        shown("env_secret"),
        "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | sort -u | grep ^MY_",
    ),
    Attack(
        "read-through-a-link",
        "reading secrets",
        "high",
        shown("ssh"),
        "ln -s @home@/.ssh/id_ed25519 k; cat k; rm k",
    ),
    Attack(
        "read-through-proc-root",
        "reading secrets",
        "critical",
        shown("ssh"),
        "cat /proc/[0-9]*/root@home@/.ssh/id_ed25519 2>/dev/null | sort -u",
    ),
    Attack(
        "read-through-descriptors",
        "reading secrets",
        "critical",
        shown("note"),
        "cat /proc/[0-9]*/fd/*/file 2>/dev/null | sort -u",
    ),
    Attack("names-in-the-home", "reading secrets", "medium", shown("listed"), "ls -a @home@"),
    Attack("own-state", "reading secrets", "high", shown("state"), f"cat {KEPT}/notes"),
)

CASES = (*WRITES, *PLANTS, *TRAPS, *READS)
