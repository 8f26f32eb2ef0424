# Reports to the terminal what this shell does. Read at the end of the session's start file, and again when bash was
# replaced by exec. @N@ is the session's nonce: it must reach no child, so nothing here may be exported.
# Aliases must be off: what is defined below would keep them.
if \builtin shopt -q expand_aliases; then __ais_A=1; else __ais_A=; fi
\builtin shopt -u expand_aliases
case $- in *a*) builtin set +a; __ais_a=1 ;; *) __ais_a= ;; esac
# d: the session's directory, f: its command file, r: sequence number of the command that runs, l: last status, k: its
# end was reported just now, j: the first prompt hook ran, u: the person's EXIT trap, le: the command that ended last
# and how, ab: the one that was open when this was read again, A: aliases were on. y: $_ for the next command, i: what
# assigns PIPESTATUS for it, I: the pipeline that does, c: its text, then its alias, where it runs as if typed, J: how a
# text ended, Y: its PIPESTATUS. X: tracing is on, and off for us. 4: PS4 at the prompt, 5: PS4 when we took over, 9:
# the expression that takes it away: expansions are not traced, so the person's PS4 is evaluated neither for the trigger
# nor for us. z: always empty. g: traps may have changed, T: what the last prompt hook evaluates, D: the person's DEBUG
# trap, which is run from ours, W: what sets that, C: the mark of the prompt, B: the same where it is to be shown. M:
# expands to how many lines have begun, N: that and how many there are in the history, with one that is not complete, at
# the prompt.
__ais_ab=${__ais_r-}
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_k= __ais_j= __ais_u=
__ais_y= __ais_i=0 __ais_I= __ais_c= __ais_X= __ais_4= __ais_9=0 __ais_z= __ais_g=1 __ais_T= __ais_D= __ais_W=
__ais_M='\#' __ais_N=
# What is known of one that was open stays known.
if [[ ! $__ais_ab ]]; then __ais_J=; fi
builtin unset __ais_5
__ais_H='2>"/dev/null${__ais_z##${__ais_5=${PS4-}}}${__ais_z:__ais_9}"'
__ais_C=$'\e]7777;@N@;B\a'
__ais_B=$'\e]7777;@N@;B\a' __ais_P=$'\e]7777;@N@;P\a' __ais_L=$'\e]7777;@N@;L\a'
# PS1, PS2 and PS0 name variables, so that an exported prompt carries no nonce to children.
if builtin shopt -q promptvars; then
  __ais_1='\[${__ais_B-}\]' __ais_2='\[${__ais_L-}\]' __ais_0='${__ais_P-}'
else
  __ais_1=$'\\[\e]7777;@N@;B\a\\]' __ais_2=$'\\[\e]7777;@N@;L\a\\]' __ais_0=$__ais_P
fi
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 501)); then __ais_v=1; else __ais_v=; fi

# Where what was typed is lost, that key may have another meaning.
__ais_enter() {
  for __ais_w in emacs vi-insert vi-command; do builtin bind -m "$__ais_w" '"\C-j": accept-line'; done
} 2>/dev/null

if [[ ${__ais_n-} ]]; then
  builtin unset __ais_n
  __ais_le=0
  if [[ -r $__ais_d/out/state ]]; then
    # Aliases, which are off, would be expanded once more in every restored function.
    builtin . "$__ais_d/out/state" 2>/dev/null || builtin :
    if [[ ${AI_SESSION_CWD-} ]]; then builtin cd -- "$AI_SESSION_CWD" 2>/dev/null || builtin :; fi
  fi
else
  # Read again because something does not work.
  builtin enable printf eval return trap set read history bind . source unset [ 2>/dev/null || builtin :
  __ais_enter
  if [[ $(builtin history 1 2>/dev/null) == *"$__ais_d/integration"* ]]; then
    builtin history -d -1
  fi
fi

__ais_m() { builtin printf '\e]7777;@N@;%s\a' "$1" >/dev/tty; }
__ais_s() { builtin return "$1"; }
# The directory, in w. A text may use PWD for something else: then it is what the shell itself has noted, if anything.
__ais_at() {
  __ais_w=${PWD-}
  if [[ ! $__ais_w -ef . ]]; then
    __ais_w=${DIRSTACK[0]-}
    __ais_w=${__ais_w/#\~/"${HOME-}"}
  fi
}
# Under set -e a hook that returns the last status would end the shell.
__ais_z() { case $- in *e*) builtin return 0 ;; esac; builtin return "$__ais_l"; }

# From here on nothing is traced, and PS4 is the person's again.
__ais_off() {
  case $- in *x*) builtin set +x; __ais_X=1 ;; esac
  if [[ $__ais_9 != 0 ]]; then PS4=${__ais_5-$__ais_4}; fi
  builtin unset __ais_5
  __ais_9=0
}
# What is traced from here on until the next group with __ais_H is the person's.
__ais_on() {
  if [[ ${PS4@a} != *r* ]]; then __ais_4=${PS4-} __ais_9='PS4=0'; fi
  __ais_X=
  case $- in *a*) builtin export -n "${!__ais_@}" ;; esac
}
# The last thing before the text of a command that is traced.
__ais_last() {
  builtin local -
  builtin set +x
  if [[ $__ais_9 != 0 ]]; then PS4=$__ais_4; fi
  builtin return "$1"
}

# Another bash reads the text in the file $1, which is in w, too, without executing it: where it finds no end, there is
# nothing to evaluate.
__ais_look() { BASH_ENV= "$BASH" -O extglob -n <"$1" || case $? in 2) __ais_w= __ais_J=2 ;; esac; }

# Functions that call others of ours lift the person's limit of nested calls.

# Start of a command, when tracing is on or it runs as if typed.
__ais_b() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  __ais_off
  builtin set +v
  __ais_r=$1 __ais_X= __ais_B=$__ais_C
  case $- in *a*) builtin export -n "${!__ais_@}" ;; esac
  builtin printf '%s\e]7777;@N@;C;%s;%s\a' "$2" "$1" "${EPOCHREALTIME-}" >/dev/tty
}

# What the next command finds as $_ and PIPESTATUS: $1 and the rest.
__ais_keep() {
  case $# in 2) __ais_y=$1 __ais_i=PIPESTATUS[0]=$2 __ais_I= && builtin return ;; esac
  __ais_y=${1-} __ais_i=0 __ais_I= __ais_w=0
  for __ais_o in "${@:2}"; do
    __ais_i+=",PIPESTATUS[$__ais_w]=$__ais_o" __ais_I+="|(\\builtin exit \"$__ais_o\$__ais_z\")" __ais_w=$((__ais_w + 1))
  done
  if ((__ais_w < 2)); then __ais_I=; fi
}

# Whether a brace is a name of the person's, and opens no group.
__ais_braced() { builtin alias "{" || builtin alias "}"; } >/dev/null 2>&1

# The next line runs the text $1 as command $2, as if it had been typed there: an alias is text of its line. That line's
# prompt is not reported. $3: the status before, $4: the title, $5: what switches tracing on, $6: what looks for traps, $7:
# what notes that the text is begun. An alias of its own for each: what was run is never run again.
__ais_a() {
  __ais_k=1 __ais_B= __ais_X= __ais_w=
  if [[ $4 ]]; then builtin printf '\e[A\r\e[2K' >/dev/tty; fi
  if ! builtin shopt -q expand_aliases; then
    builtin shopt -s expand_aliases
    __ais_w='\builtin shopt -u expand_aliases $__ais_z;'
  fi
  # One group: bash reads on in an alias that is not read to its end when a text evaluated meanwhile ends too early.
  builtin local open='{ ' close='; }' quiet='2>"/dev/null${__ais_z:__ais_9}"' last=" $__ais_H"
  case ${BASH_XTRACEFD-} in '' | *[!0-9]*) ;; *) quiet+=" $BASH_XTRACEFD>/dev/null" last+=" $BASH_XTRACEFD>/dev/null" ;; esac
  if __ais_braced; then open= close= quiet= last=; fi
  __ais_w="$open${__ais_w}\\__ais_b $2 ${4@Q};$7;\\__ais_on"$'\n'
  case $5:$3:$__ais_I in
  x:0:*) __ais_w+="$open\\builtin set -x\$__ais_z;\\__ais_last 0 \"\$__ais_y\"$close $quiet" ;;
  x:*) __ais_w+="$open\\builtin set -x\$__ais_z;\\__ais_last $3 \"\$__ais_y\"&&\\builtin :$close $quiet" ;;
  :0:) __ais_w+='\builtin : "$__ais_y"' ;;
  :0:*) __ais_w+="\\builtin : \"\$__ais_y\";${__ais_I#|}" ;;
  :*:) __ais_w+="\\__ais_s $3 \"\$__ais_y\"&&\\builtin :" ;;
  *) __ais_w+="\\builtin : \"\$__ais_y\";${__ais_I#|}&&\\builtin :" ;;
  esac
  __ais_w+=$'\n'$1$'\n'"$open"'\__ais_e "$?" "$_" "${PIPESTATUS[@]}"&&\builtin : "$__ais_z"'"$close$last"$'\n'
  __ais_c=__ais_run$2
  builtin alias "$__ais_c=$__ais_w${6:+$6&&\\builtin : \"\$__ais_z\"$'\n'}${open:+\}}"
}

# End of a command. Command files call it as a plain word: after a failed eval bash no longer knows { or if there. What
# comes after the status is kept for the next command; without that, what a text that ends where it should has left: after
# it $_ would be the text itself. Nothing is reported where something cannot be assigned.
__ais_e() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # A trace may go anywhere, and would show what is printed.
  case $-$__ais_9 in *x* | *=*) __ais_off ;; esac
  __ais_o=$__ais_J __ais_J=$__ais_J
  __ais_at
  __ais_le="$__ais_r;$1"
  builtin printf '\e]7777;@N@;D;%s;%s;%s;%s;%s\a' \
    "$__ais_r" "$1" "${EPOCHREALTIME-}" "${__ais_X:+x}$-" "${__ais_w//[[:cntrl:]]/?}" >/dev/tty
  __ais_l=$1 __ais_r= __ais_J= __ais_k=1 __ais_B=$__ais_C
  if [[ ${2+x} ]]; then __ais_keep "${@:2}"; elif [[ $__ais_o ]]; then builtin eval "__ais_keep \"\$__ais_y\" $__ais_Y"; fi
  if [[ ${PROMPT_COMMAND[7777]-} != *__ais_q* ]]; then __ais_h; fi
  __ais_z
}

# What became of command $1, for who missed its end: it ended, was aborted (with $2, where that is known), or never begun.
# 0: the line typed last has ended (with $2, where that is known).
__ais_pr() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  3>|"$__ais_d/out/__ais_answered"
  __ais_off
  __ais_at
  __ais_B=$__ais_C
  case $1 in
  0) __ais_l=${2:-0} __ais_le=${__ais_le:-.}; __ais_m "D;;$2;${EPOCHREALTIME-};${__ais_X:+x}$-;${__ais_w//[[:cntrl:]]/?}" ;;
  "${__ais_le%%;*}") __ais_m "D;$__ais_le;${EPOCHREALTIME-};$-;${__ais_w//[[:cntrl:]]/?}" ;;
  "$__ais_r" | "$__ais_ab") __ais_m "D;$1;${__ais_J:-$2};${EPOCHREALTIME-};$-;${__ais_w//[[:cntrl:]]/?}" ;;
  *) if [[ ${__ais_le-} ]]; then __ais_enter; __ais_m "U;$1;$3"; else __ais_le="$1;"; __ais_m "D;$1;;;$-;"; fi ;;
  esac
  __ais_r= __ais_ab= __ais_J=
  __ais_h
  __ais_z
}

# First prompt hook. A command that is still open was aborted: its end is reported here. The status is that of the line,
# or $3; $1 and $2 are the line's $_ and PIPESTATUS.
__ais_p() {
  __ais_l=$?
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # The last hook was not reached: one of ours failed, and bash begins them anew until none does.
  builtin local again="${__ais_j-}"
  __ais_j=1
  if [[ $again ]]; then builtin declare -g +i "${!__ais_@}"; fi
  case $-$__ais_9 in *x* | *=*) __ais_off ;; esac
  if [[ $__ais_r && (! $again || $__ais_J) ]]; then __ais_e "${__ais_J:-$__ais_l}" "$@"; __ais_t; fi
  if [[ $__ais_k ]]; then
    __ais_k=
  else
    __ais_at
    __ais_m "A;;$__ais_l;${EPOCHREALTIME-};${__ais_X:+x}$-;${__ais_w//[[:cntrl:]]/?}"
    __ais_keep "$@"
    __ais_t
  fi
  __ais_z
}

# Last prompt hook: others before it may have replaced the first one or built the prompt anew. What it leaves to be
# evaluated after it looks for traps, which no function sees, and switches tracing on again.
__ais_q() {
  __ais_w=$?
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  if [[ ! $__ais_j ]]; then
    if ((!__ais_w)); then __ais_p || builtin :; else __ais_s "$__ais_w" || __ais_p || builtin :; fi
  fi
  __ais_T= __ais_N=${__ais_M@P}:${HISTCMD-}
  __ais_h
  __ais_j=
  if [[ $__ais_B && $__ais_c ]]; then
    builtin unalias "$__ais_c"
    __ais_c=
  fi
  case $- in *a*) builtin export -n "${!__ais_@}" ;; esac
  if [[ $__ais_g ]]; then
    __ais_g= __ais_T='\builtin trap -p DEBUG >|"$__ais_d/out/debug";\builtin trap -p ERR >|"$__ais_d/out/err";__ais_traps
\builtin eval "$__ais_W"'
  fi
  if [[ $__ais_X ]]; then
    __ais_on
    __ais_T+=$'\n\\builtin set -x$__ais_z'
  fi
}

# With one of those traps commands run as if typed, which the prompt's mark says: evaluated, more of them would fail.
# The DEBUG trap is run for what is not ours.
__ais_traps() {
  __ais_o= __ais_w=
  if [[ -s $__ais_d/out/err ]]; then IFS= builtin read -r __ais_o <"$__ais_d/out/err" || builtin :; fi
  IFS= builtin read -r -d '' __ais_w <"$__ais_d/out/debug" || builtin :
  # What is no trap, as the POSIX mode shows it.
  if [[ $__ais_o == 'trap -- - '* ]]; then __ais_o=; fi
  if [[ $__ais_w == 'trap -- - '* ]]; then __ais_w=; fi
  __ais_W= __ais_C=$'\e]7777;@N@;B\a'
  if [[ $__ais_w || $__ais_o ]]; then __ais_C=$'\e]7777;@N@;B;t\a'; fi
  __ais_B=$__ais_C
  if [[ $__ais_w && $__ais_w != *'*__ais_*)'* ]]; then
    __ais_w=${__ais_w#trap -- }
    builtin eval "__ais_D=${__ais_w% DEBUG*}"
    __ais_D='case ${FUNCNAME-}$BASH_COMMAND in *__ais_*) ;; *)'$'\n'$__ais_D$'\n'';; esac'
    __ais_W='\builtin trap "$__ais_D" DEBUG'
  fi
}

__ais_h() {
  # Without them a command would not run, and seem to have failed.
  \enable builtin eval printf [ . return
  builtin local -
  builtin set +u
  # As numbers, or in capitals, they would not say what they are to.
  case ${PS0@a}${PS1@a}${PS2@a}${PROMPT_COMMAND@a}${HISTCONTROL@a} in
  *[iucl]*) builtin declare -g +i +u +c +l PS0 PS1 PS2 PROMPT_COMMAND HISTCONTROL 2>/dev/null || builtin : ;;
  esac
  if [[ ${PS1@a} != *r* && ${PS1-} != *"$__ais_1"* ]]; then PS1=${PS1-}$__ais_1; fi
  if [[ ${PS2@a} != *r* && ${PS2-} != *"$__ais_2"* ]]; then PS2=${PS2-}$__ais_2; fi
  if [[ ${PS0@a} != *r* && ${PS0-} != *"$__ais_0"* ]]; then PS0=$__ais_0${PS0-}; fi
  case ${HISTCONTROL@a}${HISTCONTROL-} in
  *ignorespace* | *ignoreboth* | r*) ;;
  *) HISTCONTROL=ignorespace${HISTCONTROL:+:$HISTCONTROL} ;;
  esac
  # What must not change cannot be hooked: then only commands of ours are reported.
  case ${PROMPT_COMMAND@a} in *r*) builtin return 0 ;; esac
  __ais_o='__ais_p "$_" "${PIPESTATUS[@]}"&&\builtin : "$__ais_z"'
  # Keeps set -x quiet.
  if [[ $__ais_X ]] && ! __ais_braced; then
    __ais_o="{ $__ais_o; } $__ais_H"
    case ${BASH_XTRACEFD-} in '' | *[!0-9]*) ;; *) __ais_o+=" $BASH_XTRACEFD>/dev/null" ;; esac
  fi
  if [[ ${PROMPT_COMMAND[0]-} != "$__ais_o"$'\n'* ]]; then
    __ais_w=${PROMPT_COMMAND[0]-}
    case $__ais_w in __[aA][iI][sS]_[pP]' '*$'\n'* | '{ '__[aA][iI][sS]_[pP]' '*$'\n'*) __ais_w=${__ais_w#*$'\n'} ;; esac
    PROMPT_COMMAND[0]=$__ais_o$'\n'${__ais_w//__[aA][iI][sS]_[pPqQ]/:}
  fi
  __ais_o=$'__ais_q\n\\builtin eval "$__ais_T"'
  if [[ $__ais_v ]]; then
    PROMPT_COMMAND[0]=${PROMPT_COMMAND[0]%$'\n'"$__ais_o"}
    PROMPT_COMMAND[7777]=$__ais_o
  elif [[ ${PROMPT_COMMAND[0]} != *"$__ais_o" ]]; then
    PROMPT_COMMAND[0]+=$'\n'$__ais_o
  fi
}

# The person's own EXIT trap is run from ours. Without a fork, but 160 us: not done after every command.
__ais_t() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # Where no file may grow, the first byte would end the shell.
  if [[ $(builtin ulimit -f) == 0 ]]; then __ais_z; builtin return; fi
  __ais_g=1
  if builtin trap -p EXIT >|"$__ais_d/out/trap"; then
    IFS= builtin read -r -d '' __ais_w <"$__ais_d/out/trap" || builtin :
    if [[ $__ais_w != *__ais_x* ]]; then
      if [[ $__ais_w == *'7777;@N@;X'* || $__ais_w == 'trap -- - '* ]]; then __ais_w=; fi
      __ais_w=${__ais_w#trap -- }
      builtin eval "__ais_u=${__ais_w% EXIT*}"
      builtin trap '{ __ais_l=$?; __ais_off; __ais_x || builtin :; } '"$__ais_H"'
        if [[ $__ais_X && $__ais_u ]]; then builtin set -x; fi
        if [[ $__ais_l != 0 ]]; then __ais_s "$__ais_l" || builtin eval "$__ais_u"
        else builtin :; builtin eval "$__ais_u"; fi
        { __ais_y; } 2>/dev/null' EXIT
    fi
  fi
  __ais_z
} 2>/dev/null

# What a next shell takes over. A subshell, because the functions of the integration are taken out first.
__ais_x() {
  (
    builtin set +eux
    builtin trap - ERR DEBUG RETURN
    builtin umask 077
    __ais_at
    builtin unset -f __ais_m __ais_s __ais_z __ais_b __ais_e __ais_pr __ais_p __ais_q __ais_h __ais_t __ais_x __ais_y
    builtin unset -f __ais_a __ais_look __ais_braced __ais_ask __ais_at __ais_enter __ais_off __ais_on __ais_last __ais_keep __ais_traps
    if [[ $__ais_c ]]; then builtin unalias "$__ais_c"; fi
    builtin export -n TERM SHLVL PWD OLDPWD TMUX TMUX_PANE COLUMNS LINES "${!AI_SESSION_@}" "${!__ais_@}"
    {
      builtin printf 'builtin cd -- %q\n' "$__ais_w"
      builtin export -p
      # They may be why the shell executed nothing.
      if [[ ! -e $__ais_d/silenced ]]; then builtin declare -f; builtin declare -Fx; builtin alias -p; fi
      builtin printf '# end of state\n'
    } >|"$__ais_d/out/state"
  ) 2>/dev/null
}
__ais_y() { __ais_at; __ais_m "X;$__ais_r;$__ais_l;${EPOCHREALTIME-};${__ais_X:+x}$-;${__ais_w//[[:cntrl:]]/?}"; } 2>/dev/null

# What the trigger starts with: ^U would ring the bell on an empty line, and vi's command mode would eat the trigger.
for __ais_w in emacs vi-insert; do builtin bind -m "$__ais_w" '"\C-^": kill-whole-line'; done 2>/dev/null
builtin bind -m vi-command '"\C-^": "S"' 2>/dev/null || builtin :
# A letter that `stty` made the key that erases would otherwise do so in the trigger.
builtin bind 'set bind-tty-special-chars off' 2>/dev/null || builtin :
# Asked whether this is the prompt: no line that a command reads with the line editor is read outside of all files, or
# while a text runs as if typed, and since our last prompt hook no line has begun to run, or not been completed. A
# function, because bash may be in the middle of parsing such a line.
__ais_ask() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  if [[ ${BASH_SOURCE[1]-} || ($__ais_c && $__ais_r) ]]; then builtin return; fi
  case ${__ais_M@P}:${HISTCMD-} in "$__ais_N") __ais_m 'Q;p' ;; *) __ais_m Q ;; esac
} 2>/dev/null
for __ais_o in emacs vi-insert vi-command; do builtin bind -m "$__ais_o" -x '"\e[7777z": __ais_ask'; done 2>/dev/null
# A PS0 that interrupts each line keeps all of them from being executed, but no key.
for __ais_o in emacs vi-insert vi-command; do builtin bind -m "$__ais_o" -x '"\e[7777y": PS0=$__ais_0'; done 2>/dev/null
builtin command -p stty -ixon </dev/tty 2>/dev/null || builtin :
# An evaluation in a file is not interactive: what `exec` does not find would end the shell.
builtin shopt -s execfail
__ais_h
__ais_t
case $__ais_a in 1) builtin set -a ;; esac
if [[ $__ais_A ]]; then builtin shopt -s expand_aliases; fi
__ais_m "R;$$;$BASH_VERSION"
