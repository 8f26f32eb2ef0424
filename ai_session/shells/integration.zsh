# Reports to the terminal what this shell does. Read at the end of the session's .zshrc, and again after exec replaced
# zsh. @N@ is the session's nonce, which must not reach a child, so nothing here may be exported.
if [[ -o aliases ]]; then __ais_a=1; else __ais_a=; fi
builtin unsetopt aliases
if [[ -o allexport ]]; then __ais_o=1; else __ais_o=; fi
builtin unsetopt allexport
# A start file may have changed the language (emulate sh) to one that does not accept what follows.
__ais_S=
for __ais_w in ignorebraces ignoreclosebraces shglob cshjunkieloops cshjunkiequotes globassign cshnullglob; do
  if [[ -o $__ais_w ]]; then __ais_S="$__ais_S $__ais_w"; builtin unsetopt "$__ais_w"; fi
done
# The variables, all with the prefix __ais_: d: the session's directory, f: its command file, r: sequence number of the
# running command, l: last status, k: its end was just reported, i: our line editor hook runs, t: the code before the
# text of a command, g: the exit was reported, le: the command that ended last and its status, ab: the command that was
# open when this file was read again, y: $_ for the next command, I: the pipeline that sets pipestatus for it. X:
# whether the person traces, 0: the expansion that switches tracing off: expansions are not traced, so PS4 is not
# evaluated for us. 1: the same, after $? and $- were stored in 5 and 6. 4: PS4 meanwhile. j: the status of the text, R:
# the alias that the next line consists of. K: the expansion that stores the status, y, and Q: pipestatus; its value is a
# builtin, which fails if no trap is to be replaced. D: our DEBUG trap, which hooks take away while they run, U, O: what
# it has before and after the person's.
# A DEBUG trap runs for each command of ours, too, but not for expansions, and once for a list of && and ||. zsh unsets
# ZSH_DEBUG_CMD when one has run, so it is set before a text, and looked at after it. V: what was seen: false for
# nothing; else by H: f0 for a trap that is not yet ours, which the list then replaces. T: ours ran, Z: $- if it traces.
__ais_ab=${__ais_r-}
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_k= __ais_i= __ais_t= __ais_g=
__ais_y= __ais_I= __ais_X=off __ais_4= __ais_D= __ais_j= __ais_R= __ais_Q= __ais_V= __ais_T=
__ais_0='${${${options[xtrace]:#off}:+${__ais_X::=on}}:+}${${options[xtrace]::=off}:+}'
__ais_A=
__ais_1='${${__ais_5::=$?}:+}${${__ais_6::=$-}:+}'$__ais_0
# Tracing is off until the person's part. It is switched on again where that is not traced.
__ais_U='[[ -z $__ais_Z ]] || { } 2>/dev/null${${options[xtrace]::=on}:+}'
__ais_U='case "${${${__ais_Z::=${(M)-:#*x*}}:+${options[xtrace]::=off}}:+}${ZSH_DEBUG_CMD-}${funcstack[*]}" in
\\builtin\ \"*__ais_K*|*__ais_T*) __ais_T=1; '$__ais_U' ;;
*__ais_*) '$__ais_U' ;;
*) '$__ais_U'
'
__ais_O='
;; esac'
# They may have become numbers.
builtin unset __ais_H __ais_K 2>/dev/null
__ais_H='${${__ais_V::=f${+functions[TRAPDEBUG]}$__ais_T}:+}'
__ais_H+='${${${(M)__ais_V:#f1}:+${functions[TRAPDEBUG]::=$__ais_U${functions[TRAPDEBUG]}$__ais_O}}:+}'
# If files may not grow, writing the first byte would end the shell.
__ais_H+='${${${(M)__ais_V:#f0}:+${${$(builtin ulimit -f):#0}:+:}}:-false}'
__ais_K='${${:-${(e)__ais_0}${__ais_j::=$?}${__ais_V::=${ZSH_DEBUG_CMD+false}}${__ais_y::=$_}'
__ais_K+='${__ais_Q::=${(j:|:)pipestatus[@]}}}:+}${__ais_V:-${(e)__ais_H}}'
builtin zmodload zsh/datetime 2>/dev/null
builtin enable printf eval return set trap local false 2>/dev/null

# If typed input was lost, that key may have another meaning.
__ais_ln() {
  builtin bindkey '^J' accept-line
  builtin bindkey -M vicmd '^J' accept-line
} 2>/dev/null

if [[ -n ${__ais_n-} ]]; then
  builtin unset __ais_n
  __ais_le=0
  if [[ -r $__ais_d/out/state ]]; then
    { builtin . "$__ais_d/out/state" 2>/dev/null || builtin :; } always { TRY_BLOCK_ERROR=0; }
    if [[ -n ${AI_SESSION_CWD-} ]]; then builtin cd -- "$AI_SESSION_CWD" 2>/dev/null || builtin :; fi
  fi
else
  # This file is read again because something does not work. A redirection without a free descriptor closes stdout.
  { builtin : >&1 } 2>/dev/null || builtin exec >/dev/tty
  { builtin : >&2 } 2>/dev/null || builtin exec 2>/dev/tty
  __ais_ln
fi

__ais_m() { builtin printf '\e]7777;@N@;%s\a' "$1" >/dev/tty; }
__ais_s() { builtin return "$1"; }
# Sets w to the directory, and W to its reported form. If a command uses PWD for another purpose, it is the shell's own
# record.
__ais_at() {
  if [[ ${PWD-} -ef . ]]; then __ais_w=$PWD; else __ais_w=${(%):-%/}; fi
  __ais_W=${__ais_w//[[:cntrl:]]/?}
}

# The last call before the text of a traced command.
__ais_l() {
  builtin emulate -L zsh +x
  PS4=$__ais_4
  builtin return $1
}

# Start of a command, which runs only if that could be recorded and reported. Tracing and echoing are switched off for
# us, and on again before the command's text, for which $?, $_ and pipestatus are unchanged.
__ais_b() {
  __ais_t=
  if [[ -o verbose ]]; then builtin set +v; __ais_t="\\builtin \\set -v\${__ais_X:+};"; fi
  if [[ $__ais_X == on ]]; then
    if [[ ${(t)PS4} == *readonly* ]]; then __ais_4=$PS4; else __ais_4=$PS4 PS4=; fi
    __ais_t+=" \\builtin \\set -x\${__ais_X:+};${__ais_I}\\__ais_l $2 \"\$__ais_y\"&&\\builtin :"
    __ais_t="{ $__ais_t; } 2>/dev/null;"
  else
    __ais_t+="${__ais_I}\\__ais_s $2 \"\$__ais_y\"&&\\builtin :;"
  fi
  if (( ! $2 )); then __ais_t=${__ais_t/&&\\builtin :;/;}; fi
  if [[ $__ais_t == *'set -v'* ]]; then __ais_t="{ ${__ais_t%;}; } 2>/dev/null;"; fi
  # If a brace is an alias, our code cannot be hidden.
  if [[ -n ${aliases[\{]-}${aliases[\}]-} ]]; then __ais_t=${${__ais_t//\{ /}//; \} 2>\/dev\/null/}; fi
  if [[ -n $__ais_R ]]; then builtin unalias "$__ais_R"; fi
  __ais_X=off __ais_j= __ais_k= __ais_l=0 __ais_le=. __ais_r= __ais_R= __ais_T=
  __ais_V=${${ZSH_DEBUG_CMD=}:+}
  builtin printf -v __ais_r %s "$1"
  if [[ -o allexport ]]; then builtin typeset -gm +x '__ais_*' ZSH_DEBUG_CMD; fi
  builtin printf '%s\e]7777;@N@;C;%s;%s\a' "$3" "$1" "${EPOCHREALTIME-}" >/dev/tty || { __ais_r=; builtin return 1; }
}

# Makes the next line run command $1 as if it had been typed there; evaluated in a file, the jobs that it starts would
# be numbered from 4 on. It is an alias, because that is text of its line. The prompt of that line is not reported. $2:
# the status before, $3: the code before the text, $4: the text and the code after it, $5: whether it has a title.
__ais_n() {
  builtin emulate -L zsh
  builtin local before="${__ais_I}\\__ais_s $2 \"\$__ais_y\""
  if (( $2 )); then before+='&&\builtin :'; fi
  if [[ -n $5 ]]; then builtin printf '\e[A\r\e[2K' >/dev/tty; fi
  __ais_k=1 __ais_R=__ais_run$1
  builtin alias "$__ais_R=$3$before;$4"
}

# End of a command. Under ERR_EXIT, returning a status would end the shell.
__ais_e() {
  builtin local o="$-" z="$1"
  if [[ $__ais_X == on ]]; then o+=x; fi
  if [[ -o err_exit || -o err_return ]]; then z=0; fi
  # zsh's mark of a partial line would add a line of spaces to the log at each prompt.
  builtin unsetopt prompt_sp prompt_cr
  builtin setopt hist_ignore_space
  if [[ -o allexport ]]; then builtin typeset -g +x __ais_A __ais_E; fi
  builtin emulate -L zsh
  [[ -z $__ais_D ]] || builtin trap - DEBUG
  __ais_l=$1 __ais_k=1 __ais_le="$__ais_r;$1"
  __ais_at
  __ais_m "D;$__ais_r;$1;${EPOCHREALTIME-};$o;$__ais_W"
  __ais_r= __ais_A=
  __ais_I=
  if [[ $__ais_Q == *'|'* ]]; then __ais_I="\\__ais_s ${${__ais_Q%|*}//|/|\\__ais_s }|"; fi
  __ais_h
  builtin return $z
}

# Reports again what became of command $1: it ended, was aborted (with status $2, if known), or was never begun. For 0,
# reports that the line typed last has ended (with status $2, if known).
__ais_pr() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5" o="$__ais_6"
  __ais_at
  case $1 in
  0) __ais_le=${__ais_le:-.}; __ais_m "D;;$2;${EPOCHREALTIME-};$o;$__ais_W" ;;
  ${__ais_le%%;*}) __ais_m "D;$__ais_le;${EPOCHREALTIME-};$o;$__ais_W" ;;
  $__ais_r | $__ais_ab) __ais_m "D;$1;$2;${EPOCHREALTIME-};$o;$__ais_W" ;;
  *) if [[ -n ${__ais_le-} ]]; then __ais_ln; __ais_m "U;$1;$3"; else __ais_le="$1;"; __ais_m "D;$1;;;$o;"; fi ;;
  esac
  if [[ -n $__ais_R ]]; then builtin unalias "$__ais_R"; fi
  __ais_r= __ais_ab= __ais_R=
  __ais_h
  { } 3>|"$__ais_d/out/__ais_answered"
  builtin return $s
} 2>/dev/null

# First prompt hook. A command that is still open was aborted, and its end is reported here.
__ais_p() {
  builtin emulate -L "zsh${(e)__ais_1}${${__ais_w::=${__ais_k}${ZSH_DEBUG_CMD+false}}:+}" &&
    [[ ${__ais_w:-${(e)__ais_H}} == : ]] && builtin unsetopt localtraps && builtin trap >|"$__ais_d/out/trap" &&
    builtin trap - DEBUG && __ais_w=2
  builtin local s="$__ais_5" o="$__ais_6" typed=${(M)__ais_w:#2}
  [[ -z $__ais_D || -n $typed ]] || builtin trap - DEBUG
  if [[ $__ais_X == on ]]; then o+=x; fi
  __ais_l=$s
  if [[ -n $__ais_A ]]; then options[aliases]=$__ais_A __ais_A=; fi
  if [[ -n $__ais_r && $__ais_le == "$__ais_r;"* ]]; then
    # If its end could not be reported, its own status is known.
    s=${__ais_le#*;}
  elif [[ -n $__ais_r && -z $__ais_j && $s == 126 ]]; then
    # An error ended the file before the text began.
    __ais_m "U;$__ais_r"
    __ais_r=
  elif [[ -n $__ais_r ]]; then
    s=${__ais_j:-$s}
  fi
  if [[ -n $__ais_r ]]; then __ais_e $s; fi
  if [[ -z $__ais_k ]]; then __ais_at; __ais_m "A;;$s;${EPOCHREALTIME-};$o;$__ais_W"; fi
  __ais_k= __ais_X=off
  # A function does not give a trap back that was set in one.
  if [[ -n $typed ]]; then __ais_debug; builtin trap "$__ais_D" DEBUG; __ais_D=; fi
  builtin return $s
} 2>/dev/null
__ais_pe() { builtin emulate -L "zsh${(e)__ais_0}"; __ais_T=${${ZSH_DEBUG_CMD=}:+}; __ais_m P; } 2>/dev/null

# Also the last prompt hook, because other hooks may have replaced ours.
__ais_h() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5"
  # Without these builtins a command would not run, and seem to have failed.
  builtin enable eval printf trap return set local false
  # One that another hook has just set is not ours, and stays.
  if [[ -n $__ais_D ]]; then
    __ais_Z=n
    [[ $__ais_Z == n ]] || builtin trap - DEBUG
  fi
  # A read-only hook cannot be changed; then only our own commands are reported.
  if [[ ${(t)precmd_functions} == *readonly* ]]; then
    :
  elif [[ $precmd_functions[1] != __ais_p || $precmd_functions[-1] != __ais_h ]]; then
    precmd_functions=(__ais_p ${${precmd_functions:#__ais_p}:#__ais_h} __ais_h)
  fi
  if [[ ${(t)preexec_functions} != *readonly* && $preexec_functions[-1] != __ais_pe ]]; then
    preexec_functions=(${preexec_functions:#__ais_pe} __ais_pe)
  fi
  if [[ ${(t)zshexit_functions} != *readonly* && $zshexit_functions[-1] != __ais_x ]]; then
    zshexit_functions=(${zshexit_functions:#__ais_x} __ais_x)
  fi
  # Not in PS1: an exported prompt would carry the nonce to children.
  if [[ ${widgets[zle-line-init]-} != user:__ais_li ]]; then
    if [[ -n ${widgets[zle-line-init]-} ]]; then builtin zle -A zle-line-init __ais_prior; fi
    builtin zle -N zle-line-init __ais_li
  fi
  # The key at the beginning of the trigger; otherwise the command mode of vi would take the trigger for commands.
  builtin bindkey '^^' kill-whole-line
  builtin bindkey -M vicmd '^^' vi-change-whole-line
  builtin zle -N __ais_a
  builtin bindkey '\e[7777z' __ais_a
  builtin bindkey -M vicmd '\e[7777z' __ais_a
  # Without the line editor the last prompt hook comes right before the prompt.
  if [[ ! -o zle && $#funcstack == 1 && -z $__ais_R ]]; then __ais_m B; fi
  builtin return $s
} 2>/dev/null
# Reports that the line editor is ready. The person's own hook runs first, and may call this one.
__ais_li() {
  builtin : "${(e)__ais_0}"
  if [[ -n $__ais_i ]]; then builtin return; fi
  __ais_i=1
  if [[ -n ${widgets[__ais_prior]-} ]]; then builtin zle __ais_prior -- "$@"; fi
  __ais_i=
  case $CONTEXT$__ais_R in start) __ais_m B ;; cont) __ais_m L ;; esac
} 2>/dev/null

# Answers whether this is the prompt, because a command that reads may use the line editor, too.
__ais_a() { if [[ $CONTEXT == start ]]; then __ais_m 'Q;p'; __ais_m B; fi; } 2>/dev/null

# Saves the state for the next shell.
__ais_w() {
  builtin emulate -L zsh
  (
    builtin unsetopt err_exit err_return xtrace
    builtin setopt unset
    builtin umask 077
    __ais_at
    builtin unset -f -m '__ais_*' TRAPDEBUG
    builtin typeset +x TERM SHLVL PWD OLDPWD TMUX TMUX_PANE COLUMNS LINES
    builtin typeset -m +x 'AI_SESSION_*' '__ais_*'
    {
      builtin printf 'builtin cd -- %q\n' "$__ais_w"
      builtin export -p
      # They may be why the shell executed nothing.
      if [[ ! -e $__ais_d/silenced ]]; then builtin functions; builtin alias -L; fi
      builtin printf '# end of state\n'
    } >|"$__ais_d/out/state"
  )
  builtin :
} 2>/dev/null

# Prints the last mark once, however the shell ends.
__ais_x() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5"
  if (( ZSH_SUBSHELL )) || [[ -n $__ais_g ]]; then builtin return; fi
  __ais_g=1
  if [[ -z ${1-} ]]; then __ais_w; fi
  __ais_at
  __ais_m "X;$__ais_r;${1:-$s};${EPOCHREALTIME-};;$__ais_W"
} 2>/dev/null

# An end by set -e runs only the EXIT trap, other ends also zshexit_functions. The person's own trap is run from ours.
# This is evaluated outside of any function, where such a trap belongs to the shell.
# If files may not grow, writing the first byte would end the shell.
__ais_c='if [[ $(builtin ulimit -f) != 0 ]] && builtin trap >|"$__ais_d/out/trap" && __ais_u; then
  builtin trap '\''__ais_l=$?${(e)__ais_0}; __ais_w; if (( __ais_l )); then __ais_s "$__ais_l" || builtin eval "$__ais_v"
    else builtin :; builtin eval "$__ais_v"; fi; __ais_x "$__ais_l"'\'' EXIT
fi'
# Sets v to the person's EXIT trap, and fails if ours is set.
__ais_u() {
  builtin emulate -L zsh
  builtin local text line own=0
  text=$(<"$__ais_d/out/trap")
  if [[ $text == *__ais_x* ]]; then own=1; else __ais_v=; fi
  for line in ${(f)text}; do
    case $line in
    *__ais_*) ;;
    'trap -- '*' EXIT') line=${line% EXIT}; builtin eval "__ais_v=${line#trap -- }" ;;
    esac
  done
  builtin return $own
} 2>/dev/null
# Sets D to our DEBUG trap, and fails if the person has none.
__ais_debug() {
  builtin emulate -L zsh
  builtin local line
  for line in ${(f)"$(<"$__ais_d/out/trap")"}; do
    case $line in
    'trap -- '*' DEBUG')
      line=${line% DEBUG}
      builtin eval "__ais_D=${line#trap -- }"
      if [[ $__ais_D != *__ais_* ]]; then __ais_D=$__ais_U$__ais_D$__ais_O; fi
      builtin return 0
      ;;
    esac
  done
  builtin return 1
} 2>/dev/null

builtin unsetopt prompt_sp prompt_cr
builtin setopt hist_ignore_space
builtin command -p stty -ixon </dev/tty 2>/dev/null || builtin :
__ais_h
builtin : "${ZSH_DEBUG_CMD=}"
builtin "${(e)__ais_K}" && builtin trap >|"$__ais_d/out/trap" && builtin trap - DEBUG && __ais_debug &&
  builtin trap "$__ais_D" DEBUG || builtin :
if [[ -n ${(M)funcstack:#__ais_late} ]]; then __ais_D=; fi
builtin eval "$__ais_c"
builtin : "${ZSH_DEBUG_CMD=}"
__ais_j= __ais_y= __ais_Q= __ais_V=
for __ais_w in ${=__ais_S}; do builtin setopt "$__ais_w"; done
if [[ -n $__ais_o ]]; then builtin setopt allexport; fi
if [[ -n $__ais_a ]]; then builtin setopt aliases; fi
__ais_m "R;$$;$ZSH_VERSION"
