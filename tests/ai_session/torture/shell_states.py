"""What commands leave a shell in, as data: settings, traps, descriptors, limits, names, jobs, other shells.

After each, the command's own exit code must be right (or said to be unknown), and the next command exact. A case is the
text alone where it ends with 0, else the text and its exit code; None: nobody can know it.
"""

from __future__ import annotations

from tests.ai_session.contract.recovery_cases import OF_SHELL, OUTPUT_OFF, Lost

SH_LIKE = (
    # Splitting, expansion, paths.
    "IFS=", "IFS=0", "IFS=' '", "IFS=/", "IFS=';'", "IFS=_", "IFS=ae", "unset IFS", ("IFS=2; (exit 22)", 22),
    "PATH=", "PATH=/nonexistent", "unset PATH", "HOME=/proc/nonexistent", "unset HOME", "PWD=x", "unset PWD", "OLDPWD=",
    "cd /", 'd=$(mktemp -d); cd "$d"; rmdir "$d"', "LC_ALL=C; export LC_ALL", "TERM=dumb; export TERM", "unset TERM",
    # Settings.
    "set -u", "set -f", "set -C", "set -a", "set -m", "set +m", "set -v", "set -x", "set -ux",
    "set -o vi", "set -o emacs", "set -- a b c", "set --", "umask 777", "umask 0",
    # Prompts.
    "PS1=", "PS1='$ '", "unset PS1", "PS1='$(false)'", "PS2=", "PS4=", "PS4='+ x '; set -x", "PS1='a\nb\n'",
    # Traps.
    "trap '' INT", "trap 'echo int' INT", "trap '' TERM QUIT", "trap 'echo x' USR1; kill -USR1 $$",
    "trap 'echo bye' EXIT", "trap '' HUP", "trap : CHLD", "trap - INT",
    # Descriptors and the terminal.
    "exec 3>&1", "exec 3>&1 4>&2 5</dev/null", "exec 9>/dev/null", "exec 2>/dev/null", "exec 2>&1", "stty -echo",
    "stty raw", "stty -icanon", "stty cbreak", "stty -isig", "stty -icrnl", "stty -opost", "stty intr ^X", "stty sane",
    "stty rows 5 cols 20", "printf '\\033[?1049h'", "printf '\\033]0;abc'", "printf '\\033Pabc'", "printf '\\033c'",
    "printf '\\033[?2004h\\033[?1000h'", "printf '\\016'",
    OUTPUT_OFF, f"{OUTPUT_OFF}; echo hi",
    # Limits.
    "ulimit -c 0", "ulimit -Sf 100000",
    # Jobs.
    "sleep 100 & :", "sleep 100 & kill %1", "sleep 0 & wait", ("sh -c 'kill -STOP $$'; (exit 3)", 3),
    ("sh -c 'kill -9 $$'", 137), "(sleep 0.1 &)", "kill -CONT $$", ("kill -STOP $$; (exit 6)", 6), "kill -WINCH $$",
    # Names of the shell's own.
    "alias echo=false; unalias echo", "alias eval=false", "alias .=false", "alias printf=false", "alias trap=false",
    "alias set=false; \\unalias set", "alias return=false", "alias case=x; \\unalias case",
    "printf() { :; }; unset -f printf", "cd() { :; }", "stty() { :; }",
    "command() { :; }; unset -f command",
    # Texts.
    ("return 5", 5), ("(exit 255)", 255), ("false", 1), ("/nonexistent", 127), ("/etc", 126), ("echo 'abc", None),
    ("if", None), ("(", None), (")", None), ("${", None), ("`", None), ("echo a &&", None), ("case x in", None),
    ("<<E", 0), ("cat <<E\nabc", 0), ("#", 0), ("\\", None), (": \\", 0), ("!", None), ("{", None), (";;", None),
    ("eval 'echo \"'", None), ("f() { f2; }; f2() { return 9; }; f", 9), ("eval 'eval \"(exit 8)\"'", 8),
    ("while :; do break; done; (exit 2)", 2), ("echo $((1/0))", None), ("x=1; readonly x; (exit 4)", 4),
)  # fmt: skip

BASH = (
    "ulimit -Sn 5", "ulimit -Sn 6", "ulimit -Sn 10", "set -b", "set -h", "eval() { :; }",
    "shopt -u promptvars", "shopt -s extdebug", "shopt -u expand_aliases", "shopt -s failglob", "shopt -s nullglob",
    "shopt -s xpg_echo", "shopt -s globasciiranges", "shopt -s inherit_errexit", "shopt -s lastpipe", "set -o posix",
    "set -k", "set -P", "set -H", "set +H", "set -T", "set -E", "set -o ignoreeof", "set -o noglob", "set -o nounset",
    ("set -o pipefail; false | :", 1), "set +o emacs", "set +o vi +o emacs",
    "trap ': d' DEBUG", "trap ': e' ERR", "trap ': r' RETURN", "set -T; trap ': d' DEBUG", "set -E; trap ': e' ERR",
    "PROMPT_COMMAND=", "PROMPT_COMMAND='echo hi'", "PROMPT_COMMAND=(a b)", "unset PROMPT_COMMAND", "PS0=x", "unset PS0",
    "PROMPT_COMMAND='PS1=\"x \"'", "PROMPT_COMMAND=false", "readonly PROMPT_COMMAND", "readonly PS1", "readonly PS0",
    "PROMPT_COMMAND='return 3'", "PROMPT_COMMAND='('", "HISTCONTROL=", "set +o history", "history -c", "HISTSIZE=0",
    "enable -n printf", "enable -n eval", "enable -n trap", "enable -n return", "enable -n echo", "enable -n history",
    "builtin() { :; }", "builtin() { echo hi; }", ".() { :; }", "source() { :; }", "printf() { :; }", "trap() { :; }",
    "return() { :; }", "set() { :; }", "unset() { :; }; \\builtin unset -f unset", "read() { :; }", "history() { :; }",
    "alias builtin=false", "alias builtin=echo", "alias unset=false", "alias shopt=false", "alias command=false",
    "bind -r '\\C-j'",
    "bind -r '\\C-^'", "bind 'set keymap vi'", "bind '\"\\C-^\": abort'", "bind 'set editing-mode vi'",
    "bind 'set bell-style audible'",
    "bind 'set enable-bracketed-paste off'", "bind 'set completion-ignore-case on'",
    "unset __ais_f", "unset __ais_d", "unset __ais_l", "unset __ais_B", "unset -f __ais_p", "unset -f __ais_q",
    "unset -f __ais_h", "unset -f __ais_m", "BASH_ENV=/nonexistent; export BASH_ENV", "unset BASH_VERSION",
    ("unset -f __ais_e", None), "exec 255>&-", "exec 10>&1", "exec {fd}>/dev/null", "coproc cat", "exec 3<>/dev/tty",
    "exec > >(cat)", "exec >/dev/tty 2>&1", "BASH_XTRACEFD=9; exec 9>/dev/null; set -x",
    "TMOUT=1000", "EPOCHREALTIME=x",
    "unset EPOCHREALTIME", "POSIXLY_CORRECT=1", "declare -r x=1", "declare -i x=1/1", "local x 2>/dev/null || :",
    "mapfile -t a </etc/hostname", "suspend", ("exec bash --norc --noprofile", None), ("exec bash --posix", None),
    ("exec -a name bash", None), ("exec env bash", None), ("exec sh", None), ("exec mksh", None), ("exec zsh -f", None),
)  # fmt: skip

ZSH = (
    "setopt err_return", "setopt no_unset", "setopt sh_word_split", "setopt ksh_arrays", "setopt no_clobber",
    "setopt xtrace", "setopt verbose", "setopt extended_glob", "setopt null_glob", "setopt posix_builtins",
    "setopt auto_cd", "setopt correct", "setopt hist_verify", "setopt prompt_subst", "setopt prompt_sp prompt_cr",
    "setopt share_history", "setopt no_hist_ignore_space", "unsetopt zle", "unsetopt aliases", "setopt vi",
    "setopt ksh_glob sh_glob", "setopt path_dirs", "setopt rc_quotes", "setopt glob_subst", "setopt print_exit_value",
    "precmd_functions=()", "preexec_functions=()", "zshexit_functions=()", "precmd() { false; }", "preexec() { :; }",
    "bindkey '^J' self-insert",
    "zle -D zle-line-init", "bindkey -d", "bindkey -v", "bindkey -e", "bindkey -r '^^'", "bindkey -r '\\e[7777z'",
    "disable printf", "disable eval", "disable trap", "disable -r if", "builtin() { :; }",
    ".() { :; }", "eval() { :; }", "alias builtin=false", "alias local=false", "unset precmd_functions",
    "emulate sh", "emulate ksh", "emulate -R zsh",
    "unset __ais_f", "unset __ais_d", "PROMPT=", "RPROMPT=x", "TRAPINT() { return 1; }", "TRAPZERR() { :; }",
    "trap ': d' DEBUG", "readonly PS1", "NULLCMD=:", "suspend -f", "zmodload -u zsh/datetime",
    ("FUNCNEST=1", None), "FUNCNEST=2",
    ("exec zsh -f", None), ("exec env zsh", None), ("exec sh", None), ("exec fish", None),
)  # fmt: skip

DASH = (
    "ulimit -Sn 5",
    "ulimit -Sn 6",
    "ulimit -Sn 10",
    ("exec sh", None),
    ("exec env dash", None),
    ("exec zsh", None),
    ("exec fish", None),
    ("exec mksh", None),
)

FISH = (
    "set -e PATH", "set -gx PATH /nonexistent", "set -g IFS 1", ("set -e PWD", None), "function fish_prompt; end",
    "function fish_prompt; false; end", "function fish_prompt; echo a; echo b; end", "functions -e fish_prompt",
    "fish_vi_key_bindings", ("fish_default_key_bindings", None), "bind -e --all", "bind -e \\x1e",
    "bind \\n beginning-of-line",
    "function echo; end; functions -e echo",
    "function printf; end", "function source; end", ("function eval; end", None),
    "function command; end; functions -e command",
    "alias builtin2 false", "set -g status_x 1", "status job-control full", "status job-control none", "umask 777",
    "stty -echo", "stty raw", "stty -icanon", "stty sane", "sleep 100 &", "functions -e __ais_p",
    "functions -e __ais_po",
    "functions -e __ais_pe", "functions -e __ais_m", "set -e __ais_f", "set -e __ais_l",
    ("set -e __ais_r", None), "set -U y 1",
    ("functions -e __ais_e", None), ("false", 1), ("return 5", 5), ("sh -c 'exit 255'", 255), ("/nonexistent", 127),
    ("echo 'abc", None), ("if true", None), ("end", None), ("(", None), ("echo (", None), ("kill -STOP $fish_pid", 0),
    ("exec fish -N", None), ("exec env fish", None), ("exec zsh", None), ("exec dash", None), ("exec sh", None),
    "trap 'echo x' INT", "trap 'echo bye' EXIT", "printf '\\033[?1049h'", "printf '\\033]0;abc'", "cd /",
    "set -gx TERM dumb", OUTPUT_OFF,
    "function fish_postexec_x --on-event fish_postexec; end", "set fish_trace 1", "ulimit -n 20",
)  # fmt: skip


def cases(shell: str) -> tuple[Lost, ...]:
    """All of ``shell``; those of the contract first."""
    own = {"bash": SH_LIKE + BASH, "zsh": SH_LIKE + ZSH, "dash": SH_LIKE + DASH, "fish": FISH}[shell]
    texts = [(case, 0) if isinstance(case, str) else case for case in own]
    return OF_SHELL[shell] + tuple(Lost(text, code, became(text)) for text, code in texts)


def became(text: str) -> str:
    """The shell that ``exec`` in the text makes of it; empty: it stays what it was."""
    words = text.split()
    if words[:1] != ["exec"] or len(words) < 2:
        return ""
    name = words[2] if words[1] == "env" else words[3] if words[1] == "-a" else words[1]
    return name if name in ("bash", "zsh", "dash", "fish", "mksh", "sh") else ""
