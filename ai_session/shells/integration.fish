# Reports to the terminal what this shell does. Read after the person's configuration, and again after exec replaced
# fish. @N@ is the session's nonce, which must not reach a child, so nothing here may be exported. The variables, all
# with the prefix __ais_: d: the session's directory, f: its command file, r: sequence number of the running command, l:
# last status, k: its end was just reported, v: status of the last line, empty while it is unknown, le: the command that
# ended last and its status, ab: the command that was open when this file was read again. J: status and pipestatus of
# the text of a command, I and L: the code that sets them for the next command, without the last status, and the last
# status; P: both as a line, empty if status alone is enough.
set -g __ais_ab ''
set -q __ais_r; and set -g __ais_ab $__ais_r
set -g __ais_d @DIR@
set -g __ais_f @DIR@/c
set -g __ais_r ''
set -g __ais_l 0
set -g __ais_k ''
set -g __ais_v 0
set -g __ais_J
set -g __ais_I ''
set -g __ais_L 0
set -g __ais_P ''
set -g fish_greeting

if set -q __ais_n
    set -e __ais_n
    set -g __ais_le 0
    test -r $__ais_d/out/state; and source $__ais_d/out/state 2>/dev/null
    set -q AI_SESSION_CWD; and builtin cd -- $AI_SESSION_CWD 2>/dev/null
end

function __ais_m
    builtin printf '\e]7777;@N@;%s\a' $argv[1] >/dev/tty
end

function __ais_s
    return $argv[1]
end

function __ais_w
    string replace -ra '[[:cntrl:]]' '?' -- "$PWD"
end

# Stores what the next command finds as status ($argv[1]) and pipestatus (the rest).
function __ais_keep
    set -g __ais_I ''
    set -g __ais_L $argv[-1]
    if test $argv[1] != $argv[-1]
        set -g __ais_I 'not '
    end
    for value in $argv[2..-2]
        set -g __ais_I $__ais_I"__ais_s $value|"
    end
    set -g __ais_P ''
    if test -n "$__ais_I"
        set -g __ais_P $__ais_I"__ais_s $__ais_L"\n
    end
end

# Functions that are called while the person may trace have a fish_trace of their own, which switches tracing off.

# Start of a command. If the person traces, this is the last call before the text, and returns the status for it.
function __ais_b
    set -l fish_trace
    set -g __ais_r $argv[1]
    set -g __ais_J
    builtin printf '%s\e]7777;@N@;C;%s;\a' $argv[2] $argv[1] >/dev/tty
    return $argv[3]
end

function __ais_e
    set -l fish_trace
    set -l flags
    if set -qg fish_trace[1]
        set flags x
    end
    # These are the values that a complete text has stored: after it pipestatus is that of the evaluation.
    if set -q __ais_J[1]
        __ais_keep $__ais_J
        set argv $__ais_J[1]
    else
        __ais_keep $argv[1] $argv[1]
    end
    set -g __ais_le "$__ais_r;$argv[1]"
    set -g __ais_l $argv[1]
    set -g __ais_k 1
    __ais_m "D;$__ais_r;$argv[1];;$flags;"(__ais_w)
    set -g __ais_r ''
    return $__ais_l
end

# Reports again what became of command $1: it ended, was aborted (with status $2, if known), or was never begun. For 0,
# reports that the line typed last has ended (with status $2, if known).
function __ais_pr
    if test $argv[1] = 0
        set -g __ais_l 0
        test -n "$__ais_le"; or set -g __ais_le .
        test -n "$argv[2]"; and set -g __ais_l $argv[2]
        __ais_m "D;;$argv[2];;;"(__ais_w)
    else if string match -q -- "$argv[1];*" "$__ais_le"
        __ais_m "D;$__ais_le;;;"(__ais_w)
    else if contains -- $argv[1] $__ais_r $__ais_ab
        __ais_m "D;$argv[1];$argv[2];;;"(__ais_w)
    else if test -n "$__ais_le"
        # Typed input was lost, so that key may have another meaning.
        builtin bind \n execute
        builtin bind -M insert \n execute
        __ais_m "U;$argv[1];$argv[3]"
    else
        set -g __ais_le "$argv[1];"
        __ais_m "D;$argv[1];;;;"
    end
    set -g __ais_r ''
    set -g __ais_ab ''
    builtin true 3>"$__ais_d/out/__ais_answered"
    return $__ais_l
end

function __ais_pe --on-event fish_preexec
    set -g __ais_v ''
    __ais_m P
end

function __ais_po --on-event fish_postexec
    set -l all $status $pipestatus
    set -g __ais_v $all[1]
    # A command that is still open was aborted.
    if test -n "$__ais_r"
        set -g __ais_J
        __ais_e $__ais_v
    end
    if test -z "$__ais_k"
        __ais_keep $all
    end
end

# The keys run code and not functions, which a command could remove before its end is known. The first clears the line,
# because the command mode of vi would take the trigger for commands; the second reports whether this is the prompt,
# because a command that reads has the line editor, too. Another fish of the person may have chosen other key bindings,
# which this one need not have loaded: a mode that these do not have would drop all that is typed.
set -g __ais_vi "string match -qr 'vi|hybrid' -- \"\$__fish_active_key_bindings\""
set -g __ais_clear "commandline ''; $__ais_vi; and set fish_bind_mode insert"
set -g __ais_ask "test (status current-command) = fish; and builtin printf '\e]7777;@N@;%s\a' 'Q;p' B >/dev/tty"

# The terminal is in the line editor's mode here already.
function __ais_p --on-event fish_prompt
    if test -z "$__ais_k"
        __ais_m "A;;$__ais_v;;;"(__ais_w)
    end
    set -g __ais_k ''
    # The key at the beginning of the trigger. It is set each time, because choosing key bindings removes all others.
    for mode in default insert visual replace
        bind -M $mode \x1e $__ais_clear
        bind -M $mode \e\[7777z $__ais_ask
    end
    __ais_m B
end

# Saves the state for the next shell. Functions that come from files are left to the files, except those restored
# before.
function __ais_x --on-event fish_exit
    set -l s $status
    set -l skip TERM SHLVL PWD OLDPWD TMUX TMUX_PANE COLUMNS LINES
    umask 077
    begin
        printf 'builtin cd -- %s\n' (string escape -- $PWD)
        for name in (set --global --export --names)
            if not contains -- $name $skip; and not string match -q 'AI_SESSION_*' -- $name
                printf 'set -gx %s' $name
                printf ' %s' (string escape -- $$name)
                printf '\n'
            end
        end
        for name in (functions --names)
            # They may be why the shell executed nothing.
            test -e $__ais_d/silenced; and break
            set -l file (functions --details -- $name)
            if test "$file" = $__ais_d/out/state; or not test -e "$file"
                functions --no-details -- $name
            end
        end
        printf '# end of state\n'
    end >$__ais_d/out/state 2>/dev/null
    __ais_m "X;$__ais_r;$s;;;"(__ais_w)
end

command stty -ixon </dev/tty 2>/dev/null
__ais_m "R;$fish_pid;$version"
