# Reports to the terminal what this shell does. Read after the person's configuration, and again when fish was replaced
# by exec. @N@ is the session's nonce: it must reach no child, so nothing here may be exported.
# d: the session's directory, f: its command file, r: sequence number of the command that runs, l: last status, k: its
# end was reported just now, v: status of the last line, empty while that is not known, le: the command that ended last
# and how, ab: the one that was open when this was read again. J: how the text of a command ended, and its pipestatus, I
# and L: what sets status and pipestatus for the next one, but for the last status, and that; P: both as a line, empty
# where status says all.
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

# What the next command finds as status, $argv[1], and as pipestatus, the rest.
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

# What is called where the person may trace has a fish_trace of its own, which switches that off.

# Start of a command: where the person traces the last before its text, with the status that this finds.
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
    # What a text that ends where it should has left: after it pipestatus is that of the evaluation.
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

# What became of command $1, for who missed its end: it ended, was aborted (with $2, where that is known), or never begun.
# 0: the line typed last has ended (with $2, where that is known).
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
        # What was typed is lost: that key may have another meaning.
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

# What keys do is no function, which a command could take away before its end is known. The first clears the line, for the
# command mode of vi would eat the trigger; the second says whether this is the prompt: a command that reads has the
# line editor, too.
set -g __ais_clear "commandline ''; string match -q '*vi*' -- \"\$fish_key_bindings\"; and set fish_bind_mode insert"
set -g __ais_ask "test (status current-command) = fish; and builtin printf '\e]7777;@N@;%s\a' 'Q;p' B >/dev/tty"

# The terminal is in the line editor's mode here already.
function __ais_p --on-event fish_prompt
    if test -z "$__ais_k"
        __ais_m "A;;$__ais_v;;;"(__ais_w)
    end
    set -g __ais_k ''
    # What the trigger starts with. Set each time, because choosing key bindings drops all others.
    for mode in default insert visual replace
        bind -M $mode \x1e $__ais_clear
        bind -M $mode \e\[7777z $__ais_ask
    end
    __ais_m B
end

# What a next shell takes over. Functions that come from files are left to the files, but for those taken over before.
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
