# Reports to the terminal what this shell does. Read before the person's own start file, because an error there may end
# the reading of ours, and again after exec replaced the shell. @N@ is the session's nonce, which no variable contains.
# The variables, without their common prefix: d: the session's directory, f: its command file, r: sequence number of the
# running command, l: last status, u: the person's EXIT trap, v: the start was reported, le: the command that ended last
# and its status, ab: the command that was open when this file was read again, f_: 1 if a command has set limits, 2 if
# the present one does, a: the command that switches set -a on again. t: the code before the text of a command, K: the
# code after it, J: its status, S: its PIPESTATUS. y: $_ for the next command, I: the pipeline that sets PIPESTATUS. z:
# the aborted command that an earlier prompt has reported, 0: always 0.
__ais_ab=${__ais_r-}
case ${__ais_n-} in '') ;; *) __ais_le=0 ;; esac
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_u= __ais_v= __ais_f_= __ais_a=:
__ais_y= __ais_I= __ais_z=0 __ais_0=0
# The status of a command that was open, if it is known, is kept.
case $__ais_ab in '') __ais_J= ;; esac

# To mksh printf is a program, and to the others print is unknown. No trace may show the nonce, which mksh would write
# to its standard error. mksh depends on where tracing is switched on again, so it is switched off in a subshell.
case ${KSH_VERSION-} in
'') __ais_o() { command printf %s "${2-}@ESC@]7777;@N@;$1@BEL@"; } ;;
*MIRBSD* | *LEGACY*)
  __ais_o() {
    case $- in
    *x*) (set +x && print -nr -- "${2-}@ESC@]7777;@N@;$1@BEL@") ;;
    *) print -nr -- "${2-}@ESC@]7777;@N@;$1@BEL@" ;;
    esac
  }
  ;;
*) __ais_o() { print -nr -- "${2-}@ESC@]7777;@N@;$1@BEL@"; } ;;
esac
# A redirection that finds no free descriptor ends busybox.
__ais_m() {
  case $__ais_f_ in
  2) if [ -t 1 ]; then __ais_o "$@"; else __ais_o "$@" >/dev/tty; fi ;;
  *) __ais_o "$@" >/dev/tty ;;
  esac
}
__ais_s() { return "$1"; }
__ais_i() {
  __ais_v=1
  __ais_m "R;$$;${KSH_VERSION-${BASH_VERSION-}}"
}
# If a command uses PWD for another purpose, the directory is not reported.
__ais_w() {
  __ais_q=
  if [ "${PWD-}" -ef . ]; then case $PWD in *[[:cntrl:]]*) ;; *) __ais_q=$PWD ;; esac; fi
}

# Switches set -a off, or our assignments would be exported. Those outside of functions are made again.
__ais_j() {
  case $- in
  *a*)
    set +a
    __ais_a='set -a'
    set -- "$__ais_l" "$__ais_J" "$__ais_y" "${__ais_z-}"
    unset __ais_l __ais_J __ais_S __ais_y __ais_z
    __ais_l=$1 __ais_J=$2 __ais_y=$3 __ais_z=$4
    ;;
  *) __ais_a=: ;;
  esac
}

# Start of a command, which runs only if that could be recorded and reported. Tracing and echoing are switched off for
# us, and on again before the command's text, for which $?, $_ and PIPESTATUS are unchanged.
__ais_b() {
  __ais_j
  __ais_J= __ais_v=1
  __ais_t="\\__ais_s $2 \"\$__ais_y\""
  case $- in
  *x*)
    set +x
    # mksh still traces to the destination at the time tracing was switched on, and no longer traces what a function
    # does after set +x, so for mksh the mark comes last. The pipeline would be traced.
    case ${KSH_VERSION-} in
    *MIRBSD* | *LEGACY*) __ais_t="set -x;\\__ais_c $2 \"\$__ais_y\"" ;;
    *) __ais_t="{ set -x; $__ais_t; } 2>/dev/null" ;;
    esac
    ;;
  *) __ais_t=$__ais_I$__ais_t ;;
  esac
  # No trap should run because of a failure of ours.
  case $2 in 0) __ais_t="$__ais_t;" ;; *) __ais_t="$__ais_t&&:;" ;; esac
  case $- in *v*) set +v && __ais_t="set -v;$__ais_t" ;; esac
  __ais_q=$3 __ais_r=$1
  case $__ais_t in
  *__ais_c*) ;;
  *)
    if ! __ais_m "C;$1;" "$3"; then
      __ais_r=
      return 1
    fi
    ;;
  esac
  case $__ais_a in :) ;; *) set -a ;; esac
}
# Starts a command in a subshell, which prints ok if that could be reported.
__ais_n() {
  __ais_m "C;$1;" "$2" && __ais_m2 ok
  \exit
}
__ais_c() {
  set +x
  __ais_m "C;$__ais_r;" "$__ais_q"
  return "$1"
}

# Sets I to a pipeline with all statuses in w but the last. It is not a loop, whose trace would not be recognized as
# ours.
__ais_ps() {
  case $__ais_w in
  *' '*)
    __ais_I="$__ais_I\\__ais_s ${__ais_w%% *}|" __ais_w=${__ais_w#* }
    __ais_ps
    ;;
  esac
}

# The last command of a complete text, because after the text $_ is the text itself. It succeeds, so that the evaluation
# does not fail again. $1: the status, $2 and $3: what the next command finds as $_ and PIPESTATUS. The status is known
# even if no redirection is possible.
__ais_k() {
  __ais_j
  __ais_J=$1 __ais_y=${2-} __ais_I= __ais_w=${3-}
  __ais_ps
  case $__ais_a in :) ;; *) set -a ;; esac
}
case ${KSH_VERSION-} in
*MIRBSD* | *LEGACY*)
  __ais_K='__ais_J=$? __ais_y=$_ __ais_S="${PIPESTATUS[@]}";{ \__ais_k "$__ais_J" "$__ais_y" "$__ais_S"; } 2>/dev/null'
  ;;
*) __ais_K='__ais_J=$?;{ \__ais_k "$__ais_J" "${_-}"; } 2>/dev/null' ;;
esac

# End of a command. Under set -e, returning a status would end the shell.
__ais_e() {
  __ais_j
  __ais_le="$__ais_r;$1"
  __ais_w
  __ais_m "D;$__ais_r;$1;;$-;$__ais_q"
  __ais_l=$1 __ais_r= __ais_J=
  __ais_h
  case $__ais_f_ in 2) __ais_f_=1 ;; *) __ais_t ;; esac
  case $__ais_a in :) ;; *) set -a ;; esac
  case $- in *e*) return 0 ;; esac
  return "$1"
}

# Reports again what became of command $1: it ended, was aborted (with status $2, if known), or was never begun. For 0,
# reports that the line typed last has ended (with status $2, if known).
__ais_pr() {
  __ais_w
  case $1 in
  0) __ais_l=${2:-0} __ais_le=${__ais_le:-.} && __ais_m "D;;$2;;$-;$__ais_q" ;;
  "${__ais_le%%;*}") __ais_m "D;$__ais_le;;$-;$__ais_q" ;;
  "$__ais_r" | "$__ais_ab") __ais_m "D;$1;${__ais_J:-$2};;$-;$__ais_q" ;;
  *) case ${__ais_le-} in '') __ais_le="$1;" && __ais_m "D;$1;;;$-;" ;; *) __ais_m "U;$1;$3" ;; esac ;;
  esac
  __ais_r= __ais_ab= __ais_J=
  __ais_h
  3>|"$__ais_d/out/__ais_answered"
  case $- in *e*) return 0 ;; esac
  return "$__ais_l"
}

# Runs in the prompt, so in a subshell: it cannot close an aborted command, but the prompt records that it was reported.
# If the status of a command could not be stored, nothing is reported. The subshell ends here: if `_` is read-only, each
# command fails, and busybox would read the next one from the terminal.
__ais_p() {
  case $__ais_r in "${__ais_z-}") __ais_r= ;; ?*) __ais_J= ;; esac
  case $__ais_v in '') __ais_i ;; esac
  __ais_w
  __ais_o "A;$__ais_r;${1-$__ais_l};;$-;$__ais_q"
  # mksh would trace the exit.
  case ${KSH_VERSION-} in '') \exit ;; esac
}
__ais_a() {
  case $__ais_r in "${__ais_z-}") \exit ;; esac
  __ais_J=
  __ais_w
  __ais_m "D;$__ais_r;$__ais_l;;$-;$__ais_q"
  \exit
}

# The mark is the end of the prompt: busybox then asks the terminal a question, whose answer would become the command's
# input if the trigger came first. An aborted command ends before the first prompt after it. Patterns are evaluated for
# their side effects. The groups keep our trace from the terminal, except in mksh. For line editors that cannot be told
# what has no width, everything is written before the prompt. After an error in a subshell here, busybox would read the
# terminal in that, too, unless `command` evaluates it.
__ais_w='$((${__ais_r:-0}-${__ais_z:-0}?${__ais_J:-$?}:$?))' __ais_q='${__ais_0%%*$((0*(__ais_z=${__ais_r:-0})))}'
__ais_1='${__ais_0%%*$((0*(__ais_l='$__ais_w')))}${__ais_r:+$({ \command \eval __ais_a; } 2>/dev/null)}'
case ${KSH_VERSION-}${BASH_VERSION-}:${BB_ASH_VERSION-} in
:) __ais_2='$({ \command \eval __ais_p; } 2>/dev/null)'$__ais_q ;;
:*) __ais_2='\[$({ \command \eval __ais_p; } 2>/dev/null)'$__ais_q'\]' ;;
*) __ais_1='$({ __ais_p "'$__ais_w'" >/dev/tty; } 2>/dev/null)'$__ais_q __ais_2= ;;
esac
__ais_g() { __ais_m L; \exit; }
__ais_h() {
  case ${PS1-} in *__ais_p*) ;; *) PS1=$__ais_1${PS1:-\$ }$__ais_2 ;; esac
  # mksh does not expand this prompt.
  case ${KSH_VERSION-}${PS2-} in
  *MIRBSD* | *LEGACY* | *__ais_g*) ;;
  *) PS2='$({ __ais_g; } 2>/dev/null)'${PS2:-> } ;;
  esac
}

# The person's own EXIT trap is run from ours, which repeats the status, because mksh forgets it once a command was
# interrupted.
__ais_t() {
  # If files may not grow, writing the first byte would end the shell. Checking that takes a process.
  case $__ais_f_ in ?*) case $(ulimit -f) in 0) return 0 ;; esac ;; esac
  trap >|"$__ais_d/out/trap" || return 0
  __ais_q= __ais_k=
  while IFS= read -r __ais_c; do
    case $__ais_c in
    'trap -- '*) __ais_q=${__ais_c#trap -- } ;;
    *) __ais_q="$__ais_q
$__ais_c" ;;
    esac
    case $__ais_c in *' EXIT') __ais_k=${__ais_q% EXIT} && break ;; esac
  done <"$__ais_d/out/trap"
  case $__ais_k in
  *__ais_x*) ;;
  *)
    eval "__ais_u=$__ais_k"
    trap '__ais_l=$?; __ais_x || :
      case $__ais_l in 0) eval "$__ais_u" ;; *) __ais_s "$__ais_l" || eval "$__ais_u" ;; esac
      __ais_w; __ais_m "X;$__ais_r;$__ais_l;;$-;$__ais_q"; \exit "$__ais_l"' EXIT
    ;;
  esac
} 2>/dev/null

# Saves the state for the next shell; POSIX cannot list functions.
__ais_x() {
  (
    set +eux
    umask 077
    __ais_cwd=$(command pwd) || :
    export __ais_cwd
    unset TERM SHLVL PWD OLDPWD TMUX TMUX_PANE COLUMNS LINES
    {
      export -p | while IFS= read -r __ais_c; do
        case $__ais_c in
        'export AI_SESSION_'* | 'typeset -x AI_SESSION_'* | 'declare -x AI_SESSION_'*) ;;
        *) __ais_m2 "$__ais_c" ;;
        esac
      done
      # They may be why the shell executed nothing.
      [ -e "$__ais_d/silenced" ] || alias | while IFS= read -r __ais_c; do
        case $__ais_c in 'alias '*) __ais_m2 "$__ais_c" ;; *) __ais_m2 "alias $__ais_c" ;; esac
      done
      __ais_m2 'cd -- "$__ais_cwd"; unset __ais_cwd'
      __ais_m2 '# end of state'
    } >|"$__ais_d/out/state"
  )
} 2>/dev/null
case ${KSH_VERSION-} in
'') __ais_m2() { command printf '%s\n' "$1"; } ;;
*) __ais_m2() { print -r -- "$1"; } ;;
esac

command -p stty -ixon </dev/tty 2>/dev/null || :
# The trigger begins with ^U, which on a terminal left in raw mode arrives as a character.
alias @KILL@= 2>/dev/null || :
__ais_h
__ais_t
case ${__ais_n-} in '') __ais_i ;; esac
