# Reports to the terminal what this shell does. Read at the end of the session's .zshrc, and again when zsh was replaced
# by exec. @N@ is the session's nonce: it must reach no child, so nothing here may be exported.
if [[ -o aliases ]]; then __ais_a=1; else __ais_a=; fi
builtin unsetopt aliases
if [[ -o allexport ]]; then __ais_o=1; else __ais_o=; fi
builtin unsetopt allexport
# A start file may leave another language behind (emulate sh), which would not understand what follows.
__ais_S=
for __ais_w in ignorebraces ignoreclosebraces shglob cshjunkieloops cshjunkiequotes globassign cshnullglob; do
  if [[ -o $__ais_w ]]; then __ais_S="$__ais_S $__ais_w"; builtin unsetopt "$__ais_w"; fi
done
# d: the session's directory, f: its command file, r: sequence number of the command that runs, l: last status, k: its
# end was reported just now, i: our line editor hook runs, t: what comes before the text of a command, g: the exit was
# reported, le: the command that ended last and how, ab: the one that was open when this was read again, y: $_ for the
# next command, I: the pipeline that sets pipestatus for it. X: whether the person traces, 0: what switches that off, as
# an expansion, because these are not traced themselves: so PS4 is not evaluated for us. 1: the same, after $? and $- were
# kept in 5 and 6. 4: PS4 meanwhile. D: the
# person's DEBUG trap, which is run from ours, j: how the text ended, R: the alias that the next line is.
__ais_ab=${__ais_r-}
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_k= __ais_i= __ais_t= __ais_g=
__ais_y= __ais_I= __ais_X=off __ais_4= __ais_D= __ais_j= __ais_R=
__ais_0='${${${options[xtrace]:#off}:+${__ais_X::=on}}:+}${${options[xtrace]::=off}:+}'
__ais_A= __ais_B='${${options[aliases]::=${__ais_A:-$options[aliases]}}:+}'
__ais_1='${${__ais_5::=$?}:+}${${__ais_6::=$-}:+}'$__ais_0
builtin zmodload zsh/datetime 2>/dev/null
builtin enable printf eval return set trap local 2>/dev/null

# Where what was typed is lost, that key may have another meaning.
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
  # Read again because something does not work. A redirection that finds no descriptor closes the standard output.
  { builtin : >&1 } 2>/dev/null || builtin exec >/dev/tty
  { builtin : >&2 } 2>/dev/null || builtin exec 2>/dev/tty
  __ais_ln
fi

__ais_m() { builtin printf '\e]7777;@N@;%s\a' "$1" >/dev/tty; }
__ais_s() { builtin return "$1"; }
# The directory, in w and as it is reported in W. A text may use PWD for something else: then it is what the shell itself
# has noted.
__ais_at() {
  if [[ ${PWD-} -ef . ]]; then __ais_w=$PWD; else __ais_w=${(%):-%/}; fi
  __ais_W=${__ais_w//[[:cntrl:]]/?}
}

# The last command of a text that ends where it should: after the text $_ and pipestatus are those of the text itself.
# It succeeds, so that the evaluation does not fail once more.
__ais_q() {
  builtin emulate -L zsh
  builtin trap - DEBUG
  __ais_j=$1
  __ais_k "${@[2,-1]}"
}
# What the next command finds as $_ and pipestatus: $1 and the rest.
__ais_k() {
  builtin emulate -L zsh
  __ais_y=${1-} __ais_I=
  builtin local one
  for one in "${@[2,-2]}"; do __ais_I+="\\__ais_s $one|"; done
}
# The last thing before the text of a command that is traced.
__ais_l() {
  builtin emulate -L zsh +x
  PS4=$__ais_4
  builtin return $1
}

# Start of a command, which runs only where that could be noted and reported. What is traced or echoed is switched off for
# us and on again in front of the command's text, where $?, $_ and pipestatus are what they were.
__ais_b() {
  __ais_t=
  if [[ -o verbose ]]; then builtin set +v; __ais_t="\\builtin \\set -v;"; fi
  if [[ $__ais_X == on ]]; then
    if [[ ${(t)PS4} == *readonly* ]]; then __ais_4=$PS4; else __ais_4=$PS4 PS4=; fi
    __ais_t="{ $__ais_t \\builtin \\set -x;${__ais_I}\\__ais_l $2 \"\$__ais_y\"&&\\builtin :; } 2>/dev/null;"
  else
    __ais_t+="${__ais_I}\\__ais_s $2 \"\$__ais_y\"&&\\builtin :;"
  fi
  if (( ! $2 )); then __ais_t=${__ais_t/&&\\builtin :;/;}; fi
  if [[ $__ais_t == *'set -v'* ]]; then __ais_t="{ ${__ais_t%;}; } 2>/dev/null;"; fi
  # Where a brace is a name of the person's, what is ours cannot be hidden.
  if [[ -n ${aliases[\{]-}${aliases[\}]-} ]]; then __ais_t=${${__ais_t//\{ /}//; \} 2>\/dev\/null/}; fi
  if [[ -n $__ais_R ]]; then builtin unalias "$__ais_R"; fi
  __ais_X=off __ais_j= __ais_k= __ais_l=0 __ais_le=. __ais_r= __ais_R=
  builtin printf -v __ais_r %s "$1"
  if [[ -o allexport ]]; then builtin typeset -gm +x '__ais_*'; fi
  builtin printf '%s\e]7777;@N@;C;%s;%s\a' "$3" "$1" "${EPOCHREALTIME-}" >/dev/tty || { __ais_r=; builtin return 1; }
}

# Whether command $1 may begin, which the file $2 then shows.
__ais_bg() {
  if [[ "$__ais_r,$__ais_j" == "$1," ]] && { } 3>|"$2"; then builtin return 0; fi
  __ais_r=
  builtin return 1
}

# The next line runs command $1, as if it had been typed there: in a file, and evaluated, the jobs that it starts would be
# numbered from 4 on. An alias, because that is text of its line. That line's prompt is not reported. $2: the status
# before, $3: what comes before the text, $4: the text and what comes after it, $5: whether it has a title.
__ais_n() {
  builtin emulate -L zsh
  builtin local before="${__ais_I}\\__ais_s $2 \"\$__ais_y\""
  if (( $2 )); then before+='&&\builtin :'; fi
  if [[ -n $5 ]]; then builtin printf '\e[A\r\e[2K' >/dev/tty; fi
  __ais_k=1 __ais_R=__ais_run$1
  builtin alias "$__ais_R=$3$before;$4"
}

# End of a command. A status returned under ERR_EXIT would end the shell.
__ais_e() {
  builtin local o="$-" z="$1"
  if [[ $__ais_X == on ]]; then o+=x; fi
  if [[ -o err_exit || -o err_return ]]; then z=0; fi
  # The mark of a partial line would add a line of blanks to the log at each prompt.
  builtin unsetopt prompt_sp prompt_cr
  builtin setopt hist_ignore_space
  if [[ -o allexport ]]; then builtin typeset -g +x __ais_A __ais_E; fi
  builtin emulate -L zsh
  __ais_l=$1 __ais_k=1 __ais_le="$__ais_r;$1"
  __ais_at
  __ais_m "D;$__ais_r;$1;${EPOCHREALTIME-};$o;$__ais_W"
  __ais_r= __ais_A=
  if (( $# > 2 )); then __ais_k "${@[2,-1]}"; fi
  __ais_h
  builtin return $z
}

# What became of command $1, for who missed its end: it ended, was aborted (with $2, where that is known), or never begun.
# 0: the line typed last has ended (with $2, where that is known).
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

# First prompt hook. A command that is still open was aborted: its end is reported here.
__ais_p() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5" o="$__ais_6"
  if [[ $__ais_X == on ]]; then o+=x; fi
  __ais_l=$s
  if [[ -n $__ais_A ]]; then options[aliases]=$__ais_A __ais_A=; fi
  if [[ -n $__ais_r && $__ais_le == "$__ais_r;"* ]]; then
    # Where its end could not be reported, its own status is known.
    s=${__ais_le#*;}
  elif [[ -n $__ais_r && -z $__ais_j && $s == 126 ]]; then
    # The file was ended by an error before the text began.
    __ais_m "U;$__ais_r"
    __ais_r=
  elif [[ -n $__ais_r ]]; then
    s=${__ais_j:-$s}
  fi
  if [[ -n $__ais_r ]]; then __ais_e $s; fi
  if [[ -z $__ais_k ]]; then __ais_at; __ais_m "A;;$s;${EPOCHREALTIME-};$o;$__ais_W"; fi
  __ais_k= __ais_X=off
  builtin return $s
} 2>/dev/null
__ais_pe() { builtin emulate -L "zsh${(e)__ais_0}"; __ais_m P; } 2>/dev/null

# Also the last prompt hook: others may have replaced ours.
__ais_h() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5"
  # Without them a command would not run, and seem to have failed.
  builtin enable eval printf trap return set local
  # What must not change cannot be hooked: then only commands of ours are reported.
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
  # What the trigger starts with; in the command mode of vi it would be eaten otherwise.
  builtin bindkey '^^' kill-whole-line
  builtin bindkey -M vicmd '^^' vi-change-whole-line
  builtin zle -N __ais_a
  builtin bindkey '\e[7777z' __ais_a
  builtin bindkey -M vicmd '\e[7777z' __ais_a
  # Without the line editor the last prompt hook comes right before the prompt.
  if [[ ! -o zle && $#funcstack == 1 && -z $__ais_R ]]; then __ais_m B; fi
  builtin return $s
} 2>/dev/null
# The line editor is ready. A hook of the person's own runs first; it may call us in turn.
__ais_li() {
  builtin : "${(e)__ais_0}"
  if [[ -n $__ais_i ]]; then builtin return; fi
  __ais_i=1
  if [[ -n ${widgets[__ais_prior]-} ]]; then builtin zle __ais_prior -- "$@"; fi
  __ais_i=
  case $CONTEXT$__ais_R in start) __ais_m B ;; cont) __ais_m L ;; esac
} 2>/dev/null

# Asked whether this is the prompt: a command that reads may have the line editor, too.
__ais_a() { if [[ $CONTEXT == start ]]; then __ais_m 'Q;p'; __ais_m B; fi; } 2>/dev/null

# What a next shell takes over.
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

# The last mark; once, by whatever way the shell ends.
__ais_x() {
  builtin emulate -L "zsh${(e)__ais_1}"
  builtin local s="$__ais_5"
  if (( ZSH_SUBSHELL )) || [[ -n $__ais_g ]]; then builtin return; fi
  __ais_g=1
  if [[ -z ${1-} ]]; then __ais_w; fi
  __ais_at
  __ais_m "X;$__ais_r;${1:-$s};${EPOCHREALTIME-};;$__ais_W"
} 2>/dev/null

# The end by set -e runs only the EXIT trap, the others also zshexit_functions. The person's own trap is run from ours.
# To be evaluated outside of any function, where such a trap belongs to the shell.
# Where no file may grow, the first byte would end the shell.
__ais_c='if [[ $(builtin ulimit -f) != 0 ]] && builtin trap >|"$__ais_d/out/trap" && __ais_u; then
  builtin trap '\''__ais_l=$?${(e)__ais_0}; __ais_w; if (( __ais_l )); then __ais_s "$__ais_l" || builtin eval "$__ais_v"
    else builtin :; builtin eval "$__ais_v"; fi; __ais_x "$__ais_l"'\'' EXIT
fi
if [[ -n $__ais_D ]]; then builtin trap "$__ais_D" DEBUG; __ais_D=; fi
if [[ -n ${functions[TRAPDEBUG]-} && $functions[TRAPDEBUG] != *__ais_* ]]; then
  functions[TRAPDEBUG]="case \"\$ZSH_DEBUG_CMD\${funcstack[*]}\" in *__ais_*) ;; *)
$functions[TRAPDEBUG]
;; esac"
fi'
__ais_u() {
  builtin emulate -L zsh
  builtin trap - DEBUG
  builtin local text line own=0
  text=$(<"$__ais_d/out/trap")
  if [[ $text == *__ais_x* ]]; then own=1; else __ais_v=; fi
  for line in ${(f)text}; do
    case $line in
    *__ais_*) ;;
    'trap -- '*' EXIT') line=${line% EXIT}; builtin eval "__ais_v=${line#trap -- }" ;;
    'trap -- '*' DEBUG')
      line=${line% DEBUG}
      builtin eval "__ais_D=${line#trap -- }"
      __ais_D='case "$ZSH_DEBUG_CMD${funcstack[*]}" in *__ais_*) ;; *)'$'\n'$__ais_D$'\n'';; esac'
      ;;
    esac
  done
  builtin return $own
} 2>/dev/null

builtin unsetopt prompt_sp prompt_cr
builtin setopt hist_ignore_space
builtin command -p stty -ixon </dev/tty 2>/dev/null || builtin :
__ais_h
builtin eval "$__ais_c"
for __ais_w in ${=__ais_S}; do builtin setopt "$__ais_w"; done
if [[ -n $__ais_o ]]; then builtin setopt allexport; fi
if [[ -n $__ais_a ]]; then builtin setopt aliases; fi
__ais_m "R;$$;$ZSH_VERSION"
