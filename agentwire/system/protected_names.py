"""The names in a workspace of settings that make programs outside of a box run commands.

One table, for boxes and for the tools that write files. A name belongs here if a program of everyday use runs what the
file says, or is led by it to run something else, because a person opens, enters or lists the directory, or calls a tool
for another purpose. What people run on purpose (Makefile, package.json, tests, build scripts, settings of linters and
formatters) does not, nor do instructions for agents (CLAUDE.md, AGENTS.md): agents are asked to write these.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentwire.system.path_patterns import Patterns, patterns

AGENTS = (
    *(".claude", ".codex", ".cursor", ".gemini", ".agents", ".agent", ".ai-session", ".mcp.json", "ccswarm.toml"),
    *(".opencode", "opencode.json", "opencode.jsonc", ".windsurf", ".kiro", ".roo", ".roomodes", ".kilocode"),
    *(".amazonq", ".continue", ".continuerc.json", ".cline", ".augment", ".trae", ".junie", ".qwen", ".crush"),
    *("crush.json", ".crush.json", ".goose", ".factory", ".amp", ".aider.conf.yml", ".copilot", "**/.github/hooks"),
    *("**/.clinerules/hooks", "**/.vibe/config.toml"),
)
EDITORS = (
    *(".vscode", "*.code-workspace", ".idea", ".fleet", ".zed", ".vs", ".helix", ".nova", "*.sublime-project"),
    *(".devcontainer", ".devcontainer.json", ".externalToolBuilders", ".vim", ".vimrc", ".exrc", ".gvimrc"),
    *(".nvimrc", ".nvim.lua", ".lvimrc", ".kakrc", ".dir-locals.el", ".dir-locals-2.el", ".neoconf.json"),
    *(".luarc.json", ".luarc.jsonc", ".gitpod.yml", ".gitpod.Dockerfile", ".replit", "replit.nix"),
    *(".theia", ".lazy.lua", "hie.yaml", "**/.lsp/config.edn"),
)
SHELLS = (
    *(".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login"),
    *(".xinitrc", ".xprofile", ".xsession", ".xsessionrc", ".inputrc", ".screenrc", ".tmux.conf"),
    *(".autoenv.zsh", ".autoenv_leave.zsh", ".autoenv", ".bash_enter", ".bash_leave"),
    *("**/.config/fish", "**/.config/autostart", "**/.config/systemd", "**/.config/nvim", "**/.config/direnv"),
)
VERSIONS = (
    *("mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".mise", "**/.config/mise", "**/.config/mise.toml"),
    *(".tool-versions", "rust-toolchain", "rust-toolchain.toml", ".rtx.toml"),
)
PACKAGES = (
    *(".npmrc", ".yarnrc", ".yarnrc.yml", "**/.yarn/releases", "**/.yarn/plugins", ".pnpmfile.cjs", ".pnpmfile.mjs"),
    *(
        "bunfig.toml",
        ".bunfig.toml",
        "**/.cargo/config.toml",
        "**/.cargo/config",
        "pip.conf",
        "**/.pip",
        ".pypirc",
        ".condarc",
    ),
    *("uv.toml", ".pdm.toml", "pdm.toml", "poetry.toml", "**/.bundle/config", ".gemrc", "nuget.config"),
    *(".mvn", ".bazelrc", ".bazeliskrc", ".bazelversion", "**/tools/bazel", ".buckconfig", ".buckconfig.local"),
)
LEFTHOOK_ENDINGS = ("yml", "yaml", "toml", "json", "jsonc")
HOOKS = (
    *(".gitmodules", ".gitconfig", ".husky", ".pre-commit-config.yaml", ".pre-commit-config.yml", ".overcommit.yml"),
    *(f"{dot}lefthook{local}.{end}" for dot in ("", ".") for local in ("", "-local") for end in LEFTHOOK_ENDINGS),
    *(".githooks", ".lfsconfig"),
    *("**/.hg/hgrc", "**/.hg/hgrc-not-shared", "**/.hg/sharedpath", "**/.sl/config", "**/.pijul/config"),
    *("**/.jj/repo/config.toml", "**/.jj/workspace-config.toml"),
)
INTERPRETERS = (
    *(".gdbinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".perldb", ".Rprofile", ".Renviron", ".irbrc", ".pryrc"),
    *(".ghci", ".iex.exs", ".ocamlinit", ".octaverc", ".sqliterc", ".psqlrc", ".pythonrc", ".pythonrc.py"),
)
TOOLS = (
    *(".ripgreprc", ".curlrc", ".wgetrc", ".netrc", ".ackrc", "ansible.cfg", ".ansible.cfg", ".latexmkrc", "latexmkrc"),
    *(".ssh", ".gnupg", ".aws", "**/.docker/config.json", "**/.kube/config"),
)

GROUPS = {
    "agents": AGENTS,
    "editors": EDITORS,
    "shells, and what enters a directory with them": SHELLS,
    "tool versions": VERSIONS,
    "package managers and build tools": PACKAGES,
    "version control and its hooks": HOOKS,
    "interpreters and debuggers": INTERPRETERS,
    "other tools": TOOLS,
}
"""The lines of the table by subject."""

PROTECTED = tuple(line for lines in GROUPS.values() for line in lines)
"""Always in force, before the lines of ``sandbox.protected``."""

OF_A_HOME = (
    *(name for line in PROTECTED if (name := line.removeprefix("**/")).startswith(".") and not set(name) & set("*?[")),
    *(".config/git/config", ".config/git/attributes"),
)
"""Settings that a person has in the home directory, too."""

GIT = ".git"
"""Protected separately, because a part of it must be writable: see repositories.py."""


def protected(own: Sequence[str] = ()) -> Patterns:
    """Return the patterns of the table, followed by the user's ``own``. Raises ValueError."""
    return patterns(*PROTECTED, *own)
