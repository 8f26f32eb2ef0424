# Reports to the terminal what this shell does. Read at the end of the session's start file, and again after exec
# replaced bash. @N@ is the session's nonce, which must not reach a child, so nothing here may be exported. Aliases must
# be off, or the functions below would contain them.
if \builtin shopt -q expand_aliases; then __ais_A=1; else __ais_A=; fi
\builtin shopt -u expand_aliases
case $- in *a*) builtin set +a; __ais_a=1 ;; *) __ais_a= ;; esac
# The variables, all with the prefix __ais_: d: the session's directory, f: its command file, r: sequence number of the
# running command, l: last status, k: its end was just reported, j: a prompt hook has not come to its end, u: the
# person's EXIT trap, le: the command that ended last and its status, ab: the command that was open when
# this file was read again, A: aliases were on. y: $_ for the next command, i: the assignment of PIPESTATUS for it, I:
# the pipeline that sets PIPESTATUS, c: the text of a command that runs as if typed, then its alias, J: the status of a
# text, Y: its PIPESTATUS. X: tracing is on, but off for us. 4: PS4 at the prompt, 5: PS4 when our code began, 9: the
# expression that removes it: expansions are not traced, so the person's PS4 is evaluated neither for the trigger nor
# for us. z: always empty. g: traps may have changed, T: what the last prompt hook evaluates, D: the person's DEBUG
# trap, which ours runs, W: the command that sets ours, V: the same, as long as there is one, U: empties when ours runs,
# G, S, F: commands that look for traps, O: has x and the last word of a hook after which no other DEBUG trap ran, C: the
# mark of the prompt, B: the same if it is to be shown. M: expands to the number of lines begun, N: at the prompt, that
# number and the number of lines in the history, including an incomplete one.
__ais_ab=${__ais_r-}
__ais_d=@DIR@ __ais_f=@DIR@/c __ais_r= __ais_l=0 __ais_k= __ais_j= __ais_u=
__ais_y= __ais_i=0 __ais_I= __ais_c= __ais_X= __ais_4= __ais_9=0 __ais_z= __ais_g=1 __ais_T=
__ais_D= __ais_W= __ais_V= __ais_U=
__ais_M='\#' __ais_N=
# The status of a command that was open, if it is known, is kept.
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

# bash puts a DEBUG trap back after a file, also if a command in the file took it away. A command file therefore sets it
# again first, and if ours does not run at its end, notes here, outside of functions, whether there still is one.
__ais_G='\__ais_t&&\builtin :;\builtin [ "$__ais_g" ]&&__ais_g=2&&\builtin trap -p DEBUG >|"$__ais_d/out/gone"'
__ais_S='__ais_j=1;\builtin [ "$__ais_g" ]&&\builtin trap -p DEBUG >|"$__ais_d/out/debug"&&\builtin trap -p ERR >|"$__ais_d/out/err"'
__ais_S+='&&__ais_g=&&__ais_traps&&\builtin eval "$__ais_W";__ais_j='
__ais_F="__ais_t&&\\builtin :;$__ais_S"$'\n'
builtin unset __ais_O
builtin declare -gA __ais_O
__ais_O[x__ais_q]=

# If typed input was lost, that key may have another meaning.
__ais_enter() {
  for __ais_w in emacs vi-insert vi-command; do builtin bind -m "$__ais_w" '"\C-j": accept-line'; done
} 2>/dev/null

if [[ ${__ais_n-} ]]; then
  builtin unset __ais_n
  __ais_le=0
  if [[ -r $__ais_d/out/state ]]; then
    # Aliases are off, or they would be expanded once more in every restored function.
    builtin . "$__ais_d/out/state" 2>/dev/null || builtin :
    if [[ ${AI_SESSION_CWD-} ]]; then builtin cd -- "$AI_SESSION_CWD" 2>/dev/null || builtin :; fi
  fi
else
  # This file is read again because something does not work.
  builtin enable printf eval return trap set read history bind . source unset [ 2>/dev/null || builtin :
  __ais_enter
  if [[ $(builtin history 1 2>/dev/null) == *"$__ais_d/integration"* ]]; then
    builtin history -d -1
  fi
fi

__ais_m() { builtin printf '\e]7777;@N@;%s\a' "$1" >/dev/tty; }
__ais_s() { builtin return "$1"; }
# Sets w to the directory. If a command uses PWD for another purpose, it is the one in the directory stack, if any.
__ais_at() {
  __ais_w=${PWD-}
  if [[ ! $__ais_w -ef . ]]; then
    __ais_w=${DIRSTACK[0]-}
    __ais_w=${__ais_w/#\~/"${HOME-}"}
  fi
}
# Under set -e a hook that returns the last status would end the shell.
__ais_z() { case $- in *e*) builtin return 0 ;; esac; builtin return "$__ais_l"; }

# Ends tracing, and restores the person's PS4.
__ais_off() {
  case $- in *x*) builtin set +x; __ais_X=1 ;; esac
  if [[ $__ais_9 != 0 ]]; then PS4=${__ais_5-$__ais_4}; fi
  builtin unset __ais_5
  __ais_9=0
}
# Everything traced after this, until the next group with __ais_H, is the person's.
__ais_on() {
  if [[ ${PS4@a} != *r* ]]; then __ais_4=${PS4-} __ais_9='PS4=0'; fi
  __ais_X=
  case $- in *a*) builtin export -n "${!__ais_@}" ;; esac
}
# The last call before the text of a traced command.
__ais_last() {
  builtin local -
  builtin set +x
  if [[ $__ais_9 != 0 ]]; then PS4=$__ais_4; fi
  builtin return "$1"
}

# Has another bash read the text in the file $1, which is also in w, without executing it. If the text is incomplete,
# nothing is evaluated.
__ais_look() { BASH_ENV= "$BASH" -O extglob -n <"$1" || case $? in 2) __ais_w= __ais_J=2 ;; esac; }

# Functions that call others of ours lift the person's limit on nested calls.

# Start of a command, when tracing is on or it runs as if typed.
__ais_b() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  __ais_off
  builtin set +v
  __ais_r=$1 __ais_X= __ais_B=$__ais_C
  case $- in *a*) builtin export -n "${!__ais_@}" ;; esac
  builtin printf '%s\e]7777;@N@;C;%s;%s\a' "$2" "$1" "${EPOCHREALTIME-}" >/dev/tty
}

# Stores what the next command finds as $_ ($1) and PIPESTATUS (the rest).
__ais_keep() {
  case $# in 2) __ais_y=$1 __ais_i=PIPESTATUS[0]=$2 __ais_I= && builtin return ;; esac
  __ais_y=${1-} __ais_i=0 __ais_I= __ais_w=0
  for __ais_o in "${@:2}"; do
    __ais_i+=",PIPESTATUS[$__ais_w]=$__ais_o" __ais_I+="|(\\builtin exit \"$__ais_o\$__ais_z\")" __ais_w=$((__ais_w + 1))
  done
  if ((__ais_w < 2)); then __ais_I=; fi
}

# Reports whether a brace is an alias, and so does not open a group.
__ais_braced() { builtin alias "{" || builtin alias "}"; } >/dev/null 2>&1

# Makes the next line run the text $1 as command $2, as if it had been typed there, because an alias is text of its
# line. The prompt of that line is not reported. $3: the status before, $4: the title, $5: the flags that switch tracing
# on, $6: the command that looks for traps, $7: the one that records the beginning of the text. Each command has an
# alias of its own, so that none is run twice.
__ais_a() {
  __ais_k=1 __ais_B= __ais_X= __ais_w=
  if [[ $4 ]]; then builtin printf '\e[A\r\e[2K' >/dev/tty; fi
  if ! builtin shopt -q expand_aliases; then
    builtin shopt -s expand_aliases
    __ais_w='\builtin shopt -u expand_aliases $__ais_z;'
  fi
  # One group, because bash continues within an alias that it has not read completely if an evaluated text is
  # incomplete.
  builtin local open='{ ' close='; }' quiet='2>"/dev/null${__ais_z:__ais_9}"' last=" $__ais_H"
  case ${BASH_XTRACEFD-} in '' | *[!0-9]*) ;; *) quiet+=" $BASH_XTRACEFD>/dev/null" last+=" $BASH_XTRACEFD>/dev/null" ;; esac
  if __ais_braced; then open= close= quiet= last=; fi
  __ais_w="$open${__ais_w}\\__ais_b $2 ${4@Q};\\__ais_on;$7"$'\n'
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

# End of a command. Command files call it as a plain word, because after a failed eval bash does not accept { or if
# there. The arguments after the status are stored for the next command; without them, what a complete text has stored,
# because $_ would be the text itself. Nothing is reported if a variable cannot be assigned.
__ais_e() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # A trace may be written anywhere, and would show the mark.
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

# Reports again what became of command $1: it ended, was aborted (with status $2, if known), or was never begun. For 0,
# reports that the line typed last has ended (with status $2, if known).
__ais_pr() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  __ais_off
  __ais_at
  __ais_B=$__ais_C
  case $1 in
  0) __ais_l=${2:-0} __ais_le=${__ais_le:-.}; __ais_m "D;;$2;${EPOCHREALTIME-};${__ais_X:+x}$-;${__ais_w//[[:cntrl:]]/?}" ;;
  "${__ais_le%%;*}") __ais_m "D;$__ais_le;${EPOCHREALTIME-};$-;${__ais_w//[[:cntrl:]]/?}" ;;
  "$__ais_r" | "$__ais_ab") __ais_m "D;$1;${__ais_J:-$2};${EPOCHREALTIME-};$-;${__ais_w//[[:cntrl:]]/?}" ;;
  *) if [[ ${__ais_le-} ]]; then __ais_enter; __ais_m "U;$1;$3"; else __ais_le="$1;"; __ais_m "D;$1;;;$-;"; fi ;;
  esac
  3>|"$__ais_d/out/__ais_answered"
  __ais_r= __ais_ab= __ais_J=
  __ais_h
  __ais_z
}

# First prompt hook. A command that is still open was aborted, and its end is reported here. $1 is the line's $_, the
# rest its PIPESTATUS.
__ais_p() {
  __ais_l=$?
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # The last hook was not reached: one of ours failed, and bash starts them again until none fails.
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

# Last prompt hook: earlier hooks may have replaced the first one or the prompt. The text in T, which is evaluated after
# it, looks for traps, which functions do not see, and switches tracing on again.
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
    __ais_T=$__ais_S
    if [[ $__ais_g == 2 ]]; then
      IFS= builtin read -r -d '' __ais_o <"$__ais_d/out/gone" || builtin :
      # In POSIX mode, the second means that there is no trap.
      case $__ais_o in '' | 'trap -- - '*) __ais_T='\builtin trap - DEBUG $__ais_z'$'\n'$__ais_T ;; esac
    fi
  fi
  if [[ $__ais_X ]]; then
    __ais_on
    __ais_T+=$'\n\\builtin set -x$__ais_z'
  fi
}

# With one of those traps, which the mark of the prompt reports, commands run as if typed; evaluated, more of them would
# fail. The DEBUG trap is run for all commands that are not ours.
__ais_traps() {
  __ais_o= __ais_w=
  if [[ -s $__ais_d/out/err ]]; then IFS= builtin read -r __ais_o <"$__ais_d/out/err" || builtin :; fi
  IFS= builtin read -r -d '' __ais_w <"$__ais_d/out/debug" || builtin :
  # In POSIX mode, this means that there is no trap.
  if [[ $__ais_o == 'trap -- - '* ]]; then __ais_o=; fi
  if [[ $__ais_w == 'trap -- - '* ]]; then __ais_w=; fi
  __ais_W= __ais_V= __ais_C=$'\e]7777;@N@;B\a'
  if [[ $__ais_w || $__ais_o ]]; then __ais_C=$'\e]7777;@N@;B;t\a'; fi
  __ais_B=$__ais_C
  if [[ $__ais_w ]]; then
    __ais_V='\builtin trap "$__ais_D" DEBUG'
    __ais_w=${__ais_w#trap -- }
    builtin eval "__ais_D=${__ais_w% DEBUG*}"
    if [[ $__ais_w != *'*__ais_*)'* ]]; then
      __ais_W=$__ais_V
      __ais_D='case ${FUNCNAME-}$BASH_COMMAND in *__ais_U*) __ais_U= ;; *__ais_*) ;; *)'$'\n'$__ais_D$'\n'';; esac'
    fi
  fi
}

__ais_h() {
  # Without these builtins a command would not run, and seem to have failed.
  \enable builtin eval printf [ . return
  builtin local -
  builtin set +u
  # With these attributes they would be numbers, or in other letters.
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
  # A read-only PROMPT_COMMAND cannot be changed; then only our own commands are reported.
  case ${PROMPT_COMMAND@a} in *r*) builtin return 0 ;; esac
  __ais_o='__ais_p "$_" "${PIPESTATUS[@]}"&&\builtin : "$__ais_z"'
  # This keeps `set -x` quiet.
  if [[ $__ais_X ]] && ! __ais_braced; then
    __ais_o="{ $__ais_o; } $__ais_H"
    case ${BASH_XTRACEFD-} in '' | *[!0-9]*) ;; *) __ais_o+=" $BASH_XTRACEFD>/dev/null" ;; esac
  fi
  if [[ ${PROMPT_COMMAND[0]-} != "$__ais_o"$'\n'* ]]; then
    __ais_w=${PROMPT_COMMAND[0]-}
    case $__ais_w in __[aA][iI][sS]_[pP]' '*$'\n'* | '{ '__[aA][iI][sS]_[pP]' '*$'\n'*) __ais_w=${__ais_w#*$'\n'} ;; esac
    PROMPT_COMMAND[0]=$__ais_o$'\n'${__ais_w//__[aA][iI][sS]_[pPqQ]/:}
  fi
  # After a DEBUG trap that is not ours, $_ is another one, and traps are looked for.
  __ais_o=$'__ais_q\n\\builtin eval "${__ais_O[x$_]-$__ais_F}$__ais_T"'
  if [[ $__ais_v ]]; then
    PROMPT_COMMAND[0]=${PROMPT_COMMAND[0]%$'\n'"$__ais_o"}
    PROMPT_COMMAND[7777]=$__ais_o
  elif [[ ${PROMPT_COMMAND[0]} != *"$__ais_o" ]]; then
    PROMPT_COMMAND[0]+=$'\n'$__ais_o
  fi
}

# The person's own EXIT trap is run from ours. This takes no fork, but 160 µs, so it is not done after every command.
__ais_t() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  # If files may not grow, writing the first byte would end the shell.
  if [[ $(builtin ulimit -f) == 0 ]]; then __ais_z; builtin return; fi
  __ais_g=${__ais_g:-1}
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

# Saves the state for the next shell, in a subshell, because the functions of the integration are removed first.
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

# The key at the beginning of the trigger: ^U would ring the bell on an empty line, and vi's command mode would take the
# trigger for commands.
for __ais_w in emacs vi-insert; do builtin bind -m "$__ais_w" '"\C-^": kill-whole-line'; done 2>/dev/null
builtin bind -m vi-command '"\C-^": "S"' 2>/dev/null || builtin :
# Otherwise a letter that `stty` made the erase key would erase in the trigger.
builtin bind 'set bind-tty-special-chars off' 2>/dev/null || builtin :
# The answer to whether this is the prompt. It is not one if bash is in a file, or if a text runs as if typed: then a
# command reads with the line editor; nor if a line has begun to run, or is incomplete, since our last prompt hook. It
# is a function, because bash may be in the middle of parsing such a line.
__ais_ask() {
  case ${FUNCNEST-}$__ais_z in ?*) builtin local FUNCNEST=0 2>/dev/null || builtin : ;; esac
  if [[ ${BASH_SOURCE[1]-} || ($__ais_c && $__ais_r) ]]; then builtin return; fi
  case ${__ais_M@P}:${HISTCMD-} in "$__ais_N") __ais_m 'Q;p' ;; *) __ais_m Q ;; esac
} 2>/dev/null
for __ais_o in emacs vi-insert vi-command; do builtin bind -m "$__ais_o" -x '"\e[7777z": __ais_ask'; done 2>/dev/null
# A PS0 that interrupts each line keeps lines from being executed, but not keys.
for __ais_o in emacs vi-insert vi-command; do builtin bind -m "$__ais_o" -x '"\e[7777y": PS0=$__ais_0'; done 2>/dev/null
builtin command -p stty -ixon </dev/tty 2>/dev/null || builtin :
# An evaluation in a file is not interactive, so an `exec` that finds no program would end the shell.
builtin shopt -s execfail
__ais_h
__ais_t
case $__ais_a in 1) builtin set -a ;; esac
if [[ $__ais_A ]]; then builtin shopt -s expand_aliases; fi
__ais_m "R;$$;$BASH_VERSION"
