"""Everything that is planted: what programs outside of the box would run, or be led to run."""

from __future__ import annotations

from tests.ai_session.escape.evidence import made, marked, run_by, run_by_git, shown
from tests.ai_session.escape.model import Severity
from tests.ai_session.planting.model import Group, Plant

PAYLOAD = "printf '#!/bin/sh\\ntouch @outside@/ran\\n' >payload; chmod +x payload;"
FSMONITOR = "config core.fsmonitor @ws@/payload"
SECTION = "'[core]\\n\\tfsmonitor = @ws@/payload\\n'"
FILTER = (
    "mkdir sub && cd sub && git init -q && echo x >f && echo '* filter=e' >.gitattributes && git add -A &&"
    "git commit -qm s && git config filter.e.clean \"sh -c 'touch @outside@/ran; cat'\" && cd .. && {add} &&"
    "touch -d 2020-01-01 sub/f"
)
SHA256 = "rm -rf .git linked deep; git init -q --object-format=sha256 -b main .; git add file; git commit -qm one"
MIRROR = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def exchange(a, b): libc.renameat2(-100, a.encode(), -100, b.encode(), 2)
def write(path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write("evil @nonce@")
"""

GIT = (
    Plant(
        "submodule-filter",
        "git",
        "critical",
        run_by_git("@ws@"),
        FILTER.format(add="git add sub && git commit -qm l"),
    ),
    Plant(
        "submodule-filter-by-hand",
        "git",
        "critical",
        run_by_git("@ws@"),
        FILTER.format(add="git update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub"),
    ),
    Plant("config", "git", "critical", run_by_git("@ws@"), f"{PAYLOAD} git {FSMONITOR}"),
    Plant(
        "config-after-its-owner-wrote-it",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} git {FSMONITOR}",
        meanwhile="git config branch.main.remote origin",
        exposes=".git/config",
    ),
    Plant(
        "hook",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} for h in post-checkout pre-commit; do cp payload .git/hooks/$h; done",
    ),
    Plant(
        "attributes",
        "git",
        "medium",
        marked("@ws@/.git/info/attributes"),
        "echo '* filter=@nonce@' >.git/info/attributes",
    ),
    Plant(
        "commondir",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} cp -r .git other; printf {SECTION} >>other/config; rm -f .git/commondir;"
        "echo ../other >.git/commondir",
    ),
    Plant(
        "included-and-absent",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >.gitmore",
        before="git config include.path ../.gitmore",
    ),
    Plant(
        "hooks-path-and-absent",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} mkdir hooks.mine; for h in post-checkout pre-commit; do cp payload hooks.mine/$h; done",
        before="git config core.hooksPath hooks.mine",
    ),
    Plant(
        "hooks-path-inside-of-git",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} mkdir -p .git/mine; for h in post-checkout pre-commit; do cp payload .git/mine/$h; done",
        before="git config core.hooksPath .git/mine",
    ),
    Plant(
        "new-repository",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} git init -q new; git -C new {FSMONITOR}",
    ),
    Plant(
        "repository-that-was-moved",
        "git",
        "high",
        run_by_git("@ws@/b/new"),
        f"{PAYLOAD} git init -q a/new; git -C a/new {FSMONITOR}; mv a b",
    ),
    Plant(
        "repository-by-a-last-rename",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} git init -q new; git -C new {FSMONITOR}; mv new/.git new/x; mv new/x new/.git",
    ),
    Plant(
        "bare-repository",
        "git",
        "high",
        run_by_git("@ws@/here"),
        f"{PAYLOAD} git init -q --bare here; git -C here config core.bare false; git -C here config core.worktree @ws@;"
        f"git -C here {FSMONITOR}",
    ),
    Plant(
        "file-that-leads-to-a-repository",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} mkdir new; cp -r .git x; printf {SECTION} >>x/config; echo 'gitdir: ../x' >new/.git",
    ),
    Plant(
        "link-that-leads-to-a-repository",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} mkdir new; cp -r .git x; printf {SECTION} >>x/config; ln -s ../x new/.git",
    ),
    Plant(
        "repository-in-a-submodule",
        "git",
        "high",
        run_by_git("@ws@/deep/repo/inner"),
        f"{PAYLOAD} git init -q deep/repo/inner; git -C deep/repo/inner {FSMONITOR}",
    ),
    Plant(
        "worktree-with-a-config",
        "git",
        "high",
        run_by_git("@ws@/tree"),
        f"{PAYLOAD} git worktree add -q tree; printf {SECTION} >.git/worktrees/tree/config.worktree",
    ),
    Plant(
        "file-of-a-worktree-whose-parent-moves",
        "git",
        "high",
        run_by_git("@ws@/in/linked2"),
        f"{PAYLOAD} cp -r .git x; printf {SECTION} >>x/config; mv in other; mkdir -p in/linked2;"
        "echo 'gitdir: @ws@/x' >in/linked2/.git",
        before="git worktree add -q in/linked2",
    ),
    Plant(
        "installed-repository",
        "git",
        "high",
        run_by_git("@ws@/.venv/src/pkg"),
        f"{PAYLOAD} git -C .venv/src/pkg {FSMONITOR}",
        before="git init -q .venv/src/pkg; git -C .venv/src/pkg commit -q --allow-empty -m x",
    ),
    Plant(
        "newly-installed-repository",
        "git",
        "high",
        run_by_git("@ws@/node_modules/@s/pkg"),
        f"{PAYLOAD} git init -q node_modules/@s/pkg; git -C node_modules/@s/pkg {FSMONITOR}",
    ),
    Plant(
        "newly-built-repository",
        "git",
        "high",
        run_by_git("@ws@/target/package"),
        f"{PAYLOAD} git init -q target/package; git -C target/package {FSMONITOR}",
    ),
    Plant(
        "repository-far-below-node-modules",
        "git",
        "medium",
        run_by_git("@ws@/node_modules/a/b/c/d/e"),
        f"{PAYLOAD} git init -q node_modules/a/b/c/d/e; git -C node_modules/a/b/c/d/e {FSMONITOR}",
        before="mkdir -p node_modules/a/b/c/d/e",
    ),
    Plant(
        "submodule-added",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} git init -q made; git -C made commit -q --allow-empty -m x;"
        f"git -c protocol.file.allow=always submodule add ./made lib; git -C lib {FSMONITOR}; git commit -qm lib",
    ),
    Plant(
        "repository-that-comes-and-goes",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} git init -q new; git -C new {FSMONITOR}; python3 attack.py",
        python="import os\nfor _ in range(2000): os.rename('new/.git', 'new/x'); os.rename('new/x', 'new/.git')\n",
    ),
    Plant(
        "objects-from-elsewhere",
        "git",
        "low",
        marked("@ws@/.git/objects/info/alternates"),
        "echo /@nonce@ >.git/objects/info/alternates",
    ),
    Plant(
        "rebase-to-be-continued",
        "git",
        "medium",
        marked("@ws@/.git/rebase-merge/git-rebase-todo"),
        "mkdir .git/rebase-merge; echo 'exec touch @nonce@' >.git/rebase-merge/git-rebase-todo",
    ),
    Plant(
        "repository-in-two-parts",
        "git",
        "high",
        run_by_git("@ws@/x"),
        f"{PAYLOAD} git init -q --bare y; git -C y config core.repositoryFormatVersion 1; mkdir x; mv y/HEAD x;"
        "git config -f y/config extensions.worktreeConfig true; git config -f y/config --unset core.bare;"
        f"echo ../y >x/commondir; git config -f x/config.worktree core.worktree @ws@;"
        f"git {FSMONITOR.replace('config', 'config -f x/config.worktree')}",
    ),
    Plant(
        "built-repository",
        "git",
        "high",
        run_by_git("@ws@/target/package"),
        f"{PAYLOAD} git -C target/package {FSMONITOR}",
        before="git init -q target/package",
    ),
    Plant(
        "repository-below-node-modules",
        "git",
        "high",
        run_by_git("@ws@/node_modules/@s/pkg"),
        f"{PAYLOAD} git -C node_modules/@s/pkg {FSMONITOR}",
        before="git init -q node_modules/@s/pkg",
    ),
    Plant(
        "new-repository-below-venv",
        "git",
        "high",
        run_by_git("@ws@/.venv/src/pkg"),
        f"{PAYLOAD} git init -q .venv/src/pkg; git -C .venv/src/pkg {FSMONITOR}",
    ),
    Plant(
        "config-with-sha256",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} git {FSMONITOR}",
        before=SHA256,
    ),
    Plant(
        "new-repository-with-sha256",
        "git",
        "high",
        run_by_git("@ws@/new"),
        f"{PAYLOAD} git init -q --object-format=sha256 new; git -C new {FSMONITOR}",
    ),
    Plant(
        "submodule-filter-with-sha256",
        "git",
        "critical",
        run_by_git("@ws@"),
        FILTER.format(add="git add sub && git commit -qm l").replace("init -q", "init -q --object-format=sha256"),
        before=SHA256,
    ),
)

LED = (
    Plant(
        "included-from-outside",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >>inner",
        before="printf '[include]\\n\\tpath = @ws@/inner\\n' >@home@/shared; git config include.path @home@/shared;"
        "echo '[core]' >inner",
    ),
    Plant(
        "included-from-outside-and-absent",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >inner",
        before="printf '[include]\\n\\tpath = @ws@/inner\\n' >@home@/shared; git config include.path @home@/shared",
    ),
    Plant(
        "included-by-the-person",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >>dots/git",
        before="mkdir dots; echo '[core]' >dots/git; git config --global include.path @ws@/dots/git",
    ),
    Plant(
        "included-by-what-is-included",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >conf/b",
        before="mkdir conf; printf '[include]\\n\\tpath = b\\n' >conf/a; git config include.path ../conf/a",
    ),
    Plant(
        "included-on-another-branch",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >>inner",
        before="echo '[core]' >inner; git config includeIf.onbranch:other.path ../inner",
    ),
    Plant(
        "settings-behind-a-link-of-the-person",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} printf {SECTION} >>dots/git",
        before="mkdir dots; cp @home@/.gitconfig dots/git; ln -sf @ws@/dots/git @home@/.gitconfig",
    ),
    Plant(
        "settings-behind-a-link-of-the-person-and-absent",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} mkdir dots; printf {SECTION} >dots/git",
        before="mkdir -p @home@/.config/git; ln -sf @ws@/dots/git @home@/.config/git/config",
    ),
    Plant(
        "hook-behind-a-link-of-the-person",
        "git",
        "critical",
        run_by_git("@ws@"),
        "echo 'touch @outside@/ran' >>tools/x",
        before="mkdir -p tools @home@/hooks; echo '#!/bin/sh' >tools/x; chmod +x tools/x;"
        "ln -sf @ws@/tools/x @home@/hooks/post-checkout; git config core.hooksPath @home@/hooks",
    ),
    Plant(
        "attributes-behind-a-link",
        "git",
        "medium",
        marked("@ws@/.git/info/attributes"),
        "echo '* filter=@nonce@' >>attrs",
        before="mkdir -p .git/info; touch attrs; ln -s ../../attrs .git/info/attributes",
    ),
    Plant(
        "hook-that-is-a-link",
        "git",
        "critical",
        run_by_git("@ws@"),
        "echo 'touch @outside@/ran' >>tools/x",
        before="mkdir -p tools .git/hooks; echo '#!/bin/sh' >tools/x; chmod +x tools/x;"
        "ln -sf ../../tools/x .git/hooks/post-checkout",
    ),
    Plant(
        "hooks-path-behind-a-link",
        "git",
        "critical",
        run_by_git("@ws@"),
        f"{PAYLOAD} mkdir -p real/hk; for h in post-checkout pre-commit; do cp payload real/hk/$h; done",
        before="mkdir real; ln -s real way; git config core.hooksPath way/hk",
    ),
    Plant(
        "program-of-fsmonitor",
        "git",
        "critical",
        run_by_git("@ws@"),
        "echo 'touch @outside@/ran' >>mon",
        before="echo '#!/bin/sh' >mon; chmod +x mon; git config core.fsmonitor @ws@/mon",
    ),
    Plant(
        "program-of-a-filter-and-absent",
        "git",
        "critical",
        run_by_git("@ws@"),
        "echo 'touch @outside@/ran; cat' >clean.sh; echo '* filter=x' >.gitattributes; touch -d 2020-01-01 file",
        before="git config filter.x.clean 'sh clean.sh'",
    ),
    Plant(
        "program-of-an-alias",
        "git",
        "high",
        run_by("git", "-C", "@ws@", "x"),
        "echo 'touch @outside@/ran' >>tools/x",
        before="mkdir tools; echo true >tools/x; git config alias.x '!cd tools && sh x'",
    ),
)


def present(
    name: str, group: Group, severity: Severity, path: str, *, before: str = "", typed: str = "", **more: str
) -> Plant:
    """Of settings that are there: they are written to, and put in place by a rename."""
    folder = path.rpartition("/")[0] or "."
    return Plant(
        name,
        group,
        severity,
        marked(f"@ws@/{path}"),
        typed or f"echo 'evil @nonce@' >>{path}; echo 'evil @nonce@' >new-one; mv new-one {path}",
        before=f"mkdir -p {folder}; echo mine >{path}; {before}",
        **more,
    )


def absent(
    name: str,
    group: Group,
    severity: Severity,
    path: str,
    *,
    uses: tuple[str, ...] = (),
    before: str = "",
    typed: str = "",
) -> Plant:
    """Of settings that are not there."""
    folder = path.rpartition("/")[0] or "."
    written = typed or f"mkdir -p {folder}; echo 'evil @nonce@' >{path}"
    return Plant(name, group, severity, marked(f"@ws@/{path}"), written, before=before, uses=uses)


AGENTS = (
    present("claude-below", "agents", "high", "packages/web/.claude/settings.json"),
    absent("claude-at-the-top", "agents", "high", ".claude/settings.json"),
    absent("claude-below-new", "agents", "high", "packages/web/.claude/settings.json"),
    present("servers-at-the-top", "agents", "high", ".mcp.json"),
    present("servers-below", "agents", "high", "packages/web/.mcp.json"),
    absent("servers-new", "agents", "high", ".mcp.json", before="rm .mcp.json"),
    absent("cursor-at-the-top", "agents", "high", ".cursor/mcp.json"),
    present("cursor-below", "agents", "high", "apps/x/.cursor/mcp.json"),
    absent("gemini-at-the-top", "agents", "high", ".gemini/settings.json"),
    present("codex-below", "agents", "high", "apps/x/.codex/config.toml"),
    present("opencode", "agents", "high", "opencode.json"),
    absent("opencode-new", "agents", "high", "packages/web/opencode.json"),
    absent("kiro-where-it-is-used", "agents", "high", ".kiro/settings/mcp.json", uses=(".kiro",)),
    absent("kiro-where-it-is-not", "agents", "medium", ".kiro/settings/mcp.json"),
    present("swarm", "agents", "high", "ccswarm.toml"),
    absent("swarm-new", "agents", "high", "ccswarm.toml"),
    absent("copilot-hooks-new", "agents", "high", ".github/hooks/evil.json"),
    absent("cline-hooks-new", "agents", "high", ".clinerules/hooks/evil"),
    present("vibe-below", "agents", "high", "apps/x/.vibe/config.toml"),
    Plant(
        "program-of-a-server-of-ccswarm",
        "agents",
        "high",
        run_by("@python@", "-m", "ccswarm", "tools"),
        "echo 'touch @outside@/ran' >>tools/serve.sh",
        before="mkdir tools; echo 'touch @outside@/began' >tools/serve.sh; echo '[mcp]' >ccswarm.toml;"
        """echo 'servers = [{ name = "own", command = "sh tools/serve.sh" }]' >>ccswarm.toml;"""
        "@python@ -m ccswarm trust --yes; @python@ -m ccswarm tools || test -e @outside@/began",
    ),
)

EDITORS = (
    present("tasks-at-the-top", "editors", "high", ".vscode/tasks.json"),
    present("tasks-below", "editors", "high", "packages/web/.vscode/tasks.json"),
    absent("tasks-below-new", "editors", "high", "packages/web/.vscode/tasks.json"),
    absent("tasks-at-the-top-new", "editors", "high", ".vscode/tasks.json", before="rm -r .vscode"),
    present("idea-below", "editors", "high", "apps/x/.idea/runConfigurations/x.xml"),
    present("code-workspace", "editors", "high", "all.code-workspace"),
    absent("code-workspace-new", "editors", "high", "packages/web/web.code-workspace"),
    present("devcontainer-below", "editors", "high", "apps/x/.devcontainer/devcontainer.json"),
    absent("zed-where-it-is-used", "editors", "high", ".zed/settings.json", uses=(".config/zed",)),
    absent("vim-new", "editors", "medium", "src/.nvim.lua"),
    absent("emacs-new", "editors", "medium", "src/.dir-locals.el"),
    present("helix-below", "editors", "medium", "apps/x/.helix/languages.toml"),
    present("gitpod", "editors", "high", ".gitpod.yml"),
    absent("replit-new", "editors", "high", "packages/web/.replit"),
    present("luarc-below", "editors", "high", "apps/x/.luarc.json"),
    absent("theia-new", "editors", "high", "apps/.theia/tasks.json"),
    absent("lazy-new", "editors", "medium", "src/.lazy.lua"),
    absent("haskell-new", "editors", "medium", "lib/hie.yaml"),
    present("clojure-below", "editors", "medium", "apps/x/.lsp/config.edn"),
)

PACKAGES = (
    present("npm-below", "package managers and build tools", "high", "packages/web/.npmrc"),
    absent("npm-new", "package managers and build tools", "high", ".npmrc"),
    present("yarn", "package managers and build tools", "high", ".yarnrc.yml"),
    present("yarn-release-below", "package managers and build tools", "high", "js/.yarn/releases/yarn-4.cjs"),
    absent("pnpm-new", "package managers and build tools", "high", ".pnpmfile.cjs"),
    present("cargo-below", "package managers and build tools", "high", "crates/a/.cargo/config.toml"),
    absent("cargo-new", "package managers and build tools", "high", ".cargo/config.toml"),
    absent("toolchain-new", "package managers and build tools", "high", "rust-toolchain.toml"),
    present("maven-below", "package managers and build tools", "high", "java/.mvn/extensions.xml"),
    absent("bazel-new", "package managers and build tools", "high", ".bazelrc"),
    absent("bun-new", "package managers and build tools", "high", "packages/web/bunfig.toml"),
    present("pre-commit-below", "package managers and build tools", "high", "lib/.pre-commit-config.yaml"),
    present("husky-below", "package managers and build tools", "high", "js/.husky/pre-commit"),
    absent("lefthook-new", "package managers and build tools", "high", "lefthook.yml"),
    present("hidden-bun", "package managers and build tools", "high", ".bunfig.toml"),
    absent("lfs-new", "package managers and build tools", "high", ".lfsconfig"),
    absent("latexmk-new", "package managers and build tools", "high", "paper/.latexmkrc"),
)

SHELLS = (
    present("envrc", "shells and other tools", "high", ".envrc"),
    present("envrc-below", "shells and other tools", "high", "apps/x/.envrc"),
    absent("envrc-new", "shells and other tools", "high", "apps/x/.envrc"),
    present("mise-below", "shells and other tools", "high", "apps/x/.mise.toml"),
    absent("mise-new", "shells and other tools", "high", "mise.toml"),
    present("versions", "shells and other tools", "high", ".tool-versions"),
    present("tmux-among-dotfiles", "shells and other tools", "high", "dotfiles/tmux/.tmux.conf"),
    present(
        "shell-settings-that-the-home-links-to",
        "shells and other tools",
        "high",
        "dots/bashrc",
        before="ln -sf @ws@/dots/bashrc @home@/.bashrc",
    ),
    absent(
        "editor-settings-that-the-home-links-to",
        "shells and other tools",
        "high",
        "dots/nvim/init.lua",
        before="mkdir -p dots @home@/.config; ln -sfn @ws@/dots/nvim @home@/.config/nvim",
    ),
    present("ssh-among-dotfiles", "shells and other tools", "high", "dotfiles/.ssh/config"),
    absent("gdb-new", "shells and other tools", "medium", "src/.gdbinit"),
    absent("mercurial-new", "shells and other tools", "high", "other/.hg/hgrc"),
)

WEB = "packages/web/.vscode/tasks.json"
WAYS = (
    absent("git-in-capitals", "other names and ways", "medium", "x/.GIT/config"),
    absent("capitals", "other names and ways", "medium", "packages/web/.VSCODE/tasks.json"),
    absent("a-dot-at-the-end", "other names and ways", "medium", "packages/web/.vscode./tasks.json"),
    Plant(
        "an-invisible-character",
        "other names and ways",
        "medium",
        marked("@ws@/x/.vs\u200ccode/tasks.json"),
        python=f"{MIRROR}write('x/.vs\\u200ccode/tasks.json')",
    ),
    present(
        "through-a-link",
        "other names and ways",
        "high",
        WEB,
        typed=f"ln -s packages/web link; echo 'evil @nonce@' >link/{WEB.removeprefix('packages/web/')}",
    ),
    present(
        "by-a-hard-link",
        "other names and ways",
        "high",
        "apps/x/.envrc",
        typed="ln apps/x/.envrc l; echo @nonce@ >>l",
    ),
    present(
        "by-an-earlier-hard-link",
        "other names and ways",
        "high",
        "apps/x/.envrc",
        typed="echo 'evil @nonce@' >>earlier",
        before="ln apps/x/.envrc earlier",
    ),
    present(
        "parent-that-is-moved",
        "other names and ways",
        "high",
        WEB,
        typed=f"mv packages/web w; mkdir -p packages/web/.vscode; echo 'evil @nonce@' >{WEB}",
    ),
    present(
        "parents-that-change-places",
        "other names and ways",
        "high",
        WEB,
        typed="python3 attack.py",
        python=f"{MIRROR}write('mirror/.vscode/tasks.json')\nexchange('packages/web', 'mirror')",
    ),
    present(
        "settings-that-change-places",
        "other names and ways",
        "high",
        WEB,
        typed="python3 attack.py",
        python=f"{MIRROR}write('mirror/tasks.json')\nexchange('packages/web/.vscode', 'mirror')",
    ),
    present(
        "by-a-mount",
        "other names and ways",
        "high",
        WEB,
        typed="mkdir m; echo 'evil @nonce@' >m/tasks.json; mount --bind m packages/web/.vscode",
    ),
    present(
        "after-its-owner-replaced-it",
        "other names and ways",
        "high",
        "apps/x/.envrc",
        meanwhile="echo mine >new; mv new apps/x/.envrc",
        exposes="apps/x/.envrc",
    ),
    absent(
        "a-link",
        "other names and ways",
        "high",
        ".envrc",
        before="rm .envrc",
        typed="echo 'evil @nonce@' >script; ln -s script .envrc",
    ),
    absent(
        "moved-in",
        "other names and ways",
        "high",
        "apps/.envrc",
        typed="mkdir apps; echo 'evil @nonce@' >script; mv script apps/.envrc",
    ),
    absent(
        "with-its-directory",
        "other names and ways",
        "high",
        "apps/a/b/.envrc",
        typed="mkdir -p made/a/b; echo 'evil @nonce@' >made/a/b/x; mv made/a/b/x made/a/b/.envrc; mv made apps",
    ),
    absent(
        "in-a-directory-that-was-closed",
        "other names and ways",
        "high",
        "apps/.envrc",
        typed="mkdir apps; chmod 0 apps; sleep 0.3; chmod 700 apps; echo 'evil @nonce@' >apps/.envrc",
    ),
    absent(
        "in-place-of-a-placeholder",
        "other names and ways",
        "high",
        ".claude/settings.json",
        typed="rmdir .claude; rm -rf .claude; mv .claude c; mkdir -p .claude;"
        "echo 'evil @nonce@' >.claude/settings.json",
    ),
    absent("far-inside", "other names and ways", "medium", "/".join([*"d" * 40, ".envrc"])),
    Plant(
        "below-a-name-of-two-lines",
        "other names and ways",
        "medium",
        marked("@ws@/a\nb\x1b[2J/.envrc"),
        python=f"{MIRROR}write('a\\nb\\x1b[2J/.envrc')",
    ),
    absent(
        "behind-a-link",
        "other names and ways",
        "high",
        ".cargo/config.toml",
        typed="mkdir c; echo 'evil @nonce@' >c/config.toml; ln -s c .cargo",
    ),
    present(
        "behind-an-earlier-link",
        "other names and ways",
        "high",
        ".cargo/config.toml",
        before="mv .cargo c; ln -s c .cargo",
        typed="echo 'evil @nonce@' >>c/config.toml",
    ),
    Plant(
        "in-a-race",
        "other names and ways",
        "high",
        marked("@ws@/apps/.envrc"),
        python=f"{MIRROR}write('apps/x')\nwrite('evil/.envrc')\nfor _ in range(2001): exchange('apps', 'evil')\n",
    ),
    Plant(
        "by-a-job-that-is-detached",
        "other names and ways",
        "high",
        marked("@ws@/apps/.envrc"),
        "mkdir apps; mkfifo done; setsid bash -c \"echo 'evil @nonce@' >apps/.envrc; echo >done\" & read x <done",
    ),
    Plant(
        "by-a-job-that-goes-on",
        "other names and ways",
        "high",
        marked("@ws@/apps/.envrc"),
        "mkdir apps; (while ! echo 'evil @nonce@' >apps/.envrc; do :; done) & wait",
    ),
)

SECRETS = (
    Plant("dotenv-below", "secrets", "high", shown("dotenv"), "cat a/b/.env", before="mkdir -p a/b; cp .env a/b/.env"),
    Plant(
        "dotenv-of-a-kind",
        "secrets",
        "high",
        shown("dotenv"),
        "cat a/.env.local",
        before="mkdir a; cp .env a/.env.local",
    ),
    Plant(
        "dotenv-after-its-owner-replaced-it",
        "secrets",
        "high",
        shown("dotenv"),
        "cat .env",
        meanwhile="cp .env new; mv new .env",
        exposes=".env",
    ),
    Plant(
        "dotenv-through-a-link",
        "secrets",
        "high",
        shown("dotenv"),
        "cat a/.env; cp -rL a b; cat b/.env",
        before="mkdir a; mv .env a/real; ln -s real a/.env",
    ),
    Plant(
        "credentials-of-git",
        "secrets",
        "high",
        shown("dotenv"),
        "cat x/.git-credentials",
        before="mkdir x; cp .env x/.git-credentials",
    ),
    Plant(
        "dotenv-whose-parent-moves",
        "secrets",
        "high",
        shown("dotenv"),
        "mv a c; cat a/.env c/.env",
        before="mkdir a; cp .env a/.env",
    ),
    *(
        Plant(
            f"secrets-in-{name}",
            "secrets",
            "high",
            shown("dotenv"),
            f"cat a/{name}",
            before=f"mkdir a; cp .env a/{name}",
        )
        for name in ("production.env", "secrets.env", "local.env", ".env.bak~")
    ),
)

CARRIED = "PATH=$PWD/bin:$PATH;"
CARRIER = "mkdir bin; printf '#!/bin/sh\\nshift {words}\\nexec \"$@\"\\n' >bin/{name}; chmod +x bin/{name}"


def denied(name: str, typed: str, *, before: str = "", carrier: tuple[str, int] | None = None) -> Plant:
    """Of a command that a rule denies, by another word; ``carrier`` is a program that need not be installed, and how
    many of its words come before the command."""
    if carrier:
        before, typed = CARRIER.format(name=carrier[0], words=carrier[1]), CARRIED + typed
    return Plant(name, "denied commands", "medium", made("@ws@/was-denied"), typed, before=before, denied=DENIED)


DENIED = "touch"
RULES = (
    denied("in-plain-words", "touch was-denied"),
    denied("by-an-alias", "shopt -s expand_aliases; alias t='touch was-denied'\nt"),
    denied("in-a-variable", "PROMPT_COMMAND='touch was-denied'"),
    denied("in-tmux", "tmux -L own -f /dev/null new -d 'touch was-denied; tmux wait -S done'; tmux -L own wait done"),
    denied("in-screen", "screen -dm touch was-denied", carrier=("screen", 1)),
    denied("by-runcon", "runcon -t x touch was-denied", carrier=("runcon", 2)),
    denied("in-docker", "docker exec -it c touch was-denied", carrier=("docker", 3)),
    denied("below-other-words", "env -i sh -c 'nohup touch was-denied'"),
)

CASES = (*GIT, *LED, *AGENTS, *EDITORS, *PACKAGES, *SHELLS, *WAYS, *SECRETS, *RULES)
