"""Programs, options and variables that run other programs: where a line may contain a command. No I/O.

No list can be complete. These are the ones that people and agents use; a few words too many do no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ai_session.system.shell_words import Words


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


SHELLS = word_set("sh bash dash zsh fish ksh ksh93 mksh lksh ash rbash busybox toybox yash oksh csh tcsh")
TAKE_VALUES = word_set("-o +o -O +O --rcfile --init-file")
SEARCHERS = word_set("find fd fdfind")
STARTERS = (
    SHELLS
    | SEARCHERS
    | word_set(
        "env sudo doas su runuser nohup nice ionice chrt taskset setsid stdbuf timeout time xargs parallel watch entr"
        " flock command builtin exec eval noglob nocorrect coproc repeat not and or if while until begin else then do"
        " source . trap at batch chroot unshare nsenter bwrap firejail script unbuffer expect ssh systemd-run"
        " dbus-run-session strace ltrace valgrind perf gdb lldb hyperfine proot fakeroot prlimit setpriv setarch choom"
        " caffeinate direnv mise poetry uv"
        " pipenv hatch pdm rye npx bunx uvx pkexec run0 sshpass xvfb-run systemd-inhibit dbus-launch setlock chronic ts"
        " ifne torsocks torify proxychains proxychains4 numactl cgexec eatmydata faketime rlwrap linux32 linux64 i386"
        " aws-vault chamber tmux screen byobu dtach abduco zellij runcon newgrp sg gosu su-exec tini dumb-init capsh"
        " start-stop-daemon envdir setuidgid chpst softlimit flatpak-spawn abbr - ! {"
    )
)
"""Programs and words that run what follows them."""

WORD_FOR_WORD = (STARTERS - SEARCHERS) | word_set(
    "test printf print whence exit return shift break logout wait ulimit umask jobs fg bg disown getopts make gmake"
    " ninja cmake meson bazel just rake ant gradle gradlew mvn sbt npm pnpm yarn bun deno node tsc"
    " python python2 python3 pypy pypy3 ipython pip pip3 pipx pytest tox nox go cargo rustc gcc cc ruby gem bundle perl"
    " php composer lua luajit tclsh awk gawk mawk nawk ed ex vi vim nvim view emacs nano less more most man info gdb"
    " lldb valgrind perf docker podman nerdctl kubectl helm terraform ansible scp sftp rsync curl wget nc ncat netcat"
    " socat openssl tmux screen crontab systemctl launchctl osascript open xdg-open alias unalias set shopt setopt"
    " unsetopt export declare typeset local readonly unset read mapfile readarray bind complete compgen enable hash fc"
    " history kill pkill killall ps printenv dd tee cp mv ln install mount umount tar unzip zip gzip xxd hostname jq yq"
    " sqlite3 psql mysql let m4 bc tput reset stty svn hg gh glab aws gcloud az tsort who"
)
"""Programs with a language or a configuration of their own: allowed only with exactly the rule's words."""

LOADER = re.compile(r"ld(?:-linux|-musl|64)?[\w.-]*\.so(?:\.[0-9]+)*\Z|ld\.so\Z")
"""The dynamic loader, which runs the program after it."""

REMOTE = word_set("ssh scp sftp sshfs rsync mosh autossh slogin")
SSH_COMMAND = re.compile(
    r"(?:-o)?\s*(?:\w*command|pkcs11provider|securitykeyprovider|xauthlocation)[=\s](.+)",
    re.IGNORECASE | re.DOTALL,
)

OPTIONS = {
    "git": word_set(
        "-x --exec --upload-pack --receive-pack --extcmd --open-files-in-pager --setup --env-filter --tree-filter"
        " --index-filter --parent-filter --msg-filter --commit-filter --tag-name-filter --config-env"
    ),
    "rsync": word_set("-e --rsh --rsync-path"),
    "scp": word_set("-S"),
    "sftp": word_set("-S"),
    "tar": word_set(
        "-I -F --to-command --use-compress-program --rsh-command --checkpoint-action --info-script --new-volume-script"
    ),
    "sort": word_set("--compress-program"),
    "split": word_set("--filter"),
    "rg": word_set("--pre --hostname-bin"),
    "man": word_set("-P -H --pager --html"),
    "nc": word_set("-e -c"),
    "ncat": word_set("-e -c --exec --sh-exec --lua-exec"),
    "netcat": word_set("-e -c"),
    "complete": word_set("-C -F"),
    "compgen": word_set("-C -F"),
    "mapfile": word_set("-C"),
    "readarray": word_set("-C"),
    "xterm": word_set("-e"),
    "zip": word_set("-T --unzip-command"),
    "npm": word_set("--script-shell"),
}
"""Options whose value is a command, by program; long ones may be abbreviated."""

COMMAND_FOLLOWS = {
    "git": (("bisect", "run"), ("submodule", "foreach"), ("rebase", "--exec"), ("for-each-repo",)),
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "toolbox"), (("run",), ("exec",))),
    **dict.fromkeys(("conda", "mamba", "micromamba", "pixi"), (("run",),)),
}
"""Words of a program after which a command follows."""

GIT_KEY = re.compile(
    r"(?:alias\.|.*(?:command|pager|editor|askpass|fsmonitor|hookspath|external|textconv|driver|program|cmd|clean|smudge"
    r"|process|helper|uploadpack|receivepack|proxy|exec|tool|viewer|browser))",
    re.IGNORECASE,
)
"""Settings of git that name programs, with a value after ``=`` or as the next word."""

VARIABLES = word_set(
    "PAGER EDITOR VISUAL BROWSER SHELL ENV BASH_ENV MANPAGER TERMINAL MAKE CC CXX LD_PRELOAD LD_AUDIT"
    " DYLD_INSERT_LIBRARIES GIT_SSH GIT_EXTERNAL_DIFF SSH_ASKPASS SUDO_ASKPASS RSYNC_CONNECT_PROG LESSOPEN"
    " LESSCLOSE FCEDIT HGEDITOR PYTHONSTARTUP PERL5OPT PERL5DB RUBYOPT NODE_OPTIONS JAVA_TOOL_OPTIONS MAKEFLAGS"
    " MFLAGS PS0 PS1 PS2 PS3 PS4 PROMPT RPROMPT TAR_OPTIONS TAPE RSH WATCHFMT"
)
VARIABLE = re.compile(
    r".*_(?:COMMANDS?|PAGER|EDITOR|ASKPASS|BROWSER|HOOK|RSH|SSH|PROG|PROGRAM|CMD|OPTS|OPTIONS|SHELL"
    r"|WRAPPER|RUNNER|LAUNCHER)\Z"
    r"|GIT_CONFIG_(?:VALUE_[0-9]+|PARAMETERS)\Z|BASH_FUNC_",
    re.IGNORECASE,
)
"""Names of variables whose value some program runs, by the end of the name."""

PROMPTS = word_set("PS0 PS1 PS2 PS3 PS4 PROMPT RPROMPT")
"""Variables with text of which only the substitutions run."""

COPIERS = word_set("cp mv ln install dd rsync cat tee scp hash alias")
"""Programs that give another program a new name or location."""

RENAMING = word_set("alias abbr")
"""What gives a command another name: ``alias a='x y'``, in fish also ``alias a 'x y'``."""

LOCATORS = word_set("which whereis type whence command realpath readlink")
PROGRAM_FOLDER = re.compile(r"(?:^|[=/])s?bin/")


def named_program(word: str) -> str:
    """Return a program's name: a path to it, or on some file systems its case, makes no difference."""
    return word.rstrip("/").rpartition("/")[2].casefold()


def names_program(variable: str) -> bool:
    """Report whether some program runs the value of a variable with that name."""
    return variable.upper() in VARIABLES or VARIABLE.match(variable) is not None


def embedded_commands(head: str, words: Words) -> Iterator[str | None]:
    """Yield the values of options and settings that a command's program runs; None for one that is not literal."""
    options = OPTIONS.get(head, frozenset[str]())
    for at, word in enumerate(words[1:], 1):
        if word is None:
            continue
        follows = words[at + 1] if at + 1 < len(words) else ""
        if head in REMOTE and (found := SSH_COMMAND.fullmatch(word)):
            yield found[1]
        if head == "git" and GIT_KEY.match(word):
            yield word.partition("=")[2] or follows
        if head in RENAMING:
            yield word.partition("=")[2] if "=" in word else word
        if head == "git" and word.startswith("ext::"):
            yield word.removeprefix("ext::")
        yield from _values(options, word, follows)


def _values(options: frozenset[str], word: str, follows: str | None) -> Iterator[str | None]:
    if not options or not word.startswith("-") or len(word) < 2:
        return
    if word.startswith("--"):
        name, given, value = word.partition("=")
        if len(name) > 3 and any(option.startswith(name) for option in options):
            yield value if given else follows
        return
    letters = [at for at in range(1, len(word)) if f"-{word[at]}" in options]
    for at in letters[:1]:
        yield word[at + 1 :].removeprefix("=") or follows


def renamed_programs(commands: tuple[Words, ...]) -> set[str]:
    """Return the programs to which a line may give another name, because it copies or links them from a directory of
    programs, or from where a program such as ``which`` locates them."""
    located = {
        named_program(word) for words in commands if words and words[0] in LOCATORS for word in words[1:] if word
    }
    found: set[str] = set()
    for words in commands:
        if words and words[0] is not None and named_program(words[0]) in COPIERS:
            found |= {named_program(word) for word in words[1:] if word and PROGRAM_FOLDER.search(word)}
            if None in words:
                found |= located
    return found
